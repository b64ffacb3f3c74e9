//! Queued tickets of one root and one [`Class`](super::Class).

use std::collections::BTreeMap;

/// Length of a block of consecutive ticket numbers. Counts for each block find a position without a scan of all tickets.
const BLOCK: u64 = 256;

/// Tickets in the order of request, with a turn in the rotation.
pub(super) struct RootQueue<T> {
    tickets: BTreeMap<u64, T>,
    /// Number of queued tickets in each block.
    blocks: BTreeMap<u64, usize>,
    /// The queue with the lowest turn is served first. It gets a new turn when it is served or starts to queue.
    pub(super) turn: u64,
    /// Whether the queue is in the set of queues that can be granted a slot.
    pub(super) ready: bool,
}

impl<T> RootQueue<T> {
    pub(super) fn new() -> Self {
        Self { tickets: BTreeMap::new(), blocks: BTreeMap::new(), turn: 0, ready: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.tickets.len()
    }

    pub(super) fn push(&mut self, number: u64, ticket: T) {
        self.tickets.insert(number, ticket);
        *self.blocks.entry(number / BLOCK).or_insert(0) += 1;
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let (number, ticket) = self.tickets.pop_first()?;
        self.uncount(number);
        Some(ticket)
    }

    pub(super) fn remove(&mut self, number: u64) {
        if self.tickets.remove(&number).is_some() {
            self.uncount(number);
        }
    }

    pub(super) fn position(&self, number: u64) -> usize {
        let block = number / BLOCK;
        let in_blocks: usize = self.blocks.range(..block).map(|(_, count)| count).sum();
        in_blocks + self.tickets.range(block * BLOCK..number).count()
    }

    fn uncount(&mut self, number: u64) {
        let block = number / BLOCK;
        if let Some(count) = self.blocks.get_mut(&block) {
            *count -= 1;
            if *count == 0 {
                self.blocks.remove(&block);
            }
        }
    }
}
