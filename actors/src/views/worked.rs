//! The working time of a session's runs, from their records.

use std::collections::BTreeSet;

use subtend_journal::Stored;
use subtend_session::ids::{CallId, Epoch};
use subtend_session::record::Record;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// Time in ms, without waits for children, slots and approvals.
    pub ms: u64,
    /// True if it may be longer: a process ended while the run was working, and its clock was lost.
    pub at_least: bool,
}

impl Worked {
    pub fn add(&mut self, other: Self) {
        self.ms = self.ms.saturating_add(other.ms);
        self.at_least |= other.at_least;
    }
}

/// Adds up the working time of runs. For a killed run, counts the time up to its last answer, and the time of tools that finished later.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkClock {
    /// The activation in which the run is working, if it is.
    working: Option<Epoch>,
    /// The run's clock at its last answer or stop.
    known_ms: u64,
    /// The longest tool since then, since tools of one turn run concurrently.
    tool_ms: u64,
    /// Calls that wait for an approval.
    asked_calls: BTreeSet<CallId>,
    /// Calls that are running in this process.
    local: BTreeSet<CallId>,
    is_interrupted: bool,
}

impl WorkClock {
    /// Adds the next record; returns the working time of a run that it ends.
    pub fn add(&mut self, stored: &Stored) -> Option<Worked> {
        if self.working.is_some_and(|epoch| epoch != stored.epoch) {
            // A session that only waits for approvals is unloaded without a record.
            self.is_interrupted |= self.asked_calls.is_empty() || !self.local.is_empty();
            self.working = Some(stored.epoch);
        }
        if let Record::RunOpened(_) = &stored.record {
            *self = Self::default();
        } else if let Record::RunEnded(ended) = &stored.record {
            let run = std::mem::take(self);
            let known = run.known_ms.saturating_add(run.tool_ms);
            return Some(Worked { ms: ended.worked_ms.max(known), at_least: run.is_interrupted });
        } else if let Record::RunParked { worked_ms, .. } = &stored.record {
            self.known(*worked_ms);
            self.working = None;
        } else {
            self.work(&stored.record, stored.epoch);
        }
        None
    }

    fn work(&mut self, record: &Record, epoch: Epoch) {
        if let Record::RunStarted { .. } | Record::RunResumed { .. } | Record::TurnStarted { .. } = record {
            self.working = Some(epoch);
        } else if let Record::TurnAnswered(answered) = record {
            self.known(answered.worked_ms);
        } else if let Record::CallStarted { call, kind, .. } = record {
            if kind.is_local() {
                self.local.insert(*call);
            }
        } else if let Record::AskOpened { call, .. } = record {
            self.asked_calls.insert(*call);
        } else if let Record::AskAnswered { call, .. } = record {
            self.asked_calls.remove(call);
        } else if let Record::CallFinished(finished) = record {
            self.local.remove(&finished.call);
            self.tool_ms = self.tool_ms.max(finished.worked_ms);
        } else if let Record::RunHeld { .. } = record {
            self.working = None;
        }
    }

    fn known(&mut self, ms: u64) {
        (self.known_ms, self.tool_ms) = (self.known_ms.max(ms), 0);
    }
}

#[cfg(test)]
mod tests {
    use subtend_session::call::{CallEnd, CallKind, ToolEffect};
    use subtend_session::ids::{AttemptNo, CallId, Hash, RunNo, Seq, SessionId, TurnNo};
    use subtend_session::outcome::Outcome;
    use subtend_session::record::{AnsweredBy, AskVerdict, CallFinished, Park, Prompt, RunEnded, TurnAnswered};

    use super::*;
    use crate::observe::streams::tests::answered;

    fn ended(worked_ms: u64) -> Record {
        Record::RunEnded(Box::new(RunEnded {
            run: RunNo(1),
            outcome: Outcome::Lost,
            result: None,
            returned: None,
            text: None,
            len: 0,
            hash: Hash::of(b""),
            turns: 1,
            usage_self: Default::default(),
            usage_owned: Default::default(),
            worked_ms,
            keeps_queue: false,
            gave_up: None,
        }))
    }

    fn turn() -> Record {
        let (run, turn, attempt, prompt) = (RunNo(1), TurnNo(1), AttemptNo(1), Prompt::Plain);
        Record::TurnStarted {
            run,
            turn,
            attempt,
            prompt,
            reserved: Default::default(),
            model: "m".into(),
            compacts: None,
        }
    }

    fn tool(worked_ms: u64) -> Record {
        let (call, content) = (CallId { turn: TurnNo(1), ix: 0 }, "".into());
        Record::CallFinished(Box::new(CallFinished {
            call,
            end: CallEnd::Ok,
            content,
            truncated_from: None,
            worked_ms,
        }))
    }

    /// Returns the working time of a run with these records, each with its millisecond and activation.
    fn of(records: Vec<(i64, u32, Record)>) -> Option<Worked> {
        let mut clock = WorkClock::default();
        let stored = (1..).zip(records).map(|(seq, (at_ms, epoch, record))| Stored {
            seq: Seq(seq),
            at_ms,
            epoch: Epoch(epoch),
            record,
        });
        stored.filter_map(|stored| clock.add(&stored)).last()
    }

    #[test]
    fn wait_for_an_approval_in_an_unloaded_session_is_known() {
        let call = |ix| CallId { turn: TurnNo(1), ix };
        let started = |ix| Record::CallStarted {
            call: call(ix),
            kind: Box::new(CallKind::Local(ToolEffect::ReadOnly)),
            timeout_ms: None,
            access: None,
        };
        let root: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        let asks = || {
            (
                10,
                1,
                Record::AskOpened { call: call(0), action: "a".into(), resource: "b".into(), root, deadline_at: None },
            )
        };
        let word =
            (9_000, 2, Record::AskAnswered { call: call(0), verdict: AskVerdict::Deny, by: AnsweredBy::Deadline });
        let waited = |before: Vec<_>| of([before, vec![asks(), word.clone(), (9_001, 2, ended(30))]].concat());
        assert_eq!(waited(vec![(0, 1, turn())]), Some(Worked { ms: 30, at_least: false }));
        // Another call ran meanwhile: the process was killed.
        assert_eq!(waited(vec![(0, 1, turn()), (5, 1, started(1))]), Some(Worked { ms: 30, at_least: true }));
    }

    #[test]
    fn killed_run_counts_only_its_finished_work() {
        let started = || (0, 1, Record::RunStarted { run: RunNo(1), slot: false });
        let answer = |worked_ms| {
            let Record::TurnAnswered(answered) = answered(1, 1) else { panic!("no answer") };
            Record::TurnAnswered(Box::new(TurnAnswered { worked_ms, ..*answered }))
        };
        let known = |ms| Some(Worked { ms, at_least: true });
        assert_eq!(of(vec![started(), (0, 1, turn()), (9_000, 2, ended(0))]), known(0));
        let work = || vec![started(), (0, 1, turn()), (700, 1, answer(700))];
        let tools = [(800, 1, tool(40)), (900, 1, tool(60)), (950, 1, turn())];
        assert_eq!(of(work().into_iter().chain(tools).chain([(9_000, 2, ended(0))]).collect()), known(760));
        // If no kill interrupted the run, or it was waiting at the kill, the recorded time is exact.
        let whole = |ms| Some(Worked { ms, at_least: false });
        assert_eq!(of(work().into_iter().chain([(900, 1, ended(900))]).collect()), whole(900));
        let parked = (800, 1, Record::RunParked { run: RunNo(1), why: Park::AtRest, worked_ms: 800 });
        assert_eq!(of(work().into_iter().chain([parked.clone(), (9_000, 2, ended(800))]).collect()), whole(800));
        // A run that continued after a wait has the time of both parts.
        let again =
            [(2_000, 1, Record::RunResumed { run: RunNo(1), why: Park::AtRest, slot: false }), (2_000, 1, turn())];
        let after =
            work().into_iter().chain([parked]).chain(again).chain([(2_300, 1, answer(1_100)), (9_000, 2, ended(800))]);
        assert_eq!(of(after.collect()), known(1_100));
    }
}
