//! Seeded bugs that the model must notice.

use std::fmt;

use subtend_invariants::bugs::{Bug, Rules};

use crate::size::Size;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnvironmentBug {
    /// Outbox rows are kept in memory only, so a crash loses them.
    RowsLost,
    /// Each repeated request to release a slot frees another slot.
    SlotFreedTwice,
    /// A new activation does not fence the previous one, whose last append still arrives.
    EpochNotBumped,
    /// A cancel takes effect before its record is durable.
    CancelNotDurable,
    /// Work starts without a check of the run's cancellation token.
    TokenIgnored,
    /// The sweep after a restart ends owners before the runs that they own.
    SweepFromTheTop,
    /// A run loses its slot when its actor panics, and continues without one.
    SlotLostAtPanic,
    /// An actor panics between the append of a batch and its effects, and the effects are not redone.
    EffectsForgotten,
    /// A run that its owner cancels individually records the end of its owner as the cause.
    CauseLost,
    /// Runs that people opened take the slots of owned runs.
    OnePool,
    /// A queued run that survives a restart of the host does not request a slot again.
    PlaceForgotten,
    /// A restart of the host loses runs that are parked at limits.
    ParkedAreLost,
}

impl EnvironmentBug {
    pub const ALL: [Self; 12] = [
        Self::RowsLost,
        Self::SlotFreedTwice,
        Self::EpochNotBumped,
        Self::CancelNotDurable,
        Self::TokenIgnored,
        Self::SweepFromTheTop,
        Self::SlotLostAtPanic,
        Self::EffectsForgotten,
        Self::CauseLost,
        Self::OnePool,
        Self::PlaceForgotten,
        Self::ParkedAreLost,
    ];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimFault {
    #[default]
    None,
    /// A rule of sessions is switched off.
    Heart(Bug),
    World(EnvironmentBug),
}

impl SimFault {
    /// A bug that only the simulator can notice, because the model deletes no session.
    pub const HIDDEN: Bug = Bug::UnreadTextKept;

    pub fn all() -> impl Iterator<Item = Self> {
        let shown = Bug::ALL.into_iter().filter(|bug| *bug != Self::HIDDEN);
        shown.map(Self::Heart).chain(EnvironmentBug::ALL.into_iter().map(Self::World))
    }

    pub(crate) fn rules(self) -> Rules {
        match self {
            Self::Heart(bug) => Rules::without(bug),
            Self::None | Self::World(_) => Rules::ALL,
        }
    }

    pub(crate) fn is(self, bug: EnvironmentBug) -> bool {
        self == Self::World(bug)
    }
}

impl fmt::Display for SimFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Heart(bug) => write!(f, "{bug:?}"),
            Self::World(bug) => write!(f, "{bug:?}"),
        }
    }
}

impl SimFault {
    /// Returns the size in which this bug shows soonest.
    pub fn shows_in(self) -> Size {
        match self {
            Self::Heart(bug) => size_for_rule_bug(bug),
            Self::World(bug) => size_for_environment_bug(bug),
            Self::None => Size::SMALL,
        }
    }
}

fn size_for_rule_bug(bug: Bug) -> Size {
    match bug {
        Bug::UnstartedForgotten => Size::PANIC,
        Bug::SlotWithoutTaking => Size::CALM,
        Bug::InterruptEndsAll | Bug::InterruptStopsHere => Size::INTERRUPT,
        Bug::ContinueTwice | Bug::CancelReachesNextRun => Size::STOP,
        Bug::ContinueRefusedSilently | Bug::ClosedTakesContinue => Size::PERSON,
        Bug::ContinueOfOver => Size { cancels: 1, ..Size::CONTINUE },
        Bug::QueueOpensAfterTreeCancel => Size::QUEUE,
        Bug::BackgroundStaysBlocking => Size::MOVE,
        Bug::AskLeftOpen => Size { cancels: 1, ..Size::ASK },
        Bug::SlotKeptWhileAsking | Bug::AskWithoutDeadline => Size::ASK,
        Bug::ResetForgotten => Size { crashes: 1, doubles: 0, ..Size::LIMIT },
        Bug::ResetTwice | Bug::SlotKeptAtLimit => Size::LIMIT,
        Bug::AlternativeOverwrites | Bug::BranchSeesLater => Size::BRANCH,
        Bug::RolledBackSeen => Size::ROLLBACK,
        Bug::MessageRenewsTurns | Bug::MessageOpensRun => Size::MESSAGE,
        Bug::OwedCompacted => Size { crashes: 0, cancels: 0, rollbacks: 0, ..Size::COMPACT },
        Bug::PersonsRunShown | Bug::UnreadTextKept | Bug::MessageExtendsOwnedRun => {
            Size { closes: 0, continues: 0, ..Size::PERSON }
        }
        Bug::CompletionsJoinMessages => Size { sends: 2, tree_cancels: 0, ..Size::QUEUE },
        Bug::RowsLeftPending
        | Bug::NoCheckAfterLast
        | Bug::CallsLeftOpen
        | Bug::RowTakenTwice
        | Bug::OwnerNotChecked
        | Bug::StaleAccepted
        | Bug::NoOutbox
        | Bug::EndTwice
        | Bug::OwnersEndNamesPerson
        | Bug::OpenCallsFromLiveSet => Size::SMALL,
    }
}

fn size_for_environment_bug(bug: EnvironmentBug) -> Size {
    match bug {
        EnvironmentBug::EpochNotBumped | EnvironmentBug::SlotLostAtPanic => Size::PANIC,
        EnvironmentBug::EffectsForgotten => Size::HALF_PANIC,
        EnvironmentBug::CauseLost => Size::STOP,
        EnvironmentBug::OnePool => Size::PERSON,
        EnvironmentBug::PlaceForgotten => Size { crashes: 1, closes: 0, continues: 0, ..Size::PERSON },
        EnvironmentBug::ParkedAreLost => Size { crashes: 1, doubles: 0, ..Size::LIMIT },
        EnvironmentBug::RowsLost
        | EnvironmentBug::SlotFreedTwice
        | EnvironmentBug::CancelNotDurable
        | EnvironmentBug::TokenIgnored
        | EnvironmentBug::SweepFromTheTop => Size::SMALL,
    }
}
