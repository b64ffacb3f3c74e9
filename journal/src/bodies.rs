//! Caches bodies that many sessions share (prompts, ceilings, limits), so that each is read and parsed once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use subtend_session::authority::Authority;
use subtend_session::ids::{Hash, Interned, Text};
use subtend_session::limits::Limits;
use subtend_session::record::{Record, SessionCreated};

/// Maximum bytes of the cached bodies of one kind, as JSON.
const MAX_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(crate) struct Bodies {
    systems: KeptBodies<str>,
    ceilings: KeptBodies<Authority>,
    limits: KeptBodies<Limits>,
}

struct KeptBodies<T: ?Sized>(Mutex<Kept<T>>);

struct Kept<T: ?Sized> {
    all: BTreeMap<Hash, Arc<T>>,
    bytes: usize,
}

impl<T: ?Sized> Default for KeptBodies<T> {
    fn default() -> Self {
        Self(Mutex::new(Kept { all: BTreeMap::new(), bytes: 0 }))
    }
}

impl Bodies {
    /// Restores the bodies of a new session that its frame does not contain, from the cache or else from `def`.
    /// # Errors
    /// Errors of `def`, and `damaged` for a missing or unreadable body.
    pub(crate) fn fill<E>(
        &self,
        record: &mut Record,
        def: &mut dyn FnMut(Hash) -> Result<Option<Text>, E>,
        damaged: &dyn Fn(String) -> E,
    ) -> Result<(), E> {
        let Record::SessionCreated(created) = record else { return Ok(()) };
        let SessionCreated { system, ceiling, limits, .. } = &mut **created;
        self.systems.fill(system, def, damaged)?;
        self.ceilings.fill(ceiling, def, damaged)?;
        self.limits.fill(limits, def, damaged)
    }
}

impl<T: ?Sized> KeptBodies<T>
where
    Arc<T>: DeserializeOwned,
{
    fn fill<E>(
        &self,
        interned: &mut Interned<T>,
        def: &mut dyn FnMut(Hash) -> Result<Option<Text>, E>,
        damaged: &dyn Fn(String) -> E,
    ) -> Result<(), E> {
        if interned.body.is_some() {
            return Ok(());
        }
        let hash = interned.hash;
        interned.body = self.0.lock().unwrap_or_else(PoisonError::into_inner).all.get(&hash).cloned();
        if interned.body.is_some() {
            return Ok(());
        }
        let text = def(hash)?.ok_or_else(|| damaged(format!("the body {hash} is not in the store")))?;
        // An engine may return a flipped byte as good data.
        if Hash::of(text.as_bytes()) != hash {
            return Err(damaged(format!("the body {hash} does not match its hash")));
        }
        let body: Arc<T> =
            serde_json::from_str(&text).map_err(|error| damaged(format!("the body {hash} is unreadable: {error}")))?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keep(hash, &body, text.len());
        interned.body = Some(body);
        Ok(())
    }
}

impl<T: ?Sized> Kept<T> {
    /// Caches a body. If the limit is exceeded, only the last one is kept.
    fn keep(&mut self, hash: Hash, body: &Arc<T>, bytes: usize) {
        if self.bytes.saturating_add(bytes) > MAX_BYTES {
            self.all.clear();
            self.bytes = 0;
        }
        if self.all.insert(hash, Arc::clone(body)).is_none() {
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(turns: u32) -> (Interned<Limits>, Text) {
        let body = Limits { turns, ..Limits::default() };
        let text = serde_json::to_string(&body).unwrap();
        (Interned::new(Arc::new(body)).unwrap(), text.into())
    }

    #[test]
    fn body_is_read_once_and_shared() {
        let (whole, text) = limits(7);
        let (bodies, mut reads) = (KeptBodies::<Limits>::default(), Vec::new());
        let mut filled = [whole.stripped(), whole.stripped()];
        for interned in &mut filled {
            let mut def = |hash| {
                reads.push(hash);
                Ok::<_, String>(Some(Text::clone(&text)))
            };
            bodies.fill(interned, &mut def, &|why| why).unwrap();
        }
        let [one, other] = filled.map(|interned| interned.body.unwrap());
        assert_eq!((one.turns, Arc::ptr_eq(&one, &other)), (7, true));
        assert_eq!(reads, [whole.hash]);
    }

    #[test]
    fn cache_drops_older_bodies_beyond_its_bytes() {
        let ((one, _), (other, _)) = (limits(1), limits(2));
        let mut kept = Kept::<Limits> { all: BTreeMap::new(), bytes: 0 };
        kept.keep(one.hash, one.body.as_ref().unwrap(), MAX_BYTES);
        assert_eq!((kept.all.len(), kept.bytes), (1, MAX_BYTES));
        kept.keep(other.hash, other.body.as_ref().unwrap(), 3);
        assert_eq!((kept.all.keys().copied().collect::<Vec<_>>(), kept.bytes), (vec![other.hash], 3));
    }
}
