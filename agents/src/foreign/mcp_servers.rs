//! `mcpServers` of Claude Code: servers that an agent may use, by their names.
//!
//! A server that the file itself defines is reported and never started: servers run outside the sandbox, and trusting agent
//! files does not permit starting programs (`docs/decisions/0030-files-of-other-products.md`).

use serde_json::Value;

use super::fields::{Fields, shorten};
use crate::form::shown;
use crate::front::MAX_UNKNOWN;

pub(crate) const KEY: &str = "mcpServers";

/// Takes the names of the servers, in the spelling of tools and rules. Everything else in the list is reported.
pub(super) fn take(fields: &mut Fields) -> Vec<String> {
    let Some(mut value) = fields.take(KEY) else { return Vec::new() };
    let mut notes = Vec::new();
    for entry in entries(&value) {
        match entry {
            ServerMention::Name(name) if server_prefix(name).is_some() => {}
            ServerMention::Name(name) => notes.push(format!(
                "`{KEY}`: `{}` is not a server name: use letters, digits, `-` and single `_`",
                shorten(name)
            )),
            ServerMention::Definition(name) => notes.push(format!(
                "`{KEY}`: the server `{}` is not started, because the file of an agent defines it: define it in `.mcp.json` or in \
                 your configuration (`mcp.servers`), and name it here",
                shorten(name)
            )),
            ServerMention::Other(other) => notes.push(format!("`{KEY}`: {} has no effect: give the names of servers", shown(other))),
        }
    }
    let more = notes.len().saturating_sub(MAX_UNKNOWN);
    notes.into_iter().take(MAX_UNKNOWN).for_each(|note| fields.note(note));
    if more > 0 {
        fields.note(format!("`{KEY}`: {more} more entries have no effect"));
    }
    let named = names(&value);
    if let Value::Array(items) = &mut value {
        items.retain(Value::is_string);
    }
    fields.kept.insert(KEY.to_owned(), value);
    named
}

/// Returns the names in a value of the key, in the spelling of tools and rules.
pub(crate) fn names(value: &Value) -> Vec<String> {
    let named = entries(value).into_iter().filter_map(|entry| match entry {
        ServerMention::Name(name) => server_prefix(name),
        ServerMention::Definition(_) | ServerMention::Other(_) => None,
    });
    named.collect()
}

/// Returns the tool list entry that represents all tools of a server.
pub(crate) fn all_tools(server: &str) -> String {
    format!("mcp__{server}")
}

enum ServerMention<'a> {
    Name(&'a str),
    /// The definition of a server in the agent file itself.
    Definition(&'a str),
    Other(&'a Value),
}

fn entries(value: &Value) -> Vec<ServerMention<'_>> {
    match value {
        Value::Array(items) => items.iter().flat_map(of_item).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => of_item(value),
    }
}

fn of_item(item: &Value) -> Vec<ServerMention<'_>> {
    match item {
        Value::String(text) => {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(ServerMention::Name).collect()
        }
        Value::Object(defined) => defined.keys().map(|name| ServerMention::Definition(name)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => vec![ServerMention::Other(item)],
    }
}

/// Returns the name of a server, or of one of its tools, with the characters that tool names may not have replaced.
pub(super) fn sanitize(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// Returns the name of a server as tool names spell it; `None` for a name with `__`, which could be mistaken for a tool of another server.
fn server_prefix(name: &str) -> Option<String> {
    let spelled = sanitize(name);
    let ambiguous = spelled.contains("__") || spelled.starts_with('_') || spelled.ends_with('_');
    (!ambiguous && !spelled.is_empty() && !name.contains('*')).then_some(spelled)
}
