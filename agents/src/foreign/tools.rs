//! Names of other products' tools, and the corresponding tools here.

use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The tool here with the same purpose, or `None` if no tool is needed.
    pub(super) tool: Option<&'static str>,
    pub(super) action: &'static str,
}

const CHILDREN: &str = "task";

const TABLE: [(&[&str], Option<&str>, &str); 11] = [
    (&["read", "view", "notebookread"], Some("read"), "fs.read"),
    (&["ls", "list", "glob"], Some("list"), "fs.read"),
    (&["grep", "search"], Some("search"), "fs.read"),
    (&["write"], Some("write"), "fs.write"),
    (&["edit", "multiedit", "notebookedit", "patch", "apply_patch"], Some("edit"), "fs.write"),
    (&["bash", "shell"], Some("shell"), "shell.run"),
    (&["webfetch", "fetch"], Some("fetch"), "net.fetch"),
    (&["websearch", "web_search"], Some("web_search"), "net.search"),
    (&["task", "agent"], Some(CHILDREN), "task:*"),
    (&["skill"], Some("skill"), "fs.read"),
    (
        &[
            "todowrite",
            "todoread",
            "bashoutput",
            "killshell",
            "killbash",
            "taskoutput",
            "taskstop",
            "askuserquestion",
            "question",
            "enterplanmode",
            "exitplanmode",
            "plan_enter",
            "plan_exit",
            "slashcommand",
            "toolsearch",
            "lsp",
        ],
        None,
        "",
    ),
];

pub(super) fn known(name: &str) -> Option<Known> {
    let name = name.to_lowercase();
    let (_, tool, action) = TABLE.iter().find(|(names, ..)| names.contains(&&*name))?;
    Some(Known { tool: *tool, action })
}

/// Returns the tools here whose counterparts have a name that `matches`.
pub(super) fn matching(matches: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(move |(names, ..)| names.iter().any(|name| matches(name))).filter_map(|(_, tool, _)| *tool)
}

/// Returns the tools that a table entry represents. For an entry about children, these are the tools of all dialects.
pub(super) fn named(tool: &'static str) -> Vec<&'static str> {
    if tool == CHILDREN { Dialect::ALL.map(Dialect::name).to_vec() } else { vec![tool] }
}

pub(super) fn all_except(without: &[&str]) -> Vec<Text> {
    let tools = TABLE.iter().filter_map(|(_, tool, _)| *tool).filter(|tool| !without.contains(tool));
    tools.flat_map(named).map(Text::from).collect()
}

/// Returns the tools that need `action`, except `skill`.
pub(super) fn of_action(action: &str) -> impl Iterator<Item = &'static str> {
    TABLE
        .iter()
        .filter(move |(_, _, needs)| *needs == action)
        .filter_map(|(_, tool, _)| *tool)
        .filter(|tool| *tool != "skill")
}

/// Returns the action for a tool of a server (`mcp__github__get_issue`), or for all tools of a server (`mcp__github`).
pub(super) fn of_server(name: &str) -> Option<String> {
    let rest = name.strip_prefix("mcp__")?;
    let action = match rest.split_once("__") {
        Some((server, tool)) if !tool.is_empty() => format!("mcp:{server}:{tool}"),
        Some((server, _)) => format!("mcp:{server}:*"),
        None if rest.contains('*') => format!("mcp:{rest}"),
        None => format!("mcp:{rest}:*"),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-' | '*' | '.');
    action.chars().all(plain).then_some(action)
}
