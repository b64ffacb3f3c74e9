//! Starts and ends of runs in the words of `subagent`: results as objects.

use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::ids::{Short, Text};
use crate::outcome::{Outcome, OutcomeKind};
use crate::record::Notice;
use crate::render::{cut_in_json, outcome_phrase, refusal};
use crate::state::{Child, State};

const RESULT: &str = "You receive its result automatically: continue, or end your turn.";

pub(super) fn start_result(short: &Short, turns: u32) -> Text {
    handle_object(short, &format!("The subagent is running, for at most {turns} iterations. {RESULT}"))
}

pub(super) fn continue_result(short: &Short, turns: Option<u32>) -> Text {
    let most = turns.map(|turns| format!(", for at most {turns} iterations more")).unwrap_or_default();
    handle_object(short, &format!("The subagent resumes where it stopped{most}. {RESULT}"))
}

fn handle_object(short: &Short, message: &str) -> Text {
    let id = &*short.0;
    let started = json!({"success": true, "subagentId": id, "branchId": id, "status": "started", "message": message});
    started.to_string().into()
}

/// Returns the completion object with the outcome, the child and the branch point.
pub(super) fn end_result(state: &State, item: &Notice, child: &Child) -> String {
    let text = cut_in_json(&item.prefix, state.limits.result_bytes);
    let completed = item.outcome == Outcome::Completed;
    // `abandoned` is the state of a branch, and no status of the tool.
    let kind = item.outcome.kind();
    let word = if kind == OutcomeKind::Lost { "error" } else { Dialect::Subagent.word(kind) };
    let id = &*child.short.0;
    let mut result = Map::new();
    let mut put = |key: &str, value: Value| _ = result.insert(key.to_owned(), value);
    put("success", completed.into());
    put("subagentId", id.into());
    put("branchId", id.into());
    put("conversationId", state.id.to_string().into());
    if let Some(at) = child.at {
        put("parentMessageId", at.to_string().into());
    }
    if let Some(label) = &child.label {
        put("task", (**label).into());
    }
    put("status", word.into());
    put("iterations", item.base_turns.saturating_add(item.turns).into());
    let why = item.refused.map_or_else(
        || format!("The subagent {}.", outcome_phrase(item)),
        |why| format!("The subagent did not continue: {}.", refusal(why)),
    );
    put("message", why.clone().into());
    if !text.is_empty() {
        put("result", (*text).into());
    }
    if item.len > text.len() as u64 {
        put("truncatedFrom", item.len.into());
    }
    if !completed {
        put("error", why.into());
    }
    format!("\n{}\n", Value::Object(result))
}
