//! Seeded bugs: single rules of sessions broken from outside, so that the checks can show that they notice.
//!
//! Sessions decide as always. A broken rule changes the command, the state that it is decided on, or the records and
//! effects that were decided. A record that does not fit is counted and changes nothing else.

use subtend_session::command::{Clock, Command};
use subtend_session::decide;
use subtend_session::effect::{Decision, Rejection};
use subtend_session::index::{self, Before, Changes, Stamp};
use subtend_session::record::{Notice, Record};
use subtend_session::state::State;

mod added;
mod commands;
mod dropped;
mod refold;
mod rows;

/// One rule that can be broken.
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
    /// The end of a run obliges no owner to take a notice of it.
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
    /// A call that is closed while an approval is awaited leaves the ask open.
    AskLeftOpen,
    /// A run that waits for an approval keeps its slot.
    SlotKeptWhileAsking,
    /// An alternative that is seen replaces the message of the original (B13).
    AlternativeOverwrites,
    /// A branch inherits what was said after the message that it hangs on (B2).
    BranchSeesLater,
    /// What was rolled back is given to models and inherited as before (M10).
    RolledBackSeen,
    /// The end of a run that a person opened is given to the model of its session's parent (K26).
    PersonsRunShown,
    /// The end of a run that a person opened is stored with its text, which no deletion of the run's session reaches
    /// (J-10).
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

/// The rules of sessions, all of them or all but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rules {
    broken: Option<Bug>,
}

impl Rules {
    /// Every rule holds.
    pub const ALL: Self = Self { broken: None };

    /// Every rule holds but the one that `bug` breaks.
    pub const fn without(bug: Bug) -> Self {
        Self { broken: Some(bug) }
    }

    /// Returns whether a rule is broken.
    pub const fn are_broken(self) -> bool {
        self.broken.is_some()
    }

    /// Decides one command, as [`decide::decide`] does.
    ///
    /// # Errors
    /// When nothing is decided.
    pub fn decide(self, state: &mut State, command: Command, clock: Clock) -> Result<Decision, Rejection> {
        let Some(bug) = self.broken else { return decide::decide(state, command, clock) };
        let case = Case { bug, before: state.clone(), command, clock };
        match commands::decide(&case, state) {
            Ok(mut decision) => {
                dropped::drop_some(&case, state, &mut decision);
                added::add(&case, state, &mut decision);
                Ok(decision)
            }
            Err(rejection) => added::in_place_of(&case, state, &rejection).ok_or(rejection),
        }
    }

    /// Takes rows of the outbox, as [`decide::arrive`] does.
    pub fn arrive(self, state: &mut State, notices: Vec<Notice>, clock: Clock) -> Decision {
        let Some(bug) = self.broken else { return decide::arrive(state, notices, clock) };
        let case = Case { bug, before: state.clone(), command: Command::OwnedEnded(notices.clone()), clock };
        let mut decision = decide::arrive(state, notices, clock);
        added::add(&case, state, &mut decision);
        decision
    }

    /// Returns the index rows of one frame, as [`index::changes`] does.
    pub fn changes(self, before: &Before, after: &State, records: &[Record], stamp: Stamp) -> Changes {
        let mut changes = index::changes(before, after, records, stamp);
        if let Some(bug) = self.broken {
            rows::forget(bug, records, &mut changes.put);
        }
        changes
    }
}

/// One command that is decided with a broken rule.
struct Case {
    bug: Bug,
    /// The session before it.
    before: State,
    command: Command,
    clock: Clock,
}
