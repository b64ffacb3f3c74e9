//! The tool task: one local call, raced with its cancellation and the kill after the grace.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use subtend_session::call::{CallEnd, CallResult, ToolEffect};
use subtend_session::command::Command;
use subtend_session::ids::{CallId, Text};
use subtend_tools::tool::{Tool, ToolError, ToolInvocation, ToolOutput};
use tokio_util::sync::CancellationToken;

use crate::values::panic::panic_text;

/// What a tool call came to.
pub(crate) enum ToolOutcome {
    /// A result.
    Output(ToolOutput),
    /// An error for the model.
    Error(ToolError),
    /// A panic, with what it said.
    Panic(Text),
    /// Nothing: it was stopped before the tool was called.
    NeverBegun,
}

/// The future of one tool call, as it is polled once in the handler and spawned only if it is pending.
pub(crate) type Running = BoxFuture<'static, ToolOutcome>;

/// Prepares the call of `tool`.
pub(crate) fn run(tool: &Arc<dyn Tool>, call: ToolInvocation) -> Running {
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| tool.run(call)));
    match made {
        Ok(running) => Box::pin(async move {
            match AssertUnwindSafe(running).catch_unwind().await {
                Ok(Ok(output)) => ToolOutcome::Output(output),
                Ok(Err(error)) => ToolOutcome::Error(error),
                Err(panic) => ToolOutcome::Panic(panic_text(&*panic)),
            }
        }),
        Err(panic) => Box::pin(std::future::ready(ToolOutcome::Panic(panic_text(&*panic)))),
    }
}

/// How a running call is stopped: asked first, killed after the grace.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    /// Asks the tool to stop.
    pub(crate) ask: CancellationToken,
    /// Drops it where it stands.
    pub(crate) kill: CancellationToken,
}

/// Waits for the call. One that only reads is dropped as soon as it is asked to stop; one with side effects may finish
/// until it is killed, and what a killed one did is not known (E-1).
pub(crate) async fn raced(running: Running, effect: ToolEffect, stop: Stop) -> Result<ToolOutcome, CallResult> {
    let dropped = async {
        match effect {
            ToolEffect::ReadOnly => {
                stop.ask.cancelled().await;
                CallResult { end: CallEnd::Cancelled, content: "the call was cancelled".into(), truncated_from: None }
            }
            ToolEffect::Idempotent | ToolEffect::SideEffect => {
                stop.kill.cancelled().await;
                CallResult {
                    end: CallEnd::UnknownEffects,
                    content: "the call was killed before it ended; its side effects are unknown".into(),
                    truncated_from: None,
                }
            }
        }
    };
    tokio::select! {
        biased;
        came = running => Ok(came),
        killed = dropped => Err(killed),
    }
}

/// What a call that was cancelled before it began leaves.
pub(crate) fn never_begun() -> CallResult {
    CallResult {
        end: CallEnd::Cancelled,
        content: "the call was cancelled before it began".into(),
        truncated_from: None,
    }
}

/// The command that tells the session what its call came to.
pub(crate) fn finished(call: CallId, came: Result<ToolOutcome, CallResult>, worked_ms: u64) -> Command {
    let result = match came {
        Ok(ToolOutcome::Output(output)) => {
            CallResult { end: CallEnd::Ok, content: output.content, truncated_from: output.truncated_from }
        }
        Ok(ToolOutcome::Error(error)) if error.denied => {
            CallResult { end: CallEnd::Denied, content: error.message.into(), truncated_from: None }
        }
        Ok(ToolOutcome::Error(error)) => CallResult {
            end: CallEnd::ToolError { kind: error.kind, retryable: error.retryable },
            content: error.message.into(),
            truncated_from: None,
        },
        Ok(ToolOutcome::NeverBegun) => never_begun(),
        Ok(ToolOutcome::Panic(message)) => return Command::ToolPanicked { call, message },
        Err(killed) => killed,
    };
    Command::ToolFinished { call, result: Box::new(result), worked_ms }
}
