//! The changes of an edit, line by line.

use std::time::Duration;

use askama::Template;
use serde::Deserialize;
use similar::{ChangeTag, TextDiff};
use subtend_tools::escape::exact;

use super::fragment;

/// Lines around a change.
const AROUND: usize = 3;

/// Time for the search for a small difference; what is not compared by then is shown as removed and added.
const TIME: Duration = Duration::from_millis(50);

/// Arguments of the tools that change files.
#[derive(Deserialize)]
struct EditArgs {
    path: String,
    old: Option<String>,
    new: Option<String>,
    content: Option<String>,
}

struct DiffLine {
    class: &'static str,
    text: String,
}

#[derive(Template)]
#[template(path = "diff.html")]
struct Diff {
    path: String,
    lines: Vec<DiffLine>,
}

/// Returns what a call changes, where its tool edits or writes a file.
pub(super) fn of_call(tool: &str, args: &str) -> Option<String> {
    if !matches!(tool, "edit" | "write") {
        return None;
    }
    let args: EditArgs = serde_json::from_str(args).ok()?;
    let (old, new) = match (args.old, args.new, args.content) {
        (Some(old), Some(new), None) => (old, new),
        // What the file held before is not in the call.
        (None, None, Some(content)) => (String::new(), content),
        _ => return None,
    };
    Some(fragment(&Diff { path: exact(&args.path), lines: lines(&old, &new) }))
}

fn lines(old: &str, new: &str) -> Vec<DiffLine> {
    let diff = TextDiff::configure().timeout(TIME).diff_lines(old, new);
    let mut lines = Vec::new();
    for (at, group) in diff.grouped_ops(AROUND).iter().enumerate() {
        if at > 0 {
            lines.push(DiffLine { class: "gap", text: "…".to_owned() });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, class) = match change.tag() {
                ChangeTag::Equal => (" ", "same"),
                ChangeTag::Delete => ("-", "del"),
                ChangeTag::Insert => ("+", "ins"),
            };
            lines.push(DiffLine { class, text: format!("{sign}{}", exact(change.value().trim_end_matches('\n'))) });
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
        let unseen = serde_json::json!({"path": "a\u{202e}", "content": "x\u{200b}\r\n"}).to_string();
        let shown = of_call("write", &unseen).expect("a difference");
        assert!(shown.contains("a&#60;U+202E&#62;") && shown.contains("+x&#60;U+200B&#62;&#60;U+000D&#62;"), "{shown}");
    }

    /// The control, by hand: without its time, 60,000 lines took 7 s.
    #[test]
    fn hostile_edit_is_compared_within_its_time() {
        let text = |step: usize| (0..200_000).map(|n| format!("{}\n", n * step % 200_000)).collect::<String>();
        let lines = lines(&text(1), &text(7_919));
        assert!(lines.iter().any(|line| line.class == "ins"));
    }
}
