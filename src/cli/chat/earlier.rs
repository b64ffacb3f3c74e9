//! The earlier conversation, for a user who returns to a session.

use subtend_journal::Journal;
use subtend_session::context;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::message::Message;
use subtend_session::state::State;
use subtend_tools::registry::Registry;

use super::super::fail::Fail;
use super::super::paint::{clip, harmless};
use super::super::work::brief;

/// Maximum number of messages shown; earlier ones are left out.
const MAX_SHOWN: usize = 200;

/// Returns the conversation up to record `upto` as the model sees it, one text per message; empty for a new session.
pub(in crate::cli) fn read(
    journal: &Journal,
    session: SessionId,
    upto: Seq,
    tools: &Registry,
) -> Result<Vec<String>, Fail> {
    if upto == Seq(0) {
        return Ok(Vec::new());
    }
    let records = journal.records(session)?;
    let before = records.iter().filter(|stored| stored.seq <= upto).map(|stored| &stored.record);
    let state = State::fold(session, before).map_err(|error| Fail::Store(error.to_string()))?;
    let messages = context::visible(&state);
    let left_out = messages.len().saturating_sub(MAX_SHOWN);
    let more = (left_out > 0).then(|| format!("{left_out} earlier messages: subtend show {}", session.short().0));
    Ok(more.into_iter().chain(messages.iter().skip(left_out).filter_map(|message| text(message, tools))).collect())
}

pub(super) fn message(text: &str) -> String {
    format!("> {}", harmless(text.trim_end()).replace('\n', "\n  "))
}

fn text(message: &Message, tools: &Registry) -> Option<String> {
    match message {
        Message::User { text, .. } => Some(self::message(text)),
        Message::Assistant { text, calls, .. } => {
            let output = text.as_deref().filter(|text| !text.trim().is_empty()).map(|text| harmless(text.trim_end()));
            let calls =
                calls.iter().map(|tool_call| format!("  {}", brief::call(&tool_call.tool, &tool_call.args, tools)));
            let lines: Vec<_> = output.into_iter().chain(calls).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        }
        Message::Notice { text, .. } => Some(format!("  {}", clip(text, 100))),
        Message::Result { .. } | Message::Prompt { .. } => None,
    }
}
