//! Under virtual time; requests are polled by hand.

mod callers;
mod life;
mod random;
mod threads;

/// Seeded bugs, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetBug {
    /// An actual cost counts twice.
    SettledTwice,
    /// A dropped reservation counts nothing.
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
