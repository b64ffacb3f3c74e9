//! What is set aside for one call.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::{Shared, Spend};

/// What is set aside for one call. Dropping it counts it in full: nobody knows what the call cost.
#[must_use = "dropping the reservation counts it in full"]
pub struct Reservation<K: Copy + Eq + Hash> {
    shared: Arc<Shared<K>>,
    root: K,
    account: u64,
    want: Spend,
    open: bool,
}

impl<K: Copy + Eq + Hash> Reservation<K> {
    pub(super) fn new(shared: &Arc<Shared<K>>, root: K, account: u64, want: Spend) -> Self {
        Self { shared: Arc::clone(shared), root, account, want, open: true }
    }

    /// Returns what is set aside.
    pub fn reserved(&self) -> Spend {
        self.want
    }

    /// The call cost so much: that counts instead.
    pub fn settle(mut self, actual: Spend) {
        self.end(actual);
    }

    /// Nobody knows what the call cost: what was set aside counts in full.
    pub fn settle_unknown(mut self) {
        self.end(self.want);
    }

    /// The call was not made: nothing counts.
    pub fn give_back(mut self) {
        self.end(Spend::NOTHING);
    }

    fn end(&mut self, actual: Spend) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let want = self.want;
        self.shared.at(self.root, self.account, |account| account.finish(want, actual));
    }
}

impl<K: Copy + Eq + Hash> Drop for Reservation<K> {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.shared.at(self.root, self.account, |account| account.has_bug(super::tests::Bug::DropGivesBack))
            == Some(true)
        {
            return self.end(Spend::NOTHING);
        }
        self.end(self.want);
    }
}

impl<K: Copy + Eq + Hash> fmt::Debug for Reservation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("want", &self.want).finish_non_exhaustive()
    }
}
