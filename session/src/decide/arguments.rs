//! Bounds on call arguments, applied before anything is recorded.

use serde_json::json;

use crate::call::{CallKind, Invalid};
use crate::command::{Answered, NeededApproval, ResolvedCall};
use crate::dialect::Dialect;
use crate::ids::{Text, TurnNo};
use crate::names::check_length;

/// Maximum recorded bytes of the tool name and of the provider id of a call that is refused for its size.
const MAX_NAME: usize = 64;

/// Refuses each call of `answer` that exceeds what remains of `limit`, or has a name that no import takes, and replaces its arguments with
/// a note.
pub(super) fn bound(answer: &mut Answered, limit: u64) {
    let mut remaining = limit;
    for (call, ix) in answer.calls.iter_mut().zip(0_u32..) {
        let size = call.asked.text_bytes() as u64;
        let (text, note) = match remaining.checked_sub(size) {
            Some(rest) => match check_length("name", &call.asked.tool) {
                Ok(()) => {
                    remaining = rest;
                    continue;
                }
                Err(why) => (format!("Not started: no tool has this name. {why}."), why),
            },
            None => (
                format!(
                    "Not started: the arguments have {size} bytes, and all calls of one answer may have {limit} (argument_bytes). They \
                     are not recorded. Call again with shorter arguments, in several calls if necessary."
                ),
                format!("{size} bytes, above the argument_bytes limit of {limit}"),
            ),
        };
        refuse(call, (answer.turn, ix), &text, &note);
    }
}

fn refuse(call: &mut ResolvedCall, (turn, ix): (TurnNo, u32), text: &str, note: &str) {
    let tool_call = &mut call.asked;
    let dialect = Dialect::from_name(&tool_call.tool).unwrap_or_default();
    tool_call.args = json!({ "not_recorded": note }).to_string().into();
    tool_call.tool = truncate_name(&tool_call.tool);
    if tool_call.provider_id.len() > MAX_NAME {
        tool_call.provider_id = format!("call-{}-{ix}", turn.0).into();
    }
    *call = ResolvedCall {
        asked: tool_call.clone(),
        kind: CallKind::Invalid(Invalid::OverLimit),
        note: Some(dialect.refused("LIMIT_REACHED", text)),
        access: None,
        ask: NeededApproval::None,
    };
}

fn truncate_name(name: &Text) -> Text {
    name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or_default().into()
}
