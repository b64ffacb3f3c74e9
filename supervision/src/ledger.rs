//! Spawn limits of root runs.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::locked::Locked;

/// Spawn accounts of all root runs (cheap clone, shared state).
///
/// The caller records its grants. After a crash it recounts its records and calls [`Ledger::restore`].
pub struct Ledger<R> {
    state: Arc<Locked<LedgerState<R>>>,
}

struct LedgerState<R> {
    accounts: HashMap<R, SpawnAccount, FixedState>,
    /// Last assigned number of an account. It distinguishes a reopened account from its predecessor.
    last_number: u64,
}

#[derive(Debug, Clone, Copy)]
struct SpawnAccount {
    number: u64,
    used: u32,
    reserved: u32,
}

/// Spawns that were granted together. Dropping them returns them.
#[must_use = "dropping the grants returns them"]
pub struct SpawnGrants<R: Copy + Eq + Hash> {
    state: Arc<Locked<LedgerState<R>>>,
    root: R,
    account: u64,
    granted: u32,
    refused: u32,
    remaining: u32,
}

impl<R> Clone for Ledger<R> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<R> Default for Ledger<R> {
    fn default() -> Self {
        Self { state: Arc::new(Locked::new(LedgerState { accounts: HashMap::default(), last_number: 0 })) }
    }
}

impl<R> fmt::Debug for Ledger<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("roots", &self.state.lock().accounts.len()).finish()
    }
}

impl<R: Copy + Eq + Hash> Ledger<R> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves up to `n` spawns for `root`. `limit` bounds used and reserved spawns. The rest is refused at once, not queued.
    pub fn reserve_spawns(&self, root: R, n: u32, limit: u32) -> SpawnGrants<R> {
        let mut state = self.state.lock();
        let account = state.account(root);
        let available = limit.saturating_sub(account.used.saturating_add(account.reserved));
        let granted = n.min(available);
        account.reserved = account.reserved.saturating_add(granted);
        let number = account.number;
        drop(state);
        SpawnGrants {
            state: Arc::clone(&self.state),
            root,
            account: number,
            granted,
            refused: n - granted,
            remaining: available - granted,
        }
    }

    /// Sets the used spawns of `root`, recounted from records after a start. Older grants belong to the previous account.
    pub fn restore(&self, root: R, used: u32) {
        let mut state = self.state.lock();
        let number = state.next_number();
        state.accounts.insert(root, SpawnAccount { number, used, reserved: 0 });
    }

    pub fn forget(&self, root: R) {
        self.state.lock().accounts.remove(&root);
    }

    /// Returns the committed spawns of `root`.
    pub fn used(&self, root: R) -> u32 {
        self.state.lock().accounts.get(&root).map_or(0, |account| account.used)
    }

    /// Returns the spawns that `root` has reserved and not committed.
    pub fn reserved(&self, root: R) -> u32 {
        self.state.lock().accounts.get(&root).map_or(0, |account| account.reserved)
    }

    pub fn len(&self) -> usize {
        self.state.lock().accounts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<R: Copy + Eq + Hash> LedgerState<R> {
    fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    fn account(&mut self, root: R) -> &mut SpawnAccount {
        let number = self.next_number();
        self.accounts.entry(root).or_insert(SpawnAccount { number, used: 0, reserved: 0 })
    }
}

impl<R: Copy + Eq + Hash> SpawnGrants<R> {
    pub fn granted(&self) -> u32 {
        self.granted
    }

    pub fn refused(&self) -> u32 {
        self.refused
    }

    /// Returns the number of spawns that remained after this grant.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Counts all granted spawns as used.
    pub fn commit(self) {
        let all = self.granted;
        self.commit_some(all);
    }

    /// Counts `kept` of the granted spawns as used and returns the rest.
    pub fn commit_some(mut self, kept: u32) {
        let kept = kept.min(self.granted);
        self.close(kept);
        self.granted = 0;
    }

    fn close(&self, kept: u32) {
        let mut state = self.state.lock();
        if let Some(account) = state.accounts.get_mut(&self.root).filter(|account| account.number == self.account) {
            account.reserved = account.reserved.saturating_sub(self.granted);
            account.used = account.used.saturating_add(kept);
        }
    }
}

impl<R: Copy + Eq + Hash> Drop for SpawnGrants<R> {
    fn drop(&mut self) {
        if self.granted > 0 {
            self.close(0);
        }
    }
}

impl<R: Copy + Eq + Hash> fmt::Debug for SpawnGrants<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnGrants")
            .field("granted", &self.granted)
            .field("refused", &self.refused)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(grants: &SpawnGrants<u8>) -> (u32, u32, u32) {
        (grants.granted(), grants.refused(), grants.remaining())
    }

    #[test]
    fn excess_spawns_are_refused_with_the_rest() {
        let ledger = Ledger::new();
        let first = ledger.reserve_spawns(1, 3, 5);
        let second = ledger.reserve_spawns(1, 3, 5);
        let other_root = ledger.reserve_spawns(2, 3, 5);
        assert_eq!((shares(&first), shares(&second), shares(&other_root)), ((3, 0, 2), (2, 1, 0), (3, 0, 2)));
        first.commit();
        drop(second);
        assert_eq!((ledger.used(1), ledger.reserved(1)), (3, 0));
        assert_eq!(shares(&ledger.reserve_spawns(1, 9, 5)), (2, 7, 0));
    }

    #[test]
    fn partial_commit_returns_the_rest() {
        let ledger = Ledger::new();
        ledger.reserve_spawns(1, 5, 5).commit_some(2);
        assert_eq!((ledger.used(1), ledger.reserved(1)), (2, 0));
    }

    #[test]
    fn recount_ignores_older_grants() {
        let ledger = Ledger::new();
        let (kept, undone) = (ledger.reserve_spawns(1, 2, 9), ledger.reserve_spawns(1, 2, 9));
        ledger.restore(1, 4);
        let present = ledger.reserve_spawns(1, 1, 9);
        kept.commit();
        drop(undone);
        assert_eq!((ledger.used(1), ledger.reserved(1)), (4, 1));
        present.commit();
        assert_eq!((ledger.used(1), ledger.reserved(1)), (5, 0));
    }

    #[test]
    fn old_grant_does_not_reopen_a_forgotten_root() {
        let ledger = Ledger::new();
        let grants = ledger.reserve_spawns(1, 2, 9);
        ledger.forget(1);
        grants.commit();
        assert!(ledger.is_empty());
    }

    proptest! {
        #[test]
        fn used_and_reserved_never_exceed_the_limit(
            limit in 0_u32..20,
            steps in prop::collection::vec((0_u32..8, any::<bool>(), any::<bool>()), 0..40),
        ) {
            let ledger = Ledger::new();
            let mut held = Vec::new();
            for (n, settle, keep) in steps {
                held.push(ledger.reserve_spawns((), n, limit));
                prop_assert!(ledger.used(()) + ledger.reserved(()) <= limit);
                if settle {
                    let grants = held.swap_remove(0);
                    if keep { grants.commit() } else { drop(grants) }
                }
            }
            let used = ledger.used(());
            drop(held);
            prop_assert_eq!((ledger.used(()), ledger.reserved(())), (used, 0));
        }
    }
}
