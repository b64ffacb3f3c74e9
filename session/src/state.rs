//! State: what a session is, as a fold over its records.

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
    AgentOverride, From, Hold, InputAccepted, Lane, Notice, Park, Prompt, RunOpened, SessionCreated, SummarySet,
};
use crate::usage::Usage;

pub use crate::phase::Phase;
pub use arrived::Arrived;
pub use due::Due;
pub use fold::FoldError;
pub use kept::Kept;

mod apply;
mod arrived;
mod due;
mod fold;
mod kept;
mod legal;
mod view;

/// A session, folded.
///
/// Everything but [`State::arrived`] and [`State::due`] is durable: equal to the fold of the session's records (J-4).
/// [`State::forget_volatile`] leaves the durable part.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The session.
    pub id: SessionId,
    /// Its birth.
    pub created: Arc<SessionCreated>,
    /// The body of its ceiling.
    pub ceiling: Arc<Authority>,
    /// The body of its limits.
    pub limits: Arc<Limits>,
    /// The record that comes next.
    pub next_seq: Seq,
    /// The run in flight, if there is one (S-10).
    pub run: Option<Box<Run>>,
    /// How the last ended run ended.
    pub last: Option<Box<Ended>>,
    /// Outcomes of all ended runs, from run 1: what a control that comes late is answered.
    pub outcomes: Vec<Outcome>,
    /// The last run's number; 0 before the first.
    pub last_run: RunNo,
    /// The last turn's number; 0 before the first.
    pub last_turn: TurnNo,
    /// Accepted inputs that no run took yet, in order.
    pub queue: VecDeque<Queued>,
    /// Senders' keys of all accepted inputs, so that an input sent again is not accepted twice.
    pub seen: BTreeMap<Text, InputId>,
    /// Ids of all accepted inputs, and of those with which this session refused to go on, sorted: a command or row that comes
    /// again after a restart finds its own here.
    pub accepted: Vec<InputId>,
    /// The transcript.
    pub transcript: Transcript,
    /// Inputs that were taken and ask for more than their text, by the record that took them: an answer that is given anew is
    /// asked for as it was the first time. Like the transcript, it holds all of the session.
    pub asked: BTreeMap<Seq, Arc<InputAccepted>>,
    /// The last user message: what a child's birth names as `user_msg`.
    pub about: Option<MsgRef>,
    /// Children by id.
    pub children: BTreeMap<SessionId, Child>,
    /// Children whose texts are kept to be read again. Others are read from their own journals when they are asked for.
    pub kept: Kept,
    /// Short names of the children.
    pub shorts: BTreeSet<Short>,
    /// Keys of ended runs whose owned runs sent no notice yet, with the child (after a boot only).
    pub owed: BTreeMap<CallId, SessionId>,
    /// Runs of children, not owned by this session, whose notice was taken.
    pub noticed: BTreeSet<(SessionId, RunNo)>,
    /// The agent that answers, where an input named another than the session's own (G12).
    pub agent: Option<Arc<AgentOverride>>,
    /// The tools that it is offered, if fewer than the host has: those of its birth, until a call that lets it go on says others.
    pub tools: Option<Vec<Text>>,
    /// What a person allowed for good, in this session only (P-5).
    pub always: BTreeSet<Access>,
    /// Answers that have alternatives.
    pub alternatives: BTreeMap<Seq, Alternatives>,
    /// What runs that ended otherwise than completed left in the transcript: what a rollback hides.
    pub stretches: BTreeMap<RunNo, Stretch>,
    /// The title that it was given after its birth, by a person or a service of the host.
    pub title: Option<Text>,
    /// What was done in it, as a service of the host summed it up last.
    pub summary: Option<Arc<SummarySet>>,
    /// Metadata after the last merge; absent before the first, when that of the birth applies.
    pub metadata: Option<Text>,
    /// Turns that all ended runs answered.
    pub turns: u32,
    /// Turn allowance of a run whose input names none: that of its birth, else that of its limits.
    pub own_turns: u32,
    /// Whether the session is deleted.
    pub deleted: bool,
    /// Whether the session is closed.
    pub closed: bool,
    /// What all runs of this session cost themselves.
    pub usage: Usage,
    /// Volatile: rows of the outbox that have arrived and are not taken, in LSN order. Durable in the outbox, not here.
    pub arrived: Arrived,
    /// Volatile: calls of the turn at hand that did not start yet, by what they wait for.
    pub due: Due,
    /// Volatile: texts that are not kept and that calls of the turn at hand want to read again, as their journals have them.
    pub recalled: BTreeMap<SessionId, Text>,
    /// Volatile: children whose run waits for its first slot, of those that a check asks about; as the hub found it last.
    pub queued_children: BTreeSet<SessionId>,
}

/// Alternatives of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// Branches in the order of their births; index 1 is the first.
    pub branches: Vec<Alternative>,
    /// Which is seen: 0 is the original.
    pub active: u32,
}

/// One alternative of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The branch that gives it.
    pub child: SessionId,
    /// Its text, once its first run completed.
    pub text: Option<Text>,
    /// On whose word it was made.
    pub by: By,
}

/// A stretch of the transcript: the messages from where a run was claimed to where it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The place of the first.
    pub from: usize,
    /// The place behind the last.
    pub to: usize,
    /// Whether it is rolled back.
    pub hidden: bool,
}

/// An accepted input that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The input.
    pub input: Arc<InputAccepted>,
    /// Its record.
    pub seq: Seq,
}

impl Queued {
    /// When it may be taken.
    pub fn lane(&self) -> Lane {
        self.input.lane
    }

    /// Whether a person sent it.
    pub fn is_message(&self) -> bool {
        self.input.from == From::Person
    }
}

/// A child, as its parent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Its short name.
    pub short: Short,
    /// Its agent.
    pub agent: Text,
    /// Its kind.
    pub kind: BranchKind,
    /// The call that made it; none for a branch that a person or the host made.
    pub call: Option<CallId>,
    /// Whether its first run is detached.
    pub detached: bool,
    /// The key of its run that the run in flight owns, while that has no notice.
    pub key: Option<CallId>,
    /// The last of its runs that this session owned and heard of; 0 before. One that is owned and in flight is a later one.
    pub heard: RunNo,
    /// The dialect whose call made it.
    pub dialect: Dialect,
    /// What it is called in the words of that call.
    pub label: Option<Text>,
    /// Whether people are shown its session as one of its own.
    pub inspectable: bool,
    /// Whether its answer was taken, as the session's title or summary.
    pub described: bool,
    /// The answer whose call made it.
    pub at: Option<Seq>,
    /// The end that was heard of last, in a dialect in which it may be read again: without its text, where that is not kept any
    /// more (see [`State::kept`]).
    pub given: Option<Arc<Notice>>,
}

/// The run in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its number.
    pub no: RunNo,
    /// Its birth.
    pub opened: Arc<RunOpened>,
    /// The inputs that it was opened with, until they are taken.
    pub waiting: Vec<Queued>,
    /// Whether it was claimed.
    pub started: bool,
    /// Whether it holds a slot.
    pub slot: bool,
    /// What it waits for, if that changed hands.
    pub parked: Option<Park>,
    /// Why it is held, if it is.
    pub hold: Option<Hold>,
    /// Turns answered, in this run.
    pub turns: u32,
    /// Turns answered since the allowance was last restarted.
    pub spent: u32,
    /// Turn allowance: that of its birth, until an input that it takes brings another.
    pub allowance: u32,
    /// Working time at the last record that carries it.
    pub worked_ms: u64,
    /// The turn at hand: started, perhaps answered; absent before the first.
    pub turn: Option<Box<Turn>>,
    /// Owned runs without a notice, by key (rule 1: *owned in flight*).
    pub owned: BTreeMap<CallId, Owned>,
    /// Cancels of owned runs that were asked for by record.
    pub cancels: u32,
    /// Inputs taken since the last final answer.
    pub unanswered: Vec<InputId>,
    /// JSON schema that the next final answer is asked to keep: of the last input among them that has one.
    pub format: Option<Text>,
    /// The last answer without calls that has text: the result so far.
    pub answer: Option<Answer>,
    /// All text that the run gave so far, joined: partial output.
    pub partial: Text,
    /// Bytes of text that its records hold, as [`Record::text_bytes`](crate::record::Record::text_bytes) counts them.
    pub recorded: u64,
    /// What the run itself cost.
    pub usage_self: Usage,
    /// What owned runs cost that were noticed.
    pub usage_owned: Usage,
    /// Whether the turn at hand was opened by notices only.
    pub by_notices: bool,
    /// Messages of the transcript when it was claimed; nothing is said for it before.
    pub from: usize,
    /// Messages that were taken while calls were open: they follow the results.
    pub deferred: Vec<Message>,
}

/// An answer that stands as a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its record.
    pub seq: Seq,
    /// Its text.
    pub text: Text,
}

/// An owned run in flight, in its owner's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The session.
    pub child: SessionId,
    /// Whether the call waits.
    pub mode: Mode,
    /// Whether a cancel was asked for.
    pub cancel_asked: bool,
}

/// A turn: one model call and the tool calls that it asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Its number.
    pub no: TurnNo,
    /// The attempt at hand.
    pub attempt: AttemptNo,
    /// The model that the attempt is made with.
    pub model: Text,
    /// Attempts with that model in a row, this one included.
    pub tries: u32,
    /// What was put to the model besides the transcript.
    pub prompt: Prompt,
    /// Whether a model stream is in flight or due (S-7): started, neither answered nor discarded.
    pub streaming: bool,
    /// The record of the answer, once there is one.
    pub answered: Option<Seq>,
    /// The calls of the answer, by place.
    pub calls: Vec<Call>,
    /// Calls without a result: counted from the answer (S-11).
    pub open: u32,
    /// Local calls that started and are not finished.
    pub local: u32,
    /// Those of them that are not read-only.
    pub writing: u32,
    /// Open await and check calls, by place.
    pub waits: Vec<u32>,
    /// A `return` call that waits for the other calls of its answer.
    pub returning: Option<u32>,
    /// Calls that did not start yet, and that no person is asked for.
    pub unstarted: u32,
    /// Calls that a person is asked for.
    pub asked: u32,
}

/// One call of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool.
    pub tool: Text,
    /// The arguments, as the model wrote them.
    pub args: Text,
    /// What it is, from when it starts.
    pub kind: Option<CallKind>,
    /// Whether a person allowed it: then nobody is asked again.
    pub allowed: bool,
    /// How far it is.
    pub phase: CallPhase,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub enum CallPhase {
    /// Asked for, not started.
    Unstarted,
    /// A person is asked for this.
    Asked(Box<Access>),
    /// Started, no result yet.
    Started,
    /// It has its one result (N-4).
    Closed(Arc<CallResult>),
}

/// An ended run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Its number.
    pub run: RunNo,
    /// Its owner.
    pub owner: Owner,
    /// Its outcome.
    pub outcome: Outcome,
    /// The text that its owner gets: the whole text, where it is known; its bounded prefix after a fold.
    pub text: Option<Text>,
    /// Answered turns.
    pub turns: u32,
    /// What it cost.
    pub usage_self: Usage,
    /// What it owned cost.
    pub usage_owned: Usage,
    /// Turn allowance it had: `continue` adds to it (B6).
    pub max_turns: u32,
}
