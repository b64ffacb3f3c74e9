//! Records: what a session's journal holds. State is a fold over them (`state`).
//!
//! JSON, externally tagged, snake_case. New *fields* get a default; a record *kind* that is not known means a newer format.

use serde::{Deserialize, Serialize};

use crate::authority::Access;
use crate::call::CallKind;
use crate::ids::{AttemptNo, CallId, InputId, RunNo, Seq, SessionId, Text, TurnNo};
use crate::outcome::By;

pub use crate::agent_override::AgentOverride;
pub use crate::outcome::ContinueRefusal;
pub use birth::{RunOpened, SessionCreated};
pub use description::{MetadataSet, SummarySet, TitleSet};
pub use input::{From, InputAccepted, Lane, QueueChange};
pub use run::{Hold, Park, RunEnded};
pub use tree::{BranchCreated, Carrier, ChildSpawned, ContinueAsked, Notice, NoticeTaken, SpawnGranted};
pub use turn::{AskBy, AskVerdict, AttemptDiscarded, CallFinished, Prompt, Reserved, Stop, ToolCall, TurnAnswered};

mod birth;
mod description;
mod input;
mod run;
mod tree;
mod turn;

/// One fact of one session, in the order in which it was decided.
///
/// At most 80 bytes, so that a decision of many records stays cheap to move; large ones are boxed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The session exists. First record of every session, in its birth batch.
    SessionCreated(Box<SessionCreated>),
    /// A run exists; its place in the queue is the LSN of this record.
    RunOpened(Box<RunOpened>),
    /// The run was claimed: its working time counts from here.
    RunStarted {
        /// The run.
        run: RunNo,
        /// Whether it holds a slot.
        slot: bool,
    },
    /// An input is accepted: the receipt is durable with this record.
    InputAccepted(Box<InputAccepted>),
    /// Queued inputs became user messages of the transcript; restarts the turn allowance.
    InputsTaken {
        /// The inputs, in order.
        ids: Vec<InputId>,
        /// The run that took them.
        run: RunNo,
        /// The turn that sees them first.
        turn: TurnNo,
    },
    /// The queue was changed by a person or the host.
    QueueChanged {
        /// What was done.
        change: QueueChange,
        /// On whose word.
        by: By,
    },
    /// A model call is about to be made: the intent (J-5).
    TurnStarted {
        /// The run.
        run: RunNo,
        /// The turn.
        turn: TurnNo,
        /// The attempt within the turn.
        attempt: AttemptNo,
        /// What is put to the model besides the transcript.
        prompt: Prompt,
        /// What was reserved for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved: Option<Box<Reserved>>,
        /// The model.
        model: Text,
    },
    /// An attempt came to nothing and leaves no trace in the transcript (E-2).
    AttemptDiscarded(Box<AttemptDiscarded>),
    /// The model answered. Open calls are counted from here, never from the set of live children (S-11).
    TurnAnswered(Box<TurnAnswered>),
    /// A call started. Only calls with side effects wait for this record to be durable.
    CallStarted {
        /// The call.
        call: CallId,
        /// What it is.
        kind: Box<CallKind>,
        /// Its time limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// What it was allowed to do, where the authority was asked: the audit of the decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access: Option<Box<Access>>,
    },
    /// A call ended. Not for a blocking child call, whose notice is its result, except when it was moved to the background.
    CallFinished(Box<CallFinished>),
    /// A child exists, with its first run owned by this session's run (T-1). Same batch as its birth.
    ChildSpawned(Box<ChildSpawned>),
    /// This session asks an ended child to go on; obliges a `continue` row.
    ContinueAsked(Box<ContinueAsked>),
    /// This session, the child, refuses to go on; obliges a `notice` row.
    ContinueRefused {
        /// The owner that asked.
        owner: SessionId,
        /// Its call.
        key: CallId,
        /// Why.
        why: ContinueRefusal,
    },
    /// This session asks a child to cancel the run that `key` opened; obliges a `cancel` row.
    CancelAsked {
        /// The call that asks, if a model asked.
        call: Option<CallId>,
        /// The child.
        child: SessionId,
        /// The key of the owned run.
        key: CallId,
    },
    /// The run waits: it gave its slot back, or its clock stands.
    RunParked {
        /// The run.
        run: RunNo,
        /// What it waits for.
        why: Park,
        /// Working time so far.
        worked_ms: u64,
    },
    /// The run goes on.
    RunResumed {
        /// The run.
        run: RunNo,
        /// What it waited for.
        why: Park,
        /// Whether it holds a slot again.
        slot: bool,
    },
    /// The run is held: no model call until an input, or none any more.
    RunHeld {
        /// The run.
        run: RunNo,
        /// Why.
        why: Box<Hold>,
    },
    /// The run ended: its one terminal record (S-1, S-2). Obliges a `notice` row where its owner is to hear of it.
    RunEnded(Box<RunEnded>),
    /// Ends of owned runs were taken: this record *is* the tool result or the synthetic completion.
    NoticeTaken(Box<NoticeTaken>),
    /// A call waits for a person's word.
    AskOpened {
        /// The call.
        call: CallId,
        /// The action.
        action: Text,
        /// The resource.
        resource: Text,
        /// The root at which it is asked.
        root: SessionId,
    },
    /// The word was given.
    AskAnswered {
        /// The call.
        call: CallId,
        /// The word.
        verdict: AskVerdict,
        /// Who gave it.
        by: AskBy,
    },
    /// A branch of this session exists. Same batch as its birth.
    BranchCreated(Box<BranchCreated>),
    /// Another alternative of an answer is the one that the model and people see (B13).
    AlternativeSwitched {
        /// The answer: a record of this session.
        of: Seq,
        /// Which: 0 is the original, then the branches in the order of their births.
        to: u32,
        /// On whose word.
        by: By,
    },
    /// The session has a title of its own: a person's word, or a service's answer.
    TitleSet(Box<TitleSet>),
    /// What was done in the session, summed up by a service.
    SummarySet(Box<SummarySet>),
    /// The session's metadata changed (B3).
    MetadataSet(Box<MetadataSet>),
    /// What an ended run that did not complete said is given to no model any more, and to no later branch (M10). Nothing is deleted,
    /// and what was done to files stays done.
    RolledBack {
        /// The run.
        run: RunNo,
        /// On whose word.
        by: By,
    },
    /// The session is deleted: it takes nothing any more and is in no listing. Its journal stays readable.
    SessionDeleted {
        /// On whose word.
        by: By,
    },
    /// The session is closed; an input reopens it.
    SessionClosed {
        /// On whose word.
        by: By,
    },
    /// The session is open again.
    SessionReopened {
        /// On whose word.
        by: By,
    },
}

impl Record {
    /// Returns the bytes of text that a model, a tool or an owned run put into the record: what a run's `recorded_bytes` counts.
    /// Inputs of people have limits of their own.
    pub fn text_bytes(&self) -> u64 {
        let of = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
        let bytes = if let Self::TurnAnswered(answer) = self {
            let calls = answer.calls.iter().map(ToolCall::text_bytes).fold(0, usize::saturating_add);
            of(&answer.text).saturating_add(of(&answer.reasoning)).saturating_add(calls)
        } else if let Self::AttemptDiscarded(discarded) = self {
            discarded.message.len()
        } else if let Self::CallFinished(finished) = self {
            finished.content.len()
        } else if let Self::NoticeTaken(taken) = self {
            taken.items.iter().map(|notice| notice.prefix.len()).fold(0, usize::saturating_add)
        } else {
            0
        };
        bytes as u64
    }
}

macro_rules! kinds {
    ($($record:pat => $kind:literal,)*) => {
        impl Record {
            /// Every kind, as the journal spells them.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// The record's kind, as the journal spells it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $($record => $kind,)*
                }
            }
        }
    };
}

kinds! {
    Self::SessionCreated(_) => "session_created",
    Self::RunOpened(_) => "run_opened",
    Self::RunStarted { .. } => "run_started",
    Self::InputAccepted(_) => "input_accepted",
    Self::InputsTaken { .. } => "inputs_taken",
    Self::QueueChanged { .. } => "queue_changed",
    Self::TurnStarted { .. } => "turn_started",
    Self::AttemptDiscarded(_) => "attempt_discarded",
    Self::TurnAnswered(_) => "turn_answered",
    Self::CallStarted { .. } => "call_started",
    Self::CallFinished(_) => "call_finished",
    Self::ChildSpawned(_) => "child_spawned",
    Self::ContinueAsked(_) => "continue_asked",
    Self::ContinueRefused { .. } => "continue_refused",
    Self::CancelAsked { .. } => "cancel_asked",
    Self::RunParked { .. } => "run_parked",
    Self::RunResumed { .. } => "run_resumed",
    Self::RunHeld { .. } => "run_held",
    Self::RunEnded(_) => "run_ended",
    Self::NoticeTaken(_) => "notice_taken",
    Self::AskOpened { .. } => "ask_opened",
    Self::AskAnswered { .. } => "ask_answered",
    Self::BranchCreated(_) => "branch_created",
    Self::AlternativeSwitched { .. } => "alternative_switched",
    Self::TitleSet(_) => "title_set",
    Self::SummarySet(_) => "summary_set",
    Self::MetadataSet(_) => "metadata_set",
    Self::RolledBack { .. } => "rolled_back",
    Self::SessionDeleted { .. } => "session_deleted",
    Self::SessionClosed { .. } => "session_closed",
    Self::SessionReopened { .. } => "session_reopened",
}
