//! Tests under virtual time. Requests are polled by hand.

mod callers;
mod life;
mod random;
mod threads;

/// Seeded bugs that the tests must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetBug {
    /// An actual cost counts twice.
    SettledTwice,
    /// A dropped reservation is not charged.
    DropGivesBack,
    /// The queue is not checked after a request leaves it.
    WakeLost,
    /// A grant that was not received is lost.
    GrantLost,
    /// A request that fits overtakes waiting ones.
    Overtaken,
    /// Reservations of others are ignored.
    OutstandingIgnored,
}
