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

/// The result of the recovery from one crash, when no run is in flight any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The name of the crash. Recoveries from the same bytes have the same name.
    pub crash: Text,
    /// Number of recoveries that were interrupted before this one.
    pub interrupted: u32,
    /// The outcomes of the runs that were in flight at the crash.
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
    /// The last durable record of each session before the failure.
    pub durable: BTreeMap<SessionId, Seq>,
}
