//! The causes of outcomes as sentences for people.

use subtend_session::outcome::{Budget, FailKind, Initiator, ModelFail, Outcome, OutcomeKind, Part, TimeLimit};
use subtend_session::record::ContinueRefusal;

/// Describes an outcome with its cause.
pub fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed => "completed".to_owned(),
        Outcome::Failed { kind } => format!("failed: {}", failure(kind)),
        Outcome::Cancelled { by } => format!("cancelled {}", describe_initiator(by)),
        Outcome::Interrupted { by } => format!("interrupted {}", describe_initiator(by)),
        Outcome::TimedOut { what } => format!("timed out: {}", time(*what)),
        Outcome::OutOfTurns => "out of turns: no final answer within the allowed turns (--limit turns)".to_owned(),
        Outcome::OutOfBudget { which: Budget::Tokens } => {
            "out of budget: the tokens that remain do not cover another call (--limit tokens)".to_owned()
        }
        Outcome::OutOfBudget { which: Budget::Money } => {
            "out of budget: the money that remains does not cover another call (--limit cost_micro)".to_owned()
        }
        Outcome::OutOfBudget { which: Budget::Recorded } => {
            "out of budget: the run, or all runs of a subagent, recorded more bytes than the limit (--limit recorded_bytes)".to_owned()
        }
        Outcome::Lost => "lost: the process ended while the run was in flight".to_owned(),
        Outcome::RestartsExhausted { command: None } => {
            "its actor failed more often than its restart budget allows".to_owned()
        }
        Outcome::RestartsExhausted { command: Some(command) } => {
            format!("its actor failed more often than its restart budget allows, last on `{command}`")
        }
    }
}

fn failure(kind: &FailKind) -> String {
    match kind {
        FailKind::Truncated => "the answer was truncated at its length limit, also after a continuation".to_owned(),
        FailKind::Empty => "the model gave an empty answer, also when asked again".to_owned(),
        FailKind::Refused => "the model refused".to_owned(),
        FailKind::Model { error, message } if message.is_empty() => model(*error).to_owned(),
        FailKind::Model { error, message } => format!("{}: {message}", model(*error)),
        FailKind::Panic { part, message } => format!("{} panicked: {message}", part_name(*part)),
        FailKind::NotContinued { why: ContinueRefusal::InFlight } => "the session is already running".to_owned(),
        FailKind::NotContinued { why: ContinueRefusal::Closed } => "the session is closed".to_owned(),
        FailKind::NotContinued { why: ContinueRefusal::Deleted } => "the session is deleted".to_owned(),
        FailKind::Unreadable { message } => {
            format!("its session cannot be read ({}): `subtend verify` reports what is wrong", message)
        }
        FailKind::AgentMissing => "unknown agent: `subtend agents` lists the known ones".to_owned(),
        FailKind::Authority => "a required permission is missing".to_owned(),
        FailKind::Workspace { message } => format!("its working directory could not be prepared: {message}"),
        FailKind::Internal { message } => format!("a fault in subtend, please report it: {message}"),
    }
}

/// Describes the failure of a model call.
pub fn model(error: ModelFail) -> &'static str {
    match error {
        ModelFail::Auth => "the model's key is missing or refused",
        ModelFail::Credit => "the account of the model's provider is out of credit",
        ModelFail::Access => "the provider does not give access to the model",
        ModelFail::Rate => "the model's rate limit was reached",
        ModelFail::Unavailable => "the model was not available",
        ModelFail::BadAnswer => "the model's answer could not be read",
        ModelFail::ContextOverflow => "the conversation is larger than the model's context",
        ModelFail::InvalidRequest => "the model refused the request as invalid",
        ModelFail::Dropped => "the model call was dropped",
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Model => "the model's code",
        Part::TurnTask => "the turn's task",
    }
}

fn time(limit: TimeLimit) -> &'static str {
    match limit {
        TimeLimit::Run => {
            "the limit of its working time was reached (--limit run_ms; for a background process, detached_ms)"
        }
        TimeLimit::Queue => "it waited too long for a slot (--limit queue_ms)",
        TimeLimit::Turn => "one turn took too long (--limit turn_ms)",
        TimeLimit::WallCap => "its wall-clock limit was reached (--limit wall_ms)",
    }
}

fn describe_initiator(by: &Initiator) -> String {
    match by {
        Initiator::Person => "by a person".to_owned(),
        Initiator::Host => "by the host".to_owned(),
        Initiator::Model { call } => format!("by its owner's model (call {call})"),
        Initiator::Owner { outcome: OutcomeKind::Interrupted } => "because its owner was interrupted".to_owned(),
        Initiator::Owner { outcome } => format!("because its owner ended ({})", outcome.as_str()),
        Initiator::Sweep => "at the start after a crash, because its owner was lost".to_owned(),
    }
}
