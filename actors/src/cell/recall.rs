//! Results that a session no longer keeps but its model reads again. They are read from the journals of the children.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use subtend_journal::{ReadError, Stored};
use subtend_session::call::CallKind;
use subtend_session::command::Command;
use subtend_session::ids::{CallId, RunNo, Seq, SessionId, Text};
use subtend_session::record::Record;
use subtend_session::state::CallPhase;

use crate::calls::in_flight::Parsed;
use crate::cell::cells::Cells;
use crate::cell::driver::Driver;

/// Maximum bytes of records that are read for the calls of one answer, and one frame more.
const MAX_READ: u64 = 8 << 20;
/// What a read counts at least, so that there are few of them too.
const MIN_READ: u64 = 4 << 10;
/// Maximum number of records of a read.
const MAX_PAGE: u64 = 64;

impl Driver {
    /// Loads the results that calls of an answer or of a new activation may read again, up to the size of one result.
    /// Reads each one once, and a bounded number of bytes: records of a child can be large although its result is small.
    pub(crate) fn recall(&mut self, command: &Command) {
        let mut wanted = Wanted::default();
        if let Command::ModelAnswered(answer) = command {
            for (call, ix) in answer.calls.iter().zip(0_u32..) {
                self.add_recalled(&call.kind, CallId { turn: answer.turn, ix }, &mut wanted);
            }
        } else if let Command::Reactivated { calls, .. } = command {
            for found in calls {
                let unstarted = self.state.call(found.call).filter(|call| call.phase == CallPhase::Unstarted);
                if unstarted.is_some() {
                    self.add_recalled(&found.kind, found.call, &mut wanted);
                }
            }
        } else {
            return;
        }
        let mut remaining = usize::try_from(self.state.limits.notices_bytes).unwrap_or(usize::MAX);
        let (mut recalled, mut readable) = (BTreeMap::new(), MAX_READ);
        for job in wanted.jobs {
            let dropped_text = self.state.children.get(&job).and_then(|child| child.dropped_text());
            let Some(run) = dropped_text.and_then(|given| given.run).filter(|_| remaining > 0) else { continue };
            match self.cells.answer_of(job, run, &mut readable) {
                Ok(text) => {
                    remaining = remaining.saturating_sub(text.as_ref().map_or(0, |text| text.len()));
                    recalled.extend(text.map(|text| (job, text)));
                }
                Err(error) => tracing::warn!(session = %self.session(), %job, %error, "cannot read a result again"),
            }
        }
        self.state.recalled = recalled;
    }

    fn add_recalled(&self, kind: &CallKind, call: CallId, wanted: &mut Wanted) {
        if let CallKind::Check { run, .. } = kind {
            wanted.add(run.session);
        } else if let (CallKind::Await { .. }, Some(Parsed::Await(jobs))) = (kind, self.work.ready.get(&call)) {
            jobs.resolve(&self.state).into_iter().for_each(|job| wanted.add(job));
        }
    }
}

/// Jobs in the order in which calls name them, each once.
#[derive(Default)]
struct Wanted {
    jobs: Vec<SessionId>,
    known: BTreeSet<SessionId>,
}

impl Wanted {
    fn add(&mut self, job: SessionId) {
        if self.known.insert(job) {
            self.jobs.push(job);
        }
    }
}

impl Cells {
    /// Returns the text of the end of `run` of `session`. Searches backwards, first in the last frame, and subtracts what it
    /// reads from `readable`.
    fn answer_of(&self, session: SessionId, run: RunNo, readable: &mut u64) -> Result<Option<Text>, ReadError> {
        let head = self.log.journal.head(session)?.filter(|head| !head.deleted);
        let Some(mut until) = head.map(|head| head.last_seq.next()) else { return Ok(None) };
        let mut count = 1;
        while until > Seq(1) && *readable > 0 {
            let (page, bytes) = self.log.journal.page_before(session, until, count, *readable)?;
            *readable = readable.saturating_sub(bytes.max(MIN_READ));
            let found = page.iter().rev().find_map(|Stored { record, .. }| {
                let Record::RunEnded(ended) = record else { return None };
                (ended.run == run).then(|| ended.text.as_ref().map(Arc::clone))
            });
            if let Some(text) = found {
                return Ok(text);
            }
            let Some(first) = page.first() else { break };
            until = first.seq;
            count = count.saturating_mul(4).min(MAX_PAGE);
        }
        Ok(None)
    }
}
