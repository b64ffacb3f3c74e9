use std::fmt;
use std::time::Duration;

use similar::TextDiff;
use tokio::time::Instant;

use super::FileChange;
use crate::escape::{exact_pieces, on_one_line};
use crate::workspace::state::FileState;

/// Maximum size of a file that is compared by lines.
const MAX_COMPARED: usize = 1 << 20;
/// Maximum time of the comparison of one file. The rest of the file is then shown as replaced.
const MAX_TIME: Duration = Duration::from_millis(500);
/// Maximum time of the comparisons of all files together.
const MAX_TOTAL_TIME: Duration = Duration::from_secs(3);
/// Maximum size in bytes of the compared lines of all files together, after their invisible characters are escaped.
const MAX_SHOWN: usize = 4 << 20;
/// Maximum size in bytes of the compared lines of one file, so that one file does not keep all others from being shown.
const MAX_FILE_SHOWN: usize = 1 << 20;
/// Maximum size in bytes of the other lines: the names of files, and why a file is not shown.
const MAX_NAMES: usize = 1 << 20;

/// Formats changes as patches, in bounded time and size: an exact comparison can take minutes, and a hundred files can take
/// a gigabyte.
#[derive(Debug)]
pub struct Patches {
    time_left: Duration,
    shown_left: usize,
    names_left: usize,
}

/// The change of a file as a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// Empty if there was not even room for the name of the file.
    pub text: String,
    /// Why the lines of the file are not shown, and its sizes and hashes; `None` if they are.
    pub hidden: Option<String>,
}

impl Default for Patches {
    fn default() -> Self {
        Self::within(MAX_TOTAL_TIME)
    }
}

impl Patches {
    /// Compares files for at most `time_left`, and one file longer.
    pub(super) fn within(time_left: Duration) -> Self {
        Self { time_left, shown_left: MAX_SHOWN, names_left: MAX_NAMES }
    }

    /// Returns `change` in the format of `diff -u`, or one line with the hashes of its contents if it is too long to show.
    pub(super) fn patch(&mut self, path: &str, change: &FileChange, (old, new): (&[u8], &[u8])) -> FilePatch {
        // A name with line breaks could forge lines of the patch.
        let path = on_one_line(path);
        let name = |state: &FileState, side: &str| match state {
            FileState::Absent => "/dev/null".to_owned(),
            FileState::File { .. } | FileState::Link { .. } | FileState::Other => format!("{side}/{path}"),
        };
        let (from, to) = (name(&change.before, "a"), name(&change.after, "b"));
        let head = format!("--- {from}\n+++ {to}\n");
        let names_left = self.names_left.checked_sub(head.len());
        let lines = match (std::str::from_utf8(old), std::str::from_utf8(new)) {
            _ if names_left.is_none() => Err("too many files"),
            _ if old.len().max(new.len()) > MAX_COMPARED => Err("too long to compare"),
            (Ok(old), Ok(new)) => self.compare((old, new)).ok_or("too long to show"),
            (Err(_), _) | (_, Err(_)) => Err("not text"),
        };
        self.names_left = names_left.unwrap_or(self.names_left);
        let why = match lines {
            Ok(lines) => return FilePatch { text: format!("{head}{lines}"), hidden: None },
            Err(why) => why,
        };
        let side = |state: &FileState, bytes: &[u8]| match state {
            FileState::File { hash, .. } => format!("{} bytes ({hash})", bytes.len()),
            FileState::Absent | FileState::Link { .. } | FileState::Other => format!("{} bytes", bytes.len()),
        };
        let hidden = format!("{why}: {} before, {} after", side(&change.before, old), side(&change.after, new));
        let text = match names_left {
            Some(_) => format!("{head}({hidden})\n"),
            None => String::new(),
        };
        self.names_left = self.names_left.saturating_sub(text.len().saturating_sub(head.len()));
        FilePatch { text, hidden: Some(hidden) }
    }

    /// Returns the lines that differ; `None` if they are too long. Only shown lines count, so that a file that is not shown
    /// takes no room from others.
    fn compare(&mut self, (old, new): (&str, &str)) -> Option<String> {
        // Splitting a file into lines takes time of its own.
        if self.shown_left == 0 || self.time_left.is_zero() {
            return None;
        }
        let begun = Instant::now();
        // Lines end at LF only, as the page reads them: `similar` would also end them at CR, and count these lines in
        // the header of their hunk.
        let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
        let diff = TextDiff::configure().timeout(self.time_left.min(MAX_TIME)).diff_slices(&old, &new);
        let most = self.shown_left.min(MAX_FILE_SHOWN);
        let mut lines = BoundedLines { text: String::new(), left: most };
        let is_whole = write_hunks(&diff, &mut lines).is_ok();
        self.time_left = self.time_left.saturating_sub(begun.elapsed());
        if !is_whole {
            return None;
        }
        self.shown_left = self.shown_left.saturating_sub(most.saturating_sub(lines.left));
        Some(lines.text)
    }
}

/// Returns the patches as one, with a last line if files are left out of it.
pub(super) fn joined(patches: &[FilePatch]) -> String {
    let mut text: String = patches.iter().map(|patch| &*patch.text).collect();
    match patches.iter().filter(|patch| patch.text.is_empty()).count() {
        0 => {}
        1 => text.push_str("(and 1 more file: GET /v1/sessions/ID/restore names all)\n"),
        more => text.push_str(&format!("(and {more} more files: GET /v1/sessions/ID/restore names all)\n")),
    }
    text
}

fn write_hunks(diff: &TextDiff<'_, '_, str>, out: &mut impl fmt::Write) -> fmt::Result {
    for hunk in diff.unified_diff().iter_hunks() {
        writeln!(out, "{}", hunk.header())?;
        for change in hunk.iter_changes() {
            let end = if change.value().ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
            write!(out, "{}{}{end}", change.tag(), change.value())?;
        }
    }
    Ok(())
}

/// Lines of at most `left` bytes more, counted after their invisible characters are escaped: writing more fails, so that the
/// rest is not built.
struct BoundedLines {
    text: String,
    left: usize,
}

/// Counts bytes, and fails at a bound.
struct BytesLeft<'a>(&'a mut usize);

impl fmt::Write for BytesLeft<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        *self.0 = self.0.checked_sub(piece.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}

impl fmt::Write for BoundedLines {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        write!(BytesLeft(&mut self.left), "{}", exact_pieces(piece))?;
        self.text.push_str(piece);
        Ok(())
    }
}
