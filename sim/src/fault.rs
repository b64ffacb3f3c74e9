//! Seeded bugs: what the model must notice.

use std::fmt;

use subtend_invariants::bugs::{Bug, Rules};

use crate::size::Size;

/// A bug of the world around the heart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Around {
    /// Obligations live in memory only, and a crash loses them.
    RowsLost,
    /// A slot is counted back each time that its release is asked for.
    SlotFreedTwice,
    /// A new activation does not fence the one before, whose last append still arrives.
    EpochNotBumped,
    /// A cancel fires before its record is durable.
    CancelNotDurable,
    /// Work is started without a look at the token of its run.
    TokenIgnored,
    /// The sweep goes to the owners first.
    SweepFromTheTop,
    /// The slot of a run goes with its actor, and the run goes on.
    SlotLostAtPanic,
    /// A panic between the append of a batch and its effects, and nobody makes good what was not asked for.
    EffectsForgotten,
    /// A run that its owner cancels alone is told that its owner is over.
    CauseLost,
    /// Runs that persons opened take the slots of owned ones.
    OnePool,
    /// A queued run that survives a restart of the host is not asked for again.
    PlaceForgotten,
}

impl Around {
    pub const ALL: [Self; 11] = [
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
    ];
}

/// A seeded bug, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Nothing is wrong.
    #[default]
    None,
    /// A rule of the heart is switched off.
    Heart(Bug),
    /// The world around it is wrong.
    World(Around),
}

impl Fault {
    /// A bug that the model cannot notice, since it deletes nothing; the simulator does.
    pub const HIDDEN: Bug = Bug::UnreadTextKept;

    /// Every seeded bug.
    pub fn all() -> impl Iterator<Item = Self> {
        let shown = Bug::ALL.into_iter().filter(|bug| *bug != Self::HIDDEN);
        shown.map(Self::Heart).chain(Around::ALL.into_iter().map(Self::World))
    }

    /// Returns the rules that sessions decide by.
    pub(crate) fn rules(self) -> Rules {
        match self {
            Self::Heart(bug) => Rules::without(bug),
            Self::None | Self::World(_) => Rules::ALL,
        }
    }

    pub(crate) fn is(self, around: Around) -> bool {
        self == Self::World(around)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Heart(bug) => write!(f, "{bug:?}"),
            Self::World(around) => write!(f, "{around:?}"),
        }
    }
}

impl Fault {
    /// Returns the size of the whole in which this bug shows soonest.
    pub fn shows_in(self) -> Size {
        match self {
            Self::Heart(bug) => of_heart(bug),
            Self::World(around) => of_world(around),
            Self::None => Size::SMALL,
        }
    }
}

fn of_heart(bug: Bug) -> Size {
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
        Bug::AlternativeOverwrites | Bug::BranchSeesLater => Size::BRANCH,
        Bug::RolledBackSeen => Size::ROLLBACK,
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

fn of_world(around: Around) -> Size {
    match around {
        Around::EpochNotBumped | Around::SlotLostAtPanic => Size::PANIC,
        Around::EffectsForgotten => Size::HALF_PANIC,
        Around::CauseLost => Size::STOP,
        Around::OnePool => Size::PERSON,
        Around::PlaceForgotten => Size { crashes: 1, closes: 0, continues: 0, ..Size::PERSON },
        Around::RowsLost
        | Around::SlotFreedTwice
        | Around::CancelNotDurable
        | Around::TokenIgnored
        | Around::SweepFromTheTop => Size::SMALL,
    }
}
