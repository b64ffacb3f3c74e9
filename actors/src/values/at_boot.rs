//! Runs in flight at a start.

/// How the start handles a run that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtBoot {
    /// It ends `Lost`, or keeps its position in the queue.
    Lost(Lost),
    GoesOn,
    Stays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The session's queued inputs remain.
    pub(crate) queue_stands: bool,
}
