//! What no journal holds: what a simulator, a test of the hub or a drill sees of a world from outside.
//!
//! Everything is optional. A predicate says nothing of what was not observed: an empty list, an absent value. Whoever
//! fills a list fills it whole for the sessions that it has entries of: what is missing in it counts as not having
//! happened.

mod actor;
mod authority;
mod control;
mod heard;
mod store;
mod work;

pub use actor::{Activated, Death, Restart, RestartBudget, Stop, Why};
pub use authority::{Approver, AskSeen, Offer, Probe, Under};
pub use control::{Answer, AnswerSeen, Causes, ControlSeen, Given, Listing, QueueAnswer, QueueSeen, Shutdown};
pub use heard::{Acked, Heard, SubscriberLog};
pub use store::{Aside, Boot, Failure, Recovery};
pub use work::{ContextGiven, Effect, Work};

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::command::Deadline;
use subtend_session::ids::{RunKey, SessionId};

/// When something was seen: its place among all that was seen, and the virtual time.
///
/// Much happens in one millisecond, so that the order alone says what came first; times are for deadlines and graces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct When {
    /// Its number among all that was seen, from 1.
    pub order: u64,
    /// Virtual time, milliseconds.
    pub ms: u64,
}

/// All that was seen, at the instant of the [`World`](super::World) that it stands beside.
///
/// Lists are in the order of what they tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub now: When,
    /// Grace of a closing run, milliseconds (S-5, T-5).
    pub grace_ms: Option<u64>,
    /// Whether faults have stopped, and more virtual time has passed since than any deadline lasts (S-6).
    pub healed: bool,
    /// When the end of a run became durable (S-5, T-5, E-5).
    pub ended: BTreeMap<RunKey, When>,
    /// When the token of a run fired (T-4).
    pub fired: BTreeMap<RunKey, When>,
    /// When the cancel of a run was acknowledged (T-5).
    pub cancelled: BTreeMap<RunKey, When>,
    /// Deadlines that are armed, for sessions that have an activation (S-6). Absent where they are not known.
    pub armed: Option<BTreeSet<(SessionId, Deadline)>>,
    /// Who and what may end runs, as the outside world knows it (S-8, T-6).
    pub causes: Option<Causes>,
    /// Effects that were started (J-5, S-5, T-4, E-1, E-5, V-2, V-4).
    pub effects: Vec<Effect>,
    /// What model calls were given (E-2, N-5, P-7).
    pub contexts: Vec<ContextGiven>,
    /// Answers to controls, and ends that someone was told (S-2, S-3).
    pub answers: Vec<AnswerSeen>,
    /// How controls travelled (B-2).
    pub controls: Vec<ControlSeen>,
    /// Queues when something was put to them (B-1).
    pub queues: Vec<QueueSeen>,
    /// What was acknowledged, or shown to anyone, and with that is in the journal for ever (J-1).
    pub acked: Vec<Acked>,
    /// Starts of hosts (J-7).
    pub boots: Vec<Boot>,
    /// What recoveries from crashes came to (J-7).
    pub recoveries: Vec<Recovery>,
    /// Which sessions were damaged, and how all answered (J-8).
    pub aside: Option<Aside>,
    /// Writes and syncs that failed, and were known to (J-9).
    pub failures: Vec<Failure>,
    /// What subscribers heard (N-6).
    pub subscribers: Vec<SubscriberLog>,
    /// Live descendants as listed from a root, at the instant (T-9).
    pub listings: Vec<Listing>,
    /// Activations (V-3, V-4).
    pub activations: Vec<Activated>,
    /// How often actors may be restarted (V-1).
    pub budget: Option<RestartBudget>,
    /// Actors that died: panicked, or were killed by a fault (V-3, T-8).
    pub deaths: Vec<Death>,
    /// What a supervisor said to a death (V-1).
    pub restarts: Vec<Restart>,
    /// Actors that were stopped (V-5).
    pub stops: Vec<Stop>,
    /// The shutdown, once it was asked for (V-5, E-5).
    pub shutdown: Option<Shutdown>,
    /// What the authority says, in the order asked (P-1 to P-4).
    pub probes: Vec<Probe>,
    /// Who could answer asks, and when (P-5). Absent where that is not known.
    pub approvers: Option<Vec<Approver>>,
    /// Asks (P-5).
    pub asks: Vec<AskSeen>,
    /// How long an ask may stand, milliseconds (P-5).
    pub ask_ms: Option<u64>,
    /// How much later than its time a deadline, or the end of a grace, may be seen, milliseconds (P-5, T-5).
    pub late_ms: u64,
}
