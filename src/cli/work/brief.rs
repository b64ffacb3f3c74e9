//! Short descriptions of calls: `search "error"`, `read src/main.rs`.

use serde_json::Value;
use subtend_session::dialect::discovery;
use subtend_session::values::parse_recorded;
use subtend_tools::display::RenderedCall;
use subtend_tools::registry::Registry;

use super::super::paint::clip;

const ARGUMENT_WIDTH: usize = 48;

/// Arguments that can describe a call, the most descriptive first, and whether to quote them.
const DESCRIPTIVE_ARGS: [(&str, bool); 9] = [
    ("pattern", true),
    ("query", true),
    ("path", false),
    ("command", false),
    ("subagent_type", false),
    ("url", false),
    ("name", false),
    ("description", false),
    ("prompt", true),
];

/// Describes the call as its tool displays it, without control characters.
pub(crate) fn call(named: &str, args: &str, tools: &Registry) -> String {
    let RenderedCall { tool, display, input, .. } = tools.render_call(named, args, None);
    let used = discovery::resolve(named, args);
    let args = used.as_ref().map_or(args, |(_, args)| args);
    let tool = if display.name.is_empty() { tool } else { display.name };
    let icon = if display.icon.is_empty() { String::new() } else { format!("{} ", clip(&display.icon, 4)) };
    let tool = format!("{icon}{}", clip(&tool, 24));
    let own = input.map(|input| clip(&input, ARGUMENT_WIDTH));
    let lines = super::diff::count_changes(args).map(|lines| format!(" ({lines})")).unwrap_or_default();
    match own.or_else(|| parse_recorded::<Value>(args).ok().as_ref().and_then(describe_args)) {
        Some(about) => format!("{tool} {about}{lines}"),
        None => tool,
    }
}

fn describe_args(args: &Value) -> Option<String> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let (value, quoted) =
        DESCRIPTIVE_ARGS.iter().find_map(|(name, quoted)| text(name).map(|value| (value, *quoted)))?;
    let value = clip(value, ARGUMENT_WIDTH);
    Some(if quoted { format!("\"{value}\"") } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_described_by_its_best_argument() {
        let call = |tool: &str, args: &str| call(tool, args, &Registry::default());
        let cases = [
            (call("search", r#"{"path":"src","pattern":"error"}"#), "search \"error\""),
            (call("read", r#"{"path":"src/main.rs","from":3}"#), "read src/main.rs"),
            (call("list", r#"{"path":" "}"#), "list"),
            (call("edit", r#"{"path":"a","old":"x\ny","new":"x\nz\nq"}"#), "edit a (+2 -1)"),
            (call("shell", r#"{"command":"a\u001b[2J\nb"}"#), "shell a<U+001B>[2J b"),
            (call("read", "{\"path\":"), "read"),
            (call("odd", "[1]"), "odd"),
            (call("use_tool", r#"{"tool":"read","args":{"path":"a"}}"#), "read a"),
            (call("minion", r#"{"message":"Count\u001b them."}"#), "🤖 Minion Count<U+001B> them."),
        ];
        for (brief, expected) in cases {
            assert_eq!(brief, expected);
        }
    }
}
