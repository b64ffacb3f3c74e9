//! The end of a run as models read it: one line for each outcome with its cause.

use std::fmt::Write as _;

use subtend::format::ContinueRefusal;
use subtend::session::{Budget, CallId, FailKind, Initiator, ModelFail, Outcome, OutcomeKind, Part, TimeLimit};
use subtend_session::render;

use super::super::page::check;

fn failures() -> Vec<FailKind> {
    let message = || "the message".into();
    let models = [
        ModelFail::Auth,
        ModelFail::Credit,
        ModelFail::Access,
        ModelFail::Rate,
        ModelFail::Unavailable,
        ModelFail::BadAnswer,
        ModelFail::ContextOverflow,
        ModelFail::InvalidRequest,
        ModelFail::Dropped,
    ];
    let refusals = [ContinueRefusal::InFlight, ContinueRefusal::Closed, ContinueRefusal::Deleted];
    let mut all = vec![
        FailKind::Truncated,
        FailKind::Empty,
        FailKind::Refused,
        FailKind::Panic { part: Part::Model, message: message() },
        FailKind::AgentMissing,
        FailKind::Unreadable { message: message() },
        FailKind::Authority,
        FailKind::Workspace { message: message() },
        FailKind::Internal { message: message() },
    ];
    all.extend(models.map(|error| FailKind::Model { error, message: message() }));
    all.extend(refusals.map(|why| FailKind::NotContinued { why }));
    all
}

fn outcomes() -> Vec<Outcome> {
    let owners = OutcomeKind::ALL.map(|outcome| Initiator::Owner { outcome });
    let by = || [Initiator::Person, Initiator::Host, Initiator::Sweep].into_iter().chain(owners.clone());
    let mut all = vec![Outcome::Completed, Outcome::OutOfTurns, Outcome::Lost];
    all.extend(failures().into_iter().map(|kind| Outcome::Failed { kind }));
    all.extend(by().map(|by| Outcome::Cancelled { by }));
    all.extend(by().map(|by| Outcome::Interrupted { by }));
    let times = [TimeLimit::Run, TimeLimit::Queue, TimeLimit::Turn, TimeLimit::WallCap];
    all.extend(times.map(|what| Outcome::TimedOut { what }));
    all.extend([Budget::Tokens, Budget::Money, Budget::Recorded].map(|which| Outcome::OutOfBudget { which }));
    all.extend([None, Some("TurnAnswered".into())].map(|command| Outcome::RestartsExhausted { command }));
    all
}

#[test]
fn texts_of_outcomes_match_their_snapshot() {
    let mut out = String::new();
    for outcome in outcomes() {
        let name = serde_json::to_string(&outcome).expect("JSON");
        writeln!(out, "{name}\n  It {}.", render::cause(&outcome)).expect("text");
    }
    check("models_ends", &out);
}

/// Fails to compile when an outcome is added: then add it to the lists above.
#[expect(dead_code, reason = "it is compiled, not called")]
fn exhaustive(outcome: Outcome, call: CallId) {
    let _ = call;
    match outcome {
        Outcome::Completed | Outcome::OutOfTurns | Outcome::Lost | Outcome::RestartsExhausted { .. } => {}
        Outcome::Failed { kind } => match kind {
            FailKind::Truncated
            | FailKind::Empty
            | FailKind::Refused
            | FailKind::Panic { .. }
            | FailKind::AgentMissing
            | FailKind::Unreadable { .. }
            | FailKind::Authority
            | FailKind::Workspace { .. }
            | FailKind::Internal { .. } => {}
            FailKind::Model { error, .. } => match error {
                ModelFail::Auth
                | ModelFail::Credit
                | ModelFail::Access
                | ModelFail::Rate
                | ModelFail::Unavailable
                | ModelFail::BadAnswer
                | ModelFail::ContextOverflow
                | ModelFail::InvalidRequest
                | ModelFail::Dropped => {}
            },
            FailKind::NotContinued { why } => match why {
                ContinueRefusal::InFlight | ContinueRefusal::Closed | ContinueRefusal::Deleted => {}
            },
        },
        Outcome::Cancelled { by } | Outcome::Interrupted { by } => match by {
            Initiator::Person
            | Initiator::Host
            | Initiator::Model { .. }
            | Initiator::Owner { .. }
            | Initiator::Sweep => {}
        },
        Outcome::TimedOut { what } => match what {
            TimeLimit::Run | TimeLimit::Queue | TimeLimit::Turn | TimeLimit::WallCap => {}
        },
        Outcome::OutOfBudget { which } => match which {
            Budget::Tokens | Budget::Money | Budget::Recorded => {}
        },
    }
}
