//! Limits the memory of one directory walk: the workspace may contain any number of entries with long names.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum bytes of the entries and the ignore rules that one call holds at once.
pub(super) const MAX_RESERVED: usize = 16 << 20;
/// Bytes of an entry without its names, in a list that grows.
const ENTRY_BYTES: usize = 256;

pub(super) const TRUNCATED: &str = "directories read in part, too many entries";
pub(super) const TRUNCATED_ONE: &str = "directory read in part, too many entries";

#[derive(Debug, Default)]
pub(super) struct EntryMemory {
    reserved: Arc<AtomicUsize>,
    truncated: Cell<u64>,
}

/// Memory reserved for one entry, released on drop.
#[derive(Debug)]
pub(super) struct ReservedMemory {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl EntryMemory {
    /// Reserves memory for an entry whose names have `names` bytes. Returns `None` if the budget is exhausted.
    pub(super) fn reserve(&self, names: usize) -> Option<ReservedMemory> {
        let bytes = names.saturating_add(ENTRY_BYTES);
        let before = self.reserved.fetch_add(bytes, Ordering::Relaxed);
        // If the entry exceeds the budget, the drop of `reserved` releases the bytes again.
        let reserved = ReservedMemory { bytes, total: Arc::clone(&self.reserved) };
        (before.saturating_add(bytes) <= MAX_RESERVED).then_some(reserved)
    }

    /// Returns a handle to the same budget, with its own count of truncated directories.
    pub(super) fn shared(&self) -> Self {
        Self { reserved: Arc::clone(&self.reserved), truncated: Cell::default() }
    }

    pub(super) fn record_truncated(&self) {
        self.truncated.set(self.truncated.get().saturating_add(1));
    }

    pub(super) fn truncated_count(&self) -> u64 {
        self.truncated.get()
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_entries_release_their_memory() {
        let memory = EntryMemory::default();
        let all = memory.reserve(MAX_RESERVED - ENTRY_BYTES);
        assert!(all.is_some() && memory.reserve(0).is_none() && memory.reserve(1).is_none());
        drop(all);
        assert!(memory.reserve(0).is_some());
        assert!(memory.reserve(usize::MAX).is_none() && memory.reserve(0).is_some());
    }
}
