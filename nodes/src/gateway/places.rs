//! Where sessions are, as far as this node has asked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use subtend_session::ids::SessionId;

/// Sessions that are remembered. All are forgotten when there are more: to ask again costs one query.
const MOST: usize = 100_000;

/// The shards of sessions: a session never changes its shard.
#[derive(Debug, Default)]
pub(super) struct SessionShards(Mutex<HashMap<SessionId, String>>);

impl SessionShards {
    pub(super) fn get(&self, session: SessionId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    pub(super) fn keep(&self, session: SessionId, shard: String) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST {
            places.clear();
        }
        places.insert(session, shard);
    }
}
