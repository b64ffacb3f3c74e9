//! Commands: everything that can happen to a session. They contain the time, ids and grants that a decision needs.

use std::sync::Arc;

use crate::authority::{Access, Authority};
use crate::call::{CallKind, CallResult};
use crate::compaction::HistoryCut;
use crate::dialect::Dialect;
use crate::ids::{AttemptNo, CallId, InputId, RunKey, RunNo, Seq, SessionId, Text, TurnNo};
use crate::outcome::{Budget, Initiator, ModelFail, OutcomeKind, Part};
use crate::place::BranchKind;
use crate::record::{
    AnsweredBy, AskVerdict, CompactionFailure, InputAccepted, Notice, QueueChange, SessionCreated, SpawnGranted, Stop,
    SummarySet, TitleSet, ToolCall,
};
use crate::usage::Usage;

/// The clock's reading when a command is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Wall clock in milliseconds since the epoch. Used only for wall-clock caps; otherwise informative.
    pub wall_ms: i64,
    /// Working time of the run in flight, over all activations.
    pub worked_ms: u64,
}

#[derive(Clone, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Command {
    /// An input from a person, the host or a relative's model.
    Submit(Box<InputAccepted>),
    /// The ledger granted the requested slot.
    Admitted {
        run: RunNo,
        /// Outcome of the owner, if the owner ended or its token fired before the grant.
        owner_ended: Option<OutcomeKind>,
    },
    ModelAnswered(Box<Answered>),
    AttemptFailed(Box<AttemptFailed>),
    /// A local tool finished, was killed, or was not allowed to start.
    ToolFinished {
        call: CallId,
        result: Box<CallResult>,
        worked_ms: u64,
    },
    /// The ledger and the registry decided on child calls of one answer, in chunks of at most 512.
    Spawn {
        turn: TurnNo,
        verdicts: Vec<SpawnVerdict>,
    },
    /// Ends of children's runs (owned, detached or opened by a person): outbox rows in LSN order.
    OwnedEnded(Vec<Notice>),
    Cancel {
        /// The run to cancel; the current one if `None`.
        run: Option<RunNo>,
        by: Initiator,
        /// True if queued inputs stay queued instead of opening the next run, as in a cancel of the whole tree.
        keeps_queue: bool,
    },
    /// The owner of the run in flight is closing or has ended.
    OwnerEnded {
        owner: RunKey,
        /// Outcome of the owner's run, which may still be closing.
        outcome: OutcomeKind,
        /// True if queued inputs stay queued: the whole tree is cancelled.
        keeps_queue: bool,
    },
    /// The owner cancels the run that its call opened, but continues itself: an outbox row of kind `cancel`.
    OwnerCancels {
        owner: SessionId,
        key: CallId,
        /// The owner's model, or the originator of an interrupt of the owner.
        by: Initiator,
    },
    Interrupt {
        by: Initiator,
    },
    Deadline(Deadline),
    /// The model of an attempt cannot be called, and no retry can help.
    NotCalled {
        turn: TurnNo,
        attempt: AttemptNo,
        why: CallObstacle,
    },
    /// The parent's model continues an ended child: an outbox row.
    Continue(Box<Continue>),
    Background {
        call: CallId,
    },
    AskAnswered {
        call: CallId,
        verdict: AskVerdict,
        by: AnsweredBy,
    },
    /// The turn task or the model panicked.
    TurnPanicked {
        turn: TurnNo,
        attempt: AttemptNo,
        part: Part,
        message: Text,
    },
    ToolPanicked {
        call: CallId,
        message: Text,
    },
    /// A new activation in the same process. The runtime delivers the session's outbox rows first.
    Reactivated {
        /// The unstarted calls, resolved again from their tools and arguments.
        calls: Vec<FoundCall>,
        /// Outcome of the owner of the run in flight, if it has ended.
        owner_ended: Option<OutcomeKind>,
    },
    /// The restart budget of the session's actor is spent, or one command crashed it twice.
    RestartsExhausted {
        /// The command that was being handled, by name.
        command: Option<Text>,
    },
    /// The start of the host found the run in flight: the previous host process died.
    Lost {
        /// True if the owner of the run in flight survived the restart.
        owner_survives: bool,
        /// True if queued inputs stay queued because the host cannot process them yet.
        keeps_queue: bool,
    },
    ChangeQueue {
        change: QueueChange,
        by: Initiator,
    },
    Close {
        by: Initiator,
    },
    Delete {
        by: Initiator,
    },
    Branch(Box<BranchPlan>),
    /// Regenerates an answer as an alternative.
    Regenerate(Box<RegeneratePlan>),
    /// Selects another alternative of an answer.
    Switch {
        of: Option<Seq>,
        to: SwitchTo,
        by: Initiator,
    },
    /// Hides the messages of an ended run that did not complete.
    RollBack {
        /// The run to roll back; the last one if absent.
        run: Option<RunNo>,
        by: Initiator,
    },
    /// The compaction agent answered, or failed.
    Compact(Box<SummarisedHistory>),
    /// Makes the messages visible that the last compaction hid.
    UndoCompaction {
        by: Initiator,
    },
    /// Sets a title or a summary, or merges metadata.
    Describe(Box<Description>),
}

impl Command {
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallObstacle {
    /// The ledger refused the reservation permanently.
    Budget(Budget),
    /// The directory in which the session works cannot be created or opened.
    Workspace(Text),
}

/// A model's answer, with its calls resolved.
#[derive(Clone, Debug)]
pub struct Answered {
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    pub text: Option<Text>,
    /// Reasoning that the provider requires to be sent back.
    pub reasoning: Option<Text>,
    pub calls: Vec<ResolvedCall>,
    pub stop: Stop,
    /// The model that answered: its name in a pool, else the provider's own name if reported.
    pub model: Option<Text>,
    pub usage: Usage,
    /// Milliseconds for which the call waited for a permit of its model.
    pub queued_ms: u64,
}

/// Whether a call needs an approval before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NeededApproval {
    #[default]
    None,
    /// For the named access alone, so that a permanent approval of it suffices.
    OneAccess,
    /// For the named access and others.
    SeveralAccesses,
}

impl NeededApproval {
    /// Returns the need of a call of which at most one access needs an approval.
    pub fn of_one(is_needed: bool) -> Self {
        if is_needed { Self::OneAccess } else { Self::None }
    }

    pub fn is_needed(self) -> bool {
        self != Self::None
    }
}

/// One call of an answer, resolved by the runtime.
#[derive(Clone, Debug)]
pub struct ResolvedCall {
    pub asked: ToolCall,
    pub kind: CallKind,
    /// The message for the model if the call is [`CallKind::Invalid`]; a general text if absent.
    pub note: Option<Text>,
    /// The access that the tool needs; absent if the authority was not checked.
    pub access: Option<Box<Access>>,
    pub ask: NeededApproval,
}

/// An unstarted call, as a new activation resolves it.
#[derive(Clone, Debug)]
pub struct FoundCall {
    pub call: CallId,
    pub kind: CallKind,
    pub access: Option<Box<Access>>,
    pub ask: NeededApproval,
}

impl FoundCall {
    /// Returns a call for which the authority was not checked.
    pub fn plain(call: CallId, kind: CallKind) -> Self {
        Self { call, kind, access: None, ask: NeededApproval::None }
    }
}

#[derive(Clone, Debug)]
pub struct AttemptFailed {
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    pub error: ModelFail,
    /// The provider's message, bounded and free of secrets.
    pub message: Text,
    /// The provider's retry-after, if given.
    pub retry_after_ms: Option<u64>,
    /// The model that was called, if the session's model name represents several.
    pub model: Option<Text>,
    /// The fallback model for the next attempt, if one was not tried in this turn.
    pub next: Option<Text>,
    /// The other models of the pool that wait for a reset, with the milliseconds until it.
    pub resets: Vec<(Text, u64)>,
    pub usage: Option<Usage>,
    /// Milliseconds for which the call waited for a permit of its model.
    pub queued_ms: u64,
}

/// The runtime's decision on one child call.
#[derive(Clone, Debug)]
pub struct SpawnVerdict {
    pub call: CallId,
    pub verdict: Result<Plan, Refusal>,
}

/// The run that an admitted call opens.
#[derive(Clone, Debug)]
pub enum Plan {
    Child(Box<ChildPlan>),
    Continue(Box<ContinuePlan>),
}

#[derive(Clone, Debug)]
pub struct ContinuePlan {
    /// A child of the calling session.
    pub child: SessionId,
    pub text: Text,
    pub mode: crate::place::Mode,
    /// Turn allowance, if the call names one.
    pub turns: Option<u32>,
    /// The tools offered from now on, if the call changes them.
    pub tools: Option<Vec<Text>>,
    pub grant: SpawnGranted,
}

/// A branch that a person or the host creates.
#[derive(Clone, Debug)]
pub struct BranchPlan {
    pub child: SessionId,
    /// `Human` inherits the context up to the branch point, `Subagent` and `Service` start with an empty one.
    /// Alternatives are created by [`Command::Regenerate`].
    pub kind: BranchKind,
    /// The branch point; the last message if absent.
    pub at: Option<Seq>,
    /// The creation record; `decide` sets `place`, `short`, `ceiling` and `inherited`.
    pub created: SessionCreated,
    /// The manifest's own authority, which is met with the session's ceiling.
    pub manifest: Arc<Authority>,
    pub by: Initiator,
    /// True for a task, which a closed session does not start.
    pub is_task: bool,
}

#[derive(Clone, Debug)]
pub struct RegeneratePlan {
    pub child: SessionId,
    /// Id of the alternative's first input, which repeats the user message.
    pub input: InputId,
    /// The answer; the last one if absent.
    pub of: Option<Seq>,
    /// The creation record; `decide` sets `place`, `short`, `ceiling` and `inherited`.
    pub created: SessionCreated,
    /// The manifest's own authority, which is met with the session's ceiling.
    pub manifest: Arc<Authority>,
    pub by: Initiator,
}

#[derive(Clone, Debug)]
pub struct SummarisedHistory {
    /// The model call that waits for the summary; none if a person or the host requested it.
    pub turn: Option<(TurnNo, AttemptNo)>,
    pub by: Initiator,
    pub plan: HistoryCut,
    pub result: Result<Summary, Unsummarised>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub text: Text,
    /// The service session that wrote the summary.
    pub of: SessionId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsummarised {
    pub why: CompactionFailure,
    pub message: Text,
    /// The service session, if it was created.
    pub of: Option<SessionId>,
    /// Set if the compaction agent's model accepts no calls now: the model, and the milliseconds until it does.
    pub reset: Option<(Text, u64)>,
}

#[derive(Clone, Debug)]
pub enum Description {
    Title(TitleSet),
    Summary(SummarySet),
    /// A JSON object as text, merged key by key; a null value removes its key.
    Metadata {
        changes: Text,
        by: Initiator,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTo {
    /// The previous alternative, or the original if there is no previous one.
    Previous,
    /// The next alternative, or the last if there is no next one.
    Next,
    /// The alternative with this index; 0 is the original.
    Index(u32),
}

/// A child to create, with everything that does not follow from the parent's state.
#[derive(Clone, Debug)]
pub struct ChildPlan {
    pub child: SessionId,
    pub input: InputId,
    pub prompt: Text,
    /// The creation record; `decide` sets `place`, `short`, `ceiling`, and the owner of the worktree, if there is one.
    pub created: SessionCreated,
    /// The manifest's own authority, which is met with the parent's ceiling.
    pub manifest: Arc<Authority>,
    pub dialect: Dialect,
    /// The name that the call gives the child; bounded.
    pub label: Option<Text>,
    /// Requested tools that the child is not offered.
    pub skipped: Vec<Text>,
    /// Omissions from the prompt, each with its reason.
    pub warnings: Vec<Text>,
    pub mode: crate::place::Mode,
    pub max_turns: u32,
    pub deadline_ms: Option<u64>,
    pub on_restart: crate::place::OnRestart,
    /// The wall-clock cap of a detached run.
    pub detached_ms: Option<u64>,
    pub grant: SpawnGranted,
}

/// The refusal of a child call: a tool error that names the limit and what remains of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: crate::call::ToolErrorKind,
    pub message: Text,
}

/// An outbox row of kind `continue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continue {
    pub owner: SessionId,
    pub run: RunNo,
    pub key: CallId,
    pub input: InputId,
    pub text: Text,
    pub mode: crate::place::Mode,
    pub turns: Option<u32>,
    pub tools: Option<Vec<Text>>,
    /// Wall-clock cap of the owner's run, which applies to all runs that it owns.
    pub wall_cap_at: Option<i64>,
    pub owner_ended: Option<OutcomeKind>,
}

/// A deadline, by the work that it bounds. A deadline that no longer applies is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deadline {
    /// Working time of the run.
    Run(RunNo),
    /// Queue time of the run.
    Queue(RunNo),
    /// One turn with all its attempts.
    Turn(TurnNo),
    Call(CallId),
    WallCap(RunNo),
    /// The grace of a closing or interrupted run.
    Grace(RunNo),
    Ask(CallId),
    /// The reset of the provider's limit at which the run is parked in this turn.
    Limit(TurnNo),
}
