//! A request that waits for others to settle.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::account::Verdict;
use super::{Currency, Reservation, Shared, Spend};

/// Where a request waits.
pub(super) struct Place {
    pub(super) account: u64,
    pub(super) ticket: u64,
    /// When it has waited long enough.
    pub(super) until: Option<Instant>,
}

/// Waits until the request is granted or refused, with the reservation or with what does not suffice.
///
/// It may be dropped at any point, and each leaves the account as if nothing had been asked for:
/// - while it waits it leaves the line, and if it was the first the one behind it is looked at;
/// - when it was granted and the drop crosses with the wake, only a poll has taken the grant: what was set aside comes back,
///   and the line is looked at;
/// - when a poll has taken the grant there is a [`Reservation`], which is to be settled or given back;
/// - when the account was closed there is nothing to leave.
///
/// # Panics
/// If it is polled outside a tokio runtime.
#[must_use = "dropping it takes the request back"]
pub struct Waiting<K: Copy + Eq + Hash> {
    shared: Arc<Shared<K>>,
    root: K,
    account: u64,
    ticket: u64,
    want: Spend,
    /// What is named if the account is closed meanwhile.
    closed: Currency,
    /// Made with the first poll, which knows that there is a clock.
    alarm: Option<Pin<Box<Sleep>>>,
    until: Option<Instant>,
    over: bool,
}

impl<K: Copy + Eq + Hash> Waiting<K> {
    pub(super) fn new(shared: &Arc<Shared<K>>, root: K, at: Place, want: Spend, closed: Currency) -> Self {
        let Place { account, ticket, until } = at;
        Self { shared: Arc::clone(shared), root, account, ticket, want, closed, alarm: None, until, over: false }
    }

    fn heard(&mut self, verdict: Verdict) -> Result<Reservation<K>, Currency> {
        self.over = true;
        match verdict {
            Verdict::Granted => Ok(Reservation::new(&self.shared, self.root, self.account, self.want)),
            Verdict::Refused(which) => Err(which),
        }
    }

    /// The verdict, if there is one: `None` while it waits. Without an account it is refused.
    fn look(&self, cx: &Context<'_>, now: Option<Instant>) -> Option<Verdict> {
        let heard = self.shared.at(self.root, self.account, |account| {
            if let Some(now) = now {
                account.expire(now);
            }
            account.hear(self.ticket, cx.waker())
        });
        let (verdict, _old_waker) = heard.unwrap_or((Some(Verdict::Refused(self.closed)), None));
        verdict
    }
}

/// The alarm is pinned in a box of its own.
impl<K: Copy + Eq + Hash> Unpin for Waiting<K> {}

impl<K: Copy + Eq + Hash> Future for Waiting<K> {
    type Output = Result<Reservation<K>, Currency>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(verdict) = this.look(cx, None) {
            return Poll::Ready(this.heard(verdict));
        }
        // A patience beyond all clocks never ends.
        let Some(until) = this.until else { return Poll::Pending };
        let alarm = this.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if alarm.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        match this.look(cx, Some(until.max(Instant::now()))) {
            Some(verdict) => Poll::Ready(this.heard(verdict)),
            None => Poll::Pending,
        }
    }
}

impl<K: Copy + Eq + Hash> Drop for Waiting<K> {
    fn drop(&mut self) {
        if !self.over {
            drop(self.shared.at(self.root, self.account, |account| account.leave(self.ticket, self.want)));
        }
    }
}

impl<K: Copy + Eq + Hash> fmt::Debug for Waiting<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("want", &self.want).finish_non_exhaustive()
    }
}
