//! The deltas of a model call, and the command for its outcome.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use subtend_models::model::{Deltas, ModelError, StreamProgress};
use subtend_session::call::{CallKind, Invalid};
use subtend_session::command::{Answered, AttemptFailed, CallObstacle, Command, NeededApproval, ResolvedCall};
use subtend_session::ids::{AttemptNo, CallId, Text, TurnNo};
use subtend_session::outcome::{ModelFail, Part};
use subtend_session::record::ToolCall;
use subtend_session::usage::Usage;

use crate::calls::in_flight::ParsedCalls;
use crate::calls::model_call::{Called, LastDelta, ModelOutcome};
use crate::calls::model_calls::OtherModels;
use crate::cell::cells::Cells;
use crate::spawn::agents::Agents;
use crate::spawn::tool_set::ToolSet;
use crate::values::address::Address;
use crate::values::panic::truncate_message;

/// Receives the deltas of one model call, and ignores those that come after the answer.
struct DeltaSink {
    cells: Weak<Cells>,
    at: Address,
    last_delta: LastDelta,
    used: AtomicBool,
}

impl DeltaSink {
    fn take(&self, progress: &StreamProgress) {
        self.last_delta.beat();
        let StreamProgress::Delta(delta) = progress else { return };
        if let Some(cells) = self.cells.upgrade() {
            if !self.used.swap(true, Ordering::Relaxed) {
                cells.calls.parked.answered(self.at.session);
            }
            cells.log.events.delta(&self.at, delta, || self.last_delta.is_watched());
        }
    }
}

impl Drop for DeltaSink {
    fn drop(&mut self) {
        if *self.used.get_mut()
            && let Some(cells) = self.cells.upgrade()
        {
            cells.log.events.end_call(&self.at);
        }
    }
}

/// The maximum number of calls that are classified before other tasks run on the thread.
const MAX_CLASSIFIED: usize = 8;

/// The classified calls of an answer.
struct ResolvedCalls {
    calls: Vec<ResolvedCall>,
    ready: ParsedCalls,
}

impl ResolvedCalls {
    /// Adds a call. One beyond the limit is not classified, because it is refused in any case.
    fn push(&mut self, (agents, tool_set, max): (&Agents, &ToolSet, u32), turn: TurnNo, ix: u32, tool_call: ToolCall) {
        if ix >= max {
            let (kind, ask) = (CallKind::Invalid(Invalid::OverLimit), NeededApproval::None);
            self.calls.push(ResolvedCall { asked: tool_call, kind, note: None, access: None, ask });
            return;
        }
        let found = agents.classify(tool_set, &BTreeSet::new(), &tool_call.tool, &tool_call.args);
        self.ready.extend(found.ready.map(|parsed| (CallId { turn, ix }, parsed)));
        self.calls.push(ResolvedCall {
            asked: tool_call,
            kind: found.kind,
            note: found.note,
            access: found.access,
            ask: found.ask,
        });
    }
}

/// Returns whether the calls of `outcome` are few enough to be classified at once.
fn is_quick(outcome: &ModelOutcome) -> bool {
    match outcome {
        ModelOutcome::Answer(answer) => answer.calls.len() <= MAX_CLASSIFIED,
        ModelOutcome::Error(_) | ModelOutcome::Panic(_) => true,
    }
}

pub(crate) fn not_called(at: Address, why: CallObstacle) -> (Command, ParsedCalls) {
    (Command::NotCalled { turn: at.turn, attempt: at.attempt, why }, ParsedCalls::default())
}

fn take_calls(outcome: &mut ModelOutcome) -> Vec<ToolCall> {
    match outcome {
        ModelOutcome::Answer(answer) => std::mem::take(&mut answer.calls),
        ModelOutcome::Error(_) | ModelOutcome::Panic(_) => Vec::new(),
    }
}

impl Cells {
    /// Returns the receiver of a call's deltas, which updates the last delta's time, the subscribers and the text.
    pub(crate) fn deltas(self: &Arc<Self>, at: Address, last_delta: &LastDelta) -> Deltas {
        let sink =
            DeltaSink { cells: Arc::downgrade(self), at, last_delta: last_delta.clone(), used: AtomicBool::new(false) };
        Deltas::with_progress(move |progress: StreamProgress| sink.take(&progress))
    }

    /// Returns the command for the outcome of the model call, and its parsed calls. See [`is_quick`]. `offer` has the maximum
    /// number of calls that may start.
    pub(crate) fn answered(
        &self,
        offer: (&Agents, &ToolSet, u32),
        at: Address,
        mut outcome: ModelOutcome,
        called: &Called,
    ) -> (Command, ParsedCalls) {
        let calls = take_calls(&mut outcome);
        let mut resolved = ResolvedCalls { calls: Vec::with_capacity(calls.len()), ready: ParsedCalls::default() };
        for (tool_call, ix) in calls.into_iter().zip(0_u32..) {
            resolved.push(offer, at.turn, ix, tool_call);
        }
        self.outcome_command(at, outcome, called, resolved)
    }

    /// Returns the same as [`Cells::answered`], or what will: it classifies a few calls at a time, since a hostile model may make many that
    /// take long. Boxed, so that a waiting turn uses less memory.
    pub(crate) fn start_answered<'a>(
        &'a self,
        offer: (&'a Agents, &'a ToolSet, u32),
        at: Address,
        mut outcome: ModelOutcome,
        called: Called,
    ) -> Result<(Command, ParsedCalls), BoxFuture<'a, (Command, ParsedCalls)>> {
        if is_quick(&outcome) {
            return Ok(self.answered(offer, at, outcome, &called));
        }
        Err(Box::pin(async move {
            let calls = take_calls(&mut outcome);
            let mut resolved = ResolvedCalls { calls: Vec::with_capacity(calls.len()), ready: ParsedCalls::default() };
            for (tool_call, ix) in calls.into_iter().zip(0_u32..) {
                if ix > 0 && resolved.calls.len().is_multiple_of(MAX_CLASSIFIED) {
                    tokio::task::yield_now().await;
                }
                resolved.push(offer, at.turn, ix, tool_call);
            }
            self.outcome_command(at, outcome, &called, resolved)
        }))
    }

    fn outcome_command(
        &self,
        at: Address,
        outcome: ModelOutcome,
        called: &Called,
        ResolvedCalls { calls, ready }: ResolvedCalls,
    ) -> (Command, ParsedCalls) {
        let Address { session, turn, attempt, .. } = at;
        let command = match outcome {
            ModelOutcome::Answer(answer) => {
                let model = self.calls.on_model_answered(session, called, &answer);
                Command::ModelAnswered(Box::new(Answered {
                    turn,
                    attempt,
                    text: answer.text,
                    reasoning: answer.reasoning,
                    calls,
                    stop: answer.stop,
                    model,
                    usage: answer.usage,
                    queued_ms: 0,
                }))
            }
            ModelOutcome::Error(error) => {
                let others = self.calls.on_model_failed(session, called, &error);
                failed(turn, attempt, error, called.recorded_name(), others)
            }
            ModelOutcome::Panic(message) => {
                let error = ModelError::new(ModelFail::Unavailable, format!("panicked: {message}"));
                let others = self.calls.on_model_failed(session, called, &error);
                match others.next {
                    // The next attempt uses another model of the pool, as after any failure.
                    Some(_) => failed(turn, attempt, error, called.recorded_name(), others),
                    None => Command::TurnPanicked { turn, attempt, part: Part::Model, message },
                }
            }
        };
        (command, ready)
    }
}

/// Returns the command for an attempt without an answer.
fn failed(turn: TurnNo, attempt: AttemptNo, error: ModelError, model: Option<Text>, others: OtherModels) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn,
        attempt,
        error: error.kind,
        message: truncate_message(&error.message).into(),
        retry_after_ms: error.retry_after_ms,
        model,
        next: others.next,
        resets: others.resets,
        usage: error.usage,
        queued_ms: 0,
    }))
}

/// Adds to `command` the time for which its call waited for a permit.
pub(crate) fn with_wait(command: Command, queued_ms: u64) -> Command {
    if let Command::ModelAnswered(answered) = command {
        return Command::ModelAnswered(Box::new(Answered { queued_ms, ..*answered }));
    }
    if let Command::AttemptFailed(failed) = command {
        return Command::AttemptFailed(Box::new(AttemptFailed { queued_ms, ..*failed }));
    }
    command
}

/// Returns the command for a stream dropped because its run closes. If it had started, its cost is unknown.
pub(crate) fn dropped(turn: TurnNo, attempt: AttemptNo, started: bool) -> Command {
    let error = ModelError::new(ModelFail::Dropped, "the stream was dropped because the run was stopped");
    let usage = started.then_some(Usage::UNKNOWN);
    failed(turn, attempt, ModelError { usage, ..error }, None, OtherModels::default())
}
