//! Checks which record may follow. The fold refuses journals with any other record.

use std::collections::BTreeSet;

use super::{Alternatives, Call, CallPhase, Queued, Run, State, Turn};
use crate::call::CallEnd;
use crate::compaction;
use crate::ids::{AttemptNo, CallId, InputId, RunNo, SessionId, TurnNo};
use crate::index;
use crate::outcome::Initiator;
use crate::record::{
    CallFinished, Carrier, Compacted, ContinueAsked, Hold, NoticeTaken, Park, QueueChange, Record, RunOpened,
};

type Legality = Result<(), &'static str>;

fn need(holds: bool, why: &'static str) -> Legality {
    if holds { Ok(()) } else { Err(why) }
}

/// Returns whether `queue` has all inputs of `ids`, in less than quadratic time: an import can bring records with many ids.
fn are_all_in<'a>(ids: &[InputId], queue: impl IntoIterator<Item = &'a Queued>) -> bool {
    let mut queued = queue.into_iter().map(|queued| queued.input.id);
    match ids {
        [] => true,
        [id] => queued.any(|queued| queued == *id),
        ids => {
            let queued: BTreeSet<InputId> = queued.collect();
            ids.iter().all(|id| queued.contains(id))
        }
    }
}

impl State {
    /// Checks that `record` may follow.
    /// # Errors
    /// The reason why it may not.
    pub(crate) fn fits(&self, record: &Record) -> Legality {
        match record {
            Record::SessionCreated(_) => Err("a session is created once"),
            Record::RunOpened(opened) => self.run_may_open(opened),
            Record::RunStarted { run, .. } => need(!self.in_flight(*run)?.started, "the run was started before"),
            Record::InputAccepted(input) => {
                need(!self.closed && !self.deleted, "the session is closed or deleted")?;
                need(self.accepted.binary_search(&input.id).is_err(), "the input was accepted before")
            }
            Record::InputsTaken { ids, run, .. } => {
                let run = self.started_run(*run)?;
                let are_queued = are_all_in(ids, self.queue.iter().chain(&run.waiting));
                need(!ids.is_empty() && are_queued, "it names an input that is not queued")
            }
            Record::QueueChanged { change: QueueChange::Removed(ids), .. } => {
                need(are_all_in(ids, &self.queue), "it names an input that is not queued")
            }
            Record::QueueChanged { change: QueueChange::Cleared, .. } => Ok(()),
            Record::TurnStarted { run, turn, attempt, .. } => self.turn_may_start(*run, *turn, *attempt),
            Record::AttemptDiscarded(discarded) => self.attempt_is_awaited(discarded.turn, discarded.attempt),
            Record::TurnAnswered(answered) => {
                self.in_flight(answered.run)?;
                self.attempt_is_awaited(answered.turn, answered.attempt)
            }
            Record::CallStarted { call, .. } => need(self.call_is(*call, false)?, "the call started before"),
            Record::CallFinished(finished) => self.call_may_finish(finished),
            Record::ChildSpawned(spawned) => {
                need(self.call_is(spawned.call, true)?, "its call did not start")?;
                need(!self.children.contains_key(&spawned.child), "the child was created before")
            }
            Record::ContinueAsked(request) => self.may_ask_to_continue(request),
            Record::ContinueRefused { owner, key, .. } => {
                let known = self.accepted.binary_search(&index::continue_input(*owner, *key));
                need(known.is_err(), "the row was answered before")
            }
            Record::AskAnswered { call, .. } => {
                let is_asked = |call: &Call| matches!(call.phase, CallPhase::Asked(_));
                need(self.call(*call).is_some_and(is_asked), "the call has no open ask")
            }
            Record::BranchCreated(created) => {
                need(!self.children.contains_key(&created.child), "the child was created before")
            }
            Record::AlternativeSwitched { of, to, .. } => {
                let known = |of: &Alternatives| *to as usize <= of.branches.len();
                need(self.alternatives.get(of).is_some_and(known), "the alternative does not exist")
            }
            Record::RolledBack { run, .. } => {
                need(!self.deleted, "the session is deleted")?;
                need(self.run.is_none(), "a run is in flight")?;
                let is_visible = self.message_ranges.get(run).is_some_and(|stretch| !stretch.hidden);
                need(is_visible, "the run does not exist, completed, or was rolled back before")
            }
            Record::Compacted(compacted) => self.may_compact(compacted),
            Record::CompactionFailed(failed) => self.compaction_is_awaited(failed.turn, failed.attempt),
            Record::CompactionUndone { .. } => {
                need(!self.deleted, "the session is deleted")?;
                need(self.run.is_none(), "a run is in flight")?;
                need(!self.compactions.is_empty(), "nothing is compacted")
            }
            Record::TitleSet(set) => {
                need(!self.deleted, "the session is deleted")?;
                need(set.by == Initiator::Person || !self.is_titled(), "the session has a title")?;
                set.of.map_or(Ok(()), |of| self.may_describe(of))
            }
            Record::SummarySet(set) => {
                need(!self.deleted, "the session is deleted")?;
                self.may_describe(set.of)
            }
            Record::MetadataSet(_) => need(!self.deleted, "the session is deleted"),
            Record::SessionDeleted { .. } => self.is_empty(),
            Record::CancelAsked { key, .. } => need(
                self.run.as_ref().is_some_and(|run| run.owned.contains_key(key)),
                "the run does not own a run by that key",
            ),
            Record::RunParked { run, why, .. } => {
                let run = self.started_run(*run)?;
                need(run.hold.is_none() && run.parked != Some(*why), "the run waits for that, or is held")?;
                let unanswered = |turn: &Turn| !turn.streaming && turn.answered.is_none();
                let due = !matches!(why, Park::Limit { .. }) || run.turn.as_deref().is_some_and(unanswered);
                need(due, "no model call waits for a limit")
            }
            Record::RunResumed { run, .. } => need(self.started_run(*run)?.hold.is_none(), "the run is held"),
            Record::RunHeld { run, why } => self.run_may_be_held(*run, why),
            Record::RunEnded(ended) => self.in_flight(ended.run).map(|_| ()),
            Record::NoticeTaken(taken) => self.notices_fit(taken),
            Record::AskOpened { call, .. } => {
                let due = |call: &Call| call.phase == CallPhase::Unstarted && !call.allowed;
                need(self.call(*call).is_some_and(due), "the call is not due, or was allowed")
            }
            Record::SessionClosed { .. } => {
                need(!self.closed, "the session was closed before")?;
                self.is_empty()
            }
            Record::SessionReopened { .. } => {
                need(self.closed && !self.deleted, "the session is not closed, or it is deleted")
            }
        }
    }

    /// Checks that the session has no run in flight and no queued input.
    fn is_empty(&self) -> Legality {
        need(!self.deleted, "the session is deleted")?;
        need(self.run.is_none(), "a run is in flight")?;
        need(self.queue.is_empty(), "inputs are queued")
    }

    /// Checks that `of` is a service session whose answer was not taken.
    fn may_describe(&self, of: SessionId) -> Legality {
        need(self.service(of) == Some(false), "it is not from a service session, or its answer was taken before")
    }

    fn run_may_open(&self, opened: &RunOpened) -> Legality {
        need(self.run.is_none(), "a run is in flight")?;
        need(!self.closed && !self.deleted, "the session is closed or deleted")?;
        need(opened.run == self.last_run.next(), "runs are numbered one by one")?;
        need(are_all_in(&opened.inputs, &self.queue), "it names an input that is not queued")
    }

    fn run_may_be_held(&self, run: RunNo, why: &Hold) -> Legality {
        let fits = match (&self.started_run(run)?.hold, why) {
            // Only `keeps_queue` may still change.
            (
                Some(Hold::Closing { outcome: fixed, keeps_queue: false }),
                Hold::Closing { outcome, keeps_queue: true },
            ) => fixed == outcome,
            (Some(Hold::Closing { .. }), _) => false,
            (Some(Hold::Interrupted { .. } | Hold::OutOfTurns) | None, _) => true,
        };
        need(fits, "the run's outcome is fixed")
    }

    fn call_may_finish(&self, finished: &CallFinished) -> Legality {
        let started = self.call_is(finished.call, true)?;
        if finished.end != CallEnd::Backgrounded {
            return Ok(());
        }
        let owns = self.run.as_ref().is_some_and(|run| run.owned.contains_key(&finished.call));
        need(started && owns, "the call does not wait for an owned run")
    }

    fn may_ask_to_continue(&self, request: &ContinueAsked) -> Legality {
        need(self.call_is(request.call, true)?, "its call did not start")?;
        let quiet = self.children.get(&request.child).is_some_and(|child| child.key.is_none());
        let owed = self.owed.values().any(|child| *child == request.child);
        need(quiet && !owed, "the child does not exist, or its run is owned and in flight")
    }

    fn in_flight(&self, no: RunNo) -> Result<&Run, &'static str> {
        self.run.as_deref().filter(|run| run.no == no).ok_or("the run is not in flight")
    }

    fn started_run(&self, no: RunNo) -> Result<&Run, &'static str> {
        let run = self.in_flight(no)?;
        need(run.started, "the run was not started").map(|()| run)
    }

    fn turn_may_start(&self, run: RunNo, no: TurnNo, attempt: AttemptNo) -> Legality {
        let run = self.started_run(run)?;
        need(run.hold.is_none() && run.parked.is_none(), "the run is held or waits")?;
        match &run.turn {
            Some(turn) if turn.no == no => {
                need(turn.answered.is_none(), "the turn is answered")?;
                need(attempt == turn.attempt.next(), "attempts are numbered one by one")
            }
            before => {
                need(no == self.last_turn.next() && attempt == AttemptNo(1), "turns are numbered one by one")?;
                let has_ended = |turn: &Turn| !turn.streaming && turn.open == 0;
                need(before.as_deref().is_none_or(has_ended), "the turn before it has not ended")
            }
        }
    }

    fn may_compact(&self, compacted: &Compacted) -> Legality {
        need(!self.deleted, "the session is deleted")?;
        self.may_describe(compacted.of)?;
        match compacted.turn {
            Some((turn, attempt)) => self.compaction_is_awaited(turn, attempt)?,
            None => need(self.turn().is_none_or(|turn| turn.compacting.is_none()), "a compaction is awaited")?,
        }
        let upto = usize::try_from(compacted.upto).map_err(|_| "it hides more messages than exist")?;
        need(compaction::is_cut(self, upto), "it cuts open calls, or does not hide anything new")?;
        let ordered = compacted.verbatim.is_sorted_by(|a, b| a < b);
        need(
            ordered && compacted.verbatim.iter().all(|at| *at < compacted.upto),
            "it keeps messages that it does not hide",
        )
    }

    fn compaction_is_awaited(&self, no: TurnNo, attempt: AttemptNo) -> Legality {
        self.attempt_is_awaited(no, attempt)?;
        need(self.turn().is_some_and(|turn| turn.compacting.is_some()), "no compaction is awaited")
    }

    fn attempt_is_awaited(&self, no: TurnNo, attempt: AttemptNo) -> Legality {
        let awaited = |turn: &Turn| turn.streaming && turn.no == no && turn.attempt == attempt;
        need(self.turn().is_some_and(awaited), "no such attempt is awaited")
    }

    /// Returns whether the call's start state is `started`. A call with a result or an open ask is an error.
    fn call_is(&self, id: CallId, started: bool) -> Result<bool, &'static str> {
        match self.call(id).ok_or("the call does not exist")?.phase {
            CallPhase::Unstarted => Ok(!started),
            CallPhase::Asked(_) => Err("the call awaits approval"),
            CallPhase::Started => Ok(started),
            CallPhase::Closed(_) => Err("the call has its result"),
        }
    }

    fn notices_fit(&self, taken: &NoticeTaken) -> Legality {
        let mut keys = BTreeSet::new();
        for item in &taken.items {
            let key = item.row_key().ok_or("a notice names neither a call nor a run")?;
            let fits = match (item.key, item.run) {
                (Some(key), _) => self.owes(key),
                (None, Some(run)) => !self.noticed.contains(&(item.child, run)),
                (None, None) => false,
            };
            need(fits, "a notice is not owed")?;
            need(taken.items.len() == 1 || keys.insert((item.child, key)), "a notice is listed twice")?;
        }
        match (taken.carrier, taken.items.as_slice()) {
            (_, []) => Err("no notice is listed"),
            (Carrier::Message, _) => Ok(()),
            (Carrier::Result, [item]) => need(item.key.is_some_and(|key| self.is_open(key)), "its call is not open"),
            (Carrier::Result, _) => Err("a call has one result"),
            (Carrier::Await { call }, _) => need(self.is_open(call), "its call is not open"),
        }
    }

    /// Returns whether the run in flight or an ended run owns a run by `key` whose notice was not taken.
    pub fn owes(&self, key: CallId) -> bool {
        self.run.as_ref().is_some_and(|run| run.owned.contains_key(&key)) || self.owed.contains_key(&key)
    }
}
