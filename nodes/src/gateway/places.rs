use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use subtend_session::ids::SessionId;

/// Maximum number of cached sessions. When it is exceeded the cache is cleared, since a lookup costs only one query.
const MAX_CACHED: usize = 100_000;

/// The shard of each cached session. A session never moves to another shard.
#[derive(Debug, Default)]
pub(super) struct SessionShards(Mutex<HashMap<SessionId, String>>);

impl SessionShards {
    pub(super) fn get(&self, session: SessionId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    pub(super) fn keep(&self, session: SessionId, shard: String) {
        let mut shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shards.len() >= MAX_CACHED {
            shards.clear();
        }
        shards.insert(session, shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_full_cache_of_shards_is_cleared() {
        let id = |n: usize| SessionId(uuid::Uuid::from_u128(n as u128));
        let shards = SessionShards::default();
        (0..MAX_CACHED).for_each(|n| shards.keep(id(n), format!("s{}", n % 2)));
        let at = |n: usize| shards.get(id(n));
        assert_eq!([at(0), at(MAX_CACHED - 1), at(MAX_CACHED)], [Some("s0".to_owned()), Some("s1".to_owned()), None]);
        shards.keep(id(MAX_CACHED), "s0".to_owned());
        assert_eq!([at(0), at(MAX_CACHED - 1), at(MAX_CACHED)], [None, None, Some("s0".to_owned())]);
    }
}
