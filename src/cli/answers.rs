//! Replies of the host that several commands read.

use serde::Deserialize;
use serde::de::IgnoredAny;
use subtend_session::ids::Text;
use subtend_session::outcome::Outcome;
use subtend_session::usage::Usage;

#[derive(Deserialize)]
pub(crate) struct Controlled {
    pub(crate) run: Option<u32>,
    /// Outcome of the run if it had already ended; absent if the control stopped it.
    outcome: Option<IgnoredAny>,
    /// Number of cancelled runs; present if the whole tree was cancelled.
    pub(crate) cancelled: Option<u32>,
}

impl Controlled {
    pub(crate) fn stopped_run(&self) -> Option<u32> {
        self.run.filter(|_| self.outcome.is_none())
    }
}

/// The reply to clearing a queue: the number of removed inputs.
#[derive(Deserialize)]
pub(crate) struct Removed {
    pub(crate) removed: u64,
}

/// The reply to a switch: the alternative that the session continues with.
#[derive(Deserialize)]
pub(crate) struct Switched {
    pub(crate) of: u64,
    pub(crate) to: u32,
}

/// A run. The fields about its end are absent while it is in flight.
#[derive(Deserialize)]
pub(crate) struct RunReply {
    pub(crate) in_flight: bool,
    pub(crate) cause: Option<Outcome>,
    pub(crate) text: Option<Text>,
    pub(crate) turns: Option<u32>,
    pub(crate) usage: Option<Usage>,
}
