//! What a runtime holds at one moment, counted.

use crate::runtime::Runtime;

/// What a runtime holds at one moment. Idle, when its quiet sessions have left memory, all of it is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions in memory; a quiet root stays for a while.
    pub present: usize,
    /// Their actors.
    pub actors: usize,
    /// Tasks of models, tools and services at work.
    pub tasks: usize,
    /// Runs that hold a slot.
    pub slots: usize,
    /// Runs that wait for one.
    pub queued: usize,
    /// Cancellation tokens: one a run in flight.
    pub tokens: usize,
    /// Timers that are armed: deadlines of runs, turns and calls, and one for each idle session.
    pub timers: usize,
    /// Accounts of the ledger: one a root run that spawned, and one a root run that called a model under a budget.
    pub accounts: usize,
}

impl Runtime {
    /// Counts what the runtime holds, for operators and tests. The parts are counted one after the other.
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
