//! Entries of a transcript, from the records of a session.

use serde::{Deserialize, Serialize};
use subtend_session::call::CallEnd;
use subtend_session::ids::{AttemptNo, CallId, InputId, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::outcome::{Initiator, ModelFail, Outcome};
use subtend_session::place::BranchKind;
use subtend_session::record::{AnsweredBy, AskVerdict, CompactionCause, CompactionFailure, From, Hold};
use subtend_session::usage::Usage;

use super::Transcript;
use super::end::OwnedEnd;
use super::minion::Minion;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// An input that a run took.
    Input {
        id: InputId,
        /// The record, from which a branch may start.
        seq: Seq,
        from: From,
        /// Whether a running relative sent it by `message`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        relative: bool,
        run: RunNo,
        text: Text,
        /// Unix time in ms at which it was accepted.
        at_ms: i64,
    },
    /// An input that no run has taken.
    Waiting {
        id: InputId,
        text: Text,
    },
    /// An answer, with its tool calls.
    Answer {
        turn: TurnNo,
        /// The record, from which a branch may start, and which can be regenerated.
        seq: Seq,
        text: Option<Text>,
        calls: Vec<CallEntry>,
        agent: Option<Text>,
        /// The model that answered, with its provider: the server's name for it, or the session's.
        model: Option<Text>,
        usage: Usage,
        /// Milliseconds for which the call waited for a permit of its model.
        #[serde(default, skip_serializing_if = "is_zero")]
        queued_ms: u64,
        at_ms: i64,
    },
    /// A failed attempt of a turn.
    Discarded {
        turn: TurnNo,
        attempt: AttemptNo,
        /// The called model, if the session's model name represents several.
        model: Option<Text>,
        error: ModelFail,
        /// The provider's message.
        message: Text,
        usage: Option<Usage>,
        #[serde(default, skip_serializing_if = "is_zero")]
        queued_ms: u64,
    },
    /// Ends of owned runs that reached the model as one message.
    Notice {
        ends: Vec<OwnedEnd>,
    },
    Held {
        run: RunNo,
        why: Hold,
    },
    Ended {
        run: RunNo,
        outcome: Outcome,
        turns: u32,
        /// The usage of the run and of all runs it owned.
        usage: Usage,
        worked_ms: u64,
        /// True if the working time may be longer: a process ended while the run was working.
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
        /// The index of the alternative; 0 is the original.
        to: u32,
    },
    /// The messages of a run are hidden from here on.
    RolledBack {
        run: RunNo,
        by: Initiator,
    },
    /// Older messages are replaced by a summary from here on.
    Compacted {
        cause: CompactionCause,
        by: Initiator,
        /// Number of hidden messages.
        messages: u64,
        /// Estimated input tokens of the next model call, before and after.
        before: u64,
        after: u64,
        /// The text that models see in place of the hidden messages.
        text: Text,
        /// The service session that wrote the summary.
        service: SessionId,
    },
    /// A compaction failed and hid nothing.
    NotCompacted {
        turn: TurnNo,
        cause: CompactionCause,
        why: CompactionFailure,
        message: Text,
        service: Option<SessionId>,
    },
    /// From here on, models see the messages again that the last compaction hid.
    CompactionUndone {
        by: Initiator,
    },
    /// A call waits for an approval.
    Asked {
        call: CallId,
        action: Text,
        resource: Text,
    },
    /// The decision on a call that waited for an approval.
    #[serde(rename = "word")]
    Decided {
        call: CallId,
        verdict: AskVerdict,
        by: AnsweredBy,
    },
    Deleted {
        by: Initiator,
    },
    /// The session was closed or reopened.
    Closed {
        closed: bool,
        by: Initiator,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

impl Entry {
    pub(super) fn ends_mut(&mut self) -> &mut [OwnedEnd] {
        if let Self::Notice { ends } = self { ends } else { &mut [] }
    }

    pub(super) fn calls_mut(&mut self) -> &mut [CallEntry] {
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
            | Self::Compacted { .. }
            | Self::NotCompacted { .. }
            | Self::CompactionUndone { .. }
            | Self::Asked { .. }
            | Self::Decided { .. }
            | Self::Deleted { .. }
            | Self::Closed { .. } => &mut [],
        }
    }
}

/// An entry, its record, and whether models see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownEntry {
    /// The first record of the entry; later records complete the calls of an answer.
    #[serde(skip)]
    pub record: Seq,
    #[serde(flatten)]
    pub entry: Entry,
    /// True if the entry was rolled back with its run, so that models no longer see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
    /// True if models see a summary instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacted: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallEntry {
    pub call: CallId,
    pub tool: Text,
    /// The arguments, as the model wrote them.
    pub args: Text,
    pub child: Option<SessionId>,
    /// The relative that got a message by this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<SessionId>,
    /// Omissions from the child's prompt, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// The result; `None` while the call is open.
    pub result: Option<CallOutcome>,
    /// The work of a minion for the call, if the whole transcript is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minion: Option<Minion>,
    /// The child, if it has no row of its own and the whole transcript is requested.
    #[serde(flatten)]
    pub nested: Option<NestedTranscript>,
}

/// A child within the call that started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NestedTranscript {
    Transcript(Box<Transcript>),
    /// The reason why it cannot be read or is left out.
    Unreadable(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Result {
        end: CallEnd,
        content: Text,
        /// Length before the truncation, in bytes.
        truncated_from: Option<u64>,
    },
    /// The ends of the runs that the call awaited.
    Ends(Vec<OwnedEnd>),
}
