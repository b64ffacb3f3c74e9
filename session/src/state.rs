//! The state of a session: a fold over its records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::authority::{Access, Authority};
use crate::call::{CallKind, CallResult};
use crate::dialect::Dialect;
use crate::ids::{AttemptNo, CallId, InputId, MsgRef, RunNo, Seq, SessionId, Short, Text, TurnNo};
use crate::limits::Limits;
use crate::message::{Message, Transcript};
use crate::outcome::{Initiator, Outcome};
use crate::place::{BranchKind, Mode, Owner};
use crate::record::{
    AgentOverride, CompactionCause, From, Hold, InputAccepted, Lane, Notice, Park, Prompt, RunOpened, SessionCreated,
    SummarySet,
};
use crate::usage::Usage;

pub use crate::phase::Phase;
pub use arrived::Arrived;
pub use compaction::Compaction;
pub use due::{AskedCall, Due};
pub use ended_texts::EndedTexts;
pub use fold::FoldError;
pub use joined_text::JoinedText;
pub(crate) use ranges::Ranges;
pub use waiting::{Boundary, Waiting};

mod apply;
mod arrived;
mod compaction;
mod due;
mod ended_texts;
mod fold;
mod joined_text;
mod legal;
mod ranges;
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
    /// Outcomes of all ended runs, from run 1, for replies to late commands.
    pub outcomes: Vec<Outcome>,
    pub last_run: RunNo,
    pub last_turn: TurnNo,
    /// Accepted inputs that no run has taken, in order.
    pub queue: VecDeque<Queued>,
    /// Idempotency keys of all accepted inputs.
    pub seen: BTreeMap<Text, InputId>,
    /// Ids of all accepted inputs and refused continuations, sorted: they identify repeated commands and rows.
    pub accepted: Vec<InputId>,
    pub transcript: Transcript,
    /// Taken inputs with options besides the text, by the record that took them. Needed to regenerate an answer.
    pub asked: BTreeMap<Seq, Arc<InputAccepted>>,
    /// The last user message, which becomes the `user_msg` of a new child.
    pub about: Option<MsgRef>,
    pub children: BTreeMap<SessionId, Child>,
    /// Children whose texts are cached. Other texts are read from the children's journals on demand.
    pub kept: EndedTexts,
    pub shorts: BTreeSet<Short>,
    /// Children with a run whose owner ended before the run's notice arrived, by its key. Only after a host's restart.
    pub owed: BTreeMap<CallId, SessionId>,
    /// Runs of children whose notices were taken, if this session does not own the runs.
    pub noticed: BTreeSet<(SessionId, RunNo)>,
    /// The agent that answers, if an input selected another agent than the session's own.
    pub agent: Option<Arc<AgentOverride>>,
    /// The offered tools, if not all tools of the host are offered. Set at the creation or by a continuing call.
    pub tools: Option<Vec<Text>>,
    /// Accesses that were allowed permanently, in this session only, each for one tool: `list` and `search` have equal ones.
    pub always: BTreeSet<(Text, Access)>,
    pub alternatives: BTreeMap<Seq, Alternatives>,
    /// The messages of runs that did not complete, which a rollback hides.
    pub message_ranges: BTreeMap<RunNo, MessageRange>,
    /// The compactions that apply, in order. The last one hides the most messages.
    pub compactions: Vec<Compaction>,
    /// The last known input tokens of a call, counted by the provider or estimated, and that call's number of messages.
    pub measured: Option<(u64, usize)>,
    /// The last record that changed which earlier messages are visible.
    pub revised: Seq,
    /// The title that a person or a service of the host set after the creation.
    pub title: Option<Text>,
    /// The latest summary by a service of the host.
    pub summary: Option<Arc<SummarySet>>,
    /// Metadata after the last merge. If absent, the initial metadata applies.
    pub metadata: Option<Text>,
    /// Bytes of all recorded metadata. Each merge records all of it.
    pub metadata_bytes: u64,
    pub turns: u32,
    /// Turn allowance of the session's own agent: see [`State::allowance`].
    pub own_turns: u32,
    pub deleted: bool,
    pub closed: bool,
    pub usage: Usage,
    /// Bytes of all texts and lists of the folded records ([`Record::heap_bytes`](crate::record::Record::heap_bytes)),
    /// and of the texts rendered from them: an estimate of the memory of this state. Erasure of texts lowers it at the
    /// next fold.
    pub text_bytes: u64,
    /// Sum of [`Record::recorded_bytes`](crate::record::Record::recorded_bytes) of all runs that calls of models opened.
    pub recorded: u64,
    /// Bytes of all accepted inputs. A fold after texts were erased has fewer.
    pub input_bytes: u64,
    /// Number of accepted messages and continuations of agents, and of refused continuations.
    pub agent_inputs: usize,
    /// Bytes of the accepted messages and continuations of agents, as in `input_bytes`.
    pub agent_input_bytes: u64,
    /// Volatile: arrived outbox rows that are not taken, in LSN order.
    pub arrived: Arrived,
    /// Volatile: unstarted calls of the current turn, by the condition that they wait for.
    pub due: Due,
    /// Volatile: dropped texts of children, read again from their journals for calls of the current turn.
    pub recalled: BTreeMap<SessionId, Text>,
    /// Volatile: the context window of the session's model in tokens, if known.
    pub window: Option<u64>,
    /// Volatile: children of [`CallKind::Check`] calls whose runs wait for their first slot, as last reported.
    pub queued_children: BTreeSet<SessionId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// Branches in the order of their creation; index 1 is the first.
    pub branches: Vec<Alternative>,
    pub active: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    pub child: SessionId,
    /// The answer, set when the branch's first run completes.
    pub text: Option<Text>,
    pub by: Initiator,
}

/// A range of the transcript: the messages from the start of a run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRange {
    pub from: usize,
    /// The position after the last.
    pub to: usize,
    pub hidden: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub input: Arc<InputAccepted>,
    pub seq: Seq,
}

impl Queued {
    pub fn lane(&self) -> Lane {
        self.input.lane
    }

    /// Returns whether a person sent the input.
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
    /// The call that created the child; absent for a branch that a person or the host created.
    pub call: Option<CallId>,
    pub detached: bool,
    /// The key of the child's owned run in flight, until the run's notice is taken: the call that opened the run.
    pub key: Option<CallId>,
    /// The key of the child's run whose owner has ended and whose notice has not arrived: see [`State::owed`].
    pub owed: Option<CallId>,
    /// The child's last owned run whose end was taken; 0 before the first. A run in flight has a higher number.
    pub last_taken: RunNo,
    pub dialect: Dialect,
    pub label: Option<Text>,
    pub inspectable: bool,
    /// True if the child's answer was taken as the session's title or summary.
    pub described: bool,
    /// The answer whose call created the child, or the branch point.
    pub at: Option<Seq>,
    /// The position of an alternative among the branches of its answer.
    pub alternative: Option<u32>,
    /// The last end of the child's owned runs, if it may be read again. The text may be dropped: see [`State::kept`].
    pub given: Option<Arc<Notice>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub no: RunNo,
    pub opened: Arc<RunOpened>,
    /// The inputs that opened the run, until they are taken.
    pub waiting: Vec<Queued>,
    pub started: bool,
    pub slot: bool,
    /// The reason why the run waits, if it released its slot or clock.
    pub parked: Option<Park>,
    pub hold: Option<Hold>,
    pub turns: u32,
    /// Turns answered since an input or a change of the agent last reset this count.
    pub spent: u32,
    /// Turn allowance: the allowance at the opening of the run, unless an input set another.
    pub allowance: u32,
    /// Working time according to the last record that states it.
    pub worked_ms: u64,
    /// The current turn, possibly answered; absent before the first turn.
    pub turn: Option<Box<Turn>>,
    /// Owned runs whose notices were not taken, by key.
    pub owned: BTreeMap<CallId, Owned>,
    /// Number of recorded cancels of owned runs.
    pub cancels: u32,
    /// Inputs taken since the last final answer.
    pub unanswered: Vec<InputId>,
    /// The length of the transcript before the first unanswered input was taken.
    pub asked_from: usize,
    /// True if a compaction failed. Then the share of the context window (`compact_at`) triggers no further one.
    pub compaction_failed: bool,
    /// JSON schema for the next final answer, from the last unanswered input that has one.
    pub format: Option<Text>,
    /// The last answer without calls that has text: the result so far.
    pub answer: Option<Answer>,
    /// All text of the run so far, joined: the partial output.
    pub partial: JoinedText,
    pub recorded: u64,
    pub usage_self: Usage,
    /// The usage of the owned runs whose notices were taken.
    pub usage_owned: Usage,
    /// True if only notices opened the current turn.
    pub by_notices: bool,
    /// The length of the transcript when the run started.
    pub from: usize,
    /// Messages that were taken while calls were open. They follow the results.
    pub deferred: Vec<Message>,
}

/// An answer that counts as the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub seq: Seq,
    pub text: JoinedText,
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
    /// Number of consecutive attempts with that model, including the current one.
    pub tries: u32,
    pub prompt: Prompt,
    /// True if a model stream is active or due: the attempt was started, and neither answered nor discarded.
    pub streaming: bool,
    /// The cause of the compaction that the attempt waits for, if any.
    pub compacting: Option<CompactionCause>,
    /// True if a compaction followed a provider's report of an overflow.
    pub overflowed: bool,
    pub compaction_failed: bool,
    /// The record of the answer, if it arrived.
    pub answered: Option<Seq>,
    /// The calls of the answer, by position.
    pub calls: Vec<Call>,
    /// Number of the answer's calls without a result.
    pub open: u32,
    /// Number of local calls that started and have not finished.
    pub local: u32,
    /// Number of active local calls that are not read-only.
    pub writing: u32,
    /// Open await and check calls, by position.
    pub waits: BTreeSet<u32>,
    /// A `return` call that waits for the other calls of its answer.
    pub returning: Option<u32>,
    /// Number of unstarted calls that do not await approval.
    pub unstarted: u32,
    /// Number of calls that await approval.
    pub asked: u32,
    /// Reset time of the provider's limit that the next attempt waits for. Kept while the run then waits for a slot.
    pub limited: Option<i64>,
    /// The model of the pool whose limit resets at `limited`.
    pub awaits: Option<Text>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub tool: Text,
    pub args: Text,
    /// The kind, set when the call starts.
    pub kind: Option<CallKind>,
    pub allowed: bool,
    pub phase: CallPhase,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CallPhase {
    Unstarted,
    Asked(Box<OpenAsk>),
    /// Started, without a result so far.
    Started,
    Closed(Arc<CallResult>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAsk {
    pub access: Access,
    /// Time in milliseconds since the epoch at which the ask is denied.
    pub deadline_at: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub run: RunNo,
    pub owner: Owner,
    pub outcome: Outcome,
    /// The text for the owner: the whole text if known, else its bounded start.
    pub text: Option<Text>,
    pub turns: u32,
    pub usage_self: Usage,
    pub usage_owned: Usage,
    pub max_turns: u32,
}
