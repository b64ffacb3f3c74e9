//! Commands: everything that can happen to a session. Time, ids and grants are values in them.

use std::sync::Arc;

use crate::authority::Authority;
use crate::call::{CallKind, CallResult};
use crate::ids::{AttemptNo, CallId, InputId, RunNo, SessionId, Text, TurnNo};
use crate::outcome::{Budget, By, ModelFail, OutcomeKind, Part};
use crate::record::{AskBy, AskVerdict, Asked, InputAccepted, Notice, QueueChange, SessionCreated, SpawnGranted, Stop};
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
    },
    /// The owner of the run in flight is closing or over.
    OwnerOver {
        /// The run.
        run: RunNo,
        /// How the owner ended or will end.
        outcome: OutcomeKind,
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
        /// The run.
        run: RunNo,
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
        /// Kinds of the calls that have not started yet, found anew from their tools and arguments.
        kinds: Vec<(CallId, CallKind)>,
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
    pub calls: Vec<AskedCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// The model that answered: of a pool by its name there, else by the provider's own name for it, where it told one.
    pub model: Option<Text>,
    /// What it cost.
    pub usage: Usage,
}

/// One call of an answer, as the hub found it.
#[derive(Clone, Debug)]
pub struct AskedCall {
    /// What the model wrote.
    pub asked: Asked,
    /// What it is.
    pub kind: CallKind,
    /// What the model is told, where the call is [`CallKind::Invalid`]; a general text if absent.
    pub note: Option<Text>,
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
    pub verdict: Result<Box<ChildPlan>, Refusal>,
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
    /// Whether the call waits.
    pub mode: crate::place::Mode,
    /// Turn allowance.
    pub max_turns: u32,
    /// Working-time limit.
    pub deadline_ms: Option<u64>,
    /// What a restart does with it.
    pub on_restart: crate::place::OnRestart,
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
}
