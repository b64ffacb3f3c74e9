//! Which models of pools are unwell: passed over while others are there.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;
use tokio::time::Instant;

/// How long a model is passed over that could not be reached.
const BRIEFLY: Duration = Duration::from_secs(10);
/// How long a model is passed over whose key is refused: somebody has to do something about it.
const LONG: Duration = Duration::from_secs(300);
/// How long a model is passed over whose provider asks for patience, at most.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Models that failed, until when they are passed over. It says where to go first, never that a model may not be called.
#[derive(Default)]
pub(super) struct Health(Mutex<HashMap<Text, Instant>>);

impl Health {
    pub(super) fn is_well(&self, name: &Text) -> bool {
        self.well_from(name).is_none_or(|from| from <= Instant::now())
    }

    /// When a model that failed is to be asked again.
    pub(super) fn well_from(&self, name: &Text) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(super) fn failed(&self, name: &Text, error: ModelFail, retry_after_ms: Option<u64>) {
        let for_how_long = match error {
            ModelFail::Rate | ModelFail::Unavailable => retry_after_ms.map_or(BRIEFLY, Duration::from_millis),
            ModelFail::Auth | ModelFail::Credit | ModelFail::Access => LONG,
            // The request's own fault, or the answer's: the next request may fare better.
            ModelFail::BadAnswer
            | ModelFail::ContextOverflow
            | ModelFail::InvalidRequest
            // Ours.
            | ModelFail::Dropped => return,
        };
        let until = Instant::now().checked_add(for_how_long.min(LONGEST));
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
