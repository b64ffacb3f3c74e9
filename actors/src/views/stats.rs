use crate::runtime::Runtime;

/// Counts of the runtime's live objects. All are zero when it is idle and its sessions have left memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStats {
    /// Sessions in memory; an idle root stays there for a while.
    pub loaded: usize,
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
    pub fn stats(&self) -> RuntimeStats {
        let components = &self.components;
        RuntimeStats {
            loaded: components.directory.len(),
            actors: components.cells.live(),
            tasks: components.life.tasks.len(),
            slots: components.cells.runs().slots.in_use(),
            queued: components.cells.runs().slots.queued(),
            tokens: components.cells.runs().tokens.len(),
            timers: components.cells.runs().timers.armed(),
            accounts: components.calls.ledger.len().saturating_add(components.calls.budgets.len()),
        }
    }
}
