//! Tool calls: their kinds and how they end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent_override::AgentOverride;
use crate::ids::{RunKey, SessionId, Text};
use crate::place::Mode;

/// The kind of a call, decided before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A tool that runs in this process.
    Local(ToolEffect),
    /// Opens an owned run of a new child.
    Child(Mode),
    /// Opens an owned run of an ended child.
    Continue(Mode),
    /// Waits for owned runs.
    Await {
        /// True if it waits for all runs rather than the named ones.
        all: bool,
        runs: Vec<RunKey>,
    },
    /// Reads one owned run, optionally waiting for it.
    Check { run: RunKey, wait: bool },
    /// Cancels one owned run.
    Cancel { child: SessionId },
    /// Ends the run with an explicit result.
    Return,
    /// Proposes another agent to continue the session: approval is always required.
    Propose(Arc<AgentOverride>),
    /// Cannot start: the model receives a tool error and can correct the call.
    Invalid(Invalid),
}

impl CallKind {
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Returns whether the call opens an owned run.
    pub fn is_child(&self) -> bool {
        matches!(self, Self::Child(_) | Self::Continue(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// Reads only: runs concurrently with other reads and may be repeated.
    ReadOnly,
    /// Has side effects; may be repeated under the same key.
    Idempotent,
    /// Has side effects; never repeated silently.
    SideEffect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalid {
    UnknownTool,
    /// The arguments are not JSON or do not match the tool's schema.
    BadArgs,
    /// The answer contains more calls than allowed.
    OverLimit,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    Ok,
    ToolError {
        kind: ToolErrorKind,
        /// True if a retry of the same call may succeed.
        retryable: bool,
    },
    /// The authority denies the call.
    Denied,
    TimedOut,
    /// The run was interrupted, or the host restarted, during the call, and the call had no effects. Otherwise it ends
    /// with [`CallEnd::UnknownEffects`].
    Interrupted,
    /// The call was stopped because its run ends.
    Cancelled,
    /// The call stopped at an unknown point: side effects may have happened.
    UnknownEffects,
    /// A blocking child call moved to the background.
    Backgrounded,
}

/// Kinds of tool errors, grouped by the model's possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
    UnknownTool,
    /// The arguments are wrong: correct them and call again.
    BadArgs,
    NotFound,
    /// A limit was reached; the text names it and what remains.
    Limit,
    /// The call is impossible in the present state; the text says what to do first.
    Refused,
    Failed,
    Panicked,
}

/// The outcome of a finished call and the text that the model receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    pub end: CallEnd,
    pub content: Text,
    /// Bytes before the result was truncated.
    pub truncated_from: Option<u64>,
}

impl CallResult {
    pub fn ok(content: impl Into<Text>) -> Self {
        Self { end: CallEnd::Ok, content: content.into(), truncated_from: None }
    }

    /// Returns an error that the model can correct.
    pub fn error(kind: ToolErrorKind, content: impl Into<Text>) -> Self {
        Self { end: CallEnd::ToolError { kind, retryable: false }, content: content.into(), truncated_from: None }
    }
}
