//! Hooks: a host's own code where the course of a session can still be changed.
//!
//! A hook may narrow what happens and change what is said; nothing that it gives is trusted more than a model's word. What it
//! changes is in the command that is decided, so that the journal tells what was done; but for the arguments of a tool: the record
//! that intends the call comes before the hook, and names what the model asked for.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_session::ids::{AttemptNo, CallId, RunNo, SessionId, Text, TurnNo};
use subtend_session::outcome::Outcome;
use subtend_session::place::{Mode, Owner};
use subtend_session::record::Lane;

use crate::values::panic::panic_text;

pub(crate) mod message;
pub(crate) mod tool;

/// What a host does at the points where the course of a session can be changed. Each is a no-op until it is written.
///
/// One that panics, or is slower than what it holds up may take, counts as a refusal where it could refuse and as silence
/// where it could not; the runtime goes on. Hooks of different sessions run at the same time.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use subtend_actors::{BeforeTool, Hooks, ToolAsked};
///
/// struct NoForce;
///
/// impl Hooks for NoForce {
///     fn before_tool(&self, call: ToolAsked) -> BoxFuture<'_, BeforeTool> {
///         let forced = call.args.to_string().contains("--force");
///         Box::pin(async move {
///             if forced { BeforeTool::Deny("`--force` is not used here".into()) } else { BeforeTool::Go }
///         })
///     }
/// }
/// ```
pub trait Hooks: Send + Sync + 'static {
    /// A person's or the host's message, before it is accepted: it may be changed, or refused with a reason.
    ///
    /// Runs in the task of whoever sends, and is given at most the time of one tool call. It sees what is sent and not what
    /// is accepted: an input that is sent again under its key comes by again.
    fn user_message(&self, message: UserMessage) -> BoxFuture<'_, Result<UserMessage, Refused>> {
        Box::pin(std::future::ready(Ok(message)))
    }

    /// The model of an attempt, before it is chosen: another one, or pool, by its name, or `None` for the session's own.
    ///
    /// Runs in the task of the turn, whose deadline bounds it.
    fn resolve_model(&self, choice: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        drop(choice);
        Box::pin(std::future::ready(None))
    }

    /// A local call that the authority allows, before it runs. Not for calls that start agents: see
    /// [`Hooks::subagent_start`].
    ///
    /// Runs in the task of the tool, whose deadline bounds it, after the record that intends the call is written.
    fn before_tool(&self, call: ToolAsked) -> BoxFuture<'_, BeforeTool> {
        drop(call);
        Box::pin(std::future::ready(BeforeTool::Go))
    }

    /// The result of a local call, before anybody sees it: another text in its place, or `None` to leave it. Whether the call
    /// failed stays as it is, and the text is bounded as any other.
    ///
    /// Runs in the task of the tool, whose deadline bounds it. The result of one that fails is withheld from the model.
    fn after_tool(&self, done: ToolDone) -> BoxFuture<'_, Option<Text>> {
        drop(done);
        Box::pin(std::future::ready(None))
    }

    /// An agent is about to be started, or asked to go on, by another one: a refusal is a tool error to its caller.
    ///
    /// Runs in the caller's actor: it must not block.
    ///
    /// # Errors
    /// When the agent is not to be started.
    fn subagent_start(&self, start: &SubagentStart) -> Result<(), Refused> {
        let _ = start;
        Ok(())
    }

    /// A subagent's run ended, and its end is durable. Not told of ends that a former host had recorded, nor to a host that
    /// is killed between the record and this: the journal has them all.
    ///
    /// It must not block.
    fn subagent_stop(&self, stop: &SubagentStop) {
        let _ = stop;
    }
}

/// Why a hook refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Refused {
    /// For this reason: told to whoever is refused.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A message on its way to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMessage {
    /// The session. A change of it counts for nothing.
    pub session: SessionId,
    /// The root of its tree. A change of it counts for nothing.
    pub root: SessionId,
    /// When it may be taken. A change of it counts for nothing.
    pub lane: Lane,
    /// The text.
    pub text: Text,
    /// What the sender attached: JSON text.
    pub metadata: Option<Text>,
    /// The agent that is to answer from here on, if it is to be another one.
    pub agent: Option<Text>,
}

/// An attempt of a turn whose model is about to be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// The session.
    pub session: SessionId,
    /// The root of its tree.
    pub root: SessionId,
    /// The agent that answers.
    pub agent: Text,
    /// The run.
    pub run: RunNo,
    /// The turn.
    pub turn: TurnNo,
    /// The attempt.
    pub attempt: AttemptNo,
    /// The model that will be asked if nothing else is said.
    pub model: Text,
}

/// A local call that is about to run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolAsked {
    /// The session.
    pub session: SessionId,
    /// The root of its tree.
    pub root: SessionId,
    /// The run.
    pub run: RunNo,
    /// The call.
    pub call: CallId,
    /// The agent that calls.
    pub agent: Text,
    /// The tool.
    pub tool: Text,
    /// The arguments: valid against the tool's schema.
    pub args: Value,
}

/// What becomes of a call that is about to run.
#[derive(Clone, Debug, PartialEq)]
pub enum BeforeTool {
    /// It runs.
    Go,
    /// It runs with these arguments, if they fit the tool's schema and the session may do what they ask for: a person's word
    /// that was given for the call holds for what was asked about then, and for nothing else.
    With(Value),
    /// It does not run: the model is told that it was denied, and why.
    Deny(String),
}

/// A local call that has run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDone {
    /// The call as it ran.
    pub asked: ToolAsked,
    /// Whether it failed.
    pub error: bool,
    /// What the model is to see.
    pub text: Text,
}

/// A subagent that is about to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentStart {
    /// The session whose model calls.
    pub parent: SessionId,
    /// The root of its tree.
    pub root: SessionId,
    /// Its run.
    pub run: RunNo,
    /// The call.
    pub call: CallId,
    /// The agent.
    pub agent: Text,
    /// What it is told.
    pub prompt: Text,
    /// Whether the call waits for it.
    pub mode: Mode,
    /// The ended session that is asked to go on; absent for a new one.
    pub continues: Option<SessionId>,
}

/// A subagent's run that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentStop {
    /// The session.
    pub session: SessionId,
    /// Its parent.
    pub parent: SessionId,
    /// The root of its tree.
    pub root: SessionId,
    /// The run.
    pub run: RunNo,
    /// The agent.
    pub agent: Text,
    /// Who owned the run.
    pub owner: Owner,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a hook gives, or the words of its panic.
pub(crate) async fn guarded<'a, T>(hook: impl FnOnce() -> BoxFuture<'a, T>) -> Result<T, Text> {
    // The hook itself may panic before there is a future.
    let made = std::panic::catch_unwind(AssertUnwindSafe(hook)).map_err(|panic| panic_text(&*panic))?;
    AssertUnwindSafe(made).catch_unwind().await.map_err(|panic| panic_text(&*panic))
}

/// What a hook that may not wait gives, or the words of its panic.
pub(crate) fn guarded_now<T>(hook: impl FnOnce() -> T) -> Result<T, Text> {
    std::panic::catch_unwind(AssertUnwindSafe(hook)).map_err(|panic| panic_text(&*panic))
}

/// Whether a subagent may be started; a hook that panics refuses.
pub(crate) fn may_start(hooks: Option<&Arc<dyn Hooks>>, start: impl FnOnce() -> SubagentStart) -> Result<(), Text> {
    let Some(hooks) = hooks else { return Ok(()) };
    let start = start();
    match guarded_now(|| hooks.subagent_start(&start)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Refused(why))) => Err(format!("the host refuses to start {}: {why}", start.agent).into()),
        Err(panic) => {
            tracing::error!(session = %start.parent, %panic, "a hook panicked: the subagent is not started");
            Err(format!("{} was not started: a hook of the host failed", start.agent).into())
        }
    }
}
