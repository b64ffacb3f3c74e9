//! Budgets of root runs. A call reserves its estimated cost first and is then charged its actual cost.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use foldhash::fast::FixedState;
use tokio::time::Instant;

use crate::locked::Locked;

mod account;
mod reservation;
mod waiting;

#[cfg(test)]
mod tests;

pub use reservation::Reservation;
pub use waiting::WaitingClaim;

use account::{Account, RequestResult};
use waiting::RequestKey;

/// Default time that a request waits for other reservations to close.
pub const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spend {
    /// Input and output tokens.
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub cost_micro: u64,
}

/// Limit of all spending. `None` is unlimited; 0 allows nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpendLimit {
    pub tokens: Option<u64>,
    pub cost_micro: Option<u64>,
}

/// Limit that a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Currency {
    Tokens,
    Money,
}

#[derive(Debug)]
pub enum BudgetAnswer<K: Copy + Eq + Hash> {
    /// The request fits, and the call may be made.
    Granted(Reservation<K>),
    /// The request fits only if other calls cost less than they reserved.
    Waits(WaitingClaim<K>),
    /// The request cannot fit, even if other calls cost nothing.
    Refused(Currency),
}

/// Accounts of all root runs (cheap clone, shared state).
///
/// Settled and reserved spending together stay within the limit, unless a call costs more than it reserved. A
/// request that does not fit waits for other reservations, in FIFO order. It is refused when the settled spending is too
/// high for it, or at its timeout.
///
/// `forget` and `restore` take linear time in the number of waiting requests. All other operations take logarithmic
/// time.
pub struct Budgets<K> {
    shared: Arc<BudgetShared<K>>,
}

struct BudgetShared<K> {
    state: Locked<BudgetState<K>>,
    max_wait: Duration,
}

struct BudgetState<K> {
    accounts: HashMap<K, Account, FixedState>,
    /// Last assigned number of an account or request. It distinguishes a reopened account from its predecessor.
    last_number: u64,
    #[cfg(test)]
    bug: Option<tests::BudgetBug>,
}

impl<K> Clone for Budgets<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K> Default for Budgets<K> {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_WAIT)
    }
}

impl<K> fmt::Debug for Budgets<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgets").field("roots", &self.shared.state.lock().accounts.len()).finish()
    }
}

impl<K> Budgets<K> {
    pub fn new(max_wait: Duration) -> Self {
        let state = BudgetState {
            accounts: HashMap::default(),
            last_number: 0,
            #[cfg(test)]
            bug: None,
        };
        Self { shared: Arc::new(BudgetShared { state: Locked::new(state), max_wait }) }
    }
}

impl<K: Copy + Eq + Hash> Budgets<K> {
    pub fn open(&self, root: K) {
        let mut state = self.shared.state.lock();
        let number = state.next_number();
        let fresh = Account::new(number, Spend::NOTHING);
        #[cfg(test)]
        let fresh = fresh.with_bug(state.bug);
        state.accounts.entry(root).or_insert(fresh);
    }

    /// Requests the spending `want` for `root` under `limit`.
    ///
    /// `limit` replaces the limit of the account, also for waiting requests. If the account is closed, because the root run
    /// ended, every request is refused.
    pub fn ask(&self, root: K, want: Spend, limit: SpendLimit) -> BudgetAnswer<K> {
        let closed = limit.limited_currency();
        let mut state = self.shared.state.lock();
        let ticket = state.next_number();
        // Reads the clock under the lock, so that timeouts follow the order of requests.
        let until = Instant::now().checked_add(self.shared.max_wait);
        let Some(account) = state.accounts.get_mut(&root) else { return BudgetAnswer::Refused(closed) };
        let verdict = account.ask(ticket, want, limit, until);
        let key = RequestKey { account: account.number, ticket, until };
        let wakers = account.take_wakers();
        drop(state);
        wake(wakers);
        match verdict {
            Some(RequestResult::Granted) => {
                BudgetAnswer::Granted(Reservation::new(&self.shared, root, key.account, want))
            }
            Some(RequestResult::Refused(which)) => BudgetAnswer::Refused(which),
            None => BudgetAnswer::Waits(WaitingClaim::new(&self.shared, root, key, want, closed)),
        }
    }

    /// Reserves `want`, waiting if necessary.
    /// # Errors
    /// The exceeded limit.
    /// # Cancel safety
    /// A dropped future leaves the account unchanged.
    pub async fn reserve(&self, root: K, want: Spend, limit: SpendLimit) -> Result<Reservation<K>, Currency> {
        match self.ask(root, want, limit) {
            BudgetAnswer::Granted(reservation) => Ok(reservation),
            BudgetAnswer::Waits(waiting) => waiting.await,
            BudgetAnswer::Refused(which) => Err(which),
        }
    }

    /// Sets the spending of `root`, recounted from records after a start.
    ///
    /// Older reservations belong to the previous account and do not change the new one. Waiting requests are refused.
    pub fn restore(&self, root: K, settled: Spend) {
        let mut state = self.shared.state.lock();
        let number = state.next_number();
        let old = state.accounts.insert(root, Account::new(number, settled));
        drop(state);
        wake(old.map(Account::into_wakers).unwrap_or_default());
    }

    /// Closes the account of a root run that ended, and refuses its waiting requests.
    pub fn forget(&self, root: K) {
        let old = self.shared.state.lock().accounts.remove(&root);
        wake(old.map(Account::into_wakers).unwrap_or_default());
    }

    pub fn settled(&self, root: K) -> Spend {
        self.shared.state.lock().accounts.get(&root).map_or_else(Spend::default, |account| account.settled)
    }

    pub fn outstanding(&self, root: K) -> Spend {
        self.shared.state.lock().accounts.get(&root).map_or_else(Spend::default, |account| account.outstanding)
    }

    pub fn waiting(&self, root: K) -> usize {
        self.shared.state.lock().accounts.get(&root).map_or(0, Account::waiting)
    }

    pub fn len(&self) -> usize {
        self.shared.state.lock().accounts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Copy + Eq + Hash> BudgetShared<K> {
    /// Runs `act` on the account with that number, then wakes the resolved requests outside the lock.
    fn with_account<T>(&self, root: K, number: u64, act: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let account = state.accounts.get_mut(&root).filter(|account| account.number == number)?;
        let result = act(account);
        let wakers = account.take_wakers();
        drop(state);
        wake(wakers);
        Some(result)
    }
}

impl<K> BudgetState<K> {
    fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }
}

impl Spend {
    pub const NOTHING: Self = Self { tokens: 0, cost_micro: 0 };

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_micro: self.cost_micro.saturating_add(other.cost_micro),
        }
    }

    #[must_use]
    fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            cost_micro: self.cost_micro.saturating_sub(other.cost_micro),
        }
    }
}

impl SpendLimit {
    /// Returns whether neither tokens nor money are limited, so that no request is needed.
    pub fn is_none(&self) -> bool {
        self.tokens.is_none() && self.cost_micro.is_none()
    }

    fn exceeded_by(self, spend: Spend) -> Option<Currency> {
        let exceeds = |limit: Option<u64>, spent: u64| limit.is_some_and(|limit| spent > limit);
        if exceeds(self.tokens, spend.tokens) {
            return Some(Currency::Tokens);
        }
        exceeds(self.cost_micro, spend.cost_micro).then_some(Currency::Money)
    }

    fn limited_currency(self) -> Currency {
        if self.tokens.is_none() && self.cost_micro.is_some() { Currency::Money } else { Currency::Tokens }
    }
}

/// Wakes tasks. Call it outside the lock, because wakers are foreign code.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
