//! Renders the changes of an edit or a patch, line by line.

use std::time::Duration;

use askama::Template;
use serde::Deserialize;
use similar::{ChangeTag, TextDiff};
use subtend_session::values::parse_recorded;
use subtend_tools::checkpoint::FilePatch;
use subtend_tools::escape::exact;

use super::{bounds, render_fragment, render_within};

const CONTEXT_LINES: usize = 3;

/// Time limit of the search for a minimal diff. Parts that are not compared by then are shown as removed and added.
const DIFF_TIMEOUT: Duration = Duration::from_millis(50);

/// Arguments of the tools that change files.
#[derive(Deserialize)]
struct EditArgs {
    path: String,
    old: Option<String>,
    new: Option<String>,
    content: Option<String>,
}

pub(super) const MAX_PATCH_BYTES: usize = 512 << 10;

#[derive(Debug, PartialEq, Eq)]
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

/// Returns the diff of a call that edits or writes a file; `None` for other calls, and for a diff that fits no entry. Each
/// byte of the arguments may be a line, which takes a hundred bytes of memory.
pub(super) fn of_call(tool: &str, args: &str) -> Option<String> {
    if !matches!(tool, "edit" | "write") || args.len() > bounds::MAX_MESSAGE_BYTES {
        return None;
    }
    let args: EditArgs = parse_recorded(args).ok()?;
    let (old, new) = match (args.old, args.new, args.content) {
        (Some(old), Some(new), None) => (old, new),
        // The old content of the file is not part of the call.
        (None, None, Some(content)) => (String::new(), content),
        _ => return None,
    };
    render_within(&Diff { path: exact(&args.path), lines: lines(&old, &new) }, bounds::MAX_ENTRY_BYTES)
}

pub(super) struct ShownPatch {
    pub(super) html: String,
    /// True if the patch is shown in full.
    pub(super) whole: bool,
}

/// Renders the patches of a restore, each of one file, so that no content of a file can hide the name of the next.
pub(super) fn of_patches(patches: &[FilePatch]) -> ShownPatch {
    let (mut left, mut html, mut whole) = (MAX_PATCH_BYTES, Vec::new(), true);
    for FilePatch { text: patch, hidden } in patches {
        whole &= hidden.is_none();
        let shown = patch.get(..patch.floor_char_boundary(left)).unwrap_or_default();
        whole &= shown.len() == patch.len();
        left = left.saturating_sub(patch.len());
        html.extend(files(shown).iter().map(render_fragment));
    }
    ShownPatch { html: html.join("\n"), whole }
}

/// Renders a patch of git, file by file.
pub(super) fn of_patch(patch: &str) -> ShownPatch {
    let shown = patch.get(..patch.floor_char_boundary(MAX_PATCH_BYTES)).unwrap_or_default();
    let html = files(shown).iter().map(render_fragment).collect::<Vec<_>>();
    ShownPatch { html: html.join("\n"), whole: shown.len() == patch.len() }
}

fn files(patch: &str) -> Vec<Diff> {
    let mut files: Vec<Diff> = Vec::new();
    // Numbers of remaining lines in the hunk, of the old and of the new file.
    let (mut left, mut begun) = ([0_usize; 2], false);
    for line in patch.split_terminator('\n') {
        let class = match line.as_bytes().first() {
            _ if left == [0, 0] => "gap",
            Some(b'-') => "del",
            Some(b'+') => "ins",
            Some(b' ' | b'\\') | None => "same",
            // No line of a hunk begins so, whatever its header counts.
            Some(_) => "gap",
        };
        if class == "gap" {
            left = [0, 0];
        }
        match class {
            "gap" if line.starts_with("diff --git ") || (line.starts_with("--- ") && !begun) => {
                begun = line.starts_with("diff --git ");
                files.push(Diff { path: exact(line.trim_start_matches("diff --git ")), lines: Vec::new() });
            }
            "gap" if line.starts_with("@@ ") => (left, begun) = (hunk(line), false),
            "gap" => {}
            _ => {
                let sides = match class {
                    "del" => [1, 0],
                    "ins" => [0, 1],
                    // `\ No newline at end of file` is not a line.
                    _ => [usize::from(!line.starts_with('\\')); 2],
                };
                left = [left[0].saturating_sub(sides[0]), left[1].saturating_sub(sides[1])];
            }
        }
        if files.is_empty() {
            files.push(Diff { path: String::new(), lines: Vec::new() });
        }
        let Some(file) = files.last_mut() else { continue };
        // Use the new name of the file, or the old one if the file is removed.
        if let Some(name) = line.strip_prefix("--- ").or_else(|| line.strip_prefix("+++ "))
            && class == "gap"
            && name != "/dev/null"
        {
            let name = name.trim_end_matches('\t');
            file.path = exact(name.split_once('/').map_or(name, |(_, path)| path));
        }
        file.lines.push(DiffLine { class, text: exact(line) });
    }
    files
}

/// Parses the numbers of old and new lines from the header of a hunk, such as `@@ -1,2 +3 @@`.
fn hunk(head: &str) -> [usize; 2] {
    let mut sides = head.split(' ').skip(1).map(|side| match side.split_once(',') {
        Some((_, lines)) => lines.parse().unwrap_or(0),
        None => 1,
    });
    [sides.next().unwrap_or(0), sides.next().unwrap_or(0)]
}

fn lines(old: &str, new: &str) -> Vec<DiffLine> {
    // As in a patch, a line ends only at LF.
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_slices(&old, &new);
    let mut lines = Vec::new();
    for (at, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
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

    /// The control: arguments of the largest size whose lines fit an entry.
    #[test]
    fn diff_of_very_long_arguments_is_not_built() {
        let write = |content: &str| of_call("write", &serde_json::json!({"path": "a", "content": content}).to_string());
        let long = |bytes: usize| write(&"x".repeat(bytes - r#"{"content":"","path":"a"}"#.len()));
        assert!(long(bounds::MAX_MESSAGE_BYTES).is_some_and(|html| html.len() > bounds::MAX_MESSAGE_BYTES));
        assert_eq!(long(bounds::MAX_MESSAGE_BYTES + 1), None);
        assert!(write(&"\n".repeat(10_000)).is_some());
        assert_eq!(write(&"\n".repeat(100_000)), None);
    }

    #[test]
    fn patch_is_shown_file_by_file() {
        let patch = "diff --git a/x y b/x y\nold mode 100644\nnew mode 100755\n--- a/x y\t\n+++ b/x y\t\n@@ -1,2 +1,2 @@\n same\n\
                     --- a/z\n+++ b/z\n\\ No newline at end of file\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-<b>\n";
        let shown = of_patch(patch);
        let blocks: Vec<&str> = shown.html.split("<p class=\"small\">").skip(1).collect();
        assert_eq!(blocks.len(), 2, "{}", shown.html);
        assert!(
            blocks[0].starts_with("<code>x y</code>") && blocks[1].starts_with("<code>gone</code>"),
            "{}",
            shown.html
        );
        assert!(blocks[0].contains("<span class=\"gap\">new mode 100755</span>"), "{}", blocks[0]);
        // A changed line may look like the header of the next file.
        assert!(
            blocks[0].contains("<span class=\"del\">--- a/z</span><span class=\"ins\">+++ b/z</span>"),
            "{}",
            blocks[0]
        );
        assert!(blocks[1].contains("<span class=\"del\">-&#60;b&#62;</span>") && shown.whole, "{}", blocks[1]);
        assert!(!of_patch(&"é".repeat(MAX_PATCH_BYTES)).whole);
        assert!(of_patch("").html.is_empty());
    }

    fn whole(text: String) -> FilePatch {
        FilePatch { text, hidden: None }
    }

    /// A header counts more lines than its hunk has. The control: without that, each file has its block too.
    #[test]
    fn header_of_a_hunk_does_not_hide_the_next_file() {
        for count in [9, 1] {
            let patch = |name: &str| format!("--- a/{name}\n+++ b/{name}\n@@ -1,{count} +1,{count} @@\n-{name}\n+b\n");
            let of_git = ["x", "y"].map(|name| format!("diff --git a/{name} b/{name}\n{}", patch(name))).concat();
            for shown in [of_patch(&of_git), of_patches(&["x", "y"].map(patch).map(whole))] {
                assert!(shown.whole && shown.html.contains("<code>y</code>"), "{}", shown.html);
                assert!(shown.html.contains("<span class=\"gap\">+++ b/y</span>"), "{}", shown.html);
                assert!(shown.html.contains("<span class=\"del\">-y</span>"), "{}", shown.html);
            }
        }
        let long = || whole("é".repeat(MAX_PATCH_BYTES / 4));
        assert!(of_patches(&[long(), long()]).whole && !of_patches(&[long(), long(), long()]).whole);
    }

    /// The control, measured by hand: without the time limit, 60,000 lines took 7 s.
    #[test]
    fn hostile_edit_is_compared_within_the_time_limit() {
        let text = |step: usize| (0..200_000).map(|n| format!("{}\n", n * step % 200_000)).collect::<String>();
        let lines = lines(&text(1), &text(7_919));
        assert!(lines.iter().any(|line| line.class == "ins"));
    }
}
