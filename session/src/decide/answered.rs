//! Answers of the model.

use super::arguments;
use super::calls::Wanted;
use super::draft::Draft;
use super::ending::Scope;
use crate::call::{CallEnd, CallKind};
use crate::command::{Answered, Deadline};
use crate::effect::Rejection;
use crate::outcome::{FailKind, Outcome};
use crate::record::{Prompt, Record, Stop, ToolCall, TurnAnswered};
use crate::state::{Phase, Run, Turn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Calls,
    Final,
    /// Empty after notices alone: the earlier answer remains.
    Nothing,
    /// Truncated or empty: one more turn with this prompt.
    Again(Prompt),
    /// Truncated, empty or refused, without a retry.
    Failed(AnswerFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerFailure {
    Truncated,
    Empty,
    Refused,
}

pub(super) fn answered(draft: &mut Draft<'_>, mut answer: Answered) -> Result<(), Rejection> {
    let awaited = |turn: &Turn| turn.streaming && turn.no == answer.turn && turn.attempt == answer.attempt;
    let Some(run) = draft.run().filter(|run| run.turn.as_deref().is_some_and(awaited)) else {
        return Err(Rejection::Stale("a model's answer"));
    };
    arguments::bound(&mut answer, draft.state.limits.argument_bytes);
    let phase = draft.state.phase();
    let amount = amount(run, &answer);
    let returns = answer.calls.iter().any(|call| call.kind == CallKind::Return)
        && draft.refuses_return(answer.calls.iter().any(|call| call.kind.is_child()), false).is_none();
    let answers = if returns || matches!(amount, Amount::Final) { run.unanswered.clone() } else { Vec::new() };
    let run_no = run.no;
    let turn = answer.turn;
    let (requested, wanted) = split(answer.calls);
    draft.emit(Record::TurnAnswered(Box::new(TurnAnswered {
        run: run_no,
        turn,
        attempt: answer.attempt,
        text: answer.text,
        reasoning: answer.reasoning,
        calls: requested,
        stop: answer.stop,
        model: answer.model,
        usage: answer.usage,
        answers,
        worked_ms: draft.clock.worked_ms,
    })));
    draft.disarm(Deadline::Turn(turn));
    draft.answered = true;
    match phase {
        Phase::HeldInterrupted | Phase::HeldOutOfTurns => {
            draft.answer_calls(Scope::Waiting, &CallEnd::Interrupted);
            draft.check();
        }
        Phase::Closing => {
            draft.answer_calls(Scope::Waiting, &CallEnd::Cancelled);
            draft.check();
        }
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest | Phase::Quiet => {
            act(draft, turn, amount, wanted);
        }
    }
    Ok(())
}

fn act(draft: &mut Draft<'_>, turn: crate::ids::TurnNo, amount: Amount, wanted: Vec<Wanted>) {
    match amount {
        Amount::Calls => {
            draft.enqueue(turn, wanted);
            draft.check();
        }
        Amount::Final | Amount::Nothing => draft.check(),
        Amount::Again(prompt) => {
            let inputs = draft.takeable(false);
            let spent = inputs.is_empty() && draft.run().is_some_and(Run::is_spent);
            if spent {
                draft.out_of_turns();
            } else {
                draft.take_and_go(inputs, prompt);
            }
        }
        Amount::Failed(failure) => {
            let kind = match failure {
                AnswerFailure::Truncated => FailKind::Truncated,
                AnswerFailure::Empty => FailKind::Empty,
                AnswerFailure::Refused => FailKind::Refused,
            };
            draft.end(Outcome::Failed { kind });
        }
    }
}

fn amount(run: &Run, answer: &Answered) -> Amount {
    let prompted = run.turn.as_ref().is_some_and(|turn| turn.prompt != Prompt::Plain);
    let text = answer.text.as_ref().is_some_and(|text| !text.trim().is_empty());
    match answer.stop {
        Stop::Refused => Amount::Failed(AnswerFailure::Refused),
        Stop::End | Stop::Calls | Stop::Length | Stop::Other if !answer.calls.is_empty() => Amount::Calls,
        Stop::Length if prompted => Amount::Failed(AnswerFailure::Truncated),
        Stop::Length => Amount::Again(Prompt::Continuation),
        Stop::End | Stop::Calls | Stop::Other if text => Amount::Final,
        // An empty reaction to notices: the model has answered before.
        Stop::End | Stop::Calls | Stop::Other if run.by_notices && run.answer.is_some() => Amount::Nothing,
        Stop::End | Stop::Calls | Stop::Other if prompted => Amount::Failed(AnswerFailure::Empty),
        Stop::End | Stop::Calls | Stop::Other => Amount::Again(Prompt::Nudge),
    }
}

fn split(calls: Vec<crate::command::ResolvedCall>) -> (Vec<ToolCall>, Vec<Wanted>) {
    calls
        .into_iter()
        .zip(0_u32..)
        .map(|(call, ix)| {
            (call.asked, Wanted { ix, kind: call.kind, note: call.note, access: call.access, ask: call.ask })
        })
        .unzip()
}
