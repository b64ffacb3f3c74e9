//! What a root run may spend: reserved before a call, settled after it.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::locked::Locked;

mod account;
mod reservation;
mod waiting;

#[cfg(test)]
mod tests;

pub use reservation::Reservation;
pub use waiting::Waiting;

use account::{Account, Verdict};
use waiting::Place;

/// How long a reservation waits for others to settle, by default.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Tokens and money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spend {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub cost_micro: u64,
}

/// What may be spent in all; `None` is no limit, and 0 is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpendLimit {
    /// Tokens.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar.
    pub cost_micro: Option<u64>,
}

/// Which of the two does not suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Currency {
    /// Tokens.
    Tokens,
    /// Money.
    Money,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Asked<K: Copy + Eq + Hash> {
    /// It fits: the call may be made.
    Granted(Reservation<K>),
    /// It fits only if others settle for less than they reserved.
    Waits(Waiting<K>),
    /// It does not fit, whatever the others settle for.
    Refused(Currency),
}

/// The accounts of all root runs (cheap clone, one shared book).
///
/// What is settled and what is reserved together never exceeds the limit, but by what calls cost more than was reserved for
/// them. A request that does not fit waits while reservations of others are out, and is refused as soon as what is settled
/// leaves no room for it, or when it has waited too long. Those who wait are served in the order of request, and nobody
/// overtakes them: since a session has one call at a time, each is served once before another is served twice.
///
/// Every operation takes time logarithmic in the requests that wait, [`Budgets::forget`] and [`Budgets::restore`] linear.
pub struct Budgets<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    book: Locked<Book<K>>,
    patience: Duration,
}

struct Book<K> {
    accounts: HashMap<K, Account>,
    /// Number of the next account or request; tells a reopened account from the one that an old reservation is of.
    next: u64,
    #[cfg(test)]
    bug: Option<tests::Bug>,
}

impl<K> Clone for Budgets<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K> Default for Budgets<K> {
    fn default() -> Self {
        Self::new(PATIENCE)
    }
}

impl<K> fmt::Debug for Budgets<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgets").field("roots", &self.shared.book.lock().accounts.len()).finish()
    }
}

impl<K> Budgets<K> {
    /// Opens a book without accounts; a request waits for `patience` at most.
    pub fn new(patience: Duration) -> Self {
        let book = Book {
            accounts: HashMap::new(),
            next: 0,
            #[cfg(test)]
            bug: None,
        };
        Self { shared: Arc::new(Shared { book: Locked::new(book), patience }) }
    }
}

impl<K: Copy + Eq + Hash> Budgets<K> {
    /// Opens the account of `root`, unless it is open.
    pub fn open(&self, root: K) {
        let mut book = self.shared.book.lock();
        let number = book.number();
        let fresh = Account::new(number, Spend::NOTHING);
        #[cfg(test)]
        let fresh = fresh.with_bug(book.bug);
        book.accounts.entry(root).or_insert(fresh);
    }

    /// Asks for `want` out of what `limit` leaves to `root`.
    ///
    /// `limit` is that of the account from now on, for those who wait too. Without an account everything is refused: the root
    /// run is over.
    pub fn ask(&self, root: K, want: Spend, limit: SpendLimit) -> Asked<K> {
        let closed = limit.first();
        let mut book = self.shared.book.lock();
        let ticket = book.number();
        // Under the lock, so that whoever came first has waited first.
        let until = Instant::now().checked_add(self.shared.patience);
        let Some(account) = book.accounts.get_mut(&root) else { return Asked::Refused(closed) };
        let verdict = account.ask(ticket, want, limit, until);
        let at = Place { account: account.number, ticket, until };
        let called = account.take_called();
        drop(book);
        wake(called);
        match verdict {
            Some(Verdict::Granted) => Asked::Granted(Reservation::new(&self.shared, root, at.account, want)),
            Some(Verdict::Refused(which)) => Asked::Refused(which),
            None => Asked::Waits(Waiting::new(&self.shared, root, at, want, closed)),
        }
    }

    /// Reserves `want`, or waits until it may.
    ///
    /// # Errors
    /// What does not suffice.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves the account as if nothing had been asked for.
    pub async fn reserve(&self, root: K, want: Spend, limit: SpendLimit) -> Result<Reservation<K>, Currency> {
        match self.ask(root, want, limit) {
            Asked::Granted(reservation) => Ok(reservation),
            Asked::Waits(waiting) => waiting.await,
            Asked::Refused(which) => Err(which),
        }
    }

    /// Sets what `root` has spent, as recounted from records after a start.
    ///
    /// Reservations that are still out are of the account before it; they neither add to nor take from this one. Whoever waits
    /// for that one is refused.
    pub fn restore(&self, root: K, settled: Spend) {
        let mut book = self.shared.book.lock();
        let number = book.number();
        let old = book.accounts.insert(root, Account::new(number, settled));
        drop(book);
        wake(old.map(Account::into_called).unwrap_or_default());
    }

    /// Closes the account of a root run that ended; whoever waits is refused.
    pub fn forget(&self, root: K) {
        let old = self.shared.book.lock().accounts.remove(&root);
        wake(old.map(Account::into_called).unwrap_or_default());
    }

    /// Returns what `root` has spent.
    pub fn settled(&self, root: K) -> Spend {
        self.shared.book.lock().accounts.get(&root).map_or_else(Spend::default, |account| account.settled)
    }

    /// Returns what is reserved for calls of `root` that are being made.
    pub fn outstanding(&self, root: K) -> Spend {
        self.shared.book.lock().accounts.get(&root).map_or_else(Spend::default, |account| account.outstanding)
    }

    /// Returns how many requests of `root` wait.
    pub fn waiting(&self, root: K) -> usize {
        self.shared.book.lock().accounts.get(&root).map_or(0, Account::waiting)
    }

    /// Returns the number of open accounts.
    pub fn len(&self) -> usize {
        self.shared.book.lock().accounts.len()
    }

    /// Tells whether no account is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Copy + Eq + Hash> Shared<K> {
    /// Does something with the account, if it still is the one of that number; then, without the lock, wakes whom it called.
    fn at<T>(&self, root: K, number: u64, act: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let mut book = self.book.lock();
        let account = book.accounts.get_mut(&root).filter(|account| account.number == number)?;
        let result = act(account);
        let called = account.take_called();
        drop(book);
        wake(called);
        Some(result)
    }
}

impl<K> Book<K> {
    fn number(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }
}

impl Spend {
    /// Nothing.
    pub const NOTHING: Self = Self { tokens: 0, cost_micro: 0 };

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_micro: self.cost_micro.saturating_add(other.cost_micro),
        }
    }

    /// What is left when `other` is taken out.
    #[must_use]
    fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            cost_micro: self.cost_micro.saturating_sub(other.cost_micro),
        }
    }
}

impl SpendLimit {
    /// Whether nothing is limited: then nothing need be asked for.
    pub fn is_none(&self) -> bool {
        self.tokens.is_none() && self.cost_micro.is_none()
    }

    /// What `spend` exceeds, if anything.
    fn exceeded_by(self, spend: Spend) -> Option<Currency> {
        let over = |limit: Option<u64>, spent: u64| limit.is_some_and(|limit| spent > limit);
        if over(self.tokens, spend.tokens) {
            return Some(Currency::Tokens);
        }
        over(self.cost_micro, spend.cost_micro).then_some(Currency::Money)
    }

    /// The one that is named where neither is exceeded.
    fn first(self) -> Currency {
        if self.tokens.is_none() && self.cost_micro.is_some() { Currency::Money } else { Currency::Tokens }
    }
}

/// Outside the lock: wakers are foreign code.
fn wake(called: Vec<Waker>) {
    called.into_iter().for_each(Waker::wake);
}
