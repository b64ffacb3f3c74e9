//! Entries of a transcript, from the records of a session.

use serde::{Deserialize, Serialize};
use subtend_session::call::CallEnd;
use subtend_session::ids::{AttemptNo, CallId, InputId, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::outcome::{By, ModelFail, Outcome};
use subtend_session::place::BranchKind;
use subtend_session::record::{AskBy, AskVerdict, From, Hold};
use subtend_session::usage::Usage;

use super::Transcript;
use super::end::End;
use super::minion::Minion;

/// An entry of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// An input that a run took.
    Input {
        id: InputId,
        /// Its record, from which a branch may start.
        seq: Seq,
        from: From,
        /// The run that took it.
        run: RunNo,
        text: Text,
        /// When it was accepted.
        at_ms: i64,
    },
    /// An input that no run has taken.
    Waiting { id: InputId, text: Text },
    /// An answer with the calls that it asks for.
    Answer {
        turn: TurnNo,
        /// Its record, from which a branch may start, and which can be regenerated.
        seq: Seq,
        text: Option<Text>,
        calls: Vec<Call>,
        /// The agent that answered.
        agent: Option<Text>,
        /// The model that answered, with its provider: the server's name for it, else the session's.
        model: Option<Text>,
        usage: Usage,
        at_ms: i64,
    },
    /// A failed attempt of a turn.
    Discarded {
        turn: TurnNo,
        attempt: AttemptNo,
        /// The called model, if the session's name for it means several.
        model: Option<Text>,
        error: ModelFail,
        /// The partial text of the model.
        message: Text,
        /// Its cost.
        usage: Option<Usage>,
    },
    /// Ends of owned runs that reached the model as one message.
    Notice { ends: Vec<End> },
    /// The run is held.
    Held { run: RunNo, why: Hold },
    /// The run ended.
    Ended {
        run: RunNo,
        outcome: Outcome,
        turns: u32,
        /// The cost of the run and of all that it owned.
        usage: Usage,
        worked_ms: u64,
        /// Whether it may be more: a process ended while the run worked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        worked_at_least: bool,
        at_ms: i64,
    },
    /// A person or the host created a branch here.
    Branch {
        child: SessionId,
        kind: BranchKind,
        /// The message that it branches from.
        at: Seq,
    },
    /// Another alternative of an answer is active from here on.
    Switched {
        of: Seq,
        /// Its index; 0 is the original.
        to: u32,
    },
    /// The messages of a run are hidden from here on.
    RolledBack { run: RunNo, by: By },
    /// A call waits for an approval.
    Asked {
        call: CallId,
        /// The action of the access.
        action: Text,
        /// The resource of the access.
        resource: Text,
    },
    /// The question was answered.
    Word { call: CallId, verdict: AskVerdict, by: AskBy },
    /// The session was deleted.
    Deleted { by: By },
    /// The session was closed or opened again.
    Closed { closed: bool, by: By },
}

impl Entry {
    /// Returns the ends that arrived as one message.
    pub(super) fn ends_mut(&mut self) -> &mut [End] {
        if let Self::Notice { ends } = self { ends } else { &mut [] }
    }

    /// Returns the calls of an answer.
    pub(super) fn calls_mut(&mut self) -> &mut [Call] {
        match self {
            Self::Answer { calls, .. } => calls,
            Self::Input { .. }
            | Self::Waiting { .. }
            | Self::Discarded { .. }
            | Self::Notice { .. }
            | Self::Held { .. }
            | Self::Ended { .. }
            | Self::Branch { .. }
            | Self::Switched { .. }
            | Self::RolledBack { .. }
            | Self::Asked { .. }
            | Self::Word { .. }
            | Self::Deleted { .. }
            | Self::Closed { .. } => &mut [],
        }
    }
}

/// An entry, its record, and whether models see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Its first record; later records complete the calls of an answer.
    #[serde(skip)]
    pub record: Seq,
    #[serde(flatten)]
    pub entry: Entry,
    /// Whether it was rolled back with its run, so that no model gets it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
}

/// One call of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub call: CallId,
    pub tool: Text,
    /// The arguments, as the model wrote them.
    pub args: Text,
    /// The child that it opened.
    pub child: Option<SessionId>,
    /// What was left out of the child's prompt, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    /// Whether it waits for approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// The result; `None` while the call is open.
    pub result: Option<Came>,
    /// The work of a minion for the call, if everything is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minion: Option<Minion>,
    /// The child, if it has no row of its own and everything is shown.
    #[serde(flatten)]
    pub nested: Option<Nested>,
}

/// A child within the call that started it (G9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nested {
    /// Its entries.
    Transcript(Box<Transcript>),
    /// Why it cannot be read.
    Unreadable(String),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// A result of the tool.
    Result {
        /// How it ended.
        end: CallEnd,
        /// The text for the model.
        content: Text,
        /// Bytes before the truncation.
        truncated_from: Option<u64>,
    },
    /// The ends of the runs that it awaited.
    Ends(Vec<End>),
}
