//! True causes (S-8): the journals of a run and its owner show the cause of each outcome. External causes are compared
//! with the observations, if any.

use crate::observed::Causes;
use crate::world::{RunFacts, SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::ids::RunKey;
use subtend_session::outcome::{Budget, FailKind, Initiator, ModelFail, Outcome, TimeLimit};
use subtend_session::place::Owner;
use subtend_session::record::{Hold, InputAccepted, Park, Record, RunEnded, Stop, TurnAnswered};

pub(super) fn causes_are_true(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let (Some(outcome), Some(seen)) = (run.outcome(), world.sessions.get(&key.session)) else { continue };
        let traces = Traces::of(seen, run);
        let verdict = traces.check(world, key, run, outcome);
        ensure(verdict.is_ok(), InvariantId::S8, key.session, || {
            format!("run {} is {outcome:?}, but {}", key.run, verdict.err().unwrap_or_default())
        })?;
        let happened = world.causes().map_or(Ok(()), |causes| check_happened(causes, key, outcome));
        ensure(happened.is_ok(), InvariantId::S8, key.session, || {
            format!("run {} is {outcome:?}, but {}", key.run, happened.err().unwrap_or_default())
        })?;
    }
    Ok(())
}

type Check = Result<(), &'static str>;

fn require(holds: bool, why: &'static str) -> Check {
    if holds { Ok(()) } else { Err(why) }
}

/// The records of a run before its outcome is fixed.
#[derive(Debug, Default)]
struct Traces<'a> {
    started: bool,
    answer: Option<&'a TurnAnswered>,
    /// The error of the last attempt, unless a later one started.
    failed: Option<ModelFail>,
    is_calling: bool,
    /// Number of answers since the run took an input that is not from a relative.
    spent: u32,
    /// The smallest turn allowance of the limits, the run and its inputs.
    allowance: Option<u32>,
    interrupted: Option<&'a Initiator>,
    out_of_turns: bool,
    /// True if the run is parked at a provider's limit and none of its work is in flight.
    limited: bool,
    /// Bytes of text in its records.
    recorded: u64,
}

impl<'a> Traces<'a> {
    fn of(seen: &SessionFacts<'a>, run: &RunFacts<'a>) -> Self {
        let mut traces = Self::default();
        let (Some((from, opened)), Some(to)) = (run.opened, run.outcome_at()) else { return traces };
        let inputs: Vec<&InputAccepted> = seen
            .view
            .records
            .iter()
            .take(to)
            .filter_map(|record| if let Record::InputAccepted(input) = record { Some(&**input) } else { None })
            .collect();
        traces.allowance = seen.limits().map(|limits| limits.turns).into_iter().chain([opened.max_turns]).min();
        if opened.owner.is_model_call() {
            let mut counts = false;
            for record in seen.view.records.iter().take(from) {
                if let Record::RunOpened(opened) = record {
                    counts = opened.owner.is_model_call();
                } else if let Record::RunEnded(_) = record {
                    counts = false;
                } else if counts {
                    traces.recorded = traces.recorded.saturating_add(record.recorded_bytes());
                }
            }
        }
        for record in seen.view.records.get(from..to).unwrap_or_default() {
            traces.read(record, &inputs);
        }
        traces
    }

    fn read(&mut self, record: &'a Record, inputs: &[&InputAccepted]) {
        self.recorded = self.recorded.saturating_add(record.recorded_bytes());
        if let Record::RunParked { why: Park::Limit { .. }, .. } = record {
            self.limited = true;
        } else if let Record::RunStarted { .. } = record {
            self.started = true;
        } else if let Record::TurnStarted { .. } = record {
            (self.is_calling, self.failed, self.limited) = (true, None, false);
        } else if let Record::AttemptDiscarded(discarded) = record {
            (self.is_calling, self.failed) = (false, Some(discarded.error));
        } else if let Record::TurnAnswered(answer) = record {
            (self.is_calling, self.failed, self.answer) = (false, None, Some(&**answer));
            self.spent = self.spent.saturating_add(1);
        } else if let Record::InputsTaken { ids, .. } = record {
            let taken: Vec<_> = inputs.iter().filter(|input| ids.contains(&input.id)).collect();
            if !taken.iter().all(|input| input.is_from_relative()) {
                (self.spent, self.interrupted, self.out_of_turns) = (0, None, false);
            }
            self.allowance = taken.iter().filter_map(|input| input.allowance()).chain(self.allowance).min();
        } else if let Record::RunHeld { why, .. } = record {
            // A held run waits for an input, no longer for its provider.
            self.limited = false;
            match &**why {
                Hold::Interrupted { by } => self.interrupted = Some(by),
                Hold::OutOfTurns => self.out_of_turns = true,
                Hold::Closing { .. } => {}
            }
        }
    }

    fn check(&self, world: &World<'_>, key: RunKey, run: &RunFacts<'_>, outcome: &Outcome) -> Check {
        let held = self.interrupted.is_some() || self.out_of_turns;
        match outcome {
            Outcome::Completed => {
                require(self.started && !held && !self.is_calling, "it was not at a rest point")?;
                self.check_answered(run.ended.map(|(_, ended)| ended))
            }
            Outcome::Failed { kind } => self.check_failed(kind, held),
            Outcome::Cancelled { by } => check_cancelled(world, key, run, by, self.started),
            Outcome::Interrupted { by } => {
                require(!self.started || self.interrupted == Some(by), "it was not interrupted by that cause")
            }
            Outcome::TimedOut { what } => self.check_timed_out(run, *what),
            Outcome::OutOfTurns => {
                require(self.interrupted.is_none(), "it was interrupted")?;
                let spent = self.allowance.is_none_or(|allowance| self.spent >= allowance);
                require(spent, "its turns were not spent")
            }
            Outcome::OutOfBudget { which } => {
                let limits = world.sessions.get(&key.session).and_then(SessionFacts::limits);
                require(limits.is_none_or(|limits| has_limit(limits, *which)), "it has no such budget")?;
                let limit = limits.and_then(|limits| limits.recorded_bytes).filter(|_| *which == Budget::Recorded);
                require(limit.is_none_or(|limit| self.recorded > limit), "its records did not exceed its limit")
            }
            Outcome::Lost => {
                require(self.started && !held, "it was held or not started when the host died")?;
                let owned = run.opened.is_some_and(|(_, opened)| opened.owner.run().is_some());
                require(owned || !self.limited, "it was parked at a limit with nothing in flight")
            }
            Outcome::RestartsExhausted { .. } => Ok(()),
        }
    }

    fn check_answered(&self, ended: Option<&RunEnded>) -> Check {
        let Some(answer) = self.answer else { return Err("it never answered") };
        let returned = ended.and_then(|ended| ended.returned);
        require(
            answer.calls.is_empty() || returned.is_some_and(|call| call.turn == answer.turn),
            "its last answer requests calls and returns nothing",
        )
    }

    fn check_failed(&self, kind: &FailKind, held: bool) -> Check {
        let text = |answer: &TurnAnswered| answer.text.as_ref().is_some_and(|text| !text.trim().is_empty());
        let ended = |stop: Option<Stop>| match (self.answer, stop) {
            (Some(answer), Some(stop)) => answer.stop == stop,
            (Some(answer), None) => !text(answer) && answer.calls.is_empty(),
            (None, _) => false,
        };
        let kind_check = match kind {
            FailKind::AgentMissing | FailKind::Authority | FailKind::Internal { .. } => return Ok(()),
            FailKind::Truncated => require(ended(Some(Stop::Length)), "its last answer was not truncated"),
            FailKind::Empty => require(ended(None), "its last answer was not empty"),
            FailKind::Refused => require(ended(Some(Stop::Refused)), "the model did not refuse"),
            FailKind::Model { error, .. } => {
                require(self.failed == Some(*error), "its last attempt did not fail with that error")
            }
            FailKind::Workspace { .. } => require(
                self.failed == Some(ModelFail::Dropped),
                "its last attempt was not dropped before its model call",
            ),
            FailKind::Panic { .. } => require(self.failed.is_some(), "its last attempt did not fail"),
            FailKind::Unreadable { .. } => Err("its session was readable"),
            FailKind::NotContinued { .. } => Err("it was opened"),
        };
        kind_check.and(require(!held, "it was held, so it called no model"))
    }

    fn check_timed_out(&self, run: &RunFacts<'_>, what: TimeLimit) -> Check {
        let Some((_, opened)) = run.opened else { return Ok(()) };
        match what {
            TimeLimit::Run => require(self.started && opened.deadline_ms.is_some(), "it had no limit of working time"),
            TimeLimit::Queue => require(!self.started, "it was started"),
            TimeLimit::Turn => require(self.is_calling || self.failed.is_some(), "no model call was due"),
            TimeLimit::WallCap => require(opened.wall_cap_at.is_some(), "it has no cap"),
        }
    }
}

fn has_limit(limits: &subtend_session::limits::Limits, which: Budget) -> bool {
    match which {
        Budget::Tokens => limits.tokens.is_some(),
        Budget::Money => limits.cost_micro.is_some(),
        Budget::Recorded => limits.recorded_bytes.is_some(),
    }
}

fn check_cancelled(world: &World<'_>, key: RunKey, run: &RunFacts<'_>, by: &Initiator, started: bool) -> Check {
    let Some((_, opened)) = run.opened else { return Ok(()) };
    let owner = match &opened.owner {
        Owner::Run { session, call, .. } => Some((*session, *call)),
        Owner::Person | Owner::Host(_) | Owner::Detached { .. } => None,
    };
    match by {
        Initiator::Model { call } => {
            let (session, opening) = owner.ok_or("no model owns it")?;
            let Some(owner_session) = world.sessions.get(&session) else { return Ok(()) };
            require(owner_session.model_cancels.contains(&(*call, key.session, opening)), "that call did not cancel it")
        }
        Initiator::Owner { .. } => require(owner.is_some(), "no run owns it"),
        Initiator::Sweep => require(owner.is_some() && !started, "it was started, or has no owner"),
        Initiator::Person | Initiator::Host => Ok(()),
    }
}

fn check_happened(causes: &Causes, key: RunKey, outcome: &Outcome) -> Check {
    let session = key.session;
    match outcome {
        Outcome::Cancelled { by: by @ (Initiator::Person | Initiator::Host) } => require(
            causes.cancels.iter().any(|(run, initiator)| *run == key && initiator == by),
            "no such cancel happened",
        ),
        Outcome::Cancelled { by: Initiator::Sweep } | Outcome::Lost => {
            require(causes.boots > 0, "the host did not restart")
        }
        Outcome::Cancelled { by: Initiator::Model { .. } | Initiator::Owner { .. } } => Ok(()),
        Outcome::Interrupted { by } => require(
            causes.interrupts.iter().any(|(run, initiator)| *run == key && initiator == by),
            "no such interrupt happened",
        ),
        Outcome::TimedOut { what } => require(causes.passed.contains(&(key, *what)), "that deadline had not passed"),
        // The journal alone shows these causes.
        Outcome::OutOfBudget { which: Budget::Recorded } => Ok(()),
        Outcome::OutOfBudget { which } => {
            require(causes.refused.contains(&(key, *which)), "no reservation was refused")
        }
        Outcome::RestartsExhausted { .. } => require(causes.given_up.contains(&session), "its actor was not given up"),
        Outcome::Failed { kind: FailKind::Panic { .. } } => {
            require(causes.panicked.contains(&session), "nothing panicked")
        }
        Outcome::Completed | Outcome::OutOfTurns | Outcome::Failed { .. } => Ok(()),
    }
}
