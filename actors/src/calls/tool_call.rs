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

pub(crate) enum ToolOutcome {
    Output(ToolOutput),
    Error(ToolError),
    Panic(Text),
    NotStarted,
}

/// The future of one tool call, polled once in the handler and spawned only if it is pending.
pub(crate) type Running = BoxFuture<'static, ToolOutcome>;

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

/// Signals that stop a running call: cancel first, kill after the grace.
#[derive(Clone, Default)]
pub(crate) struct StopSignals {
    pub(crate) ask: CancellationToken,
    pub(crate) kill: CancellationToken,
}

/// Waits for the call. A cancel drops a read-only call at once. A call with side effects may finish until it is killed; then its effects are unknown.
pub(crate) async fn run_until_stopped(
    running: Running,
    effect: ToolEffect,
    stop: StopSignals,
) -> Result<ToolOutcome, CallResult> {
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
        outcome = running => Ok(outcome),
        killed = dropped => Err(killed),
    }
}

/// Returns the result of a call that was cancelled before it started.
pub(crate) fn not_started_result() -> CallResult {
    CallResult {
        end: CallEnd::Cancelled,
        content: "the call was cancelled before it started".into(),
        truncated_from: None,
    }
}

pub(crate) fn finished(call: CallId, outcome: Result<ToolOutcome, CallResult>, worked_ms: u64) -> Command {
    let result = match outcome {
        Ok(ToolOutcome::Output(output)) => {
            CallResult { end: CallEnd::Ok, content: output.content, truncated_from: output.truncated_from }
        }
        Ok(ToolOutcome::Error(error)) if error.denied => {
            CallResult { end: CallEnd::Denied, content: error.message.into(), truncated_from: None }
        }
        Ok(ToolOutcome::Error(error)) if error.unknown_effects => {
            CallResult { end: CallEnd::UnknownEffects, content: error.message.into(), truncated_from: None }
        }
        Ok(ToolOutcome::Error(error)) => CallResult {
            end: CallEnd::ToolError { kind: error.kind, retryable: error.retryable },
            content: error.message.into(),
            truncated_from: None,
        },
        Ok(ToolOutcome::NotStarted) => not_started_result(),
        Ok(ToolOutcome::Panic(message)) => return Command::ToolPanicked { call, message },
        Err(killed) => killed,
    };
    Command::ToolFinished { call, result: Box::new(result), worked_ms }
}
