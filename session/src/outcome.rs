//! Outcomes of runs and their causes.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Text};

/// The originator of a command or an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initiator {
    Person,
    Host,
    /// The owner's model, by one of its calls.
    Model {
        call: CallId,
    },
    /// The owner, which is closing or has ended.
    Owner {
        /// The owner's outcome, without its nested cause.
        outcome: OutcomeKind,
    },
    /// The sweep: a starting host ends the runs that the previous one left in flight.
    Sweep,
}

/// The outcome of a run, recorded once and never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A normal stop with text, or an explicit `return`.
    Completed,
    Failed {
        kind: FailKind,
    },
    Cancelled {
        by: Initiator,
    },
    /// Interrupted and never resumed.
    Interrupted {
        by: Initiator,
    },
    TimedOut {
        what: TimeLimit,
    },
    /// The turn allowance was spent before a final answer.
    OutOfTurns,
    /// A budget of the run or of its tree was spent.
    OutOfBudget {
        which: Budget,
    },
    /// The host restarted while the run was in flight.
    Lost,
    /// The session's actor failed more often than its restart budget allows.
    RestartsExhausted {
        /// Name of the command that was being handled, if it caused the crashes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<Text>,
    },
}

/// An outcome without its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    Completed,
    Failed,
    Cancelled,
    Interrupted,
    TimedOut,
    OutOfTurns,
    OutOfBudget,
    Lost,
    RestartsExhausted,
}

impl OutcomeKind {
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

    pub fn as_str(self) -> &'static str {
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

    /// Returns the outcome without free text: a provider's message may repeat the request.
    #[must_use]
    pub(crate) fn without_text(self) -> Self {
        let message = Text::default();
        let kind = match self {
            Self::Failed { kind: FailKind::Model { error, .. } } => FailKind::Model { error, message },
            Self::Failed { kind: FailKind::Panic { part, .. } } => FailKind::Panic { part, message },
            Self::Failed { kind: FailKind::Unreadable { .. } } => FailKind::Unreadable { message },
            Self::Failed { kind: FailKind::Workspace { .. } } => FailKind::Workspace { message },
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

    /// Returns whether this end wakes an owner at rest. It does not if a person cancelled or interrupted the run.
    pub fn wakes_owner(&self) -> bool {
        !matches!(self, Self::Cancelled { by: Initiator::Person } | Self::Interrupted { by: Initiator::Person })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailKind {
    /// The answer was truncated, and so was its continuation.
    Truncated,
    /// The answer was empty, and so was the answer to the nudge.
    Empty,
    Refused,
    Model {
        error: ModelFail,
        /// The provider's message, bounded and free of secrets.
        #[serde(default)]
        message: Text,
    },
    /// A panic in subtend or in the embedder's code.
    Panic {
        part: Part,
        #[serde(default)]
        message: Text,
    },
    /// The session's agent is unknown to the host.
    AgentMissing,
    /// The session refused to continue, so no run was opened. Only in notices.
    NotContinued {
        why: ContinueRefusal,
    },
    /// The session is unreadable, so its end is unknown. Only in notices.
    Unreadable {
        message: Text,
    },
    /// The authority needed for the run is missing.
    Authority,
    /// The directory in which the session works could not be created or opened, so the model was not called.
    Workspace {
        message: Text,
    },
    /// An internal error; the message is for a bug report.
    Internal {
        message: Text,
    },
}

/// Errors of a model, grouped by the caller's possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFail {
    Auth,
    /// The account is out of credit, or its spending limit is reached.
    Credit,
    /// The key is valid, but not for this model or region.
    Access,
    Rate,
    /// The provider was unreachable, silent for too long, or returned a server error; retry later.
    Unavailable,
    BadAnswer,
    ContextOverflow,
    InvalidRequest,
    /// The call was dropped locally: its run stopped, or its session restarted.
    Dropped,
}

impl ModelFail {
    pub const ALL: [Self; 9] = [
        Self::Auth,
        Self::Credit,
        Self::Access,
        Self::Rate,
        Self::Unavailable,
        Self::BadAnswer,
        Self::ContextOverflow,
        Self::InvalidRequest,
        Self::Dropped,
    ];

    /// Returns whether a retry of the same request may succeed.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::Rate | Self::Unavailable | Self::BadAnswer | Self::Dropped => true,
            Self::Auth | Self::Credit | Self::Access => false,
            Self::ContextOverflow | Self::InvalidRequest => false,
        }
    }

    /// Returns whether another model may answer the same request.
    pub(crate) fn permits_fallback(self) -> bool {
        match self {
            Self::Rate | Self::Unavailable | Self::BadAnswer | Self::Dropped => true,
            Self::Auth | Self::Credit | Self::Access => true,
            Self::ContextOverflow | Self::InvalidRequest => false,
        }
    }
}

/// A component whose panic is caught and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Model,
    TurnTask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeLimit {
    Run,
    /// Time in the queue for a slot. It restarts each time a run of the same root gets a slot.
    Queue,
    /// One turn with all its attempts.
    Turn,
    /// The wall-clock cap of the run or of an ancestor.
    WallCap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    Tokens,
    Money,
    /// Bytes that one run records. The other budgets are those of its tree.
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContinueRefusal {
    InFlight,
    Closed,
    Deleted,
}

#[cfg(test)]
mod tests {
    use super::{ModelFail, OutcomeKind};

    /// Exhaustive, so that a new outcome must be added to [`OutcomeKind::ALL`].
    fn position(kind: OutcomeKind) -> usize {
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
        assert_eq!(OutcomeKind::ALL.map(position), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// Exhaustive, so that a new error must be added to [`ModelFail::ALL`].
    fn error_position(error: ModelFail) -> usize {
        match error {
            ModelFail::Auth => 0,
            ModelFail::Credit => 1,
            ModelFail::Access => 2,
            ModelFail::Rate => 3,
            ModelFail::Unavailable => 4,
            ModelFail::BadAnswer => 5,
            ModelFail::ContextOverflow => 6,
            ModelFail::InvalidRequest => 7,
            ModelFail::Dropped => 8,
        }
    }

    #[test]
    fn all_model_errors_are_listed_once_and_in_order() {
        assert_eq!(ModelFail::ALL.map(error_position), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
