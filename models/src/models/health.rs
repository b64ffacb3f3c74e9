//! Health of pool members: a failed model is skipped while others are healthy.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;
use tokio::time::Instant;

const SHORT_PAUSE: Duration = Duration::from_secs(10);
/// The pause after a refused key, which a user must correct.
const LONG_PAUSE: Duration = Duration::from_secs(300);
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Failed models, each with the end of its pause. The pauses order members but never forbid a call.
#[derive(Default)]
pub(super) struct Health(Mutex<HashMap<Text, Instant>>);

impl Health {
    pub(super) fn is_healthy(&self, name: &Text) -> bool {
        self.healthy_from(name).is_none_or(|from| from <= Instant::now())
    }

    pub(super) fn healthy_from(&self, name: &Text) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(super) fn failed(&self, name: &Text, error: ModelFail, retry_after_ms: Option<u64>) {
        let for_how_long = match error {
            ModelFail::Rate | ModelFail::Unavailable => retry_after_ms.map_or(SHORT_PAUSE, Duration::from_millis),
            ModelFail::Auth | ModelFail::Credit | ModelFail::Access => LONG_PAUSE,
            // A fault of this request or answer: the next request may succeed.
            ModelFail::BadAnswer | ModelFail::ContextOverflow | ModelFail::InvalidRequest | ModelFail::Dropped => {
                return;
            }
        };
        let until = Instant::now().checked_add(for_how_long.min(MAX_PAUSE));
        if let Some(until) = until {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), until);
        }
    }

    pub(super) fn answered(&self, name: &Text) {
        let mut unwell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !unwell.is_empty() {
            unwell.remove(name);
        }
    }
}
