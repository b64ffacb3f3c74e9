//! The cause of a run's end as a sentence and as an exit code.

use subtend_host::cause;
pub(crate) use subtend_host::cause::model;
use subtend_session::outcome::Outcome;

use super::fail::Code;
use super::paint::harmless;

pub(crate) fn code(outcome: &Outcome) -> Code {
    match outcome {
        Outcome::Completed => Code::Done,
        Outcome::Cancelled { .. } => Code::Cancelled,
        Outcome::OutOfTurns | Outcome::OutOfBudget { .. } => Code::Spent,
        Outcome::Failed { .. }
        | Outcome::Interrupted { .. }
        | Outcome::TimedOut { .. }
        | Outcome::Lost
        | Outcome::RestartsExhausted { .. } => Code::Failed,
    }
}

pub(crate) fn describe_outcome(outcome: &Outcome) -> String {
    harmless(&cause::describe_outcome(outcome))
}

#[cfg(test)]
mod tests {
    use subtend_session::outcome::{Budget, FailKind, Initiator, ModelFail, TimeLimit};

    use super::*;

    #[test]
    fn outcome_maps_to_its_exit_code() {
        let ends = [
            (Outcome::Completed, Code::Done),
            (Outcome::Failed { kind: FailKind::Refused }, Code::Failed),
            (Outcome::Cancelled { by: Initiator::Person }, Code::Cancelled),
            (Outcome::Interrupted { by: Initiator::Host }, Code::Failed),
            (Outcome::TimedOut { what: TimeLimit::Run }, Code::Failed),
            (Outcome::OutOfTurns, Code::Spent),
            (Outcome::OutOfBudget { which: Budget::Money }, Code::Spent),
            (Outcome::Lost, Code::Failed),
            (Outcome::RestartsExhausted { command: None }, Code::Failed),
        ];
        for (outcome, expected) in ends {
            assert_eq!(code(&outcome), expected, "{outcome:?}");
        }
    }

    #[test]
    fn sentence_keeps_the_message_of_the_model() {
        let kind = FailKind::Model { error: ModelFail::Auth, message: "key `abc` expired".into() };
        let text = describe_outcome(&Outcome::Failed { kind });
        assert_eq!(text, "failed: the model's key is missing or refused: key `abc` expired");
    }
}
