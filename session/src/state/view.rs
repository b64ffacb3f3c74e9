//! Questions to a state.

use super::{Call, CallPhase, Phase, Run, State, Turn};
use crate::ids::{CallId, RunKey, SessionId};
use crate::record::{Hold, Park};

impl State {
    /// Where the run in flight stands: the column of the table in `decide`.
    pub fn phase(&self) -> Phase {
        let Some(run) = &self.run else { return Phase::Quiet };
        match &run.hold {
            Some(Hold::Interrupted { .. }) => return Phase::HeldInterrupted,
            Some(Hold::OutOfTurns) => return Phase::HeldOutOfTurns,
            Some(Hold::Closing { .. }) => return Phase::Closing,
            None => {}
        }
        if !run.started {
            return Phase::Queued;
        }
        let Some(turn) = &run.turn else { return Phase::Working };
        // Parked with calls that did not start: they stand behind a person's word, or wait for the slot.
        let due = turn.unstarted > 0 && run.parked.is_none();
        if turn.streaming || turn.local > 0 || due {
            Phase::Working
        } else if turn.open > 0 {
            Phase::WaitingMidTurn
        } else if run.parked == Some(Park::Slot) {
            if turn.calls.is_empty() { Phase::WaitingAtRest } else { Phase::WaitingMidTurn }
        } else if turn.calls.is_empty() && !run.owned.is_empty() {
            Phase::WaitingAtRest
        } else {
            Phase::Working
        }
    }

    /// Whether nothing in this process waits for the activation: no stream is due, no local call started, no call waits for
    /// admission. The session may be folded again from its journal when something arrives.
    pub fn can_unload(&self) -> bool {
        match self.turn() {
            None => true,
            Some(turn) => {
                // Parked, what has not started stands behind a person's word or waits for the slot.
                let due = turn.unstarted > 0 && self.run.as_ref().is_some_and(|run| run.parked.is_none());
                !turn.streaming && turn.local == 0 && !due
            }
        }
    }

    /// Clears what the journal does not hold: two states that are equal after it are the same session.
    pub fn forget_volatile(&mut self) {
        self.arrived.clear();
        self.due.clear();
        self.recalled.clear();
        self.queued_children.clear();
    }

    /// What a name of `child` stands for in an await or check: the owned run of it that this session hears of next.
    ///
    /// Its number may be a later one, where persons had runs of the child in between.
    pub fn owned_run(&self, child: SessionId) -> RunKey {
        let heard = self.children.get(&child).map(|child| child.heard).unwrap_or_default();
        RunKey { session: child, run: heard.next() }
    }

    /// The key of the owned run in flight that `run` stands for; none if that has ended, or was never owned.
    pub fn owned_key(&self, run: &RunKey) -> Option<CallId> {
        self.children.get(&run.session).filter(|child| run.run > child.heard).and_then(|child| child.key)
    }

    /// As [`State::owned_key`]; also the key of an earlier run that ended before it had heard of `run`'s end.
    pub fn awaited_key(&self, run: &RunKey) -> Option<CallId> {
        let owed = || self.owed.iter().find(|(_, child)| **child == run.session).map(|(key, _)| *key);
        self.owned_key(run).or_else(owed)
    }

    /// The turn at hand.
    pub fn turn(&self) -> Option<&Turn> {
        self.run.as_ref().and_then(|run| run.turn.as_deref())
    }

    /// The call `id`, if it is one of the turn at hand.
    pub fn call(&self, id: CallId) -> Option<&Call> {
        self.turn().filter(|turn| turn.no == id.turn).and_then(|turn| turn.calls.get(id.ix as usize))
    }

    /// Whether `id` is a started call without a result.
    pub fn is_open(&self, id: CallId) -> bool {
        self.call(id).is_some_and(|call| call.phase == CallPhase::Started)
    }
}

impl Run {
    /// Whether the turn allowance is spent.
    pub fn is_spent(&self) -> bool {
        self.spent >= self.allowance
    }

    /// Whether local work is in flight: a model stream, dropped or not, or a local tool.
    pub fn has_local_work(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.streaming || turn.local > 0)
    }

    /// Calls of the turn at hand without a result.
    pub fn open_calls(&self) -> u32 {
        self.turn.as_ref().map_or(0, |turn| turn.open)
    }

    /// Whether the run has a slot or a clock that changes hands when it waits.
    pub fn has_clock(&self) -> bool {
        self.opened.slot || self.opened.deadline_ms.is_some()
    }
}
