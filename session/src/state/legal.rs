//! Checks which record may follow. The fold refuses journals with any other record.

use std::collections::BTreeSet;

use super::{Alternatives, Call, CallPhase, Child, Queued, Run, State, Turn};
use crate::call::CallEnd;
use crate::compaction;
use crate::ids::{AttemptNo, CallId, InputId, RunNo, SessionId, TurnNo};
use crate::index;
use crate::outcome::Initiator;
use crate::record::{
    CallFinished, Carrier, Compacted, ContinueAsked, Hold, NoticeTaken, Park, QueueChange, Record, RunOpened,
};

type Legality = Result<(), &'static str>;

fn ensure(holds: bool, why: &'static str) -> Legality {
    if holds { Ok(()) } else { Err(why) }
}

/// Returns whether `queue` has all of `ids`, which must differ, in less than quadratic time: imported records may have many.
fn are_all_in<'a>(ids: &[InputId], queue: impl IntoIterator<Item = &'a Queued>) -> bool {
    let mut queued = queue.into_iter().map(|queued| queued.input.id);
    // Most records name no input or one: without an allocation.
    if let [] | [_] = ids {
        return ids.iter().all(|id| queued.any(|queued| queued == *id));
    }
    let mut missing: BTreeSet<InputId> = ids.iter().copied().collect();
    let differ = missing.len() == ids.len();
    differ && (missing.is_empty() || queued.any(|id| missing.remove(&id) && missing.is_empty()))
}

impl State {
    /// Checks that `record` may follow.
    /// # Errors
    /// The reason why the record may not follow.
    pub(crate) fn check_record(&self, record: &Record) -> Legality {
        match record {
            Record::SessionCreated(_) => Err("a session is created once"),
            Record::RunOpened(opened) => self.check_run_open(opened),
            Record::RunStarted { run, .. } => ensure(!self.in_flight(*run)?.started, "the run was started before"),
            Record::InputAccepted(input) => {
                ensure(!self.closed && !self.deleted, "the session is closed or deleted")?;
                ensure(self.accepted.binary_search(&input.id).is_err(), "the input was accepted before")
            }
            Record::InputsTaken { ids, run, .. } => {
                let run = self.started_run(*run)?;
                let are_queued = are_all_in(ids, self.queue.iter().chain(&run.waiting));
                ensure(!ids.is_empty() && are_queued, "it names an input that is not queued")
            }
            Record::QueueChanged { change: QueueChange::Removed(ids), .. } => {
                ensure(are_all_in(ids, &self.queue), "it names an input that is not queued")
            }
            Record::QueueChanged { change: QueueChange::Cleared, .. } => Ok(()),
            Record::TurnStarted { run, turn, attempt, .. } => self.check_turn_start(*run, *turn, *attempt),
            Record::AttemptDiscarded(discarded) => self.check_awaited_attempt(discarded.turn, discarded.attempt),
            Record::TurnAnswered(answered) => {
                self.in_flight(answered.run)?;
                self.check_awaited_attempt(answered.turn, answered.attempt)
            }
            Record::CallStarted { call, .. } => ensure(self.check_call(*call, false)?, "the call started before"),
            Record::CallFinished(finished) => self.check_call_finish(finished),
            Record::ChildSpawned(spawned) => {
                ensure(self.check_call(spawned.call, true)?, "its call did not start")?;
                ensure(!self.children.contains_key(&spawned.child), "the child was created before")
            }
            Record::ContinueAsked(request) => self.check_continue(request),
            Record::ContinueRefused { owner, key, .. } => {
                let known = self.accepted.binary_search(&index::continue_input(*owner, *key));
                ensure(known.is_err(), "the row was answered before")
            }
            Record::AskAnswered { call, .. } => {
                let is_asked = |call: &Call| matches!(call.phase, CallPhase::Asked(_));
                ensure(self.call(*call).is_some_and(is_asked), "the call has no open ask")
            }
            Record::BranchCreated(created) => {
                ensure(!self.children.contains_key(&created.child), "the child was created before")
            }
            Record::AlternativeSwitched { of, to, .. } => {
                let known = |of: &Alternatives| *to as usize <= of.branches.len();
                ensure(self.alternatives.get(of).is_some_and(known), "the alternative does not exist")
            }
            Record::RolledBack { run, .. } => {
                ensure(!self.deleted, "the session is deleted")?;
                ensure(self.run.is_none(), "a run is in flight")?;
                let is_visible = self.message_ranges.get(run).is_some_and(|stretch| !stretch.hidden);
                ensure(is_visible, "the run does not exist, completed, or was rolled back before")
            }
            Record::Compacted(compacted) => self.check_compact(compacted),
            Record::CompactionFailed(failed) => self.check_awaited_compaction(failed.turn, failed.attempt),
            Record::CompactionUndone { .. } => {
                ensure(!self.deleted, "the session is deleted")?;
                ensure(self.run.is_none(), "a run is in flight")?;
                ensure(!self.compactions.is_empty(), "nothing is compacted")
            }
            Record::TitleSet(set) => {
                ensure(!self.deleted, "the session is deleted")?;
                ensure(set.by == Initiator::Person || !self.is_titled(), "the session has a title")?;
                set.of.map_or(Ok(()), |of| self.check_describe(of))
            }
            Record::SummarySet(set) => {
                ensure(!self.deleted, "the session is deleted")?;
                self.check_describe(set.of)
            }
            Record::MetadataSet(_) => ensure(!self.deleted, "the session is deleted"),
            Record::SessionDeleted { .. } => self.check_empty(),
            Record::CancelAsked { key, .. } => ensure(
                self.run.as_ref().is_some_and(|run| run.owned.contains_key(key)),
                "the run does not own a run by that key",
            ),
            Record::RunParked { run, why, .. } => {
                let run = self.started_run(*run)?;
                ensure(run.hold.is_none() && run.parked != Some(*why), "the run waits for that, or is held")?;
                let unanswered = |turn: &Turn| !turn.streaming && turn.answered.is_none();
                let due = !matches!(why, Park::Limit { .. }) || run.turn.as_deref().is_some_and(unanswered);
                ensure(due, "no model call waits for a limit")
            }
            Record::RunResumed { run, .. } => ensure(self.started_run(*run)?.hold.is_none(), "the run is held"),
            Record::RunHeld { run, why } => self.check_run_hold(*run, why),
            Record::RunEnded(ended) => self.in_flight(ended.run).map(|_| ()),
            Record::NoticeTaken(taken) => self.check_notices(taken),
            Record::AskOpened { call, .. } => {
                let due = |call: &Call| call.phase == CallPhase::Unstarted && !call.allowed;
                ensure(self.call(*call).is_some_and(due), "the call is not due, or was allowed")
            }
            Record::SessionClosed { .. } => {
                ensure(!self.closed, "the session was closed before")?;
                self.check_empty()
            }
            Record::SessionReopened { .. } => {
                ensure(self.closed && !self.deleted, "the session is not closed, or it is deleted")
            }
        }
    }

    /// Checks that the session has no run in flight and no queued input.
    fn check_empty(&self) -> Legality {
        ensure(!self.deleted, "the session is deleted")?;
        ensure(self.run.is_none(), "a run is in flight")?;
        ensure(self.queue.is_empty(), "inputs are queued")
    }

    /// Checks that `of` is a service session whose answer was not taken.
    fn check_describe(&self, of: SessionId) -> Legality {
        ensure(self.service(of) == Some(false), "it is not from a service session, or its answer was taken before")
    }

    fn check_run_open(&self, opened: &RunOpened) -> Legality {
        ensure(self.run.is_none(), "a run is in flight")?;
        ensure(!self.closed && !self.deleted, "the session is closed or deleted")?;
        ensure(opened.run == self.last_run.next(), "runs are numbered one by one")?;
        ensure(are_all_in(&opened.inputs, &self.queue), "it names an input that is not queued")
    }

    fn check_run_hold(&self, run: RunNo, why: &Hold) -> Legality {
        let fits = match (&self.started_run(run)?.hold, why) {
            // Only `keeps_queue` may still change.
            (
                Some(Hold::Closing { outcome: fixed, keeps_queue: false }),
                Hold::Closing { outcome, keeps_queue: true },
            ) => fixed == outcome,
            (Some(Hold::Closing { .. }), _) => false,
            (Some(Hold::Interrupted { .. } | Hold::OutOfTurns) | None, _) => true,
        };
        ensure(fits, "the run's outcome is fixed")
    }

    fn check_call_finish(&self, finished: &CallFinished) -> Legality {
        let started = self.check_call(finished.call, true)?;
        if finished.end != CallEnd::Backgrounded {
            return Ok(());
        }
        let owns = self.run.as_ref().is_some_and(|run| run.owned.contains_key(&finished.call));
        ensure(started && owns, "the call does not wait for an owned run")
    }

    fn check_continue(&self, request: &ContinueAsked) -> Legality {
        ensure(self.check_call(request.call, true)?, "its call did not start")?;
        let is_quiet = |child: &Child| child.key.is_none() && child.owed.is_none();
        ensure(
            self.children.get(&request.child).is_some_and(is_quiet),
            "the child does not exist, or its run is owned and in flight",
        )
    }

    fn in_flight(&self, no: RunNo) -> Result<&Run, &'static str> {
        self.run.as_deref().filter(|run| run.no == no).ok_or("the run is not in flight")
    }

    fn started_run(&self, no: RunNo) -> Result<&Run, &'static str> {
        let run = self.in_flight(no)?;
        ensure(run.started, "the run was not started").map(|()| run)
    }

    fn check_turn_start(&self, run: RunNo, no: TurnNo, attempt: AttemptNo) -> Legality {
        let run = self.started_run(run)?;
        ensure(run.hold.is_none() && run.parked.is_none(), "the run is held or waits")?;
        match &run.turn {
            Some(turn) if turn.no == no => {
                ensure(turn.answered.is_none(), "the turn is answered")?;
                ensure(attempt == turn.attempt.next(), "attempts are numbered one by one")
            }
            before => {
                ensure(no == self.last_turn.next() && attempt == AttemptNo(1), "turns are numbered one by one")?;
                let has_ended = |turn: &Turn| !turn.streaming && turn.open == 0;
                ensure(before.as_deref().is_none_or(has_ended), "the turn before it has not ended")
            }
        }
    }

    fn check_compact(&self, compacted: &Compacted) -> Legality {
        ensure(!self.deleted, "the session is deleted")?;
        self.check_describe(compacted.of)?;
        match compacted.turn {
            Some((turn, attempt)) => self.check_awaited_compaction(turn, attempt)?,
            None => ensure(self.turn().is_none_or(|turn| turn.compacting.is_none()), "a compaction is awaited")?,
        }
        let upto = usize::try_from(compacted.upto).map_err(|_| "it hides more messages than exist")?;
        ensure(compaction::is_cut(self, upto), "it cuts open calls, or does not hide anything new")?;
        let ordered = compacted.verbatim.is_sorted_by(|a, b| a < b);
        ensure(
            ordered && compacted.verbatim.iter().all(|at| *at < compacted.upto),
            "it keeps messages that it does not hide",
        )
    }

    fn check_awaited_compaction(&self, no: TurnNo, attempt: AttemptNo) -> Legality {
        self.check_awaited_attempt(no, attempt)?;
        ensure(self.turn().is_some_and(|turn| turn.compacting.is_some()), "no compaction is awaited")
    }

    fn check_awaited_attempt(&self, no: TurnNo, attempt: AttemptNo) -> Legality {
        let awaited = |turn: &Turn| turn.streaming && turn.no == no && turn.attempt == attempt;
        ensure(self.turn().is_some_and(awaited), "no such attempt is awaited")
    }

    /// Returns whether the call is started, or not started, as `started` says. Fails if it has a result or an open ask.
    fn check_call(&self, id: CallId, started: bool) -> Result<bool, &'static str> {
        match self.call(id).ok_or("the call does not exist")?.phase {
            CallPhase::Unstarted => Ok(!started),
            CallPhase::Asked(_) => Err("the call awaits approval"),
            CallPhase::Started => Ok(started),
            CallPhase::Closed(_) => Err("the call has its result"),
        }
    }

    fn check_notices(&self, taken: &NoticeTaken) -> Legality {
        let mut keys = BTreeSet::new();
        for item in &taken.items {
            let key = item.row_key().ok_or("a notice names neither a call nor a run")?;
            let fits = match (item.key, item.run) {
                (Some(key), _) => self.owes(key),
                (None, Some(run)) => !self.noticed.contains(&(item.child, run)),
                (None, None) => false,
            };
            ensure(fits, "a notice is not owed")?;
            ensure(taken.items.len() == 1 || keys.insert((item.child, key)), "a notice is listed twice")?;
        }
        match (taken.carrier, taken.items.as_slice()) {
            (_, []) => Err("no notice is listed"),
            (Carrier::Message, _) => Ok(()),
            (Carrier::Result, [item]) => ensure(item.key.is_some_and(|key| self.is_open(key)), "its call is not open"),
            (Carrier::Result, _) => Err("a call has one result"),
            (Carrier::Await { call }, _) => ensure(self.is_open(call), "its call is not open"),
        }
    }

    /// Returns whether the run in flight or an ended run owns a run by `key` whose notice was not taken.
    pub fn owes(&self, key: CallId) -> bool {
        self.run.as_ref().is_some_and(|run| run.owned.contains_key(&key)) || self.owed.contains_key(&key)
    }
}
