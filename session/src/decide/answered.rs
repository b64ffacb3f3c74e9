use super::arguments;
use super::calls::UnstartedCall;
use super::draft::Draft;
use super::ending::Scope;
use crate::call::{CallEnd, CallKind};
use crate::command::{Answered, Deadline};
use crate::effect::Rejection;
use crate::outcome::{FailKind, Outcome};
use crate::record::{Prompt, Record, Stop, ToolCall, TurnAnswered};
use crate::state::{Phase, Run, Turn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerKind {
    Calls,
    Final,
    /// Empty, after notices only: the earlier answer remains the result.
    EmptyAfterNotices,
    /// Truncated or empty: another turn with this prompt follows.
    Again(Prompt),
    /// Truncated, empty or refused, and not retried.
    Failed(AnswerFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerFailure {
    Truncated,
    Empty,
    Refused,
}

pub(super) fn on_model_answered(draft: &mut Draft<'_>, mut answer: Answered) -> Result<(), Rejection> {
    let awaited = |turn: &Turn| turn.streaming && turn.no == answer.turn && turn.attempt == answer.attempt;
    let Some(run) = draft.run().filter(|run| run.turn.as_deref().is_some_and(awaited)) else {
        return Err(Rejection::Stale("a model's answer"));
    };
    arguments::bound(&mut answer, draft.state.limits.argument_bytes);
    let phase = draft.state.phase();
    let kind = classify(run, &answer);
    let returns = answer.calls.iter().any(|call| call.kind == CallKind::Return)
        && draft.return_refusal(answer.calls.iter().any(|call| call.kind.is_child()), false).is_none();
    let answers = if returns || matches!(kind, AnswerKind::Final) { run.unanswered.clone() } else { Vec::new() };
    let run_no = run.no;
    let turn = answer.turn;
    let (requested, unstarted) = split(answer.calls);
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
        queued_ms: answer.queued_ms,
    })));
    draft.disarm(Deadline::Turn(turn));
    draft.answered = true;
    match phase {
        Phase::HeldInterrupted | Phase::HeldOutOfTurns => {
            draft.answer_calls(Scope::Waiting, &CallEnd::Interrupted);
            draft.advance();
        }
        Phase::Closing => {
            draft.answer_calls(Scope::Waiting, &CallEnd::Cancelled);
            draft.advance();
        }
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest | Phase::Quiet => {
            act(draft, turn, kind, unstarted);
        }
    }
    Ok(())
}

fn act(draft: &mut Draft<'_>, turn: crate::ids::TurnNo, kind: AnswerKind, unstarted: Vec<UnstartedCall>) {
    match kind {
        AnswerKind::Calls => {
            draft.enqueue(turn, unstarted);
            draft.advance();
        }
        AnswerKind::Final | AnswerKind::EmptyAfterNotices => draft.advance(),
        AnswerKind::Again(prompt) => {
            let inputs = draft.takeable(false);
            let spent = inputs.is_empty() && draft.run().is_some_and(Run::is_spent);
            if spent {
                draft.out_of_turns();
            } else {
                draft.take_and_start_turn(inputs, prompt);
            }
        }
        AnswerKind::Failed(failure) => {
            let fail = match failure {
                AnswerFailure::Truncated => FailKind::Truncated,
                AnswerFailure::Empty => FailKind::Empty,
                AnswerFailure::Refused => FailKind::Refused,
            };
            draft.end(Outcome::Failed { kind: fail });
        }
    }
}

fn classify(run: &Run, answer: &Answered) -> AnswerKind {
    let prompted = run.turn.as_ref().is_some_and(|turn| turn.prompt != Prompt::Plain);
    let text = answer.text.as_ref().is_some_and(|text| !text.trim().is_empty());
    match answer.stop {
        Stop::Refused => AnswerKind::Failed(AnswerFailure::Refused),
        Stop::End | Stop::Calls | Stop::Length | Stop::Other if !answer.calls.is_empty() => AnswerKind::Calls,
        Stop::Length if prompted => AnswerKind::Failed(AnswerFailure::Truncated),
        Stop::Length => AnswerKind::Again(Prompt::Continuation),
        Stop::End | Stop::Calls | Stop::Other if text => AnswerKind::Final,
        // The model has answered before, and has nothing to add after notices.
        Stop::End | Stop::Calls | Stop::Other if run.by_notices && run.answer.is_some() => {
            AnswerKind::EmptyAfterNotices
        }
        Stop::End | Stop::Calls | Stop::Other if prompted => AnswerKind::Failed(AnswerFailure::Empty),
        Stop::End | Stop::Calls | Stop::Other => AnswerKind::Again(Prompt::Nudge),
    }
}

fn split(calls: Vec<crate::command::ResolvedCall>) -> (Vec<ToolCall>, Vec<UnstartedCall>) {
    calls
        .into_iter()
        .zip(0_u32..)
        .map(|(call, ix)| {
            (call.asked, UnstartedCall { ix, kind: call.kind, note: call.note, access: call.access, ask: call.ask })
        })
        .unzip()
}
