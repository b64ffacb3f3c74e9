//! The delivery properties of each command, in one table.

use subtend_session::command::{Command, SwitchTo};
use subtend_session::effect::{Rejection, Reply};
use subtend_session::ids::RunNo;
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::record::{Hold, Record};

pub(crate) type Evidence = fn(&Record) -> Option<(Reply, RunNo)>;

/// Facts from outside the session that a command needs before it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Whether the root was granted slots in the meantime, which extends a queue deadline.
    Time,
    Asker,
    /// The tasks of the answer's calls, whether an approval covers them, and results to be read again.
    Answer,
    /// Results to be read again, for calls that start in this activation.
    Recalled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prepared {
    Ready,
    Refused(Rejection),
    /// The command is not due yet and will be sent again.
    Postponed,
}

#[derive(Clone, Copy)]
pub(crate) struct Handling {
    pub(crate) is_control: bool,
    /// True if the command concerns the run in flight: a dormant run resumes with it.
    pub(crate) concerns_the_run: bool,
    pub(crate) needs: Needs,
    /// Finds the record that shows that the command was applied. Set if a repetition would apply to the next run.
    pub(crate) evidence: Option<Evidence>,
}

const CONTROL: Handling = Handling { is_control: true, concerns_the_run: true, needs: Needs::Nothing, evidence: None };
const DATA: Handling = Handling { is_control: false, ..CONTROL };
/// A change of the session that does not concern its run.
const OUTSIDE_RUN: Handling = Handling { concerns_the_run: false, ..DATA };

/// Returns the properties of `command`; the table lists each command once.
pub(crate) fn handling(command: &Command) -> Handling {
    match command {
        Command::Cancel { run: None, .. } => Handling { evidence: Some(cancel_reply), ..CONTROL },
        Command::Interrupt { .. } => Handling { evidence: Some(interrupt_reply), ..CONTROL },
        Command::Cancel { run: Some(_), .. }
        | Command::OwnerEnded { .. }
        | Command::OwnerCancels { .. }
        | Command::NotCalled { .. }
        | Command::RestartsExhausted { .. }
        | Command::Lost { .. } => CONTROL,
        // `Continue` is a control command, so that its cancel cannot overtake it.
        Command::Continue(_) => Handling { needs: Needs::Asker, ..CONTROL },
        Command::Deadline(_) => Handling { needs: Needs::Time, ..CONTROL },
        Command::Reactivated { .. } => Handling { needs: Needs::Recalled, ..CONTROL },
        Command::ModelAnswered(_) => Handling { needs: Needs::Answer, ..DATA },
        Command::Submit(_)
        | Command::Admitted { .. }
        | Command::AttemptFailed(_)
        | Command::ToolFinished { .. }
        | Command::Spawn { .. }
        | Command::OwnedEnded(_)
        | Command::Background { .. }
        | Command::AskAnswered { .. }
        | Command::TurnPanicked { .. }
        | Command::ToolPanicked { .. } => DATA,
        Command::Switch { to: SwitchTo::Previous | SwitchTo::Next, .. } => {
            Handling { evidence: Some(switch_reply), ..OUTSIDE_RUN }
        }
        Command::RollBack { run: None, .. } => Handling { evidence: Some(rollback_reply), ..OUTSIDE_RUN },
        Command::UndoCompaction { .. } => Handling { evidence: Some(undo_reply), ..OUTSIDE_RUN },
        // A compaction for a waiting model call concerns the run, but a dormant run has no such call.
        Command::Compact(_)
        | Command::ChangeQueue { .. }
        | Command::Delete { .. }
        | Command::Branch(_)
        | Command::Regenerate(_)
        | Command::Switch { to: SwitchTo::Index(_), .. }
        | Command::RollBack { run: Some(_), .. }
        | Command::Describe(_)
        | Command::Close { .. } => OUTSIDE_RUN,
    }
}

fn cancel_reply(record: &Record) -> Option<(Reply, RunNo)> {
    let by_person = Outcome::Cancelled { by: Initiator::Person };
    let fixed = if let Record::RunEnded(ended) = record {
        Some((ended.run, &ended.outcome))
    } else if let Record::RunHeld { run, why } = record
        && let Hold::Closing { outcome, .. } = &**why
    {
        Some((*run, outcome))
    } else {
        None
    };
    fixed.filter(|(_, outcome)| **outcome == by_person).map(|(run, _)| (Reply::Done(run), run))
}

fn interrupt_reply(record: &Record) -> Option<(Reply, RunNo)> {
    let run = if let Record::RunEnded(ended) = record {
        (ended.outcome == Outcome::Interrupted { by: Initiator::Person }).then_some(ended.run)
    } else if let Record::RunHeld { run, why } = record {
        (**why == Hold::Interrupted { by: Initiator::Person }).then_some(*run)
    } else {
        None
    };
    run.map(|run| (Reply::Done(run), run))
}

fn switch_reply(record: &Record) -> Option<(Reply, RunNo)> {
    let Record::AlternativeSwitched { of, to, by: Initiator::Person } = record else { return None };
    Some((Reply::Switched { of: *of, to: *to }, RunNo(0)))
}

fn undo_reply(record: &Record) -> Option<(Reply, RunNo)> {
    matches!(record, Record::CompactionUndone { by: Initiator::Person }).then_some((Reply::Done(RunNo(0)), RunNo(0)))
}

fn rollback_reply(record: &Record) -> Option<(Reply, RunNo)> {
    let Record::RolledBack { run, by: Initiator::Person } = record else { return None };
    Some((Reply::Done(*run), *run))
}
