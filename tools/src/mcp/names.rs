//! Names of servers and of their tools: `mcp__server__tool` for models, `mcp:server:tool` for rules.

use subtend_session::ids::Text;

use crate::registry::{SERVER_TOOL_PREFIX as PREFIX, short_name};

/// The argument for answers to the questions of a tool. The user approves the answers.
pub(super) const ANSWERS: &str = "mcp_answers";

/// Maximum length of a server's name, which leaves space for tool names.
const MAX_SERVER: usize = 32;

/// Replaces every character of `raw` that a tool name cannot contain with `_`.
pub(crate) fn plain(raw: &str) -> String {
    raw.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// Returns the name of a server for rules and tool names.
///
/// # Errors
/// If the name would be empty, too long or ambiguous.
pub(crate) fn server(raw: &str) -> Result<Text, String> {
    let name = plain(raw);
    if name.is_empty() || name.len() > MAX_SERVER {
        return Err(format!("its name must have 1 to {MAX_SERVER} characters"));
    }
    // Otherwise the tool `b` of server `a_` and the tool `_b` of server `a` would have the same name.
    if name.contains("__") || name.starts_with('_') || name.ends_with('_') {
        return Err(format!("its name `{name}` contains `__`, or starts or ends with `_`: rename it"));
    }
    Ok(name.into())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolName {
    /// `mcp__server__tool`, shortened if it is too long.
    pub(crate) name: Text,
    /// The full name, for lists of tools.
    pub(crate) full: Text,
    /// `mcp:server:tool`, never shortened: rules and files of other products have full names and patterns.
    pub(crate) action: Text,
}

impl ToolName {
    pub(crate) fn of(server: &str, raw: &str) -> Self {
        let tool = plain(raw);
        let full = format!("{PREFIX}{server}__{tool}");
        let action = format!("mcp:{server}:{tool}").into();
        Self { name: short_name(&full).into_owned().into(), full: full.into(), action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_has_a_name_for_models_and_one_for_rules() {
        let name = ToolName::of("github", "get issue/1");
        assert_eq!((&*name.name, &*name.action), ("mcp__github__get_issue_1", "mcp:github:get_issue_1"));
        let parts = crate::registry::parts;
        assert_eq!(parts(&name.name), Some(("github", "get_issue_1")));
        assert_eq!([parts("mcp__a"), parts("mcp____b"), parts("read")], [None, None, None]);
    }

    #[test]
    fn long_names_are_shortened_and_stay_distinct() {
        let (one, other) = ("x".repeat(80), "x".repeat(81));
        let names = [&one, &other].map(|raw| ToolName::of("server", raw));
        assert_eq!(names.each_ref().map(|names| names.name.len()), [64, 64]);
        assert_ne!(names[0].name, names[1].name);
        // Names in rules are not shortened.
        assert_eq!(names.map(|names| names.action.to_string()), [one, other].map(|raw| format!("mcp:server:{raw}")));
    }

    #[test]
    fn ambiguous_server_name_is_refused() {
        assert_eq!(server("my server.io").as_deref(), Ok("my_server_io"));
        for raw in ["", "a__b", "a_", "_a", "a  b", &"s".repeat(33)] {
            assert!(server(raw).is_err(), "{raw}");
        }
    }
}
