//! A cache of the shards of sessions.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use subtend_session::ids::SessionId;

/// Maximum number of cached sessions. When it is exceeded the cache is cleared, since a lookup costs only one query.
const MAX_CACHED: usize = 100_000;

/// The shards of sessions, which never change.
#[derive(Debug, Default)]
pub(super) struct SessionShards(Mutex<HashMap<SessionId, String>>);

impl SessionShards {
    pub(super) fn get(&self, session: SessionId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    pub(super) fn keep(&self, session: SessionId, shard: String) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MAX_CACHED {
            places.clear();
        }
        places.insert(session, shard);
    }
}
