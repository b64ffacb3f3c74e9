//! Caches bodies that many sessions of an export share, so that each is read and parsed once.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_session::authority::Authority;
use subtend_session::ids::{Hash, Interned};
use subtend_session::limits::Limits;
use subtend_session::record::SessionCreated;

/// Maximum bytes of the cached bodies of one kind, as in the export.
const MAX_BYTES: usize = 16 << 20;

/// The bodies of recent sessions.
#[derive(Default)]
pub(super) struct Bodies {
    systems: KeptBodies<str>,
    ceilings: KeptBodies<Authority>,
    limits: KeptBodies<Limits>,
}

struct KeptBodies<T: ?Sized> {
    all: BTreeMap<Hash, Arc<T>>,
    bytes: usize,
}

impl<T: ?Sized> Default for KeptBodies<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), bytes: 0 }
    }
}

impl Bodies {
    /// Fills cached bodies into a new session. `bytes` returns the size of a body that the export defines before the session.
    pub(super) fn give(&self, created: &mut SessionCreated, bytes: &dyn Fn(Hash) -> Option<usize>) {
        self.systems.give(&mut created.system, bytes);
        self.ceilings.give(&mut created.ceiling, bytes);
        self.limits.give(&mut created.limits, bytes);
    }

    pub(super) fn keep(&mut self, created: &SessionCreated, bytes: &dyn Fn(Hash) -> Option<usize>) {
        self.systems.keep(&created.system, bytes);
        self.ceilings.keep(&created.ceiling, bytes);
        self.limits.keep(&created.limits, bytes);
    }
}

impl<T: ?Sized> KeptBodies<T> {
    fn give(&self, interned: &mut Interned<T>, bytes: &dyn Fn(Hash) -> Option<usize>) {
        if bytes(interned.hash).is_some() {
            interned.body = self.all.get(&interned.hash).cloned();
        }
    }

    /// Caches a body. If the limit is exceeded, only the last one is kept.
    fn keep(&mut self, interned: &Interned<T>, bytes: &dyn Fn(Hash) -> Option<usize>) {
        let (Some(body), Some(bytes)) = (&interned.body, bytes(interned.hash)) else { return };
        if self.all.contains_key(&interned.hash) {
            return;
        }
        if self.bytes.saturating_add(bytes) > MAX_BYTES {
            self.all.clear();
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.all.insert(interned.hash, Arc::clone(body));
    }
}
