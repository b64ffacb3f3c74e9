//! Hooks: code of the host that can change the course of a session.
//!
//! A hook may restrict actions and change texts; its output is trusted no more than a model's. Changes are recorded, except changed tool arguments:
//! the intent of the call is recorded before the hook runs, with the model's arguments.

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

/// The hooks of a host. Every default implementation does nothing.
///
/// A hook that panics or exceeds its time limit refuses if it can refuse, and otherwise changes nothing; the runtime continues. Hooks of different
/// sessions run concurrently.
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
///             if forced { BeforeTool::Deny("`--force` is not used here".into()) } else { BeforeTool::Proceed }
///         })
///     }
/// }
/// ```
pub trait Hooks: Send + Sync + 'static {
    /// Changes or refuses a message of a person or the host before it is accepted.
    ///
    /// Runs in the sender's task, for at most the time limit of one tool call. A message that is resent under its key goes through
    /// the hook again.
    fn user_message(&self, message: UserMessage) -> BoxFuture<'_, Result<UserMessage, Refused>> {
        Box::pin(std::future::ready(Ok(message)))
    }

    /// Chooses the model of an attempt: a model or pool by name, or `None` for the session's own.
    ///
    /// Runs in the task of the turn, within its deadline.
    fn resolve_model(&self, choice: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        drop(choice);
        Box::pin(std::future::ready(None))
    }

    /// Decides on a local call that the authority allows, before it runs. Calls that start agents go to [`Hooks::subagent_start`].
    ///
    /// Runs in the task of the tool, within its deadline, after the intent is recorded.
    fn before_tool(&self, call: ToolAsked) -> BoxFuture<'_, BeforeTool> {
        drop(call);
        Box::pin(std::future::ready(BeforeTool::Proceed))
    }

    /// Replaces the result of a local call before any reader sees it; `None` keeps it. The call remains failed or successful, and the text is
    /// bounded.
    ///
    /// Runs in the task of the tool, within its deadline. If it fails, the result is withheld from the model.
    fn after_tool(&self, done: ToolDone) -> BoxFuture<'_, Option<Text>> {
        drop(done);
        Box::pin(std::future::ready(None))
    }

    /// Decides whether an agent may start or continue another one: a refusal is a tool error for the caller.
    ///
    /// Runs in the caller's actor: it must not block.
    /// # Errors
    /// A refusal to start the agent.
    fn subagent_start(&self, start: &SubagentStart) -> Result<(), Refused> {
        let _ = start;
        Ok(())
    }

    /// Notifies the host of the durable end of a subagent's run. Ends recorded by an earlier process are not reported.
    /// Nor is an end if the host is killed before this call; the journal has all of them. It must not block.
    fn subagent_stop(&self, stop: &SubagentStop) {
        let _ = stop;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Refused {
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMessage {
    pub session: SessionId,
    pub root: SessionId,
    /// The boundary at which the message is taken. Changes are ignored.
    pub lane: Lane,
    pub text: Text,
    /// Metadata of the sender, as JSON text.
    pub metadata: Option<Text>,
    /// The agent that answers from this message on, if it changes.
    pub agent: Option<Text>,
}

/// An attempt of a turn, before its model is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    pub session: SessionId,
    pub root: SessionId,
    pub agent: Text,
    pub run: RunNo,
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    /// The model that is called if the hook makes no choice.
    pub model: Text,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolAsked {
    pub session: SessionId,
    pub root: SessionId,
    pub run: RunNo,
    pub call: CallId,
    pub agent: Text,
    pub tool: Text,
    /// The arguments, valid against the tool's schema.
    pub args: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum BeforeTool {
    Proceed,
    /// Runs the call with these arguments, if they match the tool's schema and the session's authority allows them. An approval for the call covers
    /// only the access that was shown.
    ProceedWith(Value),
    /// Denies the call: the model receives the denial and the reason.
    Deny(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolDone {
    pub asked: ToolAsked,
    pub error: bool,
    pub text: Text,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentStart {
    pub parent: SessionId,
    pub root: SessionId,
    pub run: RunNo,
    pub call: CallId,
    pub agent: Text,
    pub prompt: Text,
    /// Whether the caller waits for the subagent.
    pub mode: Mode,
    /// The ended session that continues; `None` for a new one.
    pub continues: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentStop {
    pub session: SessionId,
    pub parent: SessionId,
    pub root: SessionId,
    pub run: RunNo,
    pub agent: Text,
    pub owner: Owner,
    pub outcome: Outcome,
}

pub(crate) async fn catch_hook_panic<'a, T>(hook: impl FnOnce() -> BoxFuture<'a, T>) -> Result<T, Text> {
    // The hook may panic before it returns a future.
    let made = std::panic::catch_unwind(AssertUnwindSafe(hook)).map_err(|panic| panic_text(&*panic))?;
    AssertUnwindSafe(made).catch_unwind().await.map_err(|panic| panic_text(&*panic))
}

pub(crate) fn catch_sync_hook_panic<T>(hook: impl FnOnce() -> T) -> Result<T, Text> {
    std::panic::catch_unwind(AssertUnwindSafe(hook)).map_err(|panic| panic_text(&*panic))
}

pub(crate) fn may_start(hooks: Option<&Arc<dyn Hooks>>, start: impl FnOnce() -> SubagentStart) -> Result<(), Text> {
    let Some(hooks) = hooks else { return Ok(()) };
    let start = start();
    match catch_sync_hook_panic(|| hooks.subagent_start(&start)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Refused(why))) => Err(format!("the host refuses to start {}: {why}", start.agent).into()),
        Err(panic) => {
            tracing::error!(session = %start.parent, %panic, "a hook panicked; the subagent is not started");
            Err(format!("{} was not started: a hook of the host failed", start.agent).into())
        }
    }
}
