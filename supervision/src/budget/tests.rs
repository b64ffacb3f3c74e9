//! Tests under virtual time. Requests are polled by hand.

mod callers;
mod life;
mod random;
mod threads;

/// Seeded bugs that the tests must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetBug {
    SettledTwice,
    /// A dropped reservation is not charged.
    DropGivesBack,
    /// The queue is not checked after a request leaves it.
    WakeLost,
    GrantLost,
    Overtaken,
    OutstandingIgnored,
}
