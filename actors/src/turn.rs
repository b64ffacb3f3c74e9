//! The turn task: one model stream, raced with its cancellation, its stall limit and panics.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request, Sign};
use subtend_session::command::{Answered, AskedCall, AttemptFailed, Command};
use subtend_session::ids::{AttemptNo, CallId, RunNo, SessionId, Text, TurnNo};
use subtend_session::outcome::{ModelFail, Part};
use subtend_tools::tool::Tool;

use crate::event::What;
use crate::hub::Hub;
use crate::offer::Offer;

/// What a model call came to, before its calls are classified.
pub(crate) enum Came {
    /// An answer.
    Answer(Answer),
    /// An error.
    Error(ModelError),
    /// A panic, with what it said.
    Panic(Text),
}

/// The future of one model call, as it is polled once in the handler and spawned only if it is pending.
pub(crate) type Calling = BoxFuture<'static, Came>;

/// Prepares the call of `model`; a model that is silent for longer than `stall_ms` counts as unavailable.
pub(crate) fn call(model: &Arc<dyn Model>, request: Request, deltas: Deltas) -> Calling {
    // The call itself may panic before there is a future.
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| model.call(request, deltas)));
    match made {
        Ok(answering) => Box::pin(async move {
            match AssertUnwindSafe(answering).catch_unwind().await {
                Ok(Ok(answer)) => Came::Answer(answer),
                Ok(Err(error)) => Came::Error(error),
                Err(panic) => Came::Panic(panic_text(&*panic)),
            }
        }),
        Err(panic) => Box::pin(std::future::ready(Came::Panic(panic_text(&*panic)))),
    }
}

/// Shows that the model is not stalled.
#[derive(Clone, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Waits for the call, as long as the model shows life.
pub(crate) async fn watched(mut calling: Calling, pulse: Pulse, stall_ms: u64) -> Came {
    loop {
        let before = pulse.count();
        match tokio::time::timeout(Duration::from_millis(stall_ms), &mut calling).await {
            Ok(came) => return came,
            Err(_) if pulse.count() == before => {
                return Came::Error(ModelError {
                    kind: ModelFail::Unavailable,
                    message: format!("the model was silent for {stall_ms} ms"),
                    retry_after_ms: None,
                    usage: None,
                });
            }
            Err(_) => {}
        }
    }
}

/// Tools and arguments of calls that were just classified.
pub(crate) type Ready = HashMap<CallId, (Arc<dyn Tool>, serde_json::Value)>;

/// Names a model call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) session: SessionId,
    pub(crate) root: SessionId,
    pub(crate) run: RunNo,
    pub(crate) turn: TurnNo,
    pub(crate) attempt: AttemptNo,
}

impl Hub {
    /// Where the deltas of a call go: to subscribers, if there are any, and to the pulse.
    pub(crate) fn deltas(self: &Arc<Self>, at: Address, pulse: &Pulse) -> Deltas {
        let pulse = pulse.clone();
        let hub = Arc::downgrade(self);
        Deltas::watched(move |sign: Sign| {
            pulse.beat();
            let Sign::Delta(delta) = sign else { return };
            if let Some(hub) = hub.upgrade()
                && hub.events.any()
            {
                let what = What::Delta { run: at.run, turn: at.turn, attempt: at.attempt, delta };
                hub.events.passing(at.root, at.session, what);
            }
        })
    }

    /// The command that tells the session what its model call came to. `ready` takes what the local calls need to run.
    pub(crate) fn answered(
        &self,
        offer: &Offer,
        turn: TurnNo,
        attempt: AttemptNo,
        came: Came,
        mut ready: Option<&mut Ready>,
    ) -> Command {
        match came {
            Came::Answer(answer) => {
                let calls = answer.calls.into_iter().zip(0_u32..).map(|(asked, ix)| {
                    let found = self.classify(offer, &asked.tool, &asked.args);
                    if let (Some(ready), Some(found)) = (&mut ready, found.ready) {
                        ready.insert(CallId { turn, ix }, found);
                    }
                    AskedCall { asked, kind: found.kind, note: found.note }
                });
                Command::ModelAnswered(Box::new(Answered {
                    turn,
                    attempt,
                    text: answer.text,
                    reasoning: answer.reasoning,
                    calls: calls.collect(),
                    stop: answer.stop,
                    model: answer.model,
                    usage: answer.usage,
                }))
            }
            Came::Error(error) => failed(turn, attempt, error),
            Came::Panic(message) => Command::TurnPanicked { turn, attempt, part: Part::Model, message },
        }
    }
}

/// The command that tells of an attempt without an answer.
pub(crate) fn failed(turn: TurnNo, attempt: AttemptNo, error: ModelError) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn,
        attempt,
        error: error.kind,
        message: bounded(&error.message).into(),
        retry_after_ms: error.retry_after_ms,
        model: None,
        next: None,
        usage: error.usage,
    }))
}

/// The command that tells of a stream that was dropped because its run closes.
pub(crate) fn dropped(turn: TurnNo, attempt: AttemptNo) -> Command {
    let message = "the stream was dropped because the run was stopped".to_owned();
    failed(turn, attempt, ModelError { kind: ModelFail::Unavailable, message, retry_after_ms: None, usage: None })
}

/// The first 2,000 bytes of a foreign text, cut between characters.
pub(crate) fn bounded(text: &str) -> &str {
    let mut end = text.len().min(2_000);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// What a panic said, bounded.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> Text {
    let said = panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it said nothing");
    bounded(said).into()
}
