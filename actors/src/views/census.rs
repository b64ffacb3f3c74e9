//! Counts of the runtime's live objects.

use crate::runtime::Runtime;

/// Counts of the runtime's live objects. All are zero when it is idle and its sessions have left memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions in memory; an idle root stays there for a while.
    pub present: usize,
    pub actors: usize,
    /// Running tasks of models, tools and services.
    pub tasks: usize,
    pub slots: usize,
    /// Runs that wait for a slot.
    pub queued: usize,
    /// Cancellation tokens, one per run in flight.
    pub tokens: usize,
    /// Armed timers: deadlines of runs, turns and calls, and one for each idle session.
    pub timers: usize,
    /// Accounts of the ledger: one per root run with children, and one per root run with a budget.
    pub accounts: usize,
}

impl Runtime {
    /// Counts the live objects, one kind after another.
    pub fn census(&self) -> Census {
        let rooms = &self.rooms;
        Census {
            present: rooms.directory.len(),
            actors: rooms.cells.live(),
            tasks: rooms.life.tasks.len(),
            slots: rooms.cells.runs().slots.in_use(),
            queued: rooms.cells.runs().slots.queued(),
            tokens: rooms.cells.runs().tokens.len(),
            timers: rooms.cells.runs().timers.armed(),
            accounts: rooms.calls.ledger.len().saturating_add(rooms.calls.budgets.len()),
        }
    }
}
