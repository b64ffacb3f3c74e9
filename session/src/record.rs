//! Records: the content of a session's journal. The state is a fold over them (`state`).
//!
//! Records are stored as externally tagged JSON in snake_case. New *fields* get a default. An unknown record *kind* means
//! that a newer version wrote the journal.

use serde::{Deserialize, Serialize};

use crate::authority::Access;
use crate::call::CallKind;
use crate::ids::{AttemptNo, CallId, InputId, RunNo, Seq, SessionId, Text, TurnNo};
use crate::outcome::Initiator;
use crate::values::json_bytes;

pub use crate::agent_override::AgentOverride;
pub use crate::outcome::ContinueRefusal;
pub use compaction::{Compacted, CompactionCause, CompactionFailed, CompactionFailure};
pub use creation::{RunOpened, SessionCreated};
pub use description::{MetadataSet, SummarySet, TitleSet};
pub use input::{From, InputAccepted, Lane, QueueChange};
pub use run::{Hold, Park, RunEnded};
pub use tree::{BranchCreated, Carrier, ChildSpawned, ContinueAsked, Notice, NoticeTaken, SpawnGranted};
pub use turn::{
    AnsweredBy, AskVerdict, AttemptDiscarded, CallFinished, Prompt, Reserved, Stop, ToolCall, TurnAnswered,
};

mod compaction;
mod creation;
mod description;
mod heap;
mod input;
mod naming;
mod run;
mod tree;
mod turn;

/// One fact about a session. A session's records are in the order of its decisions.
///
/// A record has at most 80 bytes, so that vectors of records stay cheap to move. Large ones are boxed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Record {
    /// The first record of every session, in the batch that creates it.
    SessionCreated(Box<SessionCreated>),
    /// A run was opened. If it needs a slot, the LSN of this record is its position in the queue for slots.
    RunOpened(Box<RunOpened>),
    /// The run was started: its working time begins.
    RunStarted {
        run: RunNo,
        slot: bool,
    },
    /// An input is accepted. The receipt is durable with this record.
    InputAccepted(Box<InputAccepted>),
    /// Queued inputs became user messages of the transcript. This restarts the turn allowance.
    InputsTaken {
        ids: Vec<InputId>,
        run: RunNo,
        turn: TurnNo,
    },
    /// A person or the host changed the queue.
    QueueChanged {
        change: QueueChange,
        by: Initiator,
    },
    TurnStarted {
        run: RunNo,
        turn: TurnNo,
        attempt: AttemptNo,
        prompt: Prompt,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved: Option<Box<Reserved>>,
        model: Text,
        /// Set if the attempt first waits for a compaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compacts: Option<CompactionCause>,
    },
    /// An attempt failed. The transcript does not contain it.
    AttemptDiscarded(Box<AttemptDiscarded>),
    /// The model answered. The open calls of the turn are counted from this record, not from the live children.
    TurnAnswered(Box<TurnAnswered>),
    /// A call started. Only calls with side effects wait for this record to be durable.
    CallStarted {
        call: CallId,
        kind: Box<CallKind>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// The access that was allowed, if the authority was checked. For the audit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access: Option<Box<Access>>,
    },
    /// A call ended. A blocking child call ends with its notice instead, unless it was moved to the background.
    CallFinished(Box<CallFinished>),
    /// A child was created, with a first run that this session's run owns. In the same batch as the child's first records.
    ChildSpawned(Box<ChildSpawned>),
    /// This session continues an ended child. Adds a `continue` row.
    ContinueAsked(Box<ContinueAsked>),
    /// This session, the child, refuses to continue. Adds a `notice` row.
    ContinueRefused {
        owner: SessionId,
        key: CallId,
        why: ContinueRefusal,
    },
    /// This session cancels the run that `key` opened. Adds a `cancel` row.
    CancelAsked {
        call: Option<CallId>,
        child: SessionId,
        key: CallId,
    },
    /// The run waits. Its slot is released and its clock is stopped.
    RunParked {
        run: RunNo,
        why: Park,
        worked_ms: u64,
    },
    RunResumed {
        run: RunNo,
        why: Park,
        slot: bool,
    },
    /// The run is held: it calls no model until an input arrives. A run that is held closing calls none until its end.
    RunHeld {
        run: RunNo,
        why: Box<Hold>,
    },
    /// The run's one terminal record. Adds a `notice` row if a session receives its end.
    RunEnded(Box<RunEnded>),
    /// Ends of owned runs were taken. This record holds the tool result or the synthetic message with the ends.
    NoticeTaken(Box<NoticeTaken>),
    /// A call awaits approval.
    AskOpened {
        call: CallId,
        action: Text,
        resource: Text,
        /// The root that receives the ask.
        root: SessionId,
        /// Time in milliseconds since the epoch at which the ask is denied. `None` in older journals: each activation
        /// waits the whole time again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_at: Option<i64>,
    },
    /// An approver answered, or the ask was closed.
    AskAnswered {
        call: CallId,
        verdict: AskVerdict,
        by: AnsweredBy,
    },
    /// A branch was created. In the same batch as the branch's first records.
    BranchCreated(Box<BranchCreated>),
    /// Another alternative of an answer was selected.
    AlternativeSwitched {
        /// The answer: a record of this session.
        of: Seq,
        /// The index: 0 is the original, followed by the branches in the order of their creation.
        to: u32,
        by: Initiator,
    },
    /// A title set by a person or by a service.
    TitleSet(Box<TitleSet>),
    /// A service's summary of the session.
    SummarySet(Box<SummarySet>),
    /// The session's metadata changed.
    MetadataSet(Box<MetadataSet>),
    /// The messages of an ended run that did not complete are hidden from models and later branches. Nothing is
    /// deleted, and changes to files remain.
    RolledBack {
        run: RunNo,
        by: Initiator,
    },
    /// Old messages are replaced by a summary in what models see. Nothing is deleted.
    Compacted(Box<Compacted>),
    CompactionFailed(Box<CompactionFailed>),
    /// The messages that the last compaction hid are visible again.
    CompactionUndone {
        by: Initiator,
    },
    /// The session is deleted: it does not accept anything, and listings omit it. Its journal stays readable.
    SessionDeleted {
        by: Initiator,
    },
    /// The session is closed; an input reopens it.
    SessionClosed {
        by: Initiator,
    },
    SessionReopened {
        by: Initiator,
    },
}

impl Record {
    pub const KINDS: &'static [&'static str] = <Self as strum::VariantNames>::VARIANTS;

    /// Returns the record's kind in the journal.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Returns the bytes that the limit `recorded_bytes` counts: those of [`Record::text_bytes`], and of the texts that the
    /// call of this record puts into the journal of a child.
    pub fn recorded_bytes(&self) -> u64 {
        let in_child = if let Self::ChildSpawned(spawned) = self {
            spawned.bytes
        } else if let Self::ContinueAsked(request) = self {
            json_bytes(&request.input)
        } else {
            0
        };
        self.text_bytes().saturating_add(in_child)
    }

    /// Returns the bytes of the texts of models, tools and owned runs in this record, not of inputs.
    pub fn text_bytes(&self) -> u64 {
        let of = |text: &Option<Text>| text.as_ref().map_or(0, |text| json_bytes(text));
        if let Self::TurnAnswered(answer) = self {
            let calls = answer.calls.iter().flat_map(|call| [&call.provider_id, &call.tool, &call.args]);
            let texts = [of(&answer.text), of(&answer.reasoning)];
            calls.map(|text| json_bytes(text)).chain(texts).fold(0, u64::saturating_add)
        } else if let Self::AttemptDiscarded(discarded) = self {
            json_bytes(&discarded.message)
        } else if let Self::CallFinished(finished) = self {
            json_bytes(&finished.content)
        } else if let Self::Compacted(compacted) = self {
            json_bytes(&compacted.text)
        } else if let Self::NoticeTaken(taken) = self {
            taken.items.iter().map(|notice| json_bytes(&notice.prefix)).fold(0, u64::saturating_add)
        } else if let Self::ChildSpawned(spawned) = self {
            let lists = spawned.skipped.iter().chain(&spawned.warnings).map(|text| json_bytes(text));
            lists.fold(of(&spawned.label), u64::saturating_add)
        } else if let Self::ContinueAsked(request) = self {
            json_bytes(&request.input)
        } else if let Self::AskOpened { resource, .. } = self {
            json_bytes(resource)
        } else {
            0
        }
    }
}
