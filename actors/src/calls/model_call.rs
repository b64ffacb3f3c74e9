//! One model call: watched for stalls, with panics caught.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_models::models::Member;
use subtend_session::ids::Text;
use subtend_session::limits::{Limits, MAX_CALLS_PER_ANSWER};
use subtend_session::names::check_length;
use subtend_session::outcome::ModelFail;
use subtend_session::usage::Usage;
use subtend_session::values::{ValueCount, max_argument_values};
use tokio::time::Instant;

use crate::calls::model_set::ModelSet;
use crate::clock::now;
use crate::values::panic::panic_text;

pub(crate) enum ModelOutcome {
    Answer(Answer),
    Error(ModelError),
    Panic(Text),
}

/// The future of one model call, polled once in the handler and spawned only if it is pending.
pub(crate) type Calling = BoxFuture<'static, ModelOutcome>;

/// Prepares a call of `model`. Its answer may have `calls_per_answer` calls, or [`MAX_CALLS_PER_ANSWER`] if more.
pub(crate) fn call(model: &Arc<dyn Model>, request: Request, deltas: Deltas, calls_per_answer: u32) -> Calling {
    let max_calls = calls_per_answer.max(MAX_CALLS_PER_ANSWER);
    // `Model::call` itself may panic before it returns a future.
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| model.call(request, deltas)));
    match made {
        Ok(answering) => Box::pin(async move {
            match AssertUnwindSafe(answering).catch_unwind().await {
                Ok(Ok(answer)) => bound_answer(answer, max_calls),
                Ok(Err(error)) => ModelOutcome::Error(error),
                Err(panic) => ModelOutcome::Panic(panic_text(&*panic)),
            }
        }),
        Err(panic) => Box::pin(std::future::ready(ModelOutcome::Panic(panic_text(&*panic)))),
    }
}

fn bound_answer(answer: Answer, max_calls: u32) -> ModelOutcome {
    let calls = answer.calls.len();
    // Counted before the arguments are parsed, because parsing allocates a tree for them.
    let values: usize = answer.calls.iter().map(|call| ValueCount::default().add(call.args.as_bytes())).sum();
    let max_values = max_argument_values(calls);
    let text = if calls > max_calls as usize {
        format!("the answer has {calls} calls; the limit is {max_calls}")
    } else if values > max_values {
        format!("the arguments of the answer have {values} JSON values; the limit is {max_values}")
    } else if let Some(Err(why)) = answer.model.as_ref().map(|model| check_length("model", model)) {
        // It is recorded as it is, and an import refuses a longer one.
        why
    } else {
        return ModelOutcome::Answer(answer);
    };
    ModelOutcome::Error(ModelError { usage: Some(answer.usage), ..ModelError::new(ModelFail::BadAnswer, text) })
}

/// The progress of a spawned call, which its task reads after the call has ended or was dropped.
#[derive(Debug, Default)]
pub(crate) struct CallProgress {
    begun: AtomicBool,
    queued_ms: AtomicU64,
}

impl CallProgress {
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Returns whether the model was called. If so, even a dropped call may have a cost.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Measures the wait for a permit until the returned timer is dropped.
    pub(crate) fn queued(&self) -> QueueTimer<'_> {
        QueueTimer { since: now(), progress: self }
    }

    pub(crate) fn wait_ms(&self) -> u64 {
        self.queued_ms.load(Ordering::Relaxed)
    }
}

pub(crate) struct QueueTimer<'a> {
    since: Instant,
    progress: &'a CallProgress,
}

impl Drop for QueueTimer<'_> {
    fn drop(&mut self) {
        let ms = u64::try_from(now().duration_since(self.since).as_millis()).unwrap_or(u64::MAX);
        self.progress.queued_ms.store(ms, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub(crate) struct LastDelta {
    pub(crate) since: Instant,
    /// Milliseconds from `since` to the last delta, plus one; 0 before the first.
    pub(crate) last: Arc<AtomicU64>,
}

impl LastDelta {
    pub(crate) fn new() -> Self {
        Self { since: now(), last: Arc::default() }
    }

    pub(crate) fn beat(&self) {
        let ms = u64::try_from(now().duration_since(self.since).as_millis()).unwrap_or(u64::MAX);
        self.last.store(ms.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns whether the call is still awaited: its task holds a clone.
    pub(crate) fn is_watched(&self) -> bool {
        Arc::strong_count(&self.last) > 1
    }

    fn last(&self) -> Option<Instant> {
        let ms = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        self.since.checked_add(Duration::from_millis(ms))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimits {
    pub(crate) first_byte_ms: u64,
    pub(crate) stall_ms: u64,
    pub(crate) turn_ms: u64,
    pub(crate) calls_per_answer: u32,
}

impl CallLimits {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            first_byte_ms: limits.first_byte_ms,
            stall_ms: limits.stall_ms,
            turn_ms: limits.turn_ms,
            calls_per_answer: limits.calls_per_answer,
        }
    }
}

/// Waits for the call while the model streams. Silence counts from now, since the call may have waited before.
pub(crate) async fn watch_stall(mut calling: Calling, last_delta: LastDelta, limits: CallLimits) -> ModelOutcome {
    let (first, stall) = (Duration::from_millis(limits.first_byte_ms), Duration::from_millis(limits.stall_ms));
    let begun = now();
    loop {
        let last = last_delta.last();
        let until = last.map_or_else(|| add_saturating(begun, first), |last| add_saturating(last, stall));
        if until <= now() {
            let message = match last {
                Some(_) => format!("the model was silent in the middle of its answer for {} ms", limits.stall_ms),
                None => format!("the model did not begin to answer within {} ms", limits.first_byte_ms),
            };
            let error = ModelError::new(ModelFail::Unavailable, message);
            return ModelOutcome::Error(ModelError { usage: Some(Usage::UNKNOWN), ..error });
        }
        // The first delta may arrive during this wait. Checking after `stall` applies the shorter limit from then on.
        let check_at = until.min(add_saturating(now(), stall.max(Duration::from_millis(1))));
        if let Ok(outcome) = tokio::time::timeout_at(check_at, &mut calling).await {
            return outcome;
        }
    }
}

/// Adds `by`, which may exceed the clock's range.
fn add_saturating(from: Instant, by: Duration) -> Instant {
    const MAX_DELAY: Duration = Duration::from_secs(1_000_000_000);
    from.checked_add(by.min(MAX_DELAY)).unwrap_or(from)
}

/// The model of one call, and the name under which the session requested it.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    /// The session's name for its model or pool.
    pub(crate) requested_model: Text,
    pub(crate) set: Arc<ModelSet>,
    pub(crate) member: Member,
    /// True if the name is that of a pool: records then name the member.
    pub(crate) pool: bool,
    /// True if the name is unknown and the fallback model is called: records then name the fallback.
    pub(crate) is_fallback: bool,
}

impl Called {
    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    /// Returns the name for records, if it differs from the session's.
    pub(crate) fn recorded_name(&self) -> Option<Text> {
        if self.is_fallback {
            return Some(self.member.model.name().into());
        }
        self.pool.then(|| Arc::clone(&self.member.name))
    }
}

#[cfg(test)]
mod tests;
