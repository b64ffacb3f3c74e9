//! The checkpoints of a store, and reports on file writes whose results were not recorded.

use std::fmt::Write as _;

use subtend_actors::UnrecordedWrite;
use subtend_tools::checkpoint::{CheckpointError, Checkpoints, FileFate};

use super::data::StoreLocation;
use super::fail::Fail;
use super::paint::{count, harmless, on_one_line};

const MAX_DIFF_LINES: usize = 40;

/// Returns the checkpoints of a store; `None` for one in memory.
pub(crate) fn for_store(place: &StoreLocation) -> Option<Checkpoints> {
    place.checkpoints().map(Checkpoints::new)
}

/// Describes writes whose result is not recorded, each with its diff.
pub(crate) fn describe_unrecorded(writes: &[UnrecordedWrite]) -> Option<String> {
    if writes.is_empty() {
        return None;
    }
    let mut text = String::new();
    for write in writes {
        let (session, path) = (write.session.short().0, on_one_line(&write.file.path));
        let fate = match write.file.fate {
            FileFate::Written => "the file was written",
            FileFate::Unwritten => "the file was not written",
            FileFate::ChangedSince => "the file was changed again since",
        };
        let (run, call) = (write.run, write.call);
        let _ = writeln!(
            text,
            "session {session}, run {run}, call {call}: the result of the write to `{path}` is not recorded; {fate}"
        );
        for line in write.file.patch.lines().take(MAX_DIFF_LINES) {
            let _ = writeln!(text, "  {}", harmless(line));
        }
        if let Some(more) = write.file.patch.lines().count().checked_sub(MAX_DIFF_LINES).filter(|more| *more > 0) {
            let _ = writeln!(text, "  and {} more", count(u64::try_from(more).unwrap_or(u64::MAX), "line"));
        }
    }
    Some(text.trim_end().to_owned())
}

impl From<CheckpointError> for Fail {
    fn from(error: CheckpointError) -> Self {
        Self::Other(error.to_string())
    }
}
