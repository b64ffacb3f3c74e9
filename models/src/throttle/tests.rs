mod callers;
mod cancel;
mod life;
mod order;
mod pauses;
mod random;
mod rates;

/// Seeded bugs that the tests must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// The newest call starts first.
    Unfair,
    /// A dropped call stays in the queue.
    TicketLost,
    /// Calls start too early.
    TooEarly,
}
