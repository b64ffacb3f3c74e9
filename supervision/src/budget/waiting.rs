use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::account::RequestResult;
use super::{BudgetShared, Currency, Reservation, Spend};

pub(super) struct RequestKey {
    pub(super) account: u64,
    pub(super) ticket: u64,
    pub(super) until: Option<Instant>,
}

/// Future of a request. It resolves to the reservation or the exceeded limit.
///
/// Dropping it leaves the account unchanged. A grant that was not received returns to the account, and the queue is checked
/// again.
/// # Panics
/// If it is polled outside a tokio runtime.
#[must_use = "dropping it withdraws the request"]
pub struct WaitingClaim<K: Copy + Eq + Hash> {
    shared: Arc<BudgetShared<K>>,
    root: K,
    account: u64,
    ticket: u64,
    want: Spend,
    /// The currency that a refusal names if the account is closed.
    closed: Currency,
    /// Created by the first poll, inside the runtime.
    timeout: Option<Pin<Box<Sleep>>>,
    until: Option<Instant>,
    resolved: bool,
}

impl<K: Copy + Eq + Hash> WaitingClaim<K> {
    pub(super) fn new(shared: &Arc<BudgetShared<K>>, root: K, key: RequestKey, want: Spend, closed: Currency) -> Self {
        let RequestKey { account, ticket, until } = key;
        Self { shared: Arc::clone(shared), root, account, ticket, want, closed, timeout: None, until, resolved: false }
    }

    fn resolve(&mut self, verdict: RequestResult) -> Result<Reservation<K>, Currency> {
        self.resolved = true;
        match verdict {
            RequestResult::Granted => Ok(Reservation::new(&self.shared, self.root, self.account, self.want)),
            RequestResult::Refused(which) => Err(which),
        }
    }

    /// Returns the result, or `None` while the request waits. If the account is closed, the request is refused.
    fn advance(&self, cx: &Context<'_>, now: Option<Instant>) -> Option<RequestResult> {
        let result = self.shared.with_account(self.root, self.account, |account| {
            if let Some(now) = now {
                account.expire(now);
            }
            account.poll(self.ticket, cx.waker())
        });
        let (verdict, _old_waker) = result.unwrap_or((Some(RequestResult::Refused(self.closed)), None));
        verdict
    }
}

/// The only field that needs pinning, the timeout, is pinned in its own box.
impl<K: Copy + Eq + Hash> Unpin for WaitingClaim<K> {}

impl<K: Copy + Eq + Hash> Future for WaitingClaim<K> {
    type Output = Result<Reservation<K>, Currency>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(verdict) = this.advance(cx, None) {
            return Poll::Ready(this.resolve(verdict));
        }
        // A timeout beyond the range of the clock never fires.
        let Some(until) = this.until else { return Poll::Pending };
        let timeout = this.timeout.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timeout.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        match this.advance(cx, Some(until.max(Instant::now()))) {
            Some(verdict) => Poll::Ready(this.resolve(verdict)),
            None => Poll::Pending,
        }
    }
}

impl<K: Copy + Eq + Hash> Drop for WaitingClaim<K> {
    fn drop(&mut self) {
        if !self.resolved {
            drop(self.shared.with_account(self.root, self.account, |account| account.leave(self.ticket, self.want)));
        }
    }
}

impl<K: Copy + Eq + Hash> fmt::Debug for WaitingClaim<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingClaim").field("want", &self.want).finish_non_exhaustive()
    }
}
