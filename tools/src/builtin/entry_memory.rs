//! Limits the memory of one directory walk: the workspace may contain any number of entries with long names.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum bytes of the entries that one call holds at once.
const MAX_ENTRIES: usize = 16 << 20;
/// Maximum bytes of the ignore rules that one call holds at once.
pub(super) const MAX_RULES: usize = 6 << 20;
/// Maximum bytes of both.
pub(super) const MAX_RESERVED: usize = MAX_ENTRIES + MAX_RULES;
/// Bytes of an entry without its names, in a list that grows.
const ENTRY_BYTES: usize = 256;

pub(super) const TRUNCATED: &str = "directories read in part, too many entries";
pub(super) const TRUNCATED_ONE: &str = "directory read in part, too many entries";

#[derive(Debug)]
pub(super) struct EntryMemory {
    max: usize,
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
    pub(super) fn of_entries() -> Self {
        Self::new(MAX_ENTRIES)
    }

    pub(super) fn new(max: usize) -> Self {
        Self { max, reserved: Arc::default(), truncated: Cell::default() }
    }

    /// Reserves memory for an entry whose names have `names` bytes. Returns `None` if the budget is exhausted.
    pub(super) fn reserve(&self, names: usize) -> Option<ReservedMemory> {
        let bytes = names.saturating_add(ENTRY_BYTES);
        let before = self.reserved.fetch_add(bytes, Ordering::Relaxed);
        // If the entry exceeds the budget, the drop of `reserved` releases the bytes again.
        let reserved = ReservedMemory { bytes, total: Arc::clone(&self.reserved) };
        (before.saturating_add(bytes) <= self.max).then_some(reserved)
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
        let memory = EntryMemory::of_entries();
        let all = memory.reserve(MAX_ENTRIES - ENTRY_BYTES);
        assert!(all.is_some() && memory.reserve(0).is_none() && memory.reserve(1).is_none());
        drop(all);
        assert!(memory.reserve(0).is_some());
        assert!(memory.reserve(usize::MAX).is_none() && memory.reserve(0).is_some());
    }
}
