use std::time::Duration;

use similar::TextDiff;
use tokio::time::Instant;

use super::FileChange;
use crate::escape::on_one_line;
use crate::workspace::state::FileState;

/// Maximum size of a file that is compared by lines.
const MAX_COMPARED: usize = 1 << 20;
/// Maximum time of the comparison of one file. The rest of the file is then shown as replaced.
const MAX_TIME: Duration = Duration::from_millis(500);
/// Maximum time of the comparisons of all files together.
const MAX_TOTAL_TIME: Duration = Duration::from_secs(3);

/// Formats changes as patches, in bounded time: an exact comparison can take minutes.
#[derive(Debug)]
pub(super) struct Patches {
    time_left: Duration,
}

impl Patches {
    pub(super) fn new() -> Self {
        Self { time_left: MAX_TOTAL_TIME }
    }

    /// Returns `change` in the format of `diff -u`.
    pub(super) fn patch(&mut self, path: &str, change: &FileChange, sides: (&[u8], &[u8])) -> String {
        let begun = Instant::now();
        let text = patch(path, change, sides, self.time_left.min(MAX_TIME));
        self.time_left = self.time_left.saturating_sub(begun.elapsed());
        text
    }
}

fn patch(path: &str, change: &FileChange, (old, new): (&[u8], &[u8]), time: Duration) -> String {
    // A name with line breaks could forge lines of the patch.
    let path = on_one_line(path);
    let name = |state: &FileState, side: &str| match state {
        FileState::Absent => "/dev/null".to_owned(),
        FileState::File { .. } | FileState::Link { .. } | FileState::Other => format!("{side}/{path}"),
    };
    let (from, to) = (name(&change.before, "a"), name(&change.after, "b"));
    let head = format!("--- {from}\n+++ {to}\n");
    if old.len().max(new.len()) > MAX_COMPARED {
        return format!("{head}(too long to compare: {} bytes before, {} bytes after)\n", old.len(), new.len());
    }
    let (Ok(old_text), Ok(new_text)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return format!("{head}(not text: {} bytes before, {} bytes after)\n", old.len(), new.len());
    };
    let diff = TextDiff::configure().timeout(time).diff_lines(old_text, new_text);
    let mut text = diff.unified_diff().header(&from, &to).to_string();
    if text.is_empty() {
        text = head;
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
