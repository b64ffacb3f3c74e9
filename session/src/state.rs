//! The state of a session: a fold over its records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::authority::{Access, Authority};
use crate::call::{CallKind, CallResult};
use crate::dialect::Dialect;
use crate::ids::{AttemptNo, CallId, InputId, MsgRef, RunNo, Seq, SessionId, Short, Text, TurnNo};
use crate::limits::Limits;
use crate::message::{Message, Transcript};
use crate::outcome::{By, Outcome};
use crate::place::{BranchKind, Mode, Owner};
use crate::record::{
    AgentOverride, CompactionCause, From, Hold, InputAccepted, Lane, Notice, Park, Prompt, RunOpened, SessionCreated,
    SummarySet,
};
use crate::usage::Usage;

pub use crate::phase::Phase;
pub use arrived::Arrived;
pub use compaction::Compaction;
pub use due::Due;
pub use fold::FoldError;
pub use kept::Kept;
pub use waiting::{Boundary, Waiting};

mod apply;
mod arrived;
mod compaction;
mod due;
mod fold;
mod kept;
mod legal;
mod view;
pub(crate) mod waiting;

/// A folded session.
///
/// Everything except the fields marked volatile is durable: equal to the fold of the session's records.
/// [`State::forget_volatile`] leaves the durable part.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub id: SessionId,
    pub created: Arc<SessionCreated>,
    pub ceiling: Arc<Authority>,
    pub limits: Arc<Limits>,
    /// The number of the next record.
    pub next_seq: Seq,
    pub run: Option<Box<Run>>,
    pub last: Option<Box<Ended>>,
    /// Outcomes of all ended runs, from run 1: the reply to a late control.
    pub outcomes: Vec<Outcome>,
    pub last_run: RunNo,
    pub last_turn: TurnNo,
    /// Accepted inputs that no run took yet, in order.
    pub queue: VecDeque<Queued>,
    /// Idempotency keys of all accepted inputs.
    pub seen: BTreeMap<Text, InputId>,
    /// Ids of all accepted inputs and of refused continuations, sorted: a command or row that is repeated after a
    /// restart is found here.
    pub accepted: Vec<InputId>,
    pub transcript: Transcript,
    /// Taken inputs with more than text, by the record that took them. Regenerating an answer needs them.
    pub asked: BTreeMap<Seq, Arc<InputAccepted>>,
    /// The last user message, which a child's birth names as `user_msg`.
    pub about: Option<MsgRef>,
    pub children: BTreeMap<SessionId, Child>,
    /// Children whose texts are cached. Others are read from their own journals on demand.
    pub kept: Kept,
    pub shorts: BTreeSet<Short>,
    /// Keys of ended runs whose owned runs sent no notice yet, with the child (after a boot only).
    pub owed: BTreeMap<CallId, SessionId>,
    /// Runs of children, not owned by this session, whose notice was taken.
    pub noticed: BTreeSet<(SessionId, RunNo)>,
    /// The agent that answers, if an input selected another than the session's own.
    pub agent: Option<Arc<AgentOverride>>,
    /// The offered tools, if fewer than the host has: from the birth, or changed by a continuing call.
    pub tools: Option<Vec<Text>>,
    /// Accesses that were allowed permanently, in this session only.
    pub always: BTreeSet<Access>,
    pub alternatives: BTreeMap<Seq, Alternatives>,
    /// The messages of runs that did not complete: a rollback hides them.
    pub stretches: BTreeMap<RunNo, Stretch>,
    /// The compactions that apply, in order: the last one hides most.
    pub compactions: Vec<Compaction>,
    /// The input tokens of a call, as the provider counted them last or a compaction estimated them, and the number of
    /// messages in that call.
    pub measured: Option<(u64, usize)>,
    /// The last record that changed which earlier messages are visible.
    pub revised: Seq,
    /// The title set after the birth, by a person or a service of the host.
    pub title: Option<Text>,
    /// The latest summary by a service of the host.
    pub summary: Option<Arc<SummarySet>>,
    /// Metadata after the last merge; if absent, that of the birth applies.
    pub metadata: Option<Text>,
    pub turns: u32,
    /// Turn allowance of a run whose input names none.
    pub own_turns: u32,
    pub deleted: bool,
    pub closed: bool,
    pub usage: Usage,
    /// Volatile: arrived outbox rows that are not taken, in LSN order.
    pub arrived: Arrived,
    /// Volatile: unstarted calls of the current turn, by what they wait for.
    pub due: Due,
    /// Volatile: dropped texts that calls of the current turn read again, from their journals.
    pub recalled: BTreeMap<SessionId, Text>,
    /// Volatile: the tokens that the session's model accepts, if known.
    pub window: Option<u64>,
    /// Volatile: children named by a check whose run is queued for its first slot, as the hub reported last.
    pub queued_children: BTreeSet<SessionId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// Branches in the order of their births; index 1 is the first.
    pub branches: Vec<Alternative>,
    pub active: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    pub child: SessionId,
    /// Set when its first run completes.
    pub text: Option<Text>,
    pub by: By,
}

/// A range of the transcript: the messages from a run's claim to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The position of the first message.
    pub from: usize,
    /// The position after the last.
    pub to: usize,
    pub hidden: bool,
}

/// A queued input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub input: Arc<InputAccepted>,
    pub seq: Seq,
}

impl Queued {
    /// Returns when it may be taken.
    pub fn lane(&self) -> Lane {
        self.input.lane
    }

    /// Returns whether a person sent it.
    pub fn is_message(&self) -> bool {
        self.input.from == From::Person
    }
}

/// A child, as its parent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    pub short: Short,
    pub agent: Text,
    pub kind: BranchKind,
    /// The call that created it; none for a branch that a person or the host created.
    pub call: Option<CallId>,
    pub detached: bool,
    /// The key of its owned run in flight, until its notice is taken.
    pub key: Option<CallId>,
    /// The last of its owned runs whose end was taken; 0 before. One in flight is later.
    pub heard: RunNo,
    /// The dialect whose call created it.
    pub dialect: Dialect,
    pub label: Option<Text>,
    /// Whether people see its session as their own.
    pub inspectable: bool,
    /// Whether its answer was taken as the session's title or summary.
    pub described: bool,
    /// The answer whose call created it.
    pub at: Option<Seq>,
    /// The last end, in a dialect that may read it again; without its text if that was dropped (see [`State::kept`]).
    pub given: Option<Arc<Notice>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub no: RunNo,
    pub opened: Arc<RunOpened>,
    /// The inputs that opened it, until they are taken.
    pub waiting: Vec<Queued>,
    pub started: bool,
    pub slot: bool,
    /// Why the run waits, if it released its slot or clock.
    pub parked: Option<Park>,
    pub hold: Option<Hold>,
    pub turns: u32,
    /// Turns answered since the allowance was last restarted.
    pub spent: u32,
    /// Turn allowance: that of its birth, unless an input set another.
    pub allowance: u32,
    /// Working time at the last record that carries it.
    pub worked_ms: u64,
    /// The current turn: started, possibly answered; absent before the first.
    pub turn: Option<Box<Turn>>,
    /// Owned runs without a notice, by key.
    pub owned: BTreeMap<CallId, Owned>,
    /// Recorded cancels of owned runs.
    pub cancels: u32,
    /// Inputs taken since the last final answer.
    pub unanswered: Vec<InputId>,
    /// The length of the transcript before the first of them was taken.
    pub asked_from: usize,
    /// Whether a compaction failed: then the filled share of the window triggers no other.
    pub compaction_failed: bool,
    /// JSON schema for the next final answer, from the last of these inputs that has one.
    pub format: Option<Text>,
    /// The last answer without calls that has text: the result so far.
    pub answer: Option<Answer>,
    /// All text of the run so far, joined: the partial output.
    pub partial: Text,
    pub recorded: u64,
    pub usage_self: Usage,
    /// The usage of the owned runs whose ends were noticed.
    pub usage_owned: Usage,
    /// Whether the current turn was opened by notices only.
    pub by_notices: bool,
    /// The length of the transcript when the run was claimed.
    pub from: usize,
    /// Messages that were taken while calls were open: they follow the results.
    pub deferred: Vec<Message>,
}

/// An answer that counts as the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub seq: Seq,
    pub text: Text,
}

/// An owned run in flight, in its owner's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub child: SessionId,
    pub mode: Mode,
    pub cancel_asked: bool,
}

/// One model call and the tool calls that it requested.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub no: TurnNo,
    pub attempt: AttemptNo,
    pub model: Text,
    /// Attempts with that model in a row, this one included.
    pub tries: u32,
    /// The prompt besides the transcript.
    pub prompt: Prompt,
    /// Whether a model stream is active or due: started, neither answered nor discarded.
    pub streaming: bool,
    /// Why the attempt waits for a compaction, if it does.
    pub compacting: Option<CompactionCause>,
    /// Whether a compaction followed a provider's report of an overflow.
    pub overflowed: bool,
    /// Whether a compaction failed.
    pub compaction_failed: bool,
    /// The record of the answer, if it arrived.
    pub answered: Option<Seq>,
    /// The calls of the answer, by position.
    pub calls: Vec<Call>,
    /// Calls without a result, counted from the answer.
    pub open: u32,
    /// Local calls that started and are not finished.
    pub local: u32,
    /// Those of them that are not read-only.
    pub writing: u32,
    /// Open await and check calls, by position.
    pub waits: Vec<u32>,
    /// A `return` call that waits for the other calls of its answer.
    pub returning: Option<u32>,
    /// Unstarted calls that await no approval.
    pub unstarted: u32,
    /// Calls that await approval.
    pub asked: u32,
    /// The reset of the provider's limit that its next attempt waits for, also while it then waits for a slot.
    pub limited: Option<i64>,
}

/// One call of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub tool: Text,
    /// The arguments, as the model wrote them.
    pub args: Text,
    /// Set when it starts.
    pub kind: Option<CallKind>,
    /// Whether it was approved: no further approval is needed.
    pub allowed: bool,
    pub phase: CallPhase,
}

/// The progress of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallPhase {
    Unstarted,
    /// Awaiting approval.
    Asked(Box<OpenAsk>),
    /// Started, no result yet.
    Started,
    Closed(Arc<CallResult>),
}

/// An approval that a call awaits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAsk {
    pub access: Access,
    /// When the ask is denied, as wall clock in milliseconds.
    pub deadline_at: Option<i64>,
}

/// An ended run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub run: RunNo,
    pub owner: Owner,
    pub outcome: Outcome,
    /// The text for its owner: the whole text if known; its bounded prefix after a fold.
    pub text: Option<Text>,
    pub turns: u32,
    pub usage_self: Usage,
    pub usage_owned: Usage,
    /// Its turn allowance: `continue` adds to it.
    pub max_turns: u32,
}
