//! Which record may follow: what makes the fold refuse a journal that is not one of ours.

use std::collections::BTreeSet;

use super::{CallPhase, Run, State, Turn};
use crate::ids::{AttemptNo, CallId, InputId, RunNo, TurnNo};
use crate::record::{Carrier, Hold, NoticeTaken, QueueChange, Record};

type Verdict = Result<(), &'static str>;

fn need(holds: bool, why: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(why) }
}

impl State {
    /// Whether `record` may follow.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn fits(&self, record: &Record) -> Verdict {
        match record {
            Record::SessionCreated(_) => Err("a session is born once"),
            Record::RunOpened(opened) => {
                need(self.run.is_none(), "a run is in flight")?;
                need(opened.run == self.last_run.next(), "runs are numbered one by one")?;
                need(opened.inputs.iter().all(|id| self.is_queued(*id)), "it names an input that does not wait")
            }
            Record::RunStarted { run, .. } => need(!self.in_flight(*run)?.started, "the run was started before"),
            Record::InputAccepted(input) => {
                need(self.accepted.binary_search(&input.id).is_err(), "the input was accepted before")
            }
            Record::InputsTaken { ids, run, .. } => {
                let run = self.started(*run)?;
                let waits =
                    |id: &InputId| run.waiting.iter().any(|queued| queued.input.id == *id) || self.is_queued(*id);
                need(!ids.is_empty() && ids.iter().all(waits), "it names an input that does not wait")
            }
            Record::QueueChanged { change: QueueChange::Removed(ids), .. } => {
                need(ids.iter().all(|id| self.is_queued(*id)), "it names an input that does not wait")
            }
            Record::QueueChanged { change: QueueChange::Cleared, .. } => Ok(()),
            Record::TurnStarted { run, turn, attempt, .. } => self.turn_may_start(*run, *turn, *attempt),
            Record::AttemptDiscarded(discarded) => self.streams(discarded.turn, discarded.attempt),
            Record::TurnAnswered(answered) => {
                self.in_flight(answered.run)?;
                self.streams(answered.turn, answered.attempt)
            }
            Record::CallStarted { call, .. } => need(self.call_is(*call, false)?, "the call started before"),
            Record::CallFinished(finished) => self.call_is(finished.call, false).map(|_| ()),
            Record::ChildSpawned(spawned) => {
                need(self.call_is(spawned.call, true)?, "its call did not start")?;
                need(!self.children.contains_key(&spawned.child), "the child was born before")
            }
            Record::ContinueAsked(asked) => need(self.call_is(asked.call, true)?, "its call did not start"),
            Record::ContinueRefused { .. } | Record::AskAnswered { .. } => Ok(()),
            Record::CancelAsked { key, .. } => {
                need(self.run.as_ref().is_some_and(|run| run.owned.contains_key(key)), "the run owns none by that key")
            }
            Record::RunParked { run, why, .. } => {
                let run = self.started(*run)?;
                need(run.hold.is_none() && run.parked != Some(*why), "the run waits for that, or is held")
            }
            Record::RunResumed { run, .. } => need(self.started(*run)?.hold.is_none(), "the run is held"),
            Record::RunHeld { run, .. } => {
                need(!matches!(self.started(*run)?.hold, Some(Hold::Closing { .. })), "the run's outcome is fixed")
            }
            Record::RunEnded(ended) => self.in_flight(ended.run).map(|_| ()),
            Record::NoticeTaken(taken) => self.notices_fit(taken),
            Record::AskOpened { call, .. } => self.call_is(*call, false).map(|_| ()),
            Record::SessionClosed { .. } => {
                need(self.run.is_none() && !self.closed, "a run is in flight, or it is closed")
            }
            Record::SessionReopened { .. } => need(self.closed, "the session is not closed"),
        }
    }

    fn is_queued(&self, id: InputId) -> bool {
        self.queue.iter().any(|queued| queued.input.id == id)
    }

    fn in_flight(&self, no: RunNo) -> Result<&Run, &'static str> {
        self.run.as_deref().filter(|run| run.no == no).ok_or("the run is not in flight")
    }

    fn started(&self, no: RunNo) -> Result<&Run, &'static str> {
        let run = self.in_flight(no)?;
        need(run.started, "the run was not started").map(|()| run)
    }

    fn turn_may_start(&self, run: RunNo, no: TurnNo, attempt: AttemptNo) -> Verdict {
        let run = self.started(run)?;
        need(run.hold.is_none() && run.parked.is_none(), "the run is held or waits")?;
        match &run.turn {
            Some(turn) if turn.no == no => {
                need(turn.answered.is_none(), "the turn is answered")?;
                need(attempt == turn.attempt.next(), "attempts are numbered one by one")
            }
            before => {
                need(no == self.last_turn.next() && attempt == AttemptNo(1), "turns are numbered one by one")?;
                let over = |turn: &Turn| !turn.streaming && turn.open == 0;
                need(before.as_deref().is_none_or(over), "the turn before it is not over")
            }
        }
    }

    fn streams(&self, no: TurnNo, attempt: AttemptNo) -> Verdict {
        let awaited = |turn: &Turn| turn.streaming && turn.no == no && turn.attempt == attempt;
        need(self.turn().is_some_and(awaited), "no such attempt is awaited")
    }

    /// Whether the call, which must have no result, has started as `started` says.
    fn call_is(&self, id: CallId, started: bool) -> Result<bool, &'static str> {
        match self.call(id).ok_or("there is no such call")?.phase {
            CallPhase::Unstarted => Ok(!started),
            CallPhase::Started => Ok(started),
            CallPhase::Closed(_) => Err("the call has its result"),
        }
    }

    fn notices_fit(&self, taken: &NoticeTaken) -> Verdict {
        let mut met = BTreeSet::new();
        for item in &taken.items {
            let key = item.row_key().ok_or("a notice names neither a call nor a run")?;
            let fits = match (item.key, item.run) {
                (Some(key), _) => self.owes(key),
                (None, Some(run)) => !self.noticed.contains(&(item.child, run)),
                (None, None) => false,
            };
            need(fits, "a notice is not owed")?;
            need(taken.items.len() == 1 || met.insert((item.child, key)), "a notice is named twice")?;
        }
        match (taken.carrier, taken.items.as_slice()) {
            (_, []) => Err("no notice is named"),
            (Carrier::Message, _) => Ok(()),
            (Carrier::Result, [item]) => need(item.key.is_some_and(|key| self.is_open(key)), "its call is not open"),
            (Carrier::Result, _) => Err("a call has one result"),
            (Carrier::Await { call }, _) => need(self.is_open(call), "its call is not open"),
        }
    }

    /// Whether the run in flight, or an ended one, owns a run by `key` that has no notice.
    pub(crate) fn owes(&self, key: CallId) -> bool {
        self.run.as_ref().is_some_and(|run| run.owned.contains_key(&key)) || self.owed.contains_key(&key)
    }
}
