//! Names of MCP tools: short names for models, and full names and patterns in lists of tools.

use std::borrow::Cow;

use subtend_session::ids::{Hash, Text};

pub(crate) const SERVER_TOOL_PREFIX: &str = "mcp__";
/// Maximum length of a tool name that providers accept.
pub(super) const MAX_NAME: usize = 64;
/// Number of hexadecimal digits of the hash in a shortened name.
const HASH_DIGITS: usize = 8;

/// Splits a name such as `mcp__github__get_issue` into server and tool.
pub(crate) fn parts(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(SERVER_TOOL_PREFIX)?
        .split_once("__")
        .filter(|(server, tool)| !server.is_empty() && !tool.is_empty())
}

/// Returns the name with which models call a tool. A long name of an MCP tool is shortened and ends with a hash.
pub(crate) fn short_name(name: &str) -> Cow<'_, str> {
    let begin = name.get(..MAX_NAME.saturating_sub(HASH_DIGITS + 1)).filter(|_| name.len() > MAX_NAME);
    let Some((begin, (_, tool))) = begin.zip(parts(name)) else { return Cow::Borrowed(name) };
    let mut hash = Hash::of(tool.as_bytes()).to_string();
    hash.truncate(HASH_DIGITS);
    Cow::Owned(format!("{begin}_{hash}"))
}

/// Returns whether a list of tools contains the tool with the full name `name`. An entry is a short name, a full name or a pattern:
/// `mcp__server` or `mcp__server__*` means all tools of that MCP server, and `mcp__server__get_*` all tools whose full names begin with
/// `mcp__server__get_`.
pub fn list_contains(only: &[Text], name: &str) -> bool {
    let short = short_name(name);
    let matches_server = |entry: &Text| {
        let Some(server) = entry.strip_prefix(SERVER_TOOL_PREFIX) else { return false };
        if let Some((prefix, server_prefix)) =
            entry.strip_suffix('*').zip(server.strip_suffix('*')).filter(|(_, of)| of.contains("__"))
        {
            return !server_prefix.starts_with('_') && name.starts_with(prefix);
        }
        let is_server = !server.is_empty() && !server.contains("__") && !server.contains('*');
        is_server && name.strip_prefix(&**entry).is_some_and(|rest| rest.starts_with("__"))
    };
    only.iter().any(|entry| short_name(entry) == short || matches_server(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_listed(entry: &str, name: &str) -> bool {
        list_contains(&[entry.into()], name)
    }

    #[test]
    fn list_entry_can_match_all_tools_of_a_server() {
        for entry in ["mcp__git", "mcp__git__*", "mcp__git__lo*", "mcp__git__log"] {
            assert!(is_listed(entry, "mcp__git__log"), "{entry}");
            assert!(!is_listed(entry, "mcp__github__log") && !is_listed(entry, "mcp__gi__t__log"), "{entry}");
        }
        for entry in ["mcp__*", "mcp__", "*", "mcp____*", "mcp__git__la*", "mcp__gi*"] {
            assert!(!is_listed(entry, "mcp__git__log"), "{entry}");
        }
    }

    /// The control: long names of other tools and short names are not shortened.
    #[test]
    fn list_entry_can_be_the_full_name_of_a_shortened_tool() {
        let long = |letter: &str| format!("mcp__git__{}", letter.repeat(80));
        let (one, other) = (long("a"), long("b"));
        let name = short_name(&one);
        assert_eq!((name.len(), name.get(..55)), (64, one.get(..55)));
        assert!(is_listed(&one, &name) && is_listed(&name, &one) && is_listed("mcp__git", &name));
        assert!(!is_listed(&other, &name) && !is_listed(&one.replacen('a', "", 1), &name));
        let pattern = format!("{}*", one.get(..70).unwrap());
        assert!(is_listed(&pattern, &one) && !is_listed(&pattern, &other));
        for whole in ["mcp__git__log", &"t".repeat(80), "mcp__git"] {
            assert_eq!(short_name(whole), whole);
        }
    }
}
