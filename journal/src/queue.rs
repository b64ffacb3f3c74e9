//! The writer's queue: one vector under the journal's mutex, which the writer swaps out.

use crate::engine::{Group, GroupFrame};

/// Maximum number of frames in one commit. A single batch may have more.
pub(crate) const GROUP_FRAMES: usize = 4096;
/// Maximum bytes of one commit. A single batch may have more.
pub(crate) const GROUP_BYTES: u64 = 4 << 20;
/// Estimated bytes of a frame's rows.
pub(crate) const ROW_BYTES: u64 = 512;

#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) frames: Vec<GroupFrame>,
    pub(crate) bytes: u64,
}

/// Returns the next group of whole batches and its bytes, or `None` at the end.
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
