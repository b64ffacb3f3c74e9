//! The turn task: one model stream, raced with its cancellation, its stall limit and panics.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request, Sign};
use subtend_session::command::{Answered, AskedCall, AttemptFailed, Command};
use subtend_session::ids::{AttemptNo, CallId, RunNo, SessionId, Text, TurnNo};
use subtend_session::limits::{Limits, MAX_CALLS_PER_ANSWER};
use subtend_session::outcome::{ModelFail, Part};
use subtend_session::usage::Usage;
use subtend_tools::tool::Tool;

use tokio::time::Instant;

use crate::calling::Called;
use crate::hub::Hub;
use crate::mint::now;
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

/// Prepares the call of `model`, whose answer may hold so many calls or as many as every answer may.
pub(crate) fn call(model: &Arc<dyn Model>, request: Request, deltas: Deltas, calls_per_answer: u32) -> Calling {
    let most = calls_per_answer.max(MAX_CALLS_PER_ANSWER);
    // The call itself may panic before there is a future.
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| model.call(request, deltas)));
    match made {
        Ok(answering) => Box::pin(async move {
            match AssertUnwindSafe(answering).catch_unwind().await {
                Ok(Ok(answer)) => bounded_calls(answer, most),
                Ok(Err(error)) => Came::Error(error),
                Err(panic) => Came::Panic(panic_text(&*panic)),
            }
        }),
        Err(panic) => Box::pin(std::future::ready(Came::Panic(panic_text(&*panic)))),
    }
}

/// Counts an answer of more than `most` calls as none, whatever model gives it.
fn bounded_calls(answer: Answer, most: u32) -> Came {
    let calls = answer.calls.len();
    if calls <= most as usize {
        return Came::Answer(answer);
    }
    let text = format!("the answer asks for {calls} calls, and may hold {most} at most");
    Came::Error(ModelError { usage: Some(answer.usage), ..ModelError::new(ModelFail::BadAnswer, text) })
}

/// When the model last showed life.
#[derive(Clone)]
pub(crate) struct Pulse {
    since: Instant,
    /// Milliseconds from `since` to the last sign of life, plus one; 0 before the first.
    last: Arc<AtomicU64>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { since: now(), last: Arc::default() }
    }

    fn beat(&self) {
        let ms = u64::try_from(now().duration_since(self.since).as_millis()).unwrap_or(u64::MAX);
        self.last.store(ms.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether somebody else waits for the call: its own clone lives exactly as long as the call is made.
    fn is_watched(&self) -> bool {
        Arc::strong_count(&self.last) > 1
    }

    fn last(&self) -> Option<Instant> {
        let ms = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        self.since.checked_add(Duration::from_millis(ms))
    }
}

/// How long a model may be silent, how long a turn may take, and how many calls an answer may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    first_byte_ms: u64,
    stall_ms: u64,
    pub(crate) turn_ms: u64,
    pub(crate) calls_per_answer: u32,
}

impl Patience {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            first_byte_ms: limits.first_byte_ms,
            stall_ms: limits.stall_ms,
            turn_ms: limits.turn_ms,
            calls_per_answer: limits.calls_per_answer,
        }
    }
}

/// Waits for the call, as long as the model shows life. Silence is counted from here: a call may have waited for its turn.
pub(crate) async fn watched(mut calling: Calling, pulse: Pulse, patience: Patience) -> Came {
    let (first, stall) = (Duration::from_millis(patience.first_byte_ms), Duration::from_millis(patience.stall_ms));
    let begun = now();
    loop {
        let last = pulse.last();
        let (until, what) = match last {
            Some(last) => {
                (later(last, stall), format!("was silent in the middle of its answer for {} ms", patience.stall_ms))
            }
            None => (later(begun, first), format!("did not begin to answer within {} ms", patience.first_byte_ms)),
        };
        if until <= now() {
            let error = ModelError::new(ModelFail::Unavailable, format!("the model {what}"));
            return Came::Error(ModelError { usage: Some(Usage::UNKNOWN), ..error });
        }
        // A first sign may come while the longer wait runs: it is looked for in time to hold the model to the shorter one.
        let look = until.min(later(now(), stall.max(Duration::from_millis(1))));
        if let Ok(came) = tokio::time::timeout_at(look, &mut calling).await {
            return came;
        }
    }
}

/// A limit may be beyond all clocks.
fn later(from: Instant, by: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(1_000_000_000);
    from.checked_add(by.min(FAR)).unwrap_or(from)
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

/// What takes the signs of one model call. A model may keep it beyond its answer: what it says then is not heard.
struct Tap {
    hub: Weak<Hub>,
    at: Address,
    pulse: Pulse,
    used: AtomicBool,
}

impl Tap {
    fn take(&self, sign: &Sign) {
        self.pulse.beat();
        let Sign::Delta(delta) = sign else { return };
        if let Some(hub) = self.hub.upgrade() {
            self.used.store(true, Ordering::Relaxed);
            hub.events.delta(&self.at, delta, || self.pulse.is_watched());
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if *self.used.get_mut()
            && let Some(hub) = self.hub.upgrade()
        {
            hub.events.streamed(&self.at);
        }
    }
}

impl Hub {
    /// Where the deltas of a call go: to the pulse, to subscribers, and into the text so far for those who come late.
    ///
    /// A call that streams nothing pays for nothing but the closure.
    pub(crate) fn deltas(self: &Arc<Self>, at: Address, pulse: &Pulse) -> Deltas {
        let tap = Tap { hub: Arc::downgrade(self), at, pulse: pulse.clone(), used: AtomicBool::new(false) };
        Deltas::watched(move |sign: Sign| tap.take(&sign))
    }

    /// The command that tells the session what its model call came to. `ready` takes what the local calls need to run.
    pub(crate) fn answered(
        &self,
        offer: &Offer,
        at: Address,
        came: Came,
        called: &Called,
        mut ready: Option<&mut Ready>,
    ) -> Command {
        let Address { turn, attempt, .. } = at;
        match came {
            Came::Answer(answer) => {
                let model = self.model_answered(called, &answer);
                let calls = answer.calls.into_iter().zip(0_u32..).map(|(asked, ix)| {
                    let found = self.classify(offer, &BTreeSet::new(), &asked.tool, &asked.args);
                    if let (Some(ready), Some(found)) = (&mut ready, found.ready) {
                        ready.insert(CallId { turn, ix }, found);
                    }
                    AskedCall { asked, kind: found.kind, note: found.note, access: found.access, ask: found.ask }
                });
                Command::ModelAnswered(Box::new(Answered {
                    turn,
                    attempt,
                    text: answer.text,
                    reasoning: answer.reasoning,
                    calls: calls.collect(),
                    stop: answer.stop,
                    model,
                    usage: answer.usage,
                }))
            }
            Came::Error(error) => {
                let next = self.model_failed(called, &error);
                failed(turn, attempt, error, called.shown(), next)
            }
            Came::Panic(message) => {
                let error = ModelError::new(ModelFail::Unavailable, format!("panicked: {message}"));
                match self.model_failed(called, &error) {
                    // Another model of the pool is asked, as after any other failure.
                    Some(next) => failed(turn, attempt, error, called.shown(), Some(next)),
                    None => Command::TurnPanicked { turn, attempt, part: Part::Model, message },
                }
            }
        }
    }
}

/// The command that tells of an attempt without an answer.
fn failed(turn: TurnNo, attempt: AttemptNo, error: ModelError, model: Option<Text>, next: Option<Text>) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn,
        attempt,
        error: error.kind,
        message: bounded(&error.message).into(),
        retry_after_ms: error.retry_after_ms,
        model,
        next,
        usage: error.usage,
    }))
}

/// The command that tells of a stream that was dropped because its run closes. One that had begun has cost what nobody knows.
pub(crate) fn dropped(turn: TurnNo, attempt: AttemptNo, begun: bool) -> Command {
    let error = ModelError::new(ModelFail::Dropped, "the stream was dropped because the run was stopped");
    let usage = begun.then_some(Usage::UNKNOWN);
    failed(turn, attempt, ModelError { usage, ..error }, None, None)
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
