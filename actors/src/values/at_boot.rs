/// How the start handles a run that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtBoot {
    /// The run ends as lost, or keeps its position in the queue.
    Lost(Lost),
    Resumes,
    Dormant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// True if the session's queued inputs remain queued.
    pub(crate) keeps_queue: bool,
}
