//! External observations of a world that are in no journal.
//!
//! Each field is optional: a predicate skips an empty list or an absent value. A list that is not empty must be complete
//! for its sessions: an event without an entry counts as not having happened.

mod actor;
mod authority;
mod client;
mod control;
mod deliveries;
mod store;
mod work;

pub use actor::{Activated, ActivationCause, Death, Restart, RestartBudget, Stop};
pub use authority::{Approver, ObservedAsk, Offer, Probe, QueryContext};
pub use client::{ClientLog, EventPlace, KeyedCommand};
pub use control::{
    Causes, ControlAnswer, Listing, ObservedAnswer, ObservedControl, ObservedQueue, QueueAnswer, ReplySubject, Shutdown,
};
pub use deliveries::{Acknowledgement, Delivered, SubscriberLog};
pub use store::{Boot, DamageReplies, Failure, Recovery};
pub use work::{Effect, GivenContext, Work};

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::command::Deadline;
use subtend_session::ids::{RunKey, SessionId};

/// The instant of an observation. Several events may share a millisecond, so the number determines the order. The time
/// is for deadlines and grace periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct When {
    pub order: u64,
    pub ms: u64,
}

/// All observations at the instant of the [`World`](super::World), in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub now: When,
    /// Grace period of a closing run, milliseconds.
    pub grace_ms: Option<u64>,
    /// True if the last fault is longer ago than any deadline lasts.
    pub healed: bool,
    /// When the end of a run became durable.
    pub ended: BTreeMap<RunKey, When>,
    /// When the cancellation token of a run fired.
    pub fired: BTreeMap<RunKey, When>,
    /// When the cancel of a run was acknowledged.
    pub cancelled: BTreeMap<RunKey, When>,
    /// Armed deadlines of activated sessions, if known.
    pub armed: Option<BTreeSet<(SessionId, Deadline)>>,
    /// External causes of ends.
    pub causes: Option<Causes>,
    pub effects: Vec<Effect>,
    pub contexts: Vec<GivenContext>,
    /// Replies to controls, and reported ends.
    pub answers: Vec<ObservedAnswer>,
    pub controls: Vec<ObservedControl>,
    /// The length of a queue at each insertion.
    pub queues: Vec<ObservedQueue>,
    /// Acknowledged or shown facts, which the journal must keep forever.
    pub acked: Vec<Acknowledgement>,
    pub boots: Vec<Boot>,
    /// Results of crash recoveries.
    pub recoveries: Vec<Recovery>,
    /// Damaged sessions, and how all sessions replied afterwards.
    pub damage: Option<DamageReplies>,
    /// Known failures of writes and syncs.
    pub failures: Vec<Failure>,
    pub subscribers: Vec<SubscriberLog>,
    /// The events that each client of a host received.
    pub clients: Vec<ClientLog>,
    /// Commands of clients with an idempotency key.
    pub keyed: Vec<KeyedCommand>,
    /// Live descendants as listed from a root.
    pub listings: Vec<Listing>,
    pub activations: Vec<Activated>,
    pub budget: Option<RestartBudget>,
    /// Actors that panicked or were killed by a fault.
    pub deaths: Vec<Death>,
    /// Decisions of supervisors about deaths.
    pub restarts: Vec<Restart>,
    pub stops: Vec<Stop>,
    /// The shutdown, if requested.
    pub shutdown: Option<Shutdown>,
    /// Verdicts of authorities, in the order of the queries.
    pub probes: Vec<Probe>,
    /// Attached approvers over time, if known.
    pub approvers: Option<Vec<Approver>>,
    pub asks: Vec<ObservedAsk>,
    /// The ask timeout, milliseconds.
    pub ask_ms: Option<u64>,
    /// Tolerance for observing a deadline or the end of a grace, milliseconds.
    pub late_ms: u64,
}
