//! Records: what a session's journal holds. State is a fold over them (`state`).
//!
//! JSON, externally tagged, snake_case. New *fields* get a default; a record *kind* that is not known means a newer format.

use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::call::{CallEnd, CallKind};
use crate::index::RowKey;
use crate::ids::{AttemptNo, CallId, Hash, InputId, Interned, RunNo, Seq, SessionId, Short, Text, TurnNo};
use crate::limits::Limits;
use crate::outcome::{By, ModelFail, Outcome};
use crate::place::{Mode, OnRestart, Owner, Place};
use crate::usage::Usage;

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

/// The birth of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated {
    /// Where it stands.
    pub place: Place,
    /// Its short name, unique among its siblings.
    pub short: Short,
    /// The agent's name.
    pub agent: Text,
    /// Hash of the agent's manifest at birth.
    pub agent_hash: Hash,
    /// The model, as named by host, manifest or parent.
    pub model: Text,
    /// The resolved system prompt (B17); its body travels once per distinct value.
    pub system: Interned<str>,
    /// What the session may do at most, for life (P-4).
    pub ceiling: Interned<Authority>,
    /// Its limits.
    pub limits: Interned<Limits>,
    /// The workspace root, as the host gave it.
    pub workspace: Text,
    /// Whether listings and pickers show it as a row of its own.
    #[serde(default)]
    pub inspectable: bool,
    /// What a restart of the host does with runs that an input opens.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// Whether the prompt has the `caller` line (G10).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub caller_line: bool,
    /// The dialects that it is offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dialects: Vec<Text>,
    /// The tools that it is offered, if fewer than the host has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
    /// A title, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// What the host attached; JSON text, `{}` if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
}

/// The birth of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOpened {
    /// The run.
    pub run: RunNo,
    /// Who owns it.
    pub owner: Owner,
    /// The inputs that it was opened with: consumed by it, so that only later ones can open the next run.
    pub inputs: Vec<InputId>,
    /// Whether its owner's call waits for it.
    pub mode: Mode,
    /// Turn allowance.
    pub max_turns: u32,
    /// Working-time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Wall-clock cap, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_cap_at: Option<i64>,
    /// What a restart of the host does with it.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// Whether it needs a slot to work.
    pub slot: bool,
}

/// An accepted input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputAccepted {
    /// Its id: the receipt.
    pub id: InputId,
    /// The sender's own key: a second input with the same key is the same input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Text>,
    /// Who sent it.
    pub from: From,
    /// When it may be taken.
    pub lane: Lane,
    /// The text.
    pub text: Text,
    /// An agent that answers from here on (G12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_override: Option<Text>,
    /// What the sender attached; JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// The owner of a run that this input opens.
    pub as_owner: Owner,
}

/// Who sent an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// A person.
    Person,
    /// The host.
    Host,
    /// A model's call.
    Model {
        /// The caller's session.
        session: SessionId,
        /// Its run.
        run: RunNo,
        /// The call.
        call: CallId,
    },
    /// The result of an agent outside this store.
    AgentResult,
}

/// When an input may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// At the next rest point.
    Send,
    /// At the next turn boundary.
    Steer,
}

/// A change of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueChange {
    /// Single inputs were removed.
    Removed(Vec<InputId>),
    /// All of it was cleared.
    Cleared,
}

/// What is put to the model besides the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Nothing.
    Plain,
    /// The last answer was cut off: go on.
    Continuation,
    /// The last answer was empty: answer.
    Nudge,
}

/// Why an answer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model was done.
    End,
    /// It asks for calls.
    Calls,
    /// The output cap or the context was reached.
    Length,
    /// It refused.
    Refused,
    /// Anything else the provider says.
    Other,
}

/// Tokens and money set aside for a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Tokens.
    pub tokens: u64,
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro: Option<u64>,
}

/// An attempt that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptDiscarded {
    /// The turn.
    pub turn: TurnNo,
    /// The attempt.
    pub attempt: AttemptNo,
    /// What went wrong.
    pub error: ModelFail,
    /// The provider's own words, bounded and free of secrets.
    #[serde(default)]
    pub message: Text,
    /// What it cost all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnAnswered {
    /// The run.
    pub run: RunNo,
    /// The turn.
    pub turn: TurnNo,
    /// The attempt that answered.
    pub attempt: AttemptNo,
    /// The text, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// Reasoning that the provider wants back, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Text>,
    /// The calls that it asks for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Asked>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
    /// The inputs that the answer answers: all that were taken since the last final answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<InputId>,
    /// Working time of the run so far.
    pub worked_ms: u64,
}

/// One call that an answer asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The provider's id of the call, kept for the provider only.
    pub provider_id: Text,
    /// The tool's name.
    pub tool: Text,
    /// The arguments: JSON text as the model wrote it, whether it parses or not.
    pub args: Text,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFinished {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub end: CallEnd,
    /// What the model sees.
    pub content: Text,
    /// Bytes before the result was cut to its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_from: Option<u64>,
    /// Working time of the call.
    #[serde(default)]
    pub worked_ms: u64,
}

/// A child and its first run, as the parent's journal knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSpawned {
    /// The call that made it: the key of the owned run.
    pub call: CallId,
    /// The child.
    pub child: SessionId,
    /// Its short name.
    pub short: Short,
    /// Its agent.
    pub agent: Text,
    /// Whether the call waits.
    pub mode: Mode,
    /// Whether the run is detached: not owned by this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// Its depth.
    pub depth: u32,
    /// What the ledger granted.
    pub grant: SpawnGranted,
}

/// What the ledger granted for a spawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnGranted {
    /// Spawns of the root run that remain after this one.
    pub spawns_left: u32,
}

/// An ended child is asked to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinueAsked {
    /// The call that asks: the key of the owned run.
    pub call: CallId,
    /// The child.
    pub child: SessionId,
    /// The input.
    pub input: Text,
    /// Whether the call waits.
    pub mode: Mode,
}

/// Why a child refuses to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContinueRefusal {
    /// A run is in flight.
    InFlight,
    /// The session is closed.
    Closed,
}

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Park {
    /// Only child, await or ask calls of the turn are open.
    MidTurn,
    /// No call is open; owned runs are in flight.
    AtRest,
    /// A person's word.
    Ask,
    /// A slot; the turn is due.
    Slot,
}

/// Why a run is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Interrupted: goes on with the next input.
    Interrupted {
        /// On whose word.
        by: By,
    },
    /// The turn allowance is spent: owned runs finish, then it ends.
    OutOfTurns,
    /// The outcome is fixed; the end follows when local work and owned runs have ended.
    Closing {
        /// The outcome.
        outcome: Outcome,
    },
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunNo,
    /// Its outcome.
    pub outcome: Outcome,
    /// The record that holds the result: the last answer, or the `return` call's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Seq>,
    /// Whether the result was given by `return`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<CallId>,
    /// The text that the owner gets: the answer of a completed run, partial output of any other; cut to its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// Bytes of the whole text.
    pub len: u64,
    /// Hash of the whole text.
    pub hash: Hash,
    /// Answered turns.
    pub turns: u32,
    /// What the run itself cost.
    pub usage_self: Usage,
    /// What the runs that it owned cost, theirs included.
    pub usage_owned: Usage,
    /// Working time.
    pub worked_ms: u64,
    /// Why the actor was given up, when the outcome was fixed before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<Text>,
}

/// Ends of owned runs, taken together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeTaken {
    /// The ends, in the order of their rows.
    pub items: Vec<Notice>,
    /// How they reach the model.
    pub carrier: Carrier,
}

/// How taken ends reach the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// As the result of the blocking call whose key the one item names.
    Result,
    /// As one synthetic message.
    Message,
    /// As the result of an await or check call.
    Await {
        /// The call.
        call: CallId,
    },
}

/// The end of one owned run (or of a person's or detached run of a child), as its owner's session hears of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The child.
    pub child: SessionId,
    /// Its run; absent when it refused to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunNo>,
    /// The key: the owner's call. Absent for a run that the receiver does not own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CallId>,
    /// The outcome.
    pub outcome: Outcome,
    /// Bytes of the whole text.
    pub len: u64,
    /// Hash of the whole text.
    pub hash: Hash,
    /// The bounded prefix of it (N-2).
    #[serde(default)]
    pub prefix: Text,
    /// What the run and all that it owned cost.
    pub usage: Usage,
    /// Answered turns.
    #[serde(default)]
    pub turns: u32,
    /// Whether it wakes a run at rest.
    pub waking: bool,
}

/// A person's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskVerdict {
    /// This once.
    Allow,
    /// No.
    Deny,
    /// From now on, in this session only.
    Always,
}

/// Who answered an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskBy {
    /// A person.
    Person,
    /// Its deadline passed: a deny.
    Deadline,
    /// No approver is attached: a deny.
    NoApprover,
}

impl Record {
    /// The record's kind, as the journal spells it.
    pub fn kind(&self) -> &'static str {
        match self {
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
            Self::SessionClosed { .. } => "session_closed",
            Self::SessionReopened { .. } => "session_reopened",
        }
    }
}

impl Notice {
    /// What tells its outbox row apart; `None` for one that names neither a call nor a run.
    pub fn row_key(&self) -> Option<RowKey> {
        self.key.map(RowKey::Call).or(self.run.map(RowKey::Run))
    }
}
