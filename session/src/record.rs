//! Records: what a session's journal holds. State is a fold over them (`state`).
//!
//! JSON, externally tagged, snake_case. New *fields* get a default; a record *kind* that is not known means a newer
//! format.

use serde::{Deserialize, Serialize};

use crate::authority::Access;
use crate::call::CallKind;
use crate::ids::{AttemptNo, CallId, InputId, RunNo, Seq, SessionId, Text, TurnNo};
use crate::outcome::By;

pub use crate::agent_override::AgentOverride;
pub use crate::outcome::ContinueRefusal;
pub use birth::{RunOpened, SessionCreated};
pub use compaction::{Compacted, CompactionCause, CompactionFailed, CompactionFailure};
pub use description::{MetadataSet, SummarySet, TitleSet};
pub use input::{From, InputAccepted, Lane, QueueChange};
pub use run::{Hold, Park, RunEnded};
pub use tree::{BranchCreated, Carrier, ChildSpawned, ContinueAsked, Notice, NoticeTaken, SpawnGranted};
pub use turn::{AskBy, AskVerdict, AttemptDiscarded, CallFinished, Prompt, Reserved, Stop, ToolCall, TurnAnswered};

mod birth;
mod compaction;
mod description;
mod input;
mod run;
mod tree;
mod turn;

/// One fact of one session, in the order of decisions.
///
/// At most 80 bytes, so that a decision of many records stays cheap to move; large records are boxed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Record {
    /// The first record of every session, in its birth batch.
    SessionCreated(Box<SessionCreated>),
    /// A run exists; the LSN of this record is its position in the queue.
    RunOpened(Box<RunOpened>),
    /// The run was claimed: its working time starts here.
    RunStarted {
        run: RunNo,
        slot: bool,
    },
    /// An input is accepted: the receipt is durable with this record.
    InputAccepted(Box<InputAccepted>),
    /// Queued inputs became user messages of the transcript; restarts the turn allowance.
    InputsTaken {
        ids: Vec<InputId>,
        run: RunNo,
        turn: TurnNo,
    },
    /// A person or the host changed the queue.
    QueueChanged {
        change: QueueChange,
        by: By,
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
    /// A failed attempt, which leaves no trace in the transcript.
    AttemptDiscarded(Box<AttemptDiscarded>),
    /// The model answered. Open calls are counted from here, never from the set of live children.
    TurnAnswered(Box<TurnAnswered>),
    /// A call started. Only calls with side effects wait for this record to be durable.
    CallStarted {
        call: CallId,
        kind: Box<CallKind>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// The access that was allowed, if the authority was checked: for the audit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access: Option<Box<Access>>,
    },
    /// A call ended. A blocking child call has its notice instead, unless it was moved to the background.
    CallFinished(Box<CallFinished>),
    /// A child exists, with its first run owned by this session's run. In the same batch as its birth.
    ChildSpawned(Box<ChildSpawned>),
    /// This session continues an ended child; obliges a `continue` row.
    ContinueAsked(Box<ContinueAsked>),
    /// This session, the child, refuses to continue; obliges a `notice` row.
    ContinueRefused {
        owner: SessionId,
        key: CallId,
        why: ContinueRefusal,
    },
    /// This session cancels the run that `key` opened; obliges a `cancel` row.
    CancelAsked {
        call: Option<CallId>,
        child: SessionId,
        key: CallId,
    },
    /// The run waits: it released its slot, or its clock stopped.
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
    /// The run is held: no model call until an input, or never again.
    RunHeld {
        run: RunNo,
        why: Box<Hold>,
    },
    /// The run's one terminal record. Obliges a `notice` row if a session receives its end.
    RunEnded(Box<RunEnded>),
    /// Ends of owned runs were taken: this record is the tool result or the synthetic completion.
    NoticeTaken(Box<NoticeTaken>),
    /// A call awaits approval.
    AskOpened {
        call: CallId,
        action: Text,
        resource: Text,
        /// The root that receives the ask.
        root: SessionId,
        /// When the ask is denied, as wall clock in milliseconds. `None` in older journals: each activation waits again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_at: Option<i64>,
    },
    /// An approver answered, or the ask was closed.
    AskAnswered {
        call: CallId,
        verdict: AskVerdict,
        by: AskBy,
    },
    /// A branch exists. In the same batch as its birth.
    BranchCreated(Box<BranchCreated>),
    /// Another alternative of an answer was selected.
    AlternativeSwitched {
        /// The answer: a record of this session.
        of: Seq,
        /// The index: 0 is the original, then the branches in the order of their births.
        to: u32,
        by: By,
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
        by: By,
    },
    /// Old messages are replaced by a summary in what models see. Nothing is deleted.
    Compacted(Box<Compacted>),
    CompactionFailed(Box<CompactionFailed>),
    /// The messages that the last compaction hid are visible again.
    CompactionUndone {
        by: By,
    },
    /// The session is deleted: it takes nothing and is in no listing. Its journal stays readable.
    SessionDeleted {
        by: By,
    },
    /// The session is closed; an input reopens it.
    SessionClosed {
        by: By,
    },
    SessionReopened {
        by: By,
    },
}

impl Record {
    pub const KINDS: &'static [&'static str] = <Self as strum::VariantNames>::VARIANTS;

    /// Returns the record's kind in the journal.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Returns the bytes of text that a model, a tool or an owned run put into the record: counted by `recorded_bytes`.
    /// Inputs of people have their own limits.
    pub fn text_bytes(&self) -> u64 {
        let of = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
        let bytes = if let Self::TurnAnswered(answer) = self {
            let calls = answer.calls.iter().map(ToolCall::text_bytes).fold(0, usize::saturating_add);
            of(&answer.text).saturating_add(of(&answer.reasoning)).saturating_add(calls)
        } else if let Self::AttemptDiscarded(discarded) = self {
            discarded.message.len()
        } else if let Self::CallFinished(finished) = self {
            finished.content.len()
        } else if let Self::Compacted(compacted) = self {
            compacted.text.len()
        } else if let Self::NoticeTaken(taken) = self {
            taken.items.iter().map(|notice| notice.prefix.len()).fold(0, usize::saturating_add)
        } else {
            0
        };
        bytes as u64
    }
}
