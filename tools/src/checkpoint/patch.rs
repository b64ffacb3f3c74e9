//! Formats the change of a file as a patch.

use similar::TextDiff;

use super::FileChange;
use crate::workspace::state::FileState;

/// Maximum size of a file that is compared by lines.
const MAX_COMPARED: usize = 1 << 20;

/// Returns `change` in the format of `diff -u`.
pub(super) fn patch(path: &str, change: &FileChange, (old, new): (&[u8], &[u8])) -> String {
    let name = |state: &FileState, side: &str| match state {
        FileState::Absent => "/dev/null".to_owned(),
        FileState::File { .. } | FileState::Link { .. } | FileState::Other => format!("{side}/{path}"),
    };
    let (from, to) = (name(&change.before, "a"), name(&change.after, "b"));
    let head = format!("--- {from}\n+++ {to}\n");
    if old.len().max(new.len()) > MAX_COMPARED {
        return format!("{head}({} bytes, then {} bytes: too long to compare)\n", old.len(), new.len());
    }
    let (Ok(old_text), Ok(new_text)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return format!("{head}({} bytes, then {} bytes: not text)\n", old.len(), new.len());
    };
    let diff = TextDiff::from_lines(old_text, new_text);
    let mut text = diff.unified_diff().header(&from, &to).to_string();
    if text.is_empty() {
        text = head;
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
