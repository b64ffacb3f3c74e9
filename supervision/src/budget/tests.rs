//! Under virtual time; requests are polled by hand.

mod callers;
mod life;
mod random;
mod threads;

/// Rules that can be switched off, to show that the checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// What a call cost counts once more.
    SettledTwice,
    /// A call of which nobody knows what it cost counts nothing.
    DropGivesBack,
    /// Who leaves the line does not make anyone look who is next.
    WakeLost,
    /// A grant that nobody heard of stays out.
    GrantLost,
    /// A request that fits goes before those who wait.
    Overtaken,
    /// What others have reserved is not seen.
    OutstandingIgnored,
}
