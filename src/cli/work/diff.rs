//! Shows the full effect of a call: every line of a command or an edit, or all changed lines of a file.

use serde_json::Value;
use subtend_session::values::parse_recorded;
use subtend_tools::background::PROCESS;
use subtend_tools::registry;

/// Maximum size in bytes of a file that is compared with its new content.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Returns the common lines at the start, the removed lines, the added lines, and the common lines at the end.
fn compared_lines<'a>(old: &'a str, new: &'a str) -> [Vec<&'a str>; 4] {
    // Lines include their line ends, so that a changed line end is a difference.
    let (mut old, mut new): (Vec<_>, Vec<_>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (mut removed, mut added) = (old.split_off(same), new.split_off(same));
    let same = removed.iter().rev().zip(added.iter().rev()).take_while(|(old, new)| old == new).count();
    let after = removed.split_off(removed.len().saturating_sub(same));
    added.truncate(added.len().saturating_sub(same));
    [old, removed, added, after]
}

/// Returns the path of a changed file with old and new text. `read` returns the old one if all of it is replaced.
fn texts(args: &Value, read: impl FnOnce(&str) -> Option<String>) -> Option<(String, String, String)> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
    let path = text("path")?;
    let (old, new) = match (text("old"), text("new"), text("content")) {
        (Some(old), Some(new), _) => (old, new),
        (None, None, Some(content)) => (read(&path).unwrap_or_default(), content),
        _ => return None,
    };
    Some((path, old, new))
}

/// Returns every line of a call's command or diff; `None` if it is neither.
pub(crate) fn all_lines(args: &str, workspace: &subtend_tools::workspace::Workspace) -> Option<String> {
    let args: Value = parse_recorded(args).ok()?;
    if let Some(command) = args.get("command").and_then(Value::as_str) {
        return Some(command.to_owned());
    }
    let (path, old, new) = texts(&args, |path| workspace.text(path, MAX_FILE_BYTES).ok())?;
    // An edit within a line has no line end of its own, so the notes are left out.
    let within = args.get("old").is_some() && !old.ends_with('\n') && !new.ends_with('\n');
    let [mut before, removed, added, mut after] = compared_lines(&old, &new);
    // The common lines of an edit decide where it applies. Those of a whole file decide nothing.
    if args.get("old").is_none() {
        (before, after) = Default::default();
    }
    let every = if args.get("replace_all") == Some(&Value::Bool(true)) { " (every occurrence)" } else { "" };
    let line = |sign: char, line: &&str| match line.strip_suffix('\n') {
        Some(line) => format!("{sign}{line}"),
        None if within => format!("{sign}{line}"),
        None => format!("{sign}{line} (no line end)"),
    };
    let signed = [(' ', before), ('-', removed), ('+', added), (' ', after)];
    let lines = signed.iter().flat_map(|(sign, texts)| texts.iter().map(|text| line(*sign, text)));
    Some(std::iter::once(format!("{path}{every}")).chain(lines).collect::<Vec<_>>().join("\n"))
}

/// Returns the question of the server with its form or page, or the text that is typed into a process, then the arguments
/// of the call, which name the process; `None` for other calls.
pub(crate) fn text_with_args(tool: &str, action: &str, resource: &str, args: &str) -> Option<String> {
    let has_text = action.starts_with("answer:") || types_text(tool, action);
    has_text.then(|| format!("{resource}\n\n{}", args.trim()))
}

pub(crate) fn types_text(tool: &str, action: &str) -> bool {
    action == "shell.run" && tool == PROCESS
}

/// Returns the full resource of the call. Records shorten long or misleading commands and add a hash. If the command in
/// the arguments, or the text that is typed into a process, matches the hash, returns that text.
pub(crate) fn resource(action: &str, recorded: &str, args: &str) -> String {
    let text = |name: &str| parse_recorded::<Value>(args).ok()?.get(name)?.as_str().map(str::to_owned);
    let is_recorded = |command: &String| *command == recorded || recorded.ends_with(&registry::mark(command));
    let mut texts = ["command", "text"].into_iter().filter(|_| action == "shell.run").filter_map(text);
    texts.find(is_recorded).unwrap_or_else(|| recorded.to_owned())
}

/// Returns the number of lines that an edit adds and removes: `+2 -1`; for a whole file, all its lines.
pub(super) fn count_changes(args: &str) -> Option<String> {
    let args: Value = parse_recorded(args).ok()?;
    let (_, old, new) = texts(&args, |_| None)?;
    let [_, removed, added, _] = compared_lines(&old, &new);
    Some(format!("+{} -{}", added.len(), removed.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u4_diff_has_every_line_that_changes() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("a"), "one\ntwo\nthree\n").expect("written");
        let workspace = subtend_tools::workspace::Workspace::open(dir.path()).expect("a workspace");
        let of = |args: Value| all_lines(&args.to_string(), &workspace);
        let edit = serde_json::json!({"path": "a", "old": "one\ntwo", "new": "one\n2\n2.5"});
        assert_eq!(
            of(edit.clone()).as_deref(),
            Some("a\n one\n-two\n+2\n+2.5"),
            "the edited part has no line end of its own"
        );
        // Only the lines around a change say which of several functions it is for. The control: a whole file, below.
        let attack =
            serde_json::json!({"path": "a", "old": "def is_admin():\n  no\n#", "new": "def is_admin():\n  yes\n#"});
        assert_eq!(of(attack).as_deref(), Some("a\n def is_admin():\n-  no\n+  yes\n #"));
        let joins = serde_json::json!({"path": "a", "old": "one\n", "new": "one"});
        assert_eq!(of(joins).as_deref(), Some("a\n-one\n+one (no line end)"));
        assert_eq!(count_changes(&edit.to_string()).as_deref(), Some("+2 -1"));
        let write = serde_json::json!({"path": "a", "content": "one\n2\nthree\n"});
        assert_eq!(of(write).as_deref(), Some("a\n-two\n+2"));
        let new = serde_json::json!({"path": "b", "content": "x\ny\n"});
        assert_eq!(of(new).as_deref(), Some("b\n+x\n+y"));
        assert_eq!(of(serde_json::json!({"command": "a\nb\n"})).as_deref(), Some("a\nb\n"));
        let ends = serde_json::json!({"path": "b", "content": "x\r\ny"});
        assert_eq!(of(ends).as_deref(), Some("b\n+x\r\n+y (no line end)"));
        assert_eq!(of(serde_json::json!({"url": "x"})), None);
    }
}
