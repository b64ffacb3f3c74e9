//! Separate slot pools for background and interactive runs.

use std::fmt;
use std::sync::Arc;

use super::{Root, Slot, Slots, Ticket};

/// Pool of a run's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolKind {
    /// Runs that a run or a host owns, or that have no owner.
    Background,
    /// Runs that a user waits for.
    Interactive,
}

/// Slots of one runtime, with a separate pool for interactive runs (cheap clone). Each pool has all bounds for itself, the global one
/// too.
pub struct SlotPools<R: Root, T: Ticket> {
    owned: Slots<R, T>,
    person: Slots<R, T>,
}

impl<R: Root, T: Ticket> Clone for SlotPools<R, T> {
    fn clone(&self) -> Self {
        Self { owned: self.owned.clone(), person: self.person.clone() }
    }
}

impl<R: Root, T: Ticket> fmt::Debug for SlotPools<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPools").field("owned", &self.owned).field("person", &self.person).finish()
    }
}

impl<R: Root, T: Ticket> SlotPools<R, T> {
    /// Creates two pools of `global` slots each; `on_grant` is as in [`Slots::new`], and both pools may call it at a time.
    pub fn new(global: usize, on_grant: Arc<dyn Fn(T, Slot) + Send + Sync>) -> Self {
        Self { owned: Slots::new(global, Arc::clone(&on_grant)), person: Slots::new(global, on_grant) }
    }

    pub fn of(&self, kind: PoolKind) -> &Slots<R, T> {
        match kind {
            PoolKind::Background => &self.owned,
            PoolKind::Interactive => &self.person,
        }
    }

    /// Removes a ticket from the queue of its pool; true if it was queued.
    pub fn withdraw(&self, ticket: T) -> bool {
        self.owned.withdraw(ticket) || self.person.withdraw(ticket)
    }

    pub fn queued(&self) -> usize {
        self.owned.queued().saturating_add(self.person.queued())
    }

    pub fn in_use(&self) -> usize {
        self.owned.in_use().saturating_add(self.person.in_use())
    }
}

#[cfg(test)]
mod tests;
