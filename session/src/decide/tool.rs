use super::draft::Draft;
use super::ending::closing_text;
use crate::call::{CallEnd, CallKind, CallResult};
use crate::command::Deadline;
use crate::effect::Rejection;
use crate::ids::CallId;
use crate::record::{CallFinished, Record};
use crate::render;
use crate::state::{CallPhase, Phase};

pub(super) fn on_tool_finished(
    draft: &mut Draft<'_>,
    call: CallId,
    result: CallResult,
    worked_ms: u64,
) -> Result<(), Rejection> {
    if !is_running(draft, call) {
        return Err(Rejection::Stale("a tool's result"));
    }
    let held = matches!(draft.state.phase(), Phase::HeldInterrupted | Phase::HeldOutOfTurns);
    let CallResult { end, content: whole, truncated_from } = if held { as_interrupted(result) } else { result };
    let len = whole.len() as u64;
    let content = render::cut(&whole, draft.state.limits.tool_result_bytes);
    let truncated_from = truncated_from.or((content.len() as u64 != len).then_some(len));
    let finished = CallFinished { call, end, content, truncated_from, worked_ms };
    draft.emit(Record::CallFinished(Box::new(finished)));
    draft.disarm(Deadline::Call(call));
    draft.advance();
    Ok(())
}

/// Returns a call's result in an interrupted run. A finished call keeps its content, so that it is not repeated.
fn as_interrupted(result: CallResult) -> CallResult {
    let CallResult { end, content, truncated_from } = result;
    let content = match end {
        CallEnd::UnknownEffects => return CallResult { end, content, truncated_from },
        CallEnd::Ok => format!("The run was interrupted, but this call finished:\n{content}").into(),
        CallEnd::Cancelled => closing_text(&CallEnd::Interrupted).into(),
        CallEnd::Interrupted
        | CallEnd::ToolError { .. }
        | CallEnd::Denied
        | CallEnd::TimedOut
        | CallEnd::Backgrounded => content,
    };
    CallResult { end: CallEnd::Interrupted, content, truncated_from }
}

/// Returns whether `call` is a started local call without a result.
pub(super) fn is_running(draft: &Draft<'_>, call: CallId) -> bool {
    let local = |kind: &CallKind| kind.is_local();
    draft.state.call(call).is_some_and(|call| call.phase == CallPhase::Started && call.kind.as_ref().is_some_and(local))
}
