use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Values by key. A value is removed when no task holds it any more.
#[derive(Debug)]
pub struct SharedByKey<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for SharedByKey<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> SharedByKey<K, V> {
    /// Returns the value that other tasks hold for `key`, or a new one.
    pub fn get(&self, key: K, new: impl FnOnce() -> V) -> Arc<V> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = held.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        held.retain(|_, value| value.strong_count() > 0);
        let new = Arc::new(new());
        held.insert(key, Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_shared_while_held_and_forgotten_after() {
        let values = SharedByKey::default();
        let first = values.get("a", || 1);
        assert!(Arc::ptr_eq(&first, &values.get("a", || 2)));
        drop(first);
        let third = *values.get("a", || 3);
        assert_eq!((third, *values.get("b", || 4)), (3, 4));
        assert_eq!(values.0.lock().unwrap().len(), 1);
    }
}
