//! Cancellation tokens along ownership: firing one fires all that it owns.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::locked::Locked;

/// Tokens of all open keys (cheap clone, shared state).
///
/// Every key has its own token: only that can fire one subtree and no sibling.
pub struct TokenTree<K> {
    tokens: Arc<Locked<HashMap<K, Open<K>>>>,
}

struct Open<K> {
    token: CancellationToken,
    owner: Option<K>,
    root: K,
}

impl<K> Clone for TokenTree<K> {
    fn clone(&self) -> Self {
        Self { tokens: Arc::clone(&self.tokens) }
    }
}

impl<K> Default for TokenTree<K> {
    fn default() -> Self {
        Self { tokens: Arc::new(Locked::new(HashMap::new())) }
    }
}

impl<K> fmt::Debug for TokenTree<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTree").field("open", &self.tokens.lock().len()).finish()
    }
}

impl<K: Copy + Eq + Hash + Send> TokenTree<K> {
    /// Creates an empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens `key` below `owner` and returns its token; an open key keeps its token.
    ///
    /// If the owner is unknown (closed meanwhile) or has fired, the token starts cancelled: a run that is born while its owner is
    /// cancelled ends without effects.
    pub fn open(&self, key: K, owner: Option<K>) -> CancellationToken {
        let mut tokens = self.tokens.lock();
        let (token, root) = match owner.map(|owner| (owner, tokens.get(&owner))) {
            None => (CancellationToken::new(), key),
            // The child registers under the owner's lock: a concurrent fire either sees the child, or leaves the owner cancelled and so
            // the child.
            Some((_, Some(owner))) => (owner.token.child_token(), owner.root),
            Some((owner, None)) => (cancelled(), owner),
        };
        match tokens.entry(key) {
            Entry::Occupied(present) => present.get().token.clone(),
            Entry::Vacant(place) => place.insert(Open { token, owner, root }).token.clone(),
        }
    }

    /// Returns the topmost owner of an open key, or the key itself.
    pub fn root(&self, key: &K) -> Option<K> {
        self.tokens.lock().get(key).map(|open| open.root)
    }

    /// Returns the owner of an open key, if any.
    pub fn owner(&self, key: &K) -> Option<K> {
        self.tokens.lock().get(key).and_then(|open| open.owner)
    }

    /// Opens `key` without an owner: only firing itself cancels it.
    pub fn open_detached(&self, key: K) -> CancellationToken {
        self.open(key, None)
    }

    /// Returns the token of an open key.
    pub fn token(&self, key: &K) -> Option<CancellationToken> {
        self.tokens.lock().get(key).map(|open| open.token.clone())
    }

    /// Cancels `key` and everything that it owns; false if it is not open. Idempotent.
    pub fn fire(&self, key: &K) -> bool {
        // Outside the lock: cancelling wakes waiters, which may open or close keys.
        let token = self.token(key);
        token.is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Whether `key` may start nothing: it has fired, or it is not open.
    pub fn fired(&self, key: &K) -> bool {
        self.tokens.lock().get(key).is_none_or(|open| open.token.is_cancelled())
    }

    /// Forgets a key that ended; true if it was open. It cancels nothing: the next owner above fires what the key still owns.
    pub fn close(&self, key: &K) -> bool {
        // Dropped outside the lock: the last handle of a token moves its children up, one by one.
        let token = self.tokens.lock().remove(key);
        token.is_some()
    }

    /// Returns the number of open keys.
    pub fn len(&self) -> usize {
        self.tokens.lock().len()
    }

    /// Whether no key is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(tree: &TokenTree<u32>, keys: impl IntoIterator<Item = u32>) -> Vec<u32> {
        keys.into_iter().filter(|key| tree.fired(key)).collect()
    }

    fn family() -> TokenTree<u32> {
        let tree = TokenTree::new();
        for (key, owner) in [(1, None), (2, Some(1)), (3, Some(1)), (4, Some(2)), (5, Some(4))] {
            tree.open(key, owner);
        }
        tree.open_detached(6);
        tree
    }

    #[test]
    fn everything_below_a_key_has_it_as_its_root() {
        let tree = TokenTree::new();
        tree.open(1_u32, None);
        tree.open(2, Some(1));
        tree.open(3, Some(2));
        tree.open(4, None);
        assert_eq!([1, 2, 3, 4, 5].map(|key| tree.root(&key)), [Some(1), Some(1), Some(1), Some(4), None]);
        assert_eq!([1, 2, 3, 4, 5].map(|key| tree.owner(&key)), [None, Some(1), Some(2), None, None]);
        tree.close(&1);
        assert_eq!(tree.root(&3), Some(1));
    }

    #[test]
    fn a_fire_reaches_the_whole_owned_subtree_and_nobody_else() {
        let tree = family();
        assert!(tree.fire(&2));
        assert_eq!(fired(&tree, 1..=6), [2, 4, 5]);
        assert!(tree.fire(&1));
        assert_eq!(fired(&tree, 1..=6), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn born_in_the_window_is_born_cancelled() {
        let tree = family();
        tree.fire(&2);
        assert!(tree.open(20, Some(2)).is_cancelled(), "the owner has fired");
        tree.close(&3);
        assert!(tree.open(30, Some(3)).is_cancelled(), "the owner has been closed");
        assert!(tree.open(31, Some(30)).is_cancelled(), "so does everything below");
        assert!(!tree.open(10, Some(1)).is_cancelled());
    }

    #[test]
    fn a_key_that_is_opened_again_keeps_its_token() {
        let tree = family();
        let token = tree.token(&4).unwrap();
        assert!(!tree.open(4, Some(99)).is_cancelled());
        tree.fire(&2);
        assert!(token.is_cancelled());
        assert!(tree.open(4, None).is_cancelled());
    }

    #[test]
    fn what_a_closed_key_owned_is_still_reached_from_above() {
        let tree = family();
        tree.close(&2);
        assert_eq!((fired(&tree, [4, 5]), tree.len()), (vec![], 5));
        tree.fire(&1);
        assert_eq!(fired(&tree, [4, 5]), [4, 5]);
    }

    #[test]
    fn an_unknown_key_has_fired_and_cannot_fire() {
        let tree = TokenTree::<u32>::new();
        assert_eq!((tree.fired(&1), tree.fire(&1), tree.close(&1), tree.is_empty()), (true, false, false, true));
    }

    #[test]
    fn no_child_escapes_a_fire_that_runs_meanwhile() {
        for _ in 0..100 {
            let tree = TokenTree::new();
            tree.open(0, None);
            std::thread::scope(|scope| {
                let births = scope.spawn(|| (1..200).map(|key| tree.open(key, Some(0))).collect::<Vec<_>>());
                tree.fire(&0);
                assert!(births.join().unwrap().iter().all(CancellationToken::is_cancelled));
            });
        }
    }

    #[tokio::test]
    async fn ten_thousand_waiters_wake_at_one_fire() {
        let tree = TokenTree::new();
        tree.open(0, None);
        let waiting: Vec<_> = (1..=10_000).map(|key| tokio::spawn(tree.open(key, Some(0)).cancelled_owned())).collect();
        tree.fire(&0);
        for waiter in waiting {
            waiter.await.unwrap();
        }
        assert_eq!(fired(&tree, 0..=10_000).len(), 10_001);
    }
}
