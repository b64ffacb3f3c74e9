//! Commands: everything that can happen to a session. Time, ids and grants are values in them.

use std::sync::Arc;

use crate::authority::{Access, Authority};
use crate::call::{CallKind, CallResult};
use crate::dialect::Dialect;
use crate::ids::{AttemptNo, CallId, InputId, RunKey, RunNo, Seq, SessionId, Text, TurnNo};
use crate::outcome::{Budget, By, ModelFail, OutcomeKind, Part};
use crate::place::BranchKind;
use crate::record::{
    AskBy, AskVerdict, InputAccepted, Notice, QueueChange, SessionCreated, SpawnGranted, Stop, SummarySet, TitleSet,
    ToolCall,
};
use crate::usage::Usage;

/// What the clock says when a command is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Wall clock, milliseconds since the epoch. Only for caps that a host sets; informative else.
    pub wall_ms: i64,
    /// Working time of the run in flight so far, milliseconds: what earlier activations recorded and what this one measured.
    pub worked_ms: u64,
}

/// One thing that happens to a session.
#[derive(Clone, Debug)]
pub enum Command {
    /// An input by a person or the host, in either lane.
    Submit(Box<InputAccepted>),
    /// The ledger gave the run the slot that it asked for.
    Admitted {
        /// The run.
        run: RunNo,
        /// Whether the owner was found to be over, or the token fired, when the slot was given.
        owner_over: Option<OutcomeKind>,
    },
    /// The model answered.
    ModelAnswered(Box<Answered>),
    /// An attempt came to nothing.
    AttemptFailed(Box<AttemptFailed>),
    /// A local tool finished, was killed, or never started because it was not allowed to.
    ToolFinished {
        /// The call.
        call: CallId,
        /// What it left.
        result: Box<CallResult>,
        /// Its own working time.
        worked_ms: u64,
    },
    /// The ledger and the registry answered for child calls of one answer (a chunk of at most 512).
    Spawn {
        /// The turn whose calls they are.
        turn: TurnNo,
        /// One verdict per call, in call order.
        verdicts: Vec<SpawnVerdict>,
    },
    /// Ends of owned runs (or of persons' and detached runs of children) arrived; rows of the outbox, in LSN order.
    OwnedEnded(Vec<Notice>),
    /// Cancel the run in flight.
    Cancel {
        /// The run that is meant; `None`: the current one.
        run: Option<RunNo>,
        /// On whose word.
        by: By,
        /// Whether inputs that wait stay where they are (a cancel of the whole tree) rather than open the next run.
        queue_stands: bool,
    },
    /// The owner of the run in flight is closing or over.
    OwnerOver {
        /// The owner.
        owner: RunKey,
        /// How the owner ended or will end.
        outcome: OutcomeKind,
        /// Whether inputs that wait stay where they are: the whole tree is cancelled.
        queue_stands: bool,
    },
    /// The owner cancels the one run that its call opened, and itself goes on: an outbox row of kind `cancel`.
    OwnerCancels {
        /// The owner's session.
        owner: SessionId,
        /// The key of the run.
        key: CallId,
        /// On whose word: of the owner's model, or of its interrupt.
        by: By,
    },
    /// Interrupt the run in flight.
    Interrupt {
        /// On whose word.
        by: By,
    },
    /// A deadline passed.
    Deadline(Deadline),
    /// The ledger refused a reservation for good.
    BudgetRefused {
        /// The turn.
        turn: TurnNo,
        /// The attempt that was to be made.
        attempt: AttemptNo,
        /// Which budget.
        which: Budget,
    },
    /// The parent's model asks an ended child to go on: an outbox row.
    Continue(Box<Continue>),
    /// Move a blocking child call to the background.
    Background {
        /// The call.
        call: CallId,
    },
    /// A person's word for a call.
    AskAnswered {
        /// The call.
        call: CallId,
        /// The word.
        verdict: AskVerdict,
        /// Who gave it.
        by: AskBy,
    },
    /// The turn task or the model panicked.
    TurnPanicked {
        /// The turn.
        turn: TurnNo,
        /// The attempt.
        attempt: AttemptNo,
        /// Where.
        part: Part,
        /// What the panic said, bounded.
        message: Text,
    },
    /// A tool panicked.
    ToolPanicked {
        /// The call.
        call: CallId,
        /// What the panic said, bounded.
        message: Text,
    },
    /// A new activation in the same process. The hub first delivers the token and `outbox[to = me]`.
    Reactivated {
        /// The calls that have not started yet, found anew from their tools and arguments.
        calls: Vec<FoundCall>,
        /// Whether the owner of the run in flight is over.
        owner_over: Option<OutcomeKind>,
    },
    /// The restart budget of the session's actor is spent, or one command killed it twice.
    RestartsExhausted {
        /// The command in hand, by name.
        command: Option<Text>,
    },
    /// The boot sweep: the run was in flight when the host died.
    Lost {
        /// Whether the owner of the run in flight survived (rule of the `Lost` row).
        owner_survives: bool,
        /// Whether inputs that wait stand: nobody is there yet who could work on them.
        queue_stands: bool,
    },
    /// Change the queue.
    ChangeQueue {
        /// How.
        change: QueueChange,
        /// On whose word.
        by: By,
    },
    /// Close the session.
    Close {
        /// On whose word.
        by: By,
    },
    /// Delete the session.
    Delete {
        /// On whose word.
        by: By,
    },
    /// Make a branch of the session.
    Branch(Box<BranchPlan>),
    /// Answer anew: an alternative of an answer.
    Regenerate(Box<RegeneratePlan>),
    /// Another alternative of an answer is to be seen.
    Switch {
        /// The answer; the last one that has alternatives if absent.
        of: Option<Seq>,
        /// Which.
        to: SwitchTo,
        /// On whose word.
        by: By,
    },
    /// Hide what an ended run that did not complete said.
    RollBack {
        /// The run; the last one if absent.
        run: Option<RunNo>,
        /// On whose word.
        by: By,
    },
    /// Give the session a title or a summary, or merge its metadata.
    Describe(Box<Description>),
}

impl Command {
    /// The command's name, for set-aside commands, logs and tests.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Submit(_) => "submit",
            Self::Admitted { .. } => "admitted",
            Self::ModelAnswered(_) => "model_answered",
            Self::AttemptFailed(_) => "attempt_failed",
            Self::ToolFinished { .. } => "tool_finished",
            Self::Spawn { .. } => "spawn",
            Self::OwnedEnded(_) => "owned_ended",
            Self::Cancel { .. } => "cancel",
            Self::OwnerOver { .. } => "owner_over",
            Self::Interrupt { .. } => "interrupt",
            Self::Deadline(_) => "deadline",
            Self::BudgetRefused { .. } => "budget_refused",
            Self::Continue(_) => "continue",
            Self::Background { .. } => "background",
            Self::AskAnswered { .. } => "ask_answered",
            Self::TurnPanicked { .. } => "turn_panicked",
            Self::ToolPanicked { .. } => "tool_panicked",
            Self::Reactivated { .. } => "reactivated",
            Self::RestartsExhausted { .. } => "restarts_exhausted",
            Self::Lost { .. } => "lost",
            Self::ChangeQueue { .. } => "change_queue",
            Self::Close { .. } => "close",
            Self::OwnerCancels { .. } => "owner_cancels",
            Self::Delete { .. } => "delete",
            Self::Branch(_) => "branch",
            Self::Regenerate(_) => "regenerate",
            Self::Switch { .. } => "switch",
            Self::RollBack { .. } => "roll_back",
            Self::Describe(_) => "describe",
        }
    }
}

/// An answer, with the kinds of its calls.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The turn that it answers.
    pub turn: TurnNo,
    /// The attempt.
    pub attempt: AttemptNo,
    /// The text.
    pub text: Option<Text>,
    /// Reasoning that the provider wants back.
    pub reasoning: Option<Text>,
    /// The calls, in order, each with its kind.
    pub calls: Vec<ResolvedCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// The model that answered: of a pool by its name there, else by the provider's own name for it, where it told one.
    pub model: Option<Text>,
    /// What it cost.
    pub usage: Usage,
}

/// One call of an answer, as the hub found it.
#[derive(Clone, Debug)]
pub struct ResolvedCall {
    /// What the model wrote.
    pub asked: ToolCall,
    /// What it is.
    pub kind: CallKind,
    /// What the model is told, where the call is [`CallKind::Invalid`]; a general text if absent.
    pub note: Option<Text>,
    /// What its tool needs to be allowed; absent where the authority was not asked.
    pub access: Option<Box<Access>>,
    /// Whether a person is to be asked before it starts.
    pub ask: bool,
}

/// A call that has not started, as a new activation finds it.
#[derive(Clone, Debug)]
pub struct FoundCall {
    /// The call.
    pub call: CallId,
    /// What it is.
    pub kind: CallKind,
    /// What its tool needs to be allowed; absent where the authority was not asked.
    pub access: Option<Box<Access>>,
    /// Whether a person is to be asked before it starts.
    pub ask: bool,
}

impl FoundCall {
    /// A call for which the authority was not asked.
    pub fn plain(call: CallId, kind: CallKind) -> Self {
        Self { call, kind, access: None, ask: false }
    }
}

/// An attempt that failed.
#[derive(Clone, Debug)]
pub struct AttemptFailed {
    /// The turn.
    pub turn: TurnNo,
    /// The attempt.
    pub attempt: AttemptNo,
    /// What went wrong.
    pub error: ModelFail,
    /// The provider's words, bounded and free of secrets.
    pub message: Text,
    /// When the provider wants to be asked again, if it said so.
    pub retry_after_ms: Option<u64>,
    /// The model that was called, where the session's name for it stands for several.
    pub model: Option<Text>,
    /// The model to ask instead, where there is one that was not asked in this turn yet.
    pub next: Option<Text>,
    /// What it cost all the same.
    pub usage: Option<Usage>,
}

/// What the hub found out about one child call.
#[derive(Clone, Debug)]
pub struct SpawnVerdict {
    /// The call.
    pub call: CallId,
    /// Granted or refused.
    pub verdict: Result<Plan, Refusal>,
}

/// What an admitted call opens.
#[derive(Clone, Debug)]
pub enum Plan {
    /// The first run of a new child.
    Child(Box<ChildPlan>),
    /// The next run of an ended child.
    Continue(Box<ContinuePlan>),
}

/// An ended child that may be asked to go on.
#[derive(Clone, Debug)]
pub struct ContinuePlan {
    /// The child: one of the caller's own.
    pub child: SessionId,
    /// What it is told.
    pub text: Text,
    /// Whether the call waits.
    pub mode: crate::place::Mode,
    /// Turn allowance, where the call names one.
    pub turns: Option<u32>,
    /// The tools that it is offered from here on, where the call says so.
    pub tools: Option<Vec<Text>>,
    /// What the ledger granted.
    pub grant: SpawnGranted,
}

/// A branch that a person or the host makes.
#[derive(Clone, Debug)]
pub struct BranchPlan {
    /// The child's id.
    pub child: SessionId,
    /// `Human` inherits the context up to the branch point, `Subagent` and `Service` start afresh. Alternatives are made by
    /// [`Command::Regenerate`].
    pub kind: BranchKind,
    /// The message that it hangs on; the last one if absent.
    pub at: Option<Seq>,
    /// Birth record, but for `place`, `short`, `ceiling` and `inherited`, which `decide` settles.
    pub created: SessionCreated,
    /// The manifest's own authority: met with the session's ceiling.
    pub manifest: Arc<Authority>,
    /// On whose word.
    pub by: By,
}

/// An answer that is to be given anew.
#[derive(Clone, Debug)]
pub struct RegeneratePlan {
    /// The alternative's id.
    pub child: SessionId,
    /// The id of its first input: the user message, asked again.
    pub input: InputId,
    /// The answer; the last one if absent.
    pub of: Option<Seq>,
    /// Birth record, but for `place`, `short`, `ceiling` and `inherited`, which `decide` settles.
    pub created: SessionCreated,
    /// The manifest's own authority: met with the session's ceiling.
    pub manifest: Arc<Authority>,
    /// On whose word.
    pub by: By,
}

/// What a session is to be given.
#[derive(Clone, Debug)]
pub enum Description {
    /// A title.
    Title(TitleSet),
    /// A summary.
    Summary(SummarySet),
    /// Changes to its metadata: a JSON object as text, merged key by key; a key whose value is null is removed.
    Metadata {
        /// The changes.
        changes: Text,
        /// Who asks for them.
        by: By,
    },
}

/// Which alternative is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTo {
    /// The one before; the original stays where it is the first.
    Previous,
    /// The one after; the last stays.
    Next,
    /// This one; 0 is the original.
    Index(u32),
}

/// A child that may be born: everything that is not decided by the parent's state.
#[derive(Clone, Debug)]
pub struct ChildPlan {
    /// The child's id.
    pub child: SessionId,
    /// The id of its first input.
    pub input: InputId,
    /// The prompt: the child's first user message.
    pub prompt: Text,
    /// Birth record, but for `place`, `short` and `ceiling`, which `decide` settles.
    pub created: SessionCreated,
    /// The manifest's own authority: met with the parent's ceiling.
    pub manifest: Arc<Authority>,
    /// The dialect whose call asks.
    pub dialect: Dialect,
    /// What it is called in the words of that call; bounded.
    pub label: Option<Text>,
    /// Tools that the call wanted described to it and that it is not offered.
    pub skipped: Vec<Text>,
    /// What was left out of its prompt, and why.
    pub warnings: Vec<Text>,
    /// Whether the call waits.
    pub mode: crate::place::Mode,
    /// Turn allowance.
    pub max_turns: u32,
    /// Working-time limit.
    pub deadline_ms: Option<u64>,
    /// What a restart does with it.
    pub on_restart: crate::place::OnRestart,
    /// Wall-clock time of a run that its manifest or the host detaches: nobody owns it.
    pub detached_ms: Option<u64>,
    /// What the ledger granted.
    pub grant: SpawnGranted,
}

/// Why a child call is refused: a tool error that says what the limit is and what remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which kind of error.
    pub kind: crate::call::ToolErrorKind,
    /// What the model sees.
    pub message: Text,
}

/// An outbox row of kind `continue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continue {
    /// The owner's session.
    pub owner: SessionId,
    /// Its run.
    pub run: RunNo,
    /// Its call: the key.
    pub key: CallId,
    /// The input.
    pub input: InputId,
    /// Its text.
    pub text: Text,
    /// Whether the call waits.
    pub mode: crate::place::Mode,
    /// Turn allowance, where the call names one.
    pub turns: Option<u32>,
    /// The tools that it is offered from here on, where the call says so.
    pub tools: Option<Vec<Text>>,
    /// The wall-clock cap of its run, which binds all that it owns (E-4).
    pub wall_cap_at: Option<i64>,
    /// Whether the owner is over.
    pub owner_over: Option<OutcomeKind>,
}

/// A deadline, by what it bounds. One that no longer applies is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deadline {
    /// Working time of the run.
    Run(RunNo),
    /// Time in the queue.
    Queue(RunNo),
    /// One turn with all its attempts.
    Turn(TurnNo),
    /// One call.
    Call(CallId),
    /// The wall-clock cap of the run.
    WallCap(RunNo),
    /// The grace of a closing or interrupted run.
    Grace(RunNo),
    /// A person's word for one call.
    Ask(CallId),
}
