//! Cancellation tokens along ownership. Firing a token fires the tokens of everything that its key owns.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::FixedState;
use tokio_util::sync::CancellationToken;

use crate::locked::Locked;

/// Tokens of all open keys (cheap clone, shared state).
///
/// Every key has its own token, so that one subtree can be fired without siblings. The cause of a cancellation is
/// stored before the token fires, and removed when the key closes.
pub struct TokenTree<K, C> {
    tokens: Arc<Locked<OpenTokens<K, C>>>,
}

type OpenTokens<K, C> = HashMap<K, OpenToken<K, C>, FixedState>;

struct OpenToken<K, C> {
    token: CancellationToken,
    owner: Option<K>,
    root: K,
    /// The cause, if this token itself was fired.
    cause: Option<Box<C>>,
}

impl<K, C> Clone for TokenTree<K, C> {
    fn clone(&self) -> Self {
        Self { tokens: Arc::clone(&self.tokens) }
    }
}

impl<K, C> Default for TokenTree<K, C> {
    fn default() -> Self {
        Self { tokens: Arc::new(Locked::new(HashMap::default())) }
    }
}

impl<K, C> fmt::Debug for TokenTree<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTree").field("open", &self.tokens.lock().len()).finish()
    }
}

impl<K: Copy + Eq + Hash + Send, C: Default> TokenTree<K, C> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens `key` below `owner` and returns its token. An open key keeps its token.
    ///
    /// If the owner is unknown (closed in the meantime) or has fired, the token starts cancelled. So a run that is
    /// created while its owner is cancelled ends without effects.
    pub fn open(&self, key: K, owner: Option<K>) -> CancellationToken {
        let mut tokens = self.tokens.lock();
        let (token, root) = match owner.map(|owner| (owner, tokens.get(&owner))) {
            None => (CancellationToken::new(), key),
            // Registers under the lock: a concurrent fire includes the child or has cancelled its owner.
            Some((_, Some(owner))) => (owner.token.child_token(), owner.root),
            Some((owner, None)) => (cancelled(), owner),
        };
        match tokens.entry(key) {
            Entry::Occupied(present) => present.get().token.clone(),
            Entry::Vacant(vacant) => vacant.insert(OpenToken { token, owner, root, cause: None }).token.clone(),
        }
    }

    /// Returns the topmost owner of an open key, or the key itself.
    pub fn root(&self, key: &K) -> Option<K> {
        self.tokens.lock().get(key).map(|open| open.root)
    }

    pub fn owner(&self, key: &K) -> Option<K> {
        self.tokens.lock().get(key).and_then(|open| open.owner)
    }

    pub fn token(&self, key: &K) -> Option<CancellationToken> {
        self.tokens.lock().get(key).map(|open| open.token.clone())
    }

    /// Cancels `key` and all that it owns, after `because` has set the cause; idempotent. Returns false if not open.
    pub fn fire(&self, key: &K, because: impl FnOnce(&mut C)) -> bool {
        let mut tokens = self.tokens.lock();
        let Some(open) = tokens.get_mut(key) else { return false };
        because(open.cause.get_or_insert_default());
        let token = open.token.clone();
        // Cancels outside the lock, because it wakes waiters that may open or close keys.
        drop(tokens);
        token.cancel();
        true
    }

    /// Reads the cause of an open key; `None` if it is not open, or was not fired itself.
    pub fn cause<T>(&self, key: &K, read: impl FnOnce(&C) -> T) -> Option<T> {
        self.tokens.lock().get(key)?.cause.as_deref().map(read)
    }

    /// Returns whether `key` has fired or is not open, so that it must not start work.
    pub fn fired(&self, key: &K) -> bool {
        self.tokens.lock().get(key).is_none_or(|open| open.token.is_cancelled())
    }

    /// Removes an ended key without firing it; returns whether it was open. An ancestor still reaches the keys below.
    pub fn close(&self, key: &K) -> bool {
        // Drops the token outside the lock: the drop of its last handle moves its children to its parent, one by one.
        let token = self.tokens.lock().remove(key);
        token.is_some()
    }

    pub fn len(&self) -> usize {
        self.tokens.lock().len()
    }

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

    type Tree = TokenTree<u32, &'static str>;

    fn fired(tree: &Tree, keys: impl IntoIterator<Item = u32>) -> Vec<u32> {
        keys.into_iter().filter(|key| tree.fired(key)).collect()
    }

    fn family() -> Tree {
        let tree = Tree::new();
        for (key, owner) in [(1, None), (2, Some(1)), (3, Some(1)), (4, Some(2)), (5, Some(4))] {
            tree.open(key, owner);
        }
        tree.open(6, None);
        tree
    }

    #[test]
    fn descendants_have_the_topmost_key_as_root() {
        let tree = Tree::new();
        tree.open(1, None);
        tree.open(2, Some(1));
        tree.open(3, Some(2));
        tree.open(4, None);
        assert_eq!([1, 2, 3, 4, 5].map(|key| tree.root(&key)), [Some(1), Some(1), Some(1), Some(4), None]);
        assert_eq!([1, 2, 3, 4, 5].map(|key| tree.owner(&key)), [None, Some(1), Some(2), None, None]);
        tree.close(&1);
        assert_eq!(tree.root(&3), Some(1));
    }

    #[test]
    fn cause_is_kept_from_the_fire_to_the_close() {
        let tree = family();
        assert!(!tree.fire(&7, |cause| *cause = "unknown"));
        assert!(tree.fire(&2, |cause| *cause = "cancelled"));
        assert_eq!([1, 2, 4, 7].map(|key| tree.cause(&key, |cause| *cause)), [None, Some("cancelled"), None, None]);
        tree.close(&2);
        assert_eq!(tree.cause(&2, |cause| *cause), None);
    }

    #[test]
    fn fire_reaches_the_owned_subtree_only() {
        let tree = family();
        assert!(tree.fire(&2, |_| ()));
        assert_eq!(fired(&tree, 1..=6), [2, 4, 5]);
        assert!(tree.fire(&1, |_| ()));
        assert_eq!(fired(&tree, 1..=6), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn key_of_a_fired_or_closed_owner_starts_cancelled() {
        let tree = family();
        tree.fire(&2, |_| ());
        assert!(tree.open(20, Some(2)).is_cancelled(), "the owner has fired");
        tree.close(&3);
        assert!(tree.open(30, Some(3)).is_cancelled(), "the owner has been closed");
        assert!(tree.open(31, Some(30)).is_cancelled(), "keys below start cancelled too");
        assert!(!tree.open(10, Some(1)).is_cancelled());
    }

    #[test]
    fn reopened_key_keeps_its_token() {
        let tree = family();
        let token = tree.token(&4).unwrap();
        assert!(!tree.open(4, Some(99)).is_cancelled());
        tree.fire(&2, |_| ());
        assert!(token.is_cancelled());
        assert!(tree.open(4, None).is_cancelled());
    }

    #[test]
    fn keys_below_a_closed_key_are_reached_by_ancestors() {
        let tree = family();
        tree.close(&2);
        assert_eq!((fired(&tree, [4, 5]), tree.len()), (vec![], 5));
        tree.fire(&1, |_| ());
        assert_eq!(fired(&tree, [4, 5]), [4, 5]);
    }

    #[test]
    fn unknown_key_counts_as_fired_and_cannot_fire() {
        let tree = Tree::new();
        assert_eq!(
            (tree.fired(&1), tree.fire(&1, |_| ()), tree.close(&1), tree.is_empty()),
            (true, false, false, true)
        );
    }

    #[test]
    fn no_child_escapes_a_concurrent_fire() {
        for _ in 0..100 {
            let tree = Tree::new();
            tree.open(0, None);
            std::thread::scope(|scope| {
                let opened = scope.spawn(|| (1..200).map(|key| tree.open(key, Some(0))).collect::<Vec<_>>());
                tree.fire(&0, |_| ());
                assert!(opened.join().unwrap().iter().all(CancellationToken::is_cancelled));
            });
        }
    }

    #[tokio::test]
    async fn ten_thousand_waiters_wake_at_one_fire() {
        let tree = Tree::new();
        tree.open(0, None);
        let waiting: Vec<_> = (1..=10_000).map(|key| tokio::spawn(tree.open(key, Some(0)).cancelled_owned())).collect();
        tree.fire(&0, |_| ());
        for waiter in waiting {
            waiter.await.unwrap();
        }
        assert_eq!(fired(&tree, 0..=10_000).len(), 10_001);
    }
}
