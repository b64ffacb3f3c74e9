//! What the start does with a run that was in flight when the host died.

/// What the boot does with a run that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtBoot {
    /// It ends `Lost`, or keeps its place in the queue.
    Lost(Lost),
    /// It goes on.
    GoesOn,
    /// It would go on, and is left as it is for a host that does that.
    Stays,
}

/// How a run that was in flight is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// What waits in its session stays where it is.
    pub(crate) queue_stands: bool,
}
