//! What is appended and not yet written: one vector under the journal's mutex, swapped whole by the writer.

use crate::engine::{Group, Placed};

/// Frames of one commit, at most; one batch may hold more.
pub(crate) const GROUP_FRAMES: usize = 4096;
/// Bytes of one commit, at most; one batch may hold more.
pub(crate) const GROUP_BYTES: u64 = 4 << 20;
/// What a frame's rows count for.
pub(crate) const ROW_BYTES: u64 = 512;

/// One appended batch.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) frames: Vec<Placed>,
    pub(crate) bytes: u64,
}

/// The next group of whole batches, and its bytes; `None` when nothing is left.
pub(crate) fn next_group(batches: &mut std::iter::Peekable<std::vec::IntoIter<Queued>>) -> Option<(Group, u64)> {
    let Queued { mut frames, mut bytes } = batches.next()?;
    while let Some(next) = batches.next_if(|next| {
        frames.len().saturating_add(next.frames.len()) <= GROUP_FRAMES
            && bytes.saturating_add(next.bytes) <= GROUP_BYTES
    }) {
        bytes = bytes.saturating_add(next.bytes);
        frames.extend(next.frames);
    }
    Some((Group { frames }, bytes))
}
