//! How runs end, and on whose word: the one taxonomy that every dialect's words are mapped from.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Text};

/// On whose word something was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A person, through the API or the command line.
    Person,
    /// The embedding host.
    Host,
    /// The owner's model, by one of its calls.
    Model {
        /// The call, in the owner's session.
        call: CallId,
    },
    /// The run that owns this one is closing or has ended so.
    Owner {
        /// The owner's outcome, without its nested cause.
        outcome: OutcomeKind,
    },
    /// The boot sweep, for a run whose owner did not survive.
    Sweep,
}

/// Why a run ended: written once per run and never changed (S-1, S-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A normal stop with text, or an explicit `return`.
    Completed,
    /// The run could not be finished.
    Failed {
        /// What failed.
        kind: FailKind,
    },
    /// Ended by a cancel.
    Cancelled {
        /// On whose word.
        by: By,
    },
    /// Interrupted, and nothing came to resume it.
    Interrupted {
        /// On whose word.
        by: By,
    },
    /// A deadline passed.
    TimedOut {
        /// Which one.
        what: TimeLimit,
    },
    /// The turn allowance was spent before a final answer.
    OutOfTurns,
    /// A budget of its tree was spent.
    OutOfBudget {
        /// Which one.
        which: Budget,
    },
    /// The host restarted while the run was in flight.
    Lost,
    /// The session's actor failed more often than its restart budget allows.
    RestartsExhausted {
        /// The command that was in hand, by name, when it was set aside (V-3).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<Text>,
    },
}

/// An outcome without its cause: one word for tables, listings and wire vocabularies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// See [`Outcome::Completed`].
    Completed,
    /// See [`Outcome::Failed`].
    Failed,
    /// See [`Outcome::Cancelled`].
    Cancelled,
    /// See [`Outcome::Interrupted`].
    Interrupted,
    /// See [`Outcome::TimedOut`].
    TimedOut,
    /// See [`Outcome::OutOfTurns`].
    OutOfTurns,
    /// See [`Outcome::OutOfBudget`].
    OutOfBudget,
    /// See [`Outcome::Lost`].
    Lost,
    /// See [`Outcome::RestartsExhausted`].
    RestartsExhausted,
}

impl OutcomeKind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Interrupted,
        Self::TimedOut,
        Self::OutOfTurns,
        Self::OutOfBudget,
        Self::Lost,
        Self::RestartsExhausted,
    ];

    /// The word for listings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::TimedOut => "timed out",
            Self::OutOfTurns => "out of turns",
            Self::OutOfBudget => "out of budget",
            Self::Lost => "lost",
            Self::RestartsExhausted => "restarts exhausted",
        }
    }
}

impl Outcome {
    /// The outcome without its cause.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Completed => OutcomeKind::Completed,
            Self::Failed { .. } => OutcomeKind::Failed,
            Self::Cancelled { .. } => OutcomeKind::Cancelled,
            Self::Interrupted { .. } => OutcomeKind::Interrupted,
            Self::TimedOut { .. } => OutcomeKind::TimedOut,
            Self::OutOfTurns => OutcomeKind::OutOfTurns,
            Self::OutOfBudget { .. } => OutcomeKind::OutOfBudget,
            Self::Lost => OutcomeKind::Lost,
            Self::RestartsExhausted { .. } => OutcomeKind::RestartsExhausted,
        }
    }

    /// Returns the outcome without free text: a provider's words may repeat what it was asked.
    #[must_use]
    pub(crate) fn without_text(self) -> Self {
        let message = Text::default();
        let kind = match self {
            Self::Failed { kind: FailKind::Model { error, .. } } => FailKind::Model { error, message },
            Self::Failed { kind: FailKind::Panic { part, .. } } => FailKind::Panic { part, message },
            Self::Failed { kind: FailKind::Unreadable { .. } } => FailKind::Unreadable { message },
            Self::Failed { kind: FailKind::Internal { .. } } => FailKind::Internal { message },
            Self::Failed { .. }
            | Self::Completed
            | Self::Cancelled { .. }
            | Self::Interrupted { .. }
            | Self::TimedOut { .. }
            | Self::OutOfTurns
            | Self::OutOfBudget { .. }
            | Self::Lost
            | Self::RestartsExhausted { .. } => return self,
        };
        Self::Failed { kind }
    }

    /// Whether the end of an owned run with this outcome wakes an owner at rest (rule K17: not when a person cancelled it).
    pub fn wakes(&self) -> bool {
        !matches!(self, Self::Cancelled { by: By::Person } | Self::Interrupted { by: By::Person })
    }
}

/// What made a run fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailKind {
    /// The answer was cut off by length, also after one continuation.
    Truncated,
    /// The answer was empty, also after one nudge.
    Empty,
    /// The model refused.
    Refused,
    /// The model could not be called, or answered with an error.
    Model {
        /// Which error.
        error: ModelFail,
        /// The provider's own words, bounded and free of secrets.
        #[serde(default)]
        message: Text,
    },
    /// Code of ours or of an embedder panicked.
    Panic {
        /// Where.
        part: Part,
        /// What the panic said, bounded.
        #[serde(default)]
        message: Text,
    },
    /// The session's agent is not known to this host.
    AgentMissing,
    /// An ended session was asked to go on and refused: no run was opened. In notices only.
    NotContinued {
        /// Why.
        why: ContinueRefusal,
    },
    /// The session cannot be read any more: nobody knows how it ended. In notices only.
    Unreadable {
        /// What is wrong with it.
        message: Text,
    },
    /// The authority needed for the run is not there.
    Authority,
    /// A fault of ours; the message is for a bug report.
    Internal {
        /// What happened.
        message: Text,
    },
}

/// Errors of a model, by what the caller can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFail {
    /// The key is missing or refused.
    Auth,
    /// The account is out of credit, or its spending limit is reached.
    Credit,
    /// The key is good, but may not use this model, or not from this region.
    Access,
    /// A rate limit; retry later.
    Rate,
    /// The provider could not be reached, answered with a server error or was silent for too long; retry later.
    Unavailable,
    /// What came back is no answer.
    BadAnswer,
    /// The request is larger than the model's context.
    ContextOverflow,
    /// The provider refused the request as such.
    InvalidRequest,
    /// The call was dropped on this side: its run was stopped, or its session had to begin anew.
    Dropped,
}

impl ModelFail {
    /// Whether the same request may succeed when it is sent again.
    pub fn retryable(self) -> bool {
        match self {
            Self::Rate | Self::Unavailable | Self::BadAnswer | Self::Dropped => true,
            Self::Auth | Self::Credit | Self::Access | Self::ContextOverflow | Self::InvalidRequest => false,
        }
    }
}

/// A part whose panic is caught and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The model.
    Model,
    /// The turn task around it.
    TurnTask,
}

/// Which time limit passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeLimit {
    /// The run's working time.
    Run,
    /// Time in the queue in which no slot of its root was granted.
    Queue,
    /// One turn with all its attempts.
    Turn,
    /// The wall-clock cap of the run or of an owner above it.
    WallCap,
}

/// Which budget of a tree was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Tokens.
    Tokens,
    /// Money.
    Money,
    /// Bytes that one run records: its own limit, not one of the tree.
    Recorded,
}

/// Why a child refuses to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContinueRefusal {
    /// A run is in flight.
    InFlight,
    /// The session is closed.
    Closed,
    /// The session is deleted.
    Deleted,
}

#[cfg(test)]
mod tests {
    use super::OutcomeKind;

    /// The place of each in [`OutcomeKind::ALL`]: a new one does not compile until it has one.
    fn place(kind: OutcomeKind) -> usize {
        match kind {
            OutcomeKind::Completed => 0,
            OutcomeKind::Failed => 1,
            OutcomeKind::Cancelled => 2,
            OutcomeKind::Interrupted => 3,
            OutcomeKind::TimedOut => 4,
            OutcomeKind::OutOfTurns => 5,
            OutcomeKind::OutOfBudget => 6,
            OutcomeKind::Lost => 7,
            OutcomeKind::RestartsExhausted => 8,
        }
    }

    #[test]
    fn all_outcomes_are_listed_once_and_in_order() {
        assert_eq!(OutcomeKind::ALL.map(place), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
