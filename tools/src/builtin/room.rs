//! Memory bounds of one directory walk: the names come from untrusted writers.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of entries held at once by one call.
const MAX_HELD: usize = 32 << 20;
/// Bytes of an entry besides its names.
const ENTRY: usize = 160;

pub(super) const CROWDED: &str = "directories read in part, too many entries";
pub(super) const CROWDED_ONE: &str = "directory read in part, too many entries";

#[derive(Debug, Default)]
pub(super) struct Room {
    held: Arc<AtomicUsize>,
    crowded: Cell<u64>,
}

/// An entry's part of the budget, released on drop.
#[derive(Debug)]
pub(super) struct HeldRoom {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Room {
    /// Reserves memory for an entry with names of this many bytes; `None` if the budget is spent.
    pub(super) fn hold(&self, names: usize) -> Option<HeldRoom> {
        let bytes = names.saturating_add(ENTRY);
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        // Dropping it releases what does not fit.
        let taken = HeldRoom { bytes, of: Arc::clone(&self.held) };
        (held.saturating_add(bytes) <= MAX_HELD).then_some(taken)
    }

    pub(super) fn crowd(&self) {
        self.crowded.set(self.crowded.get().saturating_add(1));
    }

    pub(super) fn crowded(&self) -> u64 {
        self.crowded.get()
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_when_entries_are_dropped() {
        let room = Room::default();
        let all = room.hold(MAX_HELD - ENTRY);
        assert!(all.is_some() && room.hold(0).is_none() && room.hold(1).is_none());
        drop(all);
        assert!(room.hold(0).is_some());
        assert!(room.hold(usize::MAX).is_none() && room.hold(0).is_some());
    }
}
