//! The health of pool members. A pool skips a failed model while other members are healthy.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;
use tokio::time::Instant;

const SHORT_PAUSE: Duration = Duration::from_secs(10);
/// The pause after a refused key, which only a user can correct.
const LONG_PAUSE: Duration = Duration::from_secs(300);
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Failed models, each with its pause. Pauses affect only the choice of a member: they never forbid a call.
#[derive(Default)]
pub(super) struct Health(Mutex<HashMap<Text, Pause>>);

#[derive(Clone, Copy)]
struct Pause {
    until: Instant,
    /// The time at which the model accepts calls again; `None` after a refused key, because waiting does not help.
    reset: Option<Instant>,
}

impl Health {
    pub(super) fn is_healthy(&self, name: &Text) -> bool {
        self.healthy_from(name).is_none_or(|from| from <= Instant::now())
    }

    pub(super) fn healthy_from(&self, name: &Text) -> Option<Instant> {
        self.pause(name).map(|pause| pause.until)
    }

    /// Returns the milliseconds until the failed model `name` accepts calls again; 0 if that time has passed. Returns
    /// `None` if it has not failed, or if its failure does not pass with time.
    pub(super) fn reset_ms(&self, name: &Text) -> Option<u64> {
        let reset = self.pause(name)?.reset?;
        // Round up, so that a wait of this length reaches the reset.
        let ms = reset.saturating_duration_since(Instant::now()).as_nanos().div_ceil(1_000_000);
        Some(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    fn pause(&self, name: &Text) -> Option<Pause> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(super) fn record_failure(&self, name: &Text, error: ModelFail, retry_after_ms: Option<u64>) {
        let (for_how_long, resets) = match error {
            ModelFail::Rate | ModelFail::Unavailable => {
                (retry_after_ms.map_or(SHORT_PAUSE, Duration::from_millis), true)
            }
            ModelFail::Auth | ModelFail::Credit | ModelFail::Access => (LONG_PAUSE, false),
            // The failure concerns only this request or answer. The next request may succeed.
            ModelFail::BadAnswer | ModelFail::ContextOverflow | ModelFail::InvalidRequest | ModelFail::Dropped => {
                return;
            }
        };
        let now = Instant::now();
        let reset = now.checked_add(for_how_long).filter(|_| resets);
        if let Some(until) = now.checked_add(for_how_long.min(MAX_PAUSE)) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), Pause { until, reset });
        }
    }

    pub(super) fn record_answer(&self, name: &Text) {
        let mut unwell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !unwell.is_empty() {
            unwell.remove(name);
        }
    }
}
