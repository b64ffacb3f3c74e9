//! What an edit changes, line by line.

use askama::Template;
use serde::Deserialize;
use similar::{ChangeTag, TextDiff};

use super::fragment;

/// Lines around a change.
const AROUND: usize = 3;

/// Arguments of the tools that change files.
#[derive(Deserialize)]
struct Args {
    path: String,
    old: Option<String>,
    new: Option<String>,
    content: Option<String>,
}

/// A line of a difference.
struct Line {
    class: &'static str,
    text: String,
}

#[derive(Template)]
#[template(path = "diff.html")]
struct Diff {
    path: String,
    lines: Vec<Line>,
}

/// Returns what a call changes, where its tool edits or writes a file.
pub(super) fn of_call(tool: &str, args: &str) -> Option<String> {
    if !matches!(tool, "edit" | "write") {
        return None;
    }
    let args: Args = serde_json::from_str(args).ok()?;
    let (old, new) = match (args.old, args.new, args.content) {
        (Some(old), Some(new), None) => (old, new),
        // What the file held before is not in the call.
        (None, None, Some(content)) => (String::new(), content),
        _ => return None,
    };
    Some(fragment(&Diff { path: args.path, lines: lines(&old, &new) }))
}

fn lines(old: &str, new: &str) -> Vec<Line> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (at, group) in diff.grouped_ops(AROUND).iter().enumerate() {
        if at > 0 {
            lines.push(Line { class: "gap", text: "…".to_owned() });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, class) = match change.tag() {
                ChangeTag::Equal => (" ", "same"),
                ChangeTag::Delete => ("-", "del"),
                ChangeTag::Insert => ("+", "ins"),
            };
            lines.push(Line { class, text: format!("{sign}{}", change.value().trim_end_matches(['\n', '\r'])) });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_is_shown_line_by_line() {
        let args = serde_json::json!({"path": "a.rs", "old": "one\ntwo\n", "new": "one\n<2>\n"}).to_string();
        let expected = "<p class=\"small\"><code>a.rs</code></p>\n<pre class=\"diff\" tabindex=\"0\"><span class=\"same\"> one</span>\
                        <span class=\"del\">-two</span><span class=\"ins\">+&#60;2&#62;</span></pre>";
        assert_eq!(of_call("edit", &args).as_deref(), Some(expected));
        assert_eq!(of_call("shell", &args), None);
        assert_eq!(of_call("edit", "{"), None);
    }
}
