//! Tool calls: what kind they are and how they end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent_override::AgentOverride;
use crate::ids::{RunKey, SessionId, Text};
use crate::place::Mode;

/// What a call is, settled before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A tool that runs here.
    Local(ToolEffect),
    /// Opens an owned run of a new child.
    Child(Mode),
    /// Opens an owned run of an ended child.
    Continue(Mode),
    /// Waits for owned runs.
    Await {
        /// Whether it waits for all rather than for the named ones.
        all: bool,
        /// The runs.
        runs: Vec<RunKey>,
    },
    /// Reads one owned run, and may wait for it.
    Check {
        /// The run.
        run: RunKey,
        /// Whether it waits.
        wait: bool,
    },
    /// Cancels one owned run.
    Cancel {
        /// The session.
        child: SessionId,
    },
    /// Ends the run with an explicit result.
    Return,
    /// Proposes that this agent goes on with the session from here: a person decides, always (G12).
    Propose(Arc<AgentOverride>),
    /// Never starts: answered with a tool error that the model can correct.
    Invalid(Invalid),
}

impl CallKind {
    /// Whether the tool runs in this process as local work.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Whether the call opens an owned run.
    pub fn is_child(&self) -> bool {
        matches!(self, Self::Child(_) | Self::Continue(_))
    }
}

/// What a local tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// Reads only: runs beside others and may be run again.
    ReadOnly,
    /// Has side effects, and may be repeated under the same key.
    Idempotent,
    /// Has side effects: never repeated silently.
    SideEffect,
}

/// Why a call cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalid {
    /// No such tool is offered.
    UnknownTool,
    /// The arguments are not JSON, or do not fit the tool's schema.
    BadArgs,
    /// More calls in one answer than are allowed.
    OverLimit,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// It worked.
    Ok,
    /// It failed in a way that the model is told.
    ToolError {
        /// What kind of error.
        kind: ToolErrorKind,
        /// Whether the same call may work later.
        retryable: bool,
    },
    /// The authority does not allow it.
    Denied,
    /// Its time limit passed.
    TimedOut,
    /// Its run was interrupted, or the host restarted, while it was at work. One that may have left effects half done has
    /// [`CallEnd::UnknownEffects`]; one that finished all the same says so in its text.
    Interrupted,
    /// Stopped because its run ends.
    Cancelled,
    /// Stopped in a state that nobody knows: side effects may have happened.
    UnknownEffects,
    /// A blocking child call that was moved to the background.
    Backgrounded,
}

/// Kinds of tool error, by what the model can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
    /// No such tool.
    UnknownTool,
    /// The arguments are wrong: correct them and call again.
    BadArgs,
    /// What was asked for is not there.
    NotFound,
    /// A limit was reached; the text says which and what remains.
    Limit,
    /// The call cannot be done in the present state; the text says what to do first.
    Refused,
    /// The tool failed.
    Failed,
    /// The tool panicked.
    Panicked,
}

/// What a finished call leaves for the transcript: how it ended, and the text that the model sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// How it ended.
    pub end: CallEnd,
    /// What the model sees.
    pub content: Text,
    /// Bytes before the result was cut to its bound.
    pub truncated_from: Option<u64>,
}

impl CallResult {
    /// A success.
    pub fn ok(content: impl Into<Text>) -> Self {
        Self { end: CallEnd::Ok, content: content.into(), truncated_from: None }
    }

    /// An error that the model can correct.
    pub fn error(kind: ToolErrorKind, content: impl Into<Text>) -> Self {
        Self { end: CallEnd::ToolError { kind, retryable: false }, content: content.into(), truncated_from: None }
    }
}
