//! Queued tickets of one root and one [`Class`](super::Class).

use std::collections::BTreeMap;

/// Tickets in the order of request, with a turn in the rotation.
pub(super) struct RootQueue<T> {
    tickets: BTreeMap<u64, T>,
    /// The queue with the lowest turn is served first. It gets a new turn when it is served or starts to queue.
    pub(super) turn: u64,
    /// Whether the queue is in the set of queues that can be granted a slot.
    pub(super) ready: bool,
}

impl<T> RootQueue<T> {
    pub(super) fn new() -> Self {
        Self { tickets: BTreeMap::new(), turn: 0, ready: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(super) fn push(&mut self, number: u64, ticket: T) {
        self.tickets.insert(number, ticket);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.tickets.pop_first().map(|(_, ticket)| ticket)
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.tickets.remove(&number);
    }
}
