//! Shows the full effect of a call: every line of a command or an edit, or all changed lines of a file.

use std::fmt::{self, Write as _};

use serde_json::Value;
use subtend_session::ids::Hash;
use subtend_session::values::parse_recorded;
use subtend_tools::background::PROCESS;
use subtend_tools::registry;

use super::super::paint::{count, exact_pieces, on_one_line};

/// Maximum size in bytes of a file that is compared with its new content.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Maximum size in bytes of the removed lines and of the added ones in a question, after their characters are made visible.
const MAX_SIDE_BYTES: usize = super::frame::MAX_SHOWN / 4;

/// Number of bytes that a line takes in addition to its text: its sign, its mark and its end.
const LINE_BYTES: usize = 4;

/// Returns the common lines at the start, the removed lines, the added lines, and the common lines at the end.
fn compared_lines<'a>(old: &'a str, new: &'a str) -> [&'a str; 4] {
    // Lines include their line ends, so that a changed line end is a difference.
    let same_lines = |old: &mut dyn Iterator<Item = &str>, new: &mut dyn Iterator<Item = &str>| {
        old.zip(new).take_while(|(old, new)| old == new).map(|(old, _)| old.len()).sum::<usize>()
    };
    let same = same_lines(&mut old.split_inclusive('\n'), &mut new.split_inclusive('\n'));
    let (before, removed) = old.split_at_checked(same).unwrap_or((old, ""));
    let added = new.get(same..).unwrap_or_default();
    let same = same_lines(&mut removed.split_inclusive('\n').rev(), &mut added.split_inclusive('\n').rev());
    let (removed, after) = removed.split_at_checked(removed.len().saturating_sub(same)).unwrap_or((removed, ""));
    [before, removed, added.get(..added.len().saturating_sub(same)).unwrap_or_default(), after]
}

/// Counts bytes up to a bound: writing more fails, so that the rest of a text is not escaped.
struct ByteCount(usize);

impl fmt::Write for ByteCount {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(piece.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Returns whether `lines` can be shown.
fn fits(lines: &str) -> bool {
    let mut left = ByteCount(MAX_SIDE_BYTES);
    lines.split_inclusive('\n').all(|line| {
        left.0.checked_sub(LINE_BYTES).is_some_and(|rest| {
            left.0 = rest;
            write!(left, "{}", exact_pieces(line)).is_ok()
        })
    })
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
    let mut text = format!("{}{every}", on_one_line(&path));
    let parts = [(' ', before, "common"), ('-', removed, "removed"), ('+', added, "added"), (' ', after, "common")];
    let long = parts.iter().any(|(_, lines, _)| !fits(lines));
    for (sign, lines, name) in parts {
        if !fits(lines) {
            let (bytes, lines) = (lines.len(), lines.split_inclusive('\n').count());
            // Without a sign, so that no line of a file can imitate it.
            text.push_str(&format!("\n{name}: {}, {bytes} bytes, too long to show", count(lines as u64, "line")));
            continue;
        }
        for line in lines.split_inclusive('\n') {
            let (line, end) = match line.strip_suffix('\n') {
                Some(line) => (line, ""),
                None if within => (line, ""),
                None => (line, " (no line end)"),
            };
            text.push('\n');
            text.push(sign);
            text.push_str(line);
            text.push_str(end);
        }
    }
    if long {
        let side = |text: &str| format!("{} bytes, hash {}", text.len(), Hash::of(text.as_bytes()));
        let (before, after) = (side(&old), side(&new));
        text.push_str(&format!("\nbefore: {before}\nafter: {after}\n`subtend show --full` prints the new text"));
    }
    Some(text)
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
    let lines = |text: &str| text.split_inclusive('\n').count();
    Some(format!("+{} -{}", lines(added), lines(removed)))
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

    /// A repository has a huge file of line breaks, which a small write replaces. The control: a file that is short enough.
    #[test]
    fn question_about_a_huge_file_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = subtend_tools::workspace::Workspace::open(dir.path()).expect("a workspace");
        let write = serde_json::json!({"path": "LICENSE", "content": "x\n"}).to_string();
        let attacks: [(&str, usize); 3] = [("\n", 16 << 20), ("\u{1}", 1 << 20), ("\u{1}\n", 1 << 19)];
        for (unit, times) in attacks {
            let shown = |times: usize| {
                std::fs::write(dir.path().join("LICENSE"), unit.repeat(times)).expect("written");
                all_lines(&write, &workspace).expect("a diff")
            };
            let long = shown(times);
            let lines = unit.repeat(times).split_inclusive('\n').count();
            let bytes = unit.len() * times;
            let removed = format!(
                "LICENSE\nremoved: {}, {bytes} bytes, too long to show\n+x\nbefore: ",
                count(lines as u64, "line")
            );
            assert!(long.starts_with(&removed) && long.len() < 400, "{}", long.len());
            for hash in [Hash::of(unit.repeat(times).as_bytes()), Hash::of(b"x\n")] {
                assert!(long.contains(&hash.to_string()), "{long}");
            }
            let short = shown(1_000);
            assert!(short.len() > 1_000 && short.ends_with("\n+x"), "the control: {}", short.len());
        }
        // A file cannot imitate the line: its own lines have a sign.
        std::fs::write(dir.path().join("LICENSE"), "removed: 1 line, 1 bytes, too long to show\n").expect("written");
        let fake = all_lines(&write, &workspace);
        assert_eq!(fake.as_deref(), Some("LICENSE\n-removed: 1 line, 1 bytes, too long to show\n+x"));
        let name = serde_json::json!({"path": "a\n+x", "content": "y\n"}).to_string();
        assert_eq!(all_lines(&name, &workspace).as_deref(), Some("a<U+000A>+x\n+y"));
    }
}
