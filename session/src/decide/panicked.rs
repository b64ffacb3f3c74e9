use super::attempt;
use super::draft::Draft;
use super::tool;
use crate::call::{CallEnd, CallKind, CallResult, ToolEffect, ToolErrorKind};
use crate::command::AttemptFailed;
use crate::effect::Rejection;
use crate::ids::{AttemptNo, CallId, Text, TurnNo};
use crate::outcome::{FailKind, ModelFail, Part};

pub(super) fn on_turn_panicked(
    draft: &mut Draft<'_>,
    turn: TurnNo,
    attempt: AttemptNo,
    part: Part,
    message: Text,
) -> Result<(), Rejection> {
    let failed = AttemptFailed {
        turn,
        attempt,
        error: ModelFail::Unavailable,
        message: format!("panicked: {message}").into(),
        retry_after_ms: None,
        model: None,
        next: None,
        resets: Vec::new(),
        usage: None,
        queued_ms: 0,
    };
    attempt::discard(draft, failed, FailKind::Panic { part, message })
}

pub(super) fn on_tool_panicked(draft: &mut Draft<'_>, call: CallId, message: &str) -> Result<(), Rejection> {
    let kind = draft.state.call(call).and_then(|call| call.kind.as_ref());
    let effects = kind == Some(&CallKind::Local(ToolEffect::SideEffect));
    let result = if effects {
        let content = format!("The tool crashed ({message}): it may have had all, some or none of its effects.");
        CallResult { end: CallEnd::UnknownEffects, content: content.into(), truncated_from: None }
    } else {
        CallResult::error(ToolErrorKind::Panicked, format!("The tool crashed: {message}"))
    };
    tool::on_tool_finished(draft, call, result, 0)
}
