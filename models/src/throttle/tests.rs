//! Under virtual time.

mod callers;
mod cancel;
mod cool;
mod fairness;
mod life;
mod random;
mod rates;

/// Rules that can be switched off, to show that the checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// The session that was served is served again.
    Unfair,
    /// A call that is dropped after it was called up keeps its places.
    PlaceLost,
    /// Calls start before their time.
    TooEarly,
}
