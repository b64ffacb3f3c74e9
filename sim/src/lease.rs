//! Nodes that share a database: leases, claims of shards, fenced commits and takeovers, in every interleaving of two
//! nodes.
//!
//! This models the protocol rather than the code: a step represents one statement of the database. A tick is five
//! seconds of the database's clock. A lease lasts three ticks. An owner starts effects for two ticks of its own clock,
//! counted from the moment when it sent the last renewal. That clock may skip one of three ticks. Messages arrive late,
//! twice or never. A message that its sender counts as lost may still arrive later.

mod database;
mod state;
mod step;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

pub use database::{LeaseMessage, LeaseReply, LeaseRequest, MessageBody, NodeProcess};
pub use state::LeaseState;
pub use step::LeaseStep;

/// Ticks of the database's clock for which a renewal lasts.
const LEASE: u8 = 3;
/// Ticks of its own clock within which an owner starts effects.
const EFFECT_TICKS: u8 = 2;

const ACKNOWLEDGED: &str = "no acknowledged group is lost";
const HISTORY: &str = "a shard has one history: each LSN and each group occurs once";
const EPOCH: &str = "only the holder of a shard commits, and each epoch has one holder";
const EFFECT_OF_OWNER: &str = "no effect starts after another node has taken the shard";
const EFFECT_OF_INTENT: &str = "no effect starts before its intent is durable";
const FAILOVER: &str = "a shard without an owner gets one within the lease time plus five seconds";

/// The number of times that each event may occur. States count them down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseSize {
    pub shards: u8,
    pub groups: u8,
    /// Takeovers.
    pub claims: u8,
    /// Messages that their sender counts as lost, although they may arrive later.
    pub losses: u8,
    /// Commits that arrive twice.
    pub repeats: u8,
    pub crashes: u8,
    pub joins: u8,
    /// Restarts of the database.
    pub restarts: u8,
    /// Pauses of a process. Without `bounded_failover`, any process may pause at any step.
    pub pauses: u8,
    /// Number of nodes, from the first on, whose clocks may skip ticks and whose renewals take time.
    pub slow_nodes: u8,
    /// True if no tick passes before running nodes did all due work, and no lost message arrives. Bounds failover.
    pub bounded_failover: bool,
    /// Ends of lost leases in the database. Above 0, a node never renews a lease that it counts as lost.
    pub leaves: u8,
    /// True if an owner may pause between the check of its lease and the start of an effect.
    pub two_steps: bool,
}

impl LeaseSize {
    /// A takeover, without faults of the network.
    pub const CALM: Self = Self {
        shards: 1,
        groups: 1,
        claims: 1,
        losses: 0,
        repeats: 0,
        crashes: 0,
        joins: 0,
        restarts: 0,
        pauses: 0,
        slow_nodes: 1,
        bounded_failover: false,
        leaves: 0,
        two_steps: false,
    };
    /// Effects without commits: both clocks may skip ticks, and all renewals take time.
    pub const CLOCKS: Self = Self { groups: 0, slow_nodes: 2, ..Self::CALM };
    /// A message is lost or late.
    pub const LOSSES: Self = Self { groups: 2, losses: 1, ..Self::CALM };
    pub const REPEATS: Self = Self { groups: 2, repeats: 1, ..Self::CALM };
    pub const RESTARTS: Self = Self { groups: 2, restarts: 1, ..Self::CALM };
    /// A node crashes and joins again.
    pub const CRASHES: Self = Self { groups: 2, crashes: 1, joins: 1, ..Self::CALM };
    /// A shard is taken by the other node, then taken back.
    pub const RETURNS: Self = Self { groups: 3, claims: 2, slow_nodes: 0, ..Self::CALM };
    /// A node loses one of two shards.
    pub const SHARDS: Self = Self { shards: 2, groups: 2, claims: 2, slow_nodes: 0, ..Self::CALM };
    /// A process crashes or pauses, or a message is lost. Checks the time for which a shard has no owner.
    pub const FAILOVER: Self =
        Self { claims: 9, losses: 1, crashes: 1, joins: 1, pauses: 1, leaves: 9, bounded_failover: true, ..Self::CALM };
    /// Only effects: a node ends its lost lease in the database; the message may be lost or late.
    pub const LEAVES: Self = Self { groups: 0, claims: 2, losses: 1, leaves: 2, ..Self::CALM };
    /// The known gap: an owner pauses between the check of its lease and the start of an effect.
    pub const RESIDUE: Self = Self { groups: 0, two_steps: true, ..Self::CALM };

    /// The sizes that are checked to the end, by name.
    pub const NAMED: [(&'static str, Self); 9] = [
        ("clocks", Self::CLOCKS),
        ("losses", Self::LOSSES),
        ("repeats", Self::REPEATS),
        ("restarts", Self::RESTARTS),
        ("crashes", Self::CRASHES),
        ("returns", Self::RETURNS),
        ("shards", Self::SHARDS),
        ("failover", Self::FAILOVER),
        ("leaves", Self::LEAVES),
    ];
}

/// A bug of the protocol that the model must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseBug {
    /// A commit is accepted without a check of the claim.
    NoFence,
    FenceWithoutEpoch,
    FenceWithoutLsn,
    /// A lease expires by the clock of the node that renews it.
    RenewedByLocalClock,
    /// A node counts its lease from the reply to its renewal.
    CountedFromReply,
    /// The clock of a node stops while its process is paused.
    ClockStopsInPause,
    /// A node whose shard was taken renews its lease.
    RenewedAfterTakeover,
    /// A shard is taken from a node whose lease has not expired.
    TakenBeforeExpiry,
    EffectAfterExpiry,
    EffectBeforeIntent,
    /// A lost reply lets a former holder claim the next epoch.
    ReclaimedByAnyone,
    AcknowledgedWhenSent,
    /// A sender whose reply is lost assumes that the commit was stored.
    LostTakenAsStored,
    /// After a lost reply, the owner sends its group again without comparing LSNs.
    ResentUnread,
    /// A node whose reply to a claim was lost does not claim the shard again.
    OwnClaimForgotten,
    /// A node ends its lease in the database while its work may still start.
    LeftWhileWorking,
    /// The end of a lost lease, which arrives late, ends the next lease of the node.
    LeftByName,
}

impl LeaseBug {
    pub const ALL: [Self; 17] = [
        Self::NoFence,
        Self::FenceWithoutEpoch,
        Self::FenceWithoutLsn,
        Self::RenewedByLocalClock,
        Self::CountedFromReply,
        Self::ClockStopsInPause,
        Self::RenewedAfterTakeover,
        Self::TakenBeforeExpiry,
        Self::EffectAfterExpiry,
        Self::EffectBeforeIntent,
        Self::ReclaimedByAnyone,
        Self::AcknowledgedWhenSent,
        Self::LostTakenAsStored,
        Self::ResentUnread,
        Self::OwnClaimForgotten,
        Self::LeftWhileWorking,
        Self::LeftByName,
    ];

    /// Bugs that the simulation of nodes must notice too.
    ///
    /// Two of the other bugs concern parts that are real code in that simulation (`EffectBeforeIntent`,
    /// `AcknowledgedWhenSent`). The rest are harmless in real nodes: a commit of a former owner still needs the last
    /// LSN, a node's own clock ends its work before a renewal can be too late, and no request about a lease arrives
    /// after its sender gave it up.
    pub const SIMULATED: [Self; 11] = [
        Self::NoFence,
        Self::FenceWithoutLsn,
        Self::RenewedByLocalClock,
        Self::CountedFromReply,
        Self::ClockStopsInPause,
        Self::TakenBeforeExpiry,
        Self::EffectAfterExpiry,
        Self::LostTakenAsStored,
        Self::ResentUnread,
        Self::OwnClaimForgotten,
        Self::LeftWhileWorking,
    ];

    /// Returns the size in which this bug shows soonest.
    fn shows_in(self) -> LeaseSize {
        match self {
            Self::OwnClaimForgotten => LeaseSize::FAILOVER,
            Self::LeftWhileWorking | Self::LeftByName => LeaseSize::LEAVES,
            Self::FenceWithoutLsn => LeaseSize::REPEATS,
            Self::ReclaimedByAnyone | Self::LostTakenAsStored | Self::ResentUnread => LeaseSize::LOSSES,
            Self::NoFence
            | Self::FenceWithoutEpoch
            | Self::RenewedByLocalClock
            | Self::CountedFromReply
            | Self::ClockStopsInPause
            | Self::RenewedAfterTakeover
            | Self::TakenBeforeExpiry
            | Self::EffectAfterExpiry
            | Self::EffectBeforeIntent
            | Self::AcknowledgedWhenSent => LeaseSize::CALM,
        }
    }
}

impl fmt::Display for LeaseBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// An event that must occur in some state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeEvent {
    TakenOver,
    Fenced,
    FoundStored,
    FoundMissing,
    JoinedAgain,
    Dropped,
    LeftEarly,
}

impl NodeEvent {
    const ALL: [(Self, &'static str); 7] = [
        (Self::TakenOver, "a node takes the shard of another node"),
        (Self::Fenced, "a commit of a former owner is refused"),
        (Self::FoundStored, "a group whose reply was lost is stored"),
        (Self::FoundMissing, "a group whose reply was lost can never arrive"),
        (Self::JoinedAgain, "a node joins again after it lost its lease"),
        (Self::Dropped, "an owner drops its shards because its own clock says that the lease is over"),
        (Self::LeftEarly, "a node ends a lost lease before it expires"),
    ];
}

#[derive(Clone, Debug)]
pub struct LeaseModel {
    pub size: LeaseSize,
    pub bug: Option<LeaseBug>,
    /// Bits of `NodeEvent`, in all states.
    seen: Arc<AtomicU32>,
}

impl LeaseModel {
    fn is(&self, bug: LeaseBug) -> bool {
        self.bug == Some(bug)
    }

    fn record(&self, event: NodeEvent) {
        self.seen.fetch_or(1 << event as u32, Ordering::Relaxed);
    }

    fn never(&self) -> Vec<&'static str> {
        let seen = self.seen.load(Ordering::Relaxed);
        let possible = |event| match event {
            NodeEvent::FoundStored | NodeEvent::FoundMissing => self.size.losses > 0 && self.size.groups > 0,
            NodeEvent::Fenced => self.size.groups > 0,
            NodeEvent::LeftEarly => self.size.leaves > 0,
            NodeEvent::TakenOver | NodeEvent::JoinedAgain | NodeEvent::Dropped => true,
        };
        let missing =
            NodeEvent::ALL.into_iter().filter(|(event, _)| possible(*event) && seen & (1 << *event as u32) == 0);
        missing.map(|(_, name)| name).collect()
    }
}

impl Model for LeaseModel {
    type State = LeaseState;
    type Action = LeaseStep;

    fn init_states(&self) -> Vec<LeaseState> {
        vec![LeaseState::new(self.size)]
    }

    fn actions(&self, state: &LeaseState, actions: &mut Vec<LeaseStep>) {
        state.steps(self, actions);
    }

    fn next_state(&self, last: &LeaseState, action: LeaseStep) -> Option<LeaseState> {
        let mut next = last.clone();
        next.step(self, action).map(|()| next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ACKNOWLEDGED, |_: &Self, state: &LeaseState| state.acknowledged_are_stored()),
            Property::always(HISTORY, |_: &Self, state: &LeaseState| state.one_history()),
            Property::always(EPOCH, |_: &Self, state: &LeaseState| state.one_writer_per_epoch()),
            Property::always(EFFECT_OF_OWNER, |_: &Self, state: &LeaseState| state.wrong != Some(EFFECT_OF_OWNER)),
            Property::always(EFFECT_OF_INTENT, |_: &Self, state: &LeaseState| state.wrong != Some(EFFECT_OF_INTENT)),
            Property::always(FAILOVER, |model: &Self, state: &LeaseState| state.served_in_time(model)),
        ]
    }
}

#[derive(Clone, Debug)]
pub struct LeaseReport {
    pub transitions: usize,
    pub states: usize,
    pub depth: usize,
    /// The property that does not hold, and the steps to it.
    pub violation: Option<(&'static str, Vec<String>)>,
    /// Expected events that never occurred.
    pub never: Vec<&'static str>,
}

impl LeaseReport {
    pub fn has_passed(&self) -> bool {
        self.violation.is_none() && self.never.is_empty()
    }
}

/// Tries every interleaving of `size` with `bug` seeded. Stops at the first violation.
pub fn check_lease(size: LeaseSize, bug: Option<LeaseBug>) -> LeaseReport {
    let model = LeaseModel { size, bug, seen: Arc::default() };
    let checker = model.clone().checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries();
    let always = model.properties().into_iter().filter(|property| property.expectation == Expectation::Always);
    let violation = always.filter_map(|property| found.get(property.name).map(|path| (property.name, path))).next();
    let violation = violation.map(|(name, path)| {
        let steps = path.clone().into_actions().into_iter().map(|step| format!("{step:?}"));
        (name, steps.collect())
    });
    let (transitions, states, depth) = (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    LeaseReport { transitions, states, depth, violation, never: model.never() }
}

/// Searches for a violation, first in the size in which this bug shows soonest.
pub fn hunt_lease(bug: LeaseBug) -> LeaseReport {
    check_lease(bug.shows_in(), Some(bug))
}
