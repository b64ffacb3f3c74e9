//! Replies of the host that several verbs read.

use serde::Deserialize;
use subtend_session::ids::Text;
use subtend_session::outcome::Outcome;
use subtend_session::usage::Usage;

/// The answer to a control.
#[derive(Deserialize)]
pub(crate) struct Controlled {
    /// The run that it struck; absent where none was in flight.
    pub(crate) run: Option<u32>,
    /// Runs of the tree that were in flight, where all of it was cancelled.
    pub(crate) cancelled: Option<u32>,
}

/// Inputs that were removed from a queue.
#[derive(Deserialize)]
pub(crate) struct Removed {
    pub(crate) removed: u64,
}

/// The alternative that a session continues with.
#[derive(Deserialize)]
pub(crate) struct Switched {
    pub(crate) of: u64,
    pub(crate) to: u32,
}

/// A run. What describes its end is absent while it is in flight.
#[derive(Deserialize)]
pub(crate) struct RunReply {
    pub(crate) in_flight: bool,
    pub(crate) cause: Option<Outcome>,
    pub(crate) text: Option<Text>,
    pub(crate) turns: Option<u32>,
    pub(crate) usage: Option<Usage>,
}
