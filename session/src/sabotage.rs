//! Seeded bugs: single rules of `decide` switched off, so that the model checker and the simulator can show that they notice.
//!
//! Without the cargo feature `sabotage` this is nothing: the type has no size and every question is answered `false`.

/// One rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// Rule 1: pending rows are not taken at a boundary, a hold or an end.
    RowsLeftPending,
    /// Rule 2: the check does not follow the last local work or owned run.
    NoCheckAfterLast,
    /// Rule 3: a hold or an end leaves calls unanswered.
    CallsLeftOpen,
    /// Rule 4: a new activation forgets the calls that have not started.
    UnstartedForgotten,
    /// Rule 5: a row that was taken is taken again.
    RowTakenTwice,
    /// Rule 7: admission does not ask whether the owner is over.
    OwnerNotChecked,
    /// Rule 8: a slot is requested without taking inputs and notices.
    SlotWithoutTaking,
    /// Rule 9: completions that are not awaited are accepted.
    StaleAccepted,
    /// The end of a run obliges nobody to hear of it.
    NoOutbox,
    /// A cancel of an ended run ends it again.
    EndTwice,
    /// Open calls are counted from the live children rather than from the answer (S-11).
    OpenCallsFromLiveSet,
    /// An interrupt ends background children too (T-6).
    InterruptEndsAll,
    /// An interrupt does not reach the children that the run waits for (S-12).
    InterruptStopsHere,
    /// Rule 6: a `continue` row that was answered opens another run.
    ContinueTwice,
    /// Rule 6: a refusal to go on obliges nobody to hear of it.
    ContinueRefusedSilently,
    /// Rule 7: a `continue` row is carried out though its owner is over.
    ContinueOfOver,
    /// Rule 9: the queue opens the next run also after a cancel of the whole tree.
    QueueOpensAfterTreeCancel,
    /// A closed session takes a `continue` row.
    ClosedTakesContinue,
    /// Rule 5: a `cancel` row of one run ends a later one of the same owner.
    CancelReachesNextRun,
    /// Rule 9: an interrupt reaches a run whose call was moved to the background.
    BackgroundStaysBlocking,
    /// A call that is closed while a person is asked for it leaves the ask open.
    AskLeftOpen,
    /// A run that waits for a person's word keeps its slot.
    SlotKeptWhileAsking,
    /// An alternative that is seen replaces the message of the original (B13).
    AlternativeOverwrites,
    /// A branch inherits what was said after the message that it hangs on (B2).
    BranchSeesLater,
    /// What was rolled back is given to models and inherited as before (M10).
    RolledBackSeen,
    /// The end of a run that a person opened is given to the model of its session's parent (K26).
    PersonsRunShown,
    /// The end of a run that a person opened is stored with its text, which no deletion of the run's session reaches (J-10).
    UnreadTextKept,
    /// A run that ends with its owner says that a person cancelled it (T-5, S-8).
    OwnersEndNamesPerson,
    /// Completions are taken together with a person's message, behind it (B11).
    CompletionsJoinMessages,
    /// A queued message extends a run that a model's call opened (K26).
    MessageExtendsOwnedRun,
    /// An ask has no deadline (P-5).
    AskWithoutDeadline,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 31] = [
        Self::RowsLeftPending,
        Self::NoCheckAfterLast,
        Self::CallsLeftOpen,
        Self::UnstartedForgotten,
        Self::RowTakenTwice,
        Self::OwnerNotChecked,
        Self::SlotWithoutTaking,
        Self::StaleAccepted,
        Self::NoOutbox,
        Self::EndTwice,
        Self::OpenCallsFromLiveSet,
        Self::InterruptEndsAll,
        Self::InterruptStopsHere,
        Self::ContinueTwice,
        Self::ContinueRefusedSilently,
        Self::ContinueOfOver,
        Self::QueueOpensAfterTreeCancel,
        Self::ClosedTakesContinue,
        Self::CancelReachesNextRun,
        Self::BackgroundStaysBlocking,
        Self::AskLeftOpen,
        Self::SlotKeptWhileAsking,
        Self::AlternativeOverwrites,
        Self::BranchSeesLater,
        Self::RolledBackSeen,
        Self::PersonsRunShown,
        Self::UnreadTextKept,
        Self::OwnersEndNamesPerson,
        Self::CompletionsJoinMessages,
        Self::MessageExtendsOwnedRun,
        Self::AskWithoutDeadline,
    ];
}

/// The rules that are switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sabotage {
    #[cfg(feature = "sabotage")]
    bugs: u32,
}

#[cfg(feature = "sabotage")]
impl Sabotage {
    /// Every rule holds.
    pub const fn none() -> Self {
        Self { bugs: 0 }
    }

    /// `bug` is switched on besides.
    #[must_use]
    pub const fn with(self, bug: Bug) -> Self {
        Self { bugs: self.bugs | 1 << bug as u32 }
    }

    /// Whether `bug` is switched on.
    pub const fn on(self, bug: Bug) -> bool {
        self.bugs & (1 << bug as u32) != 0
    }

    /// Whether any is.
    pub const fn any(self) -> bool {
        self.bugs != 0
    }
}

#[cfg(not(feature = "sabotage"))]
impl Sabotage {
    /// Every rule holds.
    pub const fn none() -> Self {
        Self {}
    }

    /// Whether `bug` is switched on: never, without the feature.
    pub const fn on(self, _bug: Bug) -> bool {
        false
    }

    /// Whether any is: never, without the feature.
    pub const fn any(self) -> bool {
        false
    }
}
