//! What a store went through: recoveries, damage, failures.

use std::collections::{BTreeMap, BTreeSet};

use super::When;
use subtend_session::ids::{RunKey, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;

/// A start of a host that returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// When it began.
    pub at: When,
    /// Whether no run was in flight and nothing was owed then.
    pub at_rest: bool,
    /// Frames that it wrote.
    pub wrote: u64,
}

/// What recovery made of one crash, once everything had come to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The crash; all that was recovered from the same bytes has the same name.
    pub crash: Text,
    /// How many recoveries were cut short before this one.
    pub cut: u32,
    /// How the runs ended that had begun when the host died.
    pub ends: BTreeMap<RunKey, Outcome>,
}

/// Sessions of a store that was damaged, and how all of them answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aside {
    /// Those whose data is not what was written.
    pub damaged: BTreeSet<SessionId>,
    /// Those that answered with a typed error which names them.
    pub refused: BTreeSet<SessionId>,
    /// Those that answered as ever.
    pub served: BTreeSet<SessionId>,
}

/// A write or a sync that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub at: When,
    /// When the store was opened again; absent where it was not yet.
    pub reopened: Option<When>,
    /// How far each session was durable before it.
    pub durable: BTreeMap<SessionId, Seq>,
}
