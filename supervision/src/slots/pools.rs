//! Separate slot pools for background and interactive runs.

use std::fmt;
use std::sync::Arc;

use super::{Root, Slot, Slots, Ticket};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolKind {
    /// Runs that a run or the host owns, or that have no owner.
    Background,
    /// Runs that a user waits for.
    Interactive,
}

/// Slots of one runtime, with a separate pool for interactive runs (cheap clone). All bounds, also the global one, apply to
/// each pool separately.
pub struct SlotPools<R: Root, T: Ticket> {
    background: Slots<R, T>,
    interactive: Slots<R, T>,
}

impl<R: Root, T: Ticket> Clone for SlotPools<R, T> {
    fn clone(&self) -> Self {
        Self { background: self.background.clone(), interactive: self.interactive.clone() }
    }
}

impl<R: Root, T: Ticket> fmt::Debug for SlotPools<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPools")
            .field("background", &self.background)
            .field("interactive", &self.interactive)
            .finish()
    }
}

impl<R: Root, T: Ticket> SlotPools<R, T> {
    /// Creates two pools of `global` slots each. `on_grant` is as in [`Slots::new`]; both pools may call it concurrently.
    pub fn new(global: usize, on_grant: Arc<dyn Fn(T, Slot) + Send + Sync>) -> Self {
        Self { background: Slots::new(global, Arc::clone(&on_grant)), interactive: Slots::new(global, on_grant) }
    }

    pub fn of(&self, kind: PoolKind) -> &Slots<R, T> {
        match kind {
            PoolKind::Background => &self.background,
            PoolKind::Interactive => &self.interactive,
        }
    }

    /// Removes a ticket from the queue of its pool. Returns whether it was queued.
    pub fn withdraw(&self, ticket: T) -> bool {
        self.background.withdraw(ticket) || self.interactive.withdraw(ticket)
    }

    pub fn queued(&self) -> usize {
        self.background.queued().saturating_add(self.interactive.queued())
    }

    pub fn in_use(&self) -> usize {
        self.background.in_use().saturating_add(self.interactive.in_use())
    }
}

#[cfg(test)]
mod tests;
