//! Tests of the rate limiter, under virtual time.

mod callers;
mod cancel;
mod cool;
mod life;
mod order;
mod random;
mod rates;

/// Seeded bugs, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// The newest call starts first.
    Unfair,
    /// A dropped call remains in the queue.
    TicketLost,
    /// Calls start too early.
    TooEarly,
}
