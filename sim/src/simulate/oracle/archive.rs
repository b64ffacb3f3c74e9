//! The archive: all durable records, folded as they arrive, for the predicates.

use std::collections::{BTreeMap, BTreeSet};

use subtend_invariants::{Coverage, Frame, Ledger, Observed, Verdict, View, World};
use subtend_journal::engine::{GroupFrame, Payload};
use subtend_session::ids::{RunKey, RunNo, Seq, SessionId};
use subtend_session::index::Row;
use subtend_session::place::{BranchKind, Place};
use subtend_session::record::Record;
use subtend_session::state::{Owned, State};

use crate::simulate::oracle::ClosedRun;
use crate::simulate::oracle::observer::{CancelAsked, Cancels, PendingObservations};
use crate::simulate::tally::Verb;

#[derive(Default)]
pub(crate) struct Archive(BTreeMap<SessionId, ArchivedSession>, BTreeSet<SessionId>);

struct ArchivedSession {
    records: Vec<Record>,
    frames: Vec<Frame>,
    state: State,
}

impl Archive {
    /// Adds a frame.
    /// # Errors
    /// The reason why the frame's records do not fold.
    pub(crate) fn keep(&mut self, placed: &GroupFrame) -> Result<(), String> {
        let Payload::Records(records) = &placed.payload else { return Ok(()) };
        let frame = Frame { first_seq: placed.first_seq, count: placed.count, epoch: placed.epoch };
        if let Some(kept) = self.0.get_mut(&placed.session) {
            records.iter().try_for_each(|record| kept.state.follow(record)).map_err(|error| error.to_string())?;
            kept.records.extend(records.iter().cloned());
            kept.frames.push(frame);
            return Ok(());
        }
        let state = State::fold(placed.session, records).map_err(|error| error.to_string())?;
        self.0.insert(placed.session, ArchivedSession { records: records.clone(), frames: vec![frame], state });
        Ok(())
    }

    pub(crate) fn deleted(&self) -> BTreeSet<SessionId> {
        let is_deleted = |session| self.state(session).is_some_and(|state| state.deleted);
        self.0.keys().copied().filter(|session| self.self_and_ancestors(*session).any(is_deleted)).collect()
    }

    fn is_removed(&self, session: SessionId) -> bool {
        self.1.contains(&session) || self.state(session).is_some_and(|state| state.deleted)
    }

    pub(crate) fn self_and_ancestors(&self, session: SessionId) -> impl Iterator<Item = SessionId> {
        let parent = |at: &SessionId| self.state(*at).and_then(|state| state.created.place.parent());
        std::iter::successors(Some(session), parent)
    }

    pub(crate) fn erase(&mut self, erased: &BTreeSet<SessionId>) {
        self.0.retain(|session, _| !erased.contains(session));
        self.1.extend(erased);
    }

    pub(crate) fn erased(&self) -> &BTreeSet<SessionId> {
        &self.1
    }

    pub(crate) fn state(&self, session: SessionId) -> Option<&State> {
        self.0.get(&session).map(|kept| &kept.state)
    }

    /// Returns sessions on which a request has an effect. A random session seldom qualifies.
    pub(crate) fn likely_targets(&self, verb: Verb) -> Vec<SessionId> {
        let fits = |state: &State| match verb {
            Verb::Switch => !state.alternatives.is_empty(),
            Verb::RollBack => state.run.is_none() && last_failed_run(state).is_some(),
            Verb::Close => state.created.place.parent().is_some(),
            Verb::Background | Verb::Interrupt => blocking_runs(state).next().is_some(),
            Verb::Open
            | Verb::Send
            | Verb::Steer
            | Verb::Override
            | Verb::Continue
            | Verb::Cancel
            | Verb::CancelRun
            | Verb::CancelTree
            | Verb::Delete
            | Verb::DeleteForced
            | Verb::Queue
            | Verb::QueueRemove
            | Verb::QueueClear
            | Verb::Branch
            | Verb::Regenerate
            | Verb::Summarise
            | Verb::Detach
            | Verb::Answer
            | Verb::Look
            | Verb::Wait
            | Verb::Crash
            | Verb::Shutdown
            | Verb::ClockJump => false,
        };
        self.0.iter().filter(|(_, kept)| fits(&kept.state)).map(|(session, _)| *session).collect()
    }

    /// Returns whether a session or an ancestor is a service: it has no permissions, whichever agent answers.
    pub(crate) fn is_service(&self, session: SessionId) -> bool {
        let mut at = self.state(session);
        while let Some(state) = at {
            if matches!(state.created.place, Place::Child { kind: BranchKind::Service, .. }) {
                return true;
            }
            at = state.created.place.parent().and_then(|parent| self.state(parent));
        }
        false
    }

    pub(crate) fn records(&self, session: SessionId) -> &[Record] {
        self.0.get(&session).map_or(&[], |kept| &kept.records)
    }

    pub(crate) fn record(&self, session: SessionId, seq: Seq) -> Option<&Record> {
        let at = usize::try_from(seq.0).ok()?.checked_sub(1)?;
        self.0.get(&session)?.records.get(at)
    }

    pub(crate) fn in_flight_below(&self, root: SessionId) -> BTreeSet<RunKey> {
        let below = self
            .0
            .iter()
            .filter(|(session, kept)| **session != root && kept.state.created.place.root(**session) == root);
        below
            .filter_map(|(session, kept)| Some(RunKey { session: *session, run: kept.state.run.as_ref()?.no }))
            .collect()
    }

    pub(crate) fn is_in_flight(&self, key: RunKey) -> bool {
        let run = self.state(key.session).and_then(|state| state.run.as_ref());
        run.is_some_and(|run| run.no == key.run)
    }

    pub(crate) fn roots(&self) -> impl Iterator<Item = SessionId> {
        self.0.iter().filter(|(_, kept)| kept.state.created.place.parent().is_none()).map(|(session, _)| *session)
    }

    pub(crate) fn judge(
        &self,
        rows: &BTreeSet<Row>,
        (observed, observer): (&Observed, &PendingObservations),
        ledger: Ledger,
        (coverage, at_rest): (&Coverage, bool),
    ) -> Verdict {
        let views = self.0.iter().map(|(session, kept)| {
            let view = View {
                records: &kept.records,
                frames: &kept.frames,
                state: Some(observer.live(*session, kept.records.len()).unwrap_or(&kept.state)),
                folded: Some(&kept.state),
                activation: None,
            };
            (*session, view)
        });
        let world =
            World::new(views, rows, Some(&ledger), true).without(self.1.iter().copied()).with_observations(observed);
        coverage.judge(&world, at_rest)
    }

    /// Returns the runs that people cancelled, according to the requests rather than the outcomes.
    pub(crate) fn cancelled(&self, requests: &[CancelAsked], over: &BTreeMap<RunKey, ClosedRun>) -> BTreeSet<RunKey> {
        let applies = |key: &RunKey, over: &ClosedRun| {
            requests.iter().filter(|request| request.at <= over.at).any(|request| match request.what {
                Cancels::Session => request.session == key.session,
                Cancels::Run(run) => (request.session, run) == (key.session, key.run),
                Cancels::Tree => self.self_and_ancestors(key.session).any(|above| above == request.session),
                Cancels::Deletion => {
                    self.is_removed(request.session)
                        && self.self_and_ancestors(key.session).any(|above| above == request.session)
                }
            })
        };
        over.iter().filter(|(key, over)| applies(key, over)).map(|(key, _)| *key).collect()
    }
}

/// Returns owned runs for which an open call of the run in flight waits.
pub(crate) fn blocking_runs(state: &State) -> impl Iterator<Item = &Owned> {
    let owned = state.run.iter().flat_map(|run| &run.owned);
    owned.filter(|(key, _)| state.is_open(**key)).map(|(_, owned)| owned)
}

/// Returns the last run that did not complete, which can be rolled back.
pub(crate) fn last_failed_run(state: &State) -> Option<RunNo> {
    state.message_ranges.iter().rev().find(|(_, stretch)| !stretch.hidden).map(|(run, _)| *run)
}
