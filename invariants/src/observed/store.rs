//! Recoveries, damage and failures of a store.

use std::collections::{BTreeMap, BTreeSet};

use super::When;
use subtend_session::ids::{RunKey, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;

/// A completed start of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    pub at: When,
    /// True if no run was in flight and no outbox row was undelivered.
    pub at_rest: bool,
    /// Number of frames that the start wrote.
    pub wrote: u64,
}

/// The result of recovering from one crash, once no run is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The name of the crash. Recoveries from the same bytes have the same name.
    pub crash: Text,
    /// Interrupted recoveries before this one.
    pub interrupted: u32,
    /// How the runs in flight at the crash ended.
    pub ends: BTreeMap<RunKey, Outcome>,
}

/// Damaged sessions of a store, and the replies of all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamageReplies {
    pub damaged: BTreeSet<SessionId>,
    /// Sessions that replied with a typed error naming them.
    pub refused: BTreeSet<SessionId>,
    /// Sessions that replied as usual.
    pub served: BTreeSet<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub at: When,
    /// When the store was reopened, if it was.
    pub reopened: Option<When>,
    /// The last durable record of each session before it.
    pub durable: BTreeMap<SessionId, Seq>,
}
