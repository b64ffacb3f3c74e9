//! Caches bodies that many sessions share (prompts, ceilings, limits), so that each is read and parsed once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use subtend_session::authority::Authority;
use subtend_session::ids::{Hash, Interned, Text};
use subtend_session::limits::Limits;
use subtend_session::record::{Record, SessionCreated};

/// Bytes of the cached bodies of one kind, as JSON, above which unused ones are dropped.
const MAX_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(crate) struct Bodies {
    /// True if records remain without bodies.
    left_out: bool,
    systems: KeptBodies<str>,
    ceilings: KeptBodies<Authority>,
    limits: KeptBodies<Limits>,
}

struct KeptBodies<T: ?Sized>(Mutex<Kept<T>>);

struct Kept<T: ?Sized> {
    /// Bodies with their bytes.
    all: BTreeMap<Hash, (Arc<T>, usize)>,
    bytes: usize,
}

impl<T: ?Sized> Default for KeptBodies<T> {
    fn default() -> Self {
        Self(Mutex::new(Kept { all: BTreeMap::new(), bytes: 0 }))
    }
}

impl Bodies {
    pub(crate) fn left_out() -> Self {
        Self { left_out: true, ..Self::default() }
    }

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
        if self.left_out {
            return Ok(());
        }
        let SessionCreated { system, ceiling, limits, .. } = &mut **created;
        self.systems.fill(system, def, damaged)?;
        self.ceilings.fill(ceiling, def, damaged)?;
        self.limits.fill(limits, def, damaged)
    }

    /// Returns the bytes of the bodies that [`Bodies::fill`] would read.
    /// # Errors
    /// Errors of `bytes`.
    pub(crate) fn unread_bytes<E>(
        &self,
        record: &Record,
        bytes: &mut dyn FnMut(Hash) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let Record::SessionCreated(created) = record else { return Ok(0) };
        let SessionCreated { system, ceiling, limits, .. } = &**created;
        let unread = [self.systems.unread(system), self.ceilings.unread(ceiling), self.limits.unread(limits)];
        unread.into_iter().flatten().try_fold(0_u64, |sum, hash| Ok(sum.saturating_add(bytes(hash)?)))
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
        interned.body = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(hash);
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
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read the body too.
        interned.body = kept.get(hash).or_else(|| Some(kept.keep(hash, body, text.len())));
        Ok(())
    }
}

impl<T: ?Sized> KeptBodies<T> {
    fn unread(&self, interned: &Interned<T>) -> Option<Hash> {
        let is_read = || self.0.lock().unwrap_or_else(PoisonError::into_inner).all.contains_key(&interned.hash);
        (interned.body.is_none() && !is_read()).then_some(interned.hash)
    }
}

impl<T: ?Sized> Kept<T> {
    fn get(&mut self, hash: Hash) -> Option<Arc<T>> {
        let body = self.all.get(&hash).map(|(body, _)| Arc::clone(body));
        self.drop_unused();
        body
    }

    /// Caches a body.
    fn keep(&mut self, hash: Hash, body: Arc<T>, bytes: usize) -> Arc<T> {
        self.all.insert(hash, (Arc::clone(&body), bytes));
        self.bytes = self.bytes.saturating_add(bytes);
        self.drop_unused();
        body
    }

    /// Drops the bodies that only the cache holds if it has too many bytes. The others are in memory anyway: without them,
    /// each reader would get a copy of its own.
    fn drop_unused(&mut self) {
        if self.bytes > MAX_BYTES {
            self.all.retain(|_, (body, _)| Arc::strong_count(body) > 1);
            self.bytes = self.all.values().map(|(_, bytes)| *bytes).fold(0, usize::saturating_add);
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

    /// The control: a body that a reader holds is not read again.
    #[test]
    fn cache_drops_unused_bodies_beyond_its_bytes() {
        let bodies = [1, 2, 3].map(|turns| limits(turns).0);
        let mut kept = Kept::<Limits> { all: BTreeMap::new(), bytes: 0 };
        let mut keep = |of: usize, bytes| kept.keep(bodies[of].hash, Arc::new(Limits::default()), bytes);
        let held = keep(0, MAX_BYTES);
        drop(keep(1, 1));
        drop(keep(2, 1));
        let found = [0, 1, 2].map(|of| kept.get(bodies[of].hash));
        let shared = found.map(|found| found.map(|found| Arc::ptr_eq(&found, &held)));
        assert_eq!((shared, kept.bytes), ([Some(true), None, None], MAX_BYTES));
        drop(held);
        assert!(kept.get(bodies[0].hash).is_some(), "the limit is not exceeded");
    }
}
