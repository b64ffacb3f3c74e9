//! Two pools of slots that never meet: what runs own, and what persons open.

use std::fmt;
use std::sync::Arc;

use super::{Root, Slot, Slots, Ticket};

/// Whose run it is: the pool that its slot is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// A run's, a host's or nobody's: it takes its turn among all others that work by themselves.
    Owned,
    /// A person's, who waits for it.
    Person,
}

/// The slots of one runtime, apart for runs that persons opened (cheap clone).
///
/// Each pool has all the bounds for itself, the global one too: however many runs work or wait in the one, a run of the other
/// is neither behind them nor counted with them.
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
    /// Opens two pools of `global` slots each; `on_grant` is as in [`Slots::new`], and may be called for both at a time.
    pub fn new(global: usize, on_grant: Arc<dyn Fn(T, Slot) + Send + Sync>) -> Self {
        Self { owned: Slots::new(global, Arc::clone(&on_grant)), person: Slots::new(global, on_grant) }
    }

    /// The pool of runs of `whose`.
    pub fn of(&self, whose: Whose) -> &Slots<R, T> {
        match whose {
            Whose::Owned => &self.owned,
            Whose::Person => &self.person,
        }
    }

    /// Takes a ticket out of the queue of whichever pool it waits for; true if it was there.
    pub fn withdraw(&self, ticket: T) -> bool {
        self.owned.withdraw(ticket) || self.person.withdraw(ticket)
    }

    /// Returns the number of queued tickets.
    pub fn queued(&self) -> usize {
        self.owned.queued().saturating_add(self.person.queued())
    }

    /// Returns the number of slots in use.
    pub fn in_use(&self) -> usize {
        self.owned.in_use().saturating_add(self.person.in_use())
    }
}

#[cfg(test)]
mod tests;
