//! Seeded bugs: each breaks one rule of sessions from outside, to show that the checks detect it.
//!
//! The real code decides. A broken rule changes its input (the command or the state), or its output (the records,
//! effects and rows). A changed record that does not fit the state only advances the sequence number.
//!
//! The numbered rules are those of `session/tests/heart/rules.rs`; in parentheses, [invariants](crate::InvariantId).

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// Rule 1: pending rows are not taken at a boundary, a hold or an end.
    RowsLeftPending,
    /// Rule 2: no check follows the end of the last local work or owned run.
    NoCheckAfterLast,
    /// Rule 3: a hold or an end leaves calls unanswered.
    CallsLeftOpen,
    /// Rule 4: a new activation does not start the calls that have not started.
    UnstartedForgotten,
    /// Rule 5: a row that was already taken is taken a second time.
    RowTakenTwice,
    /// Rule 7: admission does not check whether the owner has ended.
    OwnerNotChecked,
    /// Rule 8: a slot is requested without taking inputs and notices.
    SlotWithoutTaking,
    /// Rule 9: results that are not awaited are accepted.
    StaleAccepted,
    /// The end of a run creates no notice for its owner.
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
    /// Rule 6: a refused continuation creates no notice.
    ContinueRefusedSilently,
    /// Rule 7: a `continue` row takes effect although its owner has ended.
    ContinueOfOver,
    /// Rule 9: the queue opens the next run even after a cancel of the whole tree.
    QueueOpensAfterTreeCancel,
    /// A closed session takes a `continue` row.
    ClosedTakesContinue,
    /// Rule 5: a `cancel` row for one run ends a later run that the same owner opened.
    CancelReachesNextRun,
    /// Rule 9: an interrupt reaches a run whose call was moved to the background.
    BackgroundStaysBlocking,
    /// A call that is closed while it awaits approval leaves the ask open.
    AskLeftOpen,
    /// A run that waits for an approval keeps its slot.
    SlotKeptWhileAsking,
    /// A selected alternative replaces the message of the original.
    AlternativeOverwrites,
    /// A branch inherits messages after its branch point.
    BranchSeesLater,
    /// Rolled-back messages are still visible to models and branches.
    RolledBackSeen,
    /// The model of the parent receives the end of a run that a person opened.
    PersonsRunShown,
    /// The parent records the text of a run that a person opened in a child. It survives the child's deletion (J-10).
    UnreadTextKept,
    /// A run that ends because its owner ends records a person's cancel as the cause (T-5, S-8).
    OwnersEndNamesPerson,
    /// Completions are taken together with a person's message, after it.
    CompletionsJoinMessages,
    /// A queued message extends a run that a model's call opened.
    MessageExtendsOwnedRun,
    /// A relative's message renews the turns of the run that takes it.
    MessageRenewsTurns,
    /// A relative's message opens a run where none is in flight.
    MessageOpensRun,
    /// An ask has no deadline (P-5).
    AskWithoutDeadline,
    /// A compaction hides messages that the model has yet to answer (N-8).
    OwedCompacted,
    /// A new activation does not arm the deadline of the limit at which its run is parked, so the run never resumes.
    ResetForgotten,
    /// The reset of a limit resumes a run that was resumed before.
    ResetTwice,
    /// A run that is parked at a limit keeps its slot.
    SlotKeptAtLimit,
}

impl Bug {
    pub const ALL: [Self; 37] = [
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
        Self::MessageRenewsTurns,
        Self::MessageOpensRun,
        Self::AskWithoutDeadline,
        Self::OwedCompacted,
        Self::ResetForgotten,
        Self::ResetTwice,
        Self::SlotKeptAtLimit,
    ];
}

/// The rules of sessions: all, or all except one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rules {
    broken: Option<Bug>,
}

impl Rules {
    pub const ALL: Self = Self { broken: None };

    pub const fn without(bug: Bug) -> Self {
        Self { broken: Some(bug) }
    }

    pub const fn are_broken(self) -> bool {
        self.broken.is_some()
    }

    /// Decides one command like [`decide::decide`], but with the broken rule.
    /// # Errors
    /// If nothing is decided.
    pub fn decide(self, state: &mut State, command: Command, clock: Clock) -> Result<Decision, Rejection> {
        let Some(bug) = self.broken else { return decide::decide(state, command, clock) };
        let case = Case { bug, before: state.clone(), command, clock };
        match commands::decide(&case, state) {
            Ok(mut decision) => {
                dropped::drop_some(&case, state, &mut decision);
                added::add(&case, state, &mut decision);
                Ok(decision)
            }
            Err(rejection) => added::replace_rejection(&case, state, &rejection).ok_or(rejection),
        }
    }

    /// Takes outbox rows like [`decide::arrive`], but with the broken rule.
    pub fn arrive(self, state: &mut State, notices: Vec<Notice>, clock: Clock) -> Decision {
        let Some(bug) = self.broken else { return decide::arrive(state, notices, clock) };
        let case = Case { bug, before: state.clone(), command: Command::OwnedEnded(notices.clone()), clock };
        let mut decision = decide::arrive(state, notices, clock);
        added::add(&case, state, &mut decision);
        decision
    }

    /// Returns the index rows of one frame like [`index::changes`], but with the broken rule.
    pub fn changes(self, before: &Before, after: &State, records: &[Record], stamp: Stamp) -> Changes {
        let mut changes = index::changes(before, after, records, stamp);
        if let Some(bug) = self.broken {
            rows::drop_notice_rows(bug, records, &mut changes.put);
        }
        changes
    }
}

/// One command decided with a broken rule.
struct Case {
    bug: Bug,
    before: State,
    command: Command,
    clock: Clock,
}
