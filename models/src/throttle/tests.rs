//! Under virtual time.

mod callers;
mod cancel;
mod cool;
mod life;
mod order;
mod random;
mod rates;

/// Rules that can be switched off, to show that the checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// The call that came last starts first.
    Unfair,
    /// A call that is dropped keeps its place in the line.
    PlaceLost,
    /// Calls start before their time.
    TooEarly,
}
