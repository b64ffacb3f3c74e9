//! The commit: appends the decisions of a session to the journal.

use std::collections::{HashSet, VecDeque};

use subtend_journal::{AppendError, Batch, Frame};
use subtend_session::effect::NewSession;
use subtend_session::ids::{Lsn, Seq};
use subtend_session::index::Before;
use subtend_session::record::Record;
use subtend_session::state::State;

use crate::cell::driver::{Driver, Halted, Pending};
use crate::cell::slots::queue_limit;
use crate::delivery::directory::NewChild;
use crate::delivery::inbox::Listed;
use crate::faults::{InternalEvent, Point};
use crate::observe::counters::Counters;
use crate::observe::publisher::{self, ShownRecords};
use crate::observe::streams::Ends;
use crate::services::running::ServiceSignal;

impl Driver {
    /// Commits the decisions as one frame, with new children in the same batch, then performs the effects.
    pub(crate) async fn flush(&mut self) -> Result<(), Halted> {
        let mut pending = std::mem::take(&mut self.pending);
        let records = std::mem::take(&mut pending.records);
        if !records.is_empty() || self.written.unmarked {
            if self.cells.log.journal.pressure() {
                // The disk is behind: waiting here bounds the writer's queue.
                Box::pin(self.cells.log.journal.wait_for_room()).await;
            }
            let new_sessions = std::mem::take(&mut pending.new_sessions);
            let last = records.last().map_or("none", Record::kind);
            pending.new_children = self.commit(records, new_sessions)?;
            self.cells.host.faults.see(InternalEvent::Committed(&self.state));
            self.cells.host.faults.inject(Point::AfterAppend, last);
        }
        self.before = None;
        self.inbox.report_queued(if self.state.deleted { 0 } else { self.state.queue.len() });
        self.count_working_text();
        self.release(&mut pending);
        self.perform(pending).await;
        if self.left { Err(Halted::Over) } else { Ok(()) }
    }

    fn commit(&mut self, records: Vec<Record>, new_sessions: Vec<NewSession>) -> Result<VecDeque<NewChild>, Halted> {
        let now_ms = self.cells.host.clock.wall_ms();
        let first = Seq(self.state.next_seq.0.saturating_sub(records.len() as u64));
        let opens = records.iter().any(|record| matches!(record, Record::RunOpened(_)));
        let stamp = self.written.stamp(!records.is_empty(), opens, now_ms);
        let before = self.before.take().unwrap_or_default();
        let changes = self.cells.host.faults.changes(&before, &self.state, &records, stamp);
        let ends = Ends::of(&records);
        let signal = ServiceSignal::of(&self.state, &records);
        let counters = Counters::of(&records);
        let shown = self.cells.log.events.any().then(|| {
            let own = ShownRecords { session: self.state.id, first, records: records.clone() };
            let of_new = |new_session: &NewSession| ShownRecords {
                session: new_session.session,
                first: Seq(1),
                records: new_session.records.clone(),
            };
            std::iter::once(own).chain(new_sessions.iter().map(of_new)).collect()
        });
        let created = new_sessions.iter().map(|new_session| new_session.session).collect();
        let mut frames = Vec::with_capacity(new_sessions.len().saturating_add(1));
        frames.push(Frame {
            session: self.state.id,
            first_seq: first,
            epoch: self.written.epoch,
            at_ms: now_ms,
            records,
            changes,
        });
        let mut new_children = VecDeque::with_capacity(new_sessions.len());
        let mut fresh = HashSet::new();
        for (new_session, at) in new_sessions.into_iter().zip(1_u64..) {
            new_children.extend(fold(&new_session).map(|state| NewChild {
                session: new_session.session,
                queues: queue_limit(&state),
                state: Some(state),
                kept: None,
                lsn: Lsn(at),
                created_ms: now_ms,
            }));
            frames.push(self.cells.log.creation_frame(new_session, now_ms, &mut fresh));
        }
        let appended = self.cells.log.journal.append(Batch { frames }).map_err(|error| self.halt(&error))?;
        self.cells.log.has_defs(fresh);
        counters.iter().for_each(|batch| self.cells.log.count(batch));
        for new_child in &mut new_children {
            new_child.lsn = Lsn(appended.first.0.saturating_add(new_child.lsn.0));
        }
        if self.written.append(&appended, opens) {
            self.inbox.settle();
        }
        let (root, session) = (self.root(), self.state.id);
        self.cells.log.events.appended(publisher::PublishedBatch { root, session, at: appended, ends, created, shown });
        self.cells.services.apply(session, signal);
        Ok(new_children)
    }

    /// Takes back one counted start, so that three orderly shutdowns during a long call do not fail the run.
    pub(crate) fn undo_start_count(&mut self) {
        let counted = self.written.starts > 0 && !self.written.unmarked && !self.dormant && !self.left;
        // Dropping a runtime also stops its actors, but counts as a crash.
        if !counted || self.state.run.is_none() || !self.cells.life.stops_in_order() {
            return;
        }
        let starts = self.written.starts.saturating_sub(1);
        let previous = std::mem::replace(&mut self.written.starts, starts);
        self.before = Some(Before::of(&self.state));
        // If the journal refuses, the count remains one too high.
        if let Err(halted) = self.commit(Vec::new(), Vec::new()) {
            tracing::warn!(session = %self.session(), previous, ?halted, "cannot take back the start count of a run");
        }
    }

    fn halt(&mut self, error: &AppendError) -> Halted {
        match error {
            AppendError::Fenced { .. } | AppendError::SeqConflict { .. } => {
                tracing::error!(session = %self.session(), %error, "this activation is fenced and stops");
            }
            AppendError::Poisoned(_) | AppendError::Closed => {
                tracing::debug!(session = %self.session(), %error, "the journal accepts nothing more");
            }
            AppendError::TooLarge { .. } | AppendError::Full { .. } | AppendError::Encode { .. } => {
                tracing::error!(session = %self.session(), %error, "the journal refused a batch");
                return Halted::Refused(error.to_string());
            }
        }
        self.left = true;
        Halted::Over
    }

    /// Sends the replies of this batch once it is durable: no acknowledgement precedes its record.
    fn release(&self, pending: &mut Pending) {
        for (sender, mut probed) in pending.probes.drain(..) {
            probed.lsn = self.written.last_lsn;
            drop(sender.send(probed));
        }
        for (sender, entries) in pending.queues.drain(..) {
            drop(sender.send(Listed { lsn: self.written.last_lsn, entries }));
        }
        if pending.replies.is_empty() {
            return;
        }
        let replies = std::mem::take(&mut pending.replies);
        let (journal, lsn) = (self.cells.log.journal.clone(), self.written.last_lsn);
        if journal.is_durable(lsn) {
            for (reply, answer) in replies {
                drop(reply.send(answer));
            }
            return;
        }
        tokio::spawn(async move {
            if journal.wait(lsn).await.is_ok() {
                for (reply, answer) in replies {
                    drop(reply.send(answer));
                }
            }
        });
    }
}

/// Folds a child from its decided records, without reading the journal back.
fn fold(creation: &NewSession) -> Option<Box<State>> {
    match State::fold(creation.session, &creation.records) {
        Ok(state) => Some(Box::new(state)),
        Err(error) => {
            tracing::error!(session = %creation.session, %error, "the records of a new child cannot be folded; it starts from the journal");
            None
        }
    }
}
