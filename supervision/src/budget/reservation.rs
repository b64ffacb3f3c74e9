use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::{BudgetShared, Spend};

/// Reserved spending of one call. Dropping it charges it in full, because the cost is unknown.
#[must_use = "dropping the reservation charges it in full"]
pub struct Reservation<K: Copy + Eq + Hash> {
    shared: Arc<BudgetShared<K>>,
    root: K,
    account: u64,
    want: Spend,
    open: bool,
}

impl<K: Copy + Eq + Hash> Reservation<K> {
    pub(super) fn new(shared: &Arc<BudgetShared<K>>, root: K, account: u64, want: Spend) -> Self {
        Self { shared: Arc::clone(shared), root, account, want, open: true }
    }

    pub fn reserved(&self) -> Spend {
        self.want
    }

    pub fn settle(mut self, actual: Spend) {
        self.close(actual);
    }

    /// Charges the reservation in full, because the cost is unknown.
    pub fn settle_unknown(mut self) {
        self.close(self.want);
    }

    /// Releases the reservation without a charge, because no call was made.
    pub fn give_back(mut self) {
        self.close(Spend::NOTHING);
    }

    fn close(&mut self, actual: Spend) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let want = self.want;
        self.shared.with_account(self.root, self.account, |account| account.finish(want, actual));
    }
}

impl<K: Copy + Eq + Hash> Drop for Reservation<K> {
    fn drop(&mut self) {
        #[cfg(test)]
        if self
            .shared
            .with_account(self.root, self.account, |account| account.has_bug(super::tests::BudgetBug::DropGivesBack))
            == Some(true)
        {
            return self.close(Spend::NOTHING);
        }
        self.close(self.want);
    }
}

impl<K: Copy + Eq + Hash> fmt::Debug for Reservation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("want", &self.want).finish_non_exhaustive()
    }
}
