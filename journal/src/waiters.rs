//! Waits for durability by LSN.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use subtend_session::ids::Lsn;

use crate::error::Poisoned;

#[derive(Debug)]
pub(crate) struct Waiters {
    durable: AtomicU64,
    poisoned: OnceLock<Poisoned>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Wakers ordered by LSN, so that a commit wakes exactly the waiters of its frames.
    wakers: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

impl Waiters {
    pub(crate) fn new(durable: Lsn) -> Self {
        Self { durable: AtomicU64::new(durable.0), poisoned: OnceLock::new(), waiting: Mutex::default() }
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn poisoned(&self) -> Option<&Poisoned> {
        self.poisoned.get()
    }

    pub(crate) fn publish(&self, lsn: Lsn) {
        self.durable.fetch_max(lsn.0, Ordering::AcqRel);
        let woken = {
            let mut waiting = self.lock();
            if waiting.wakers.is_empty() {
                return;
            }
            let rest = waiting.wakers.split_off(&(lsn.0.saturating_add(1), 0));
            std::mem::replace(&mut waiting.wakers, rest)
        };
        woken.into_values().for_each(Waker::wake);
    }

    pub(crate) fn poison(&self, poisoned: Poisoned) {
        // Keeps the first cause, because later failures follow from it.
        if self.poisoned.set(poisoned).is_ok() {
            let woken = std::mem::take(&mut self.lock().wakers);
            woken.into_values().for_each(Waker::wake);
        }
    }

    pub(crate) fn wait(&self, lsn: Lsn) -> Wait<'_> {
        Wait { waiters: self, lsn: lsn.0, ticket: None }
    }

    fn check(&self, lsn: u64) -> Option<Result<(), Poisoned>> {
        if self.durable.load(Ordering::Acquire) >= lsn {
            return Some(Ok(()));
        }
        self.poisoned.get().map(|poisoned| Err(poisoned.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves when its LSN is durable, or can never be.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    waiters: &'a Waiters,
    lsn: u64,
    ticket: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = Result<(), Poisoned>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.waiters.check(self.lsn) {
            return Poll::Ready(result);
        }
        let mut waiting = self.waiters.lock();
        // Checks again under the lock: a commit publishes before it takes the wakers, so it is either seen here or finds this waker.
        if let Some(result) = self.waiters.check(self.lsn) {
            return Poll::Ready(result);
        }
        let ticket = self.ticket.unwrap_or_else(|| {
            waiting.next = waiting.next.wrapping_add(1);
            waiting.next
        });
        waiting.wakers.insert((self.lsn, ticket), cx.waker().clone());
        drop(waiting);
        self.ticket = Some(ticket);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.waiters.lock().wakers.remove(&(self.lsn, ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::EngineError;

    fn poll(wait: &mut Pin<Box<Wait<'_>>>) -> Poll<Result<(), String>> {
        wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).map_err(|poisoned| poisoned.to_string())
    }

    #[test]
    fn commit_releases_waiters_up_to_its_lsn() {
        let waiters = Waiters::new(Lsn(0));
        let mut below = Box::pin(waiters.wait(Lsn(1)));
        let mut at = Box::pin(waiters.wait(Lsn(2)));
        let mut above = Box::pin(waiters.wait(Lsn(3)));
        assert_eq!((poll(&mut below), poll(&mut at), poll(&mut above)), (Poll::Pending, Poll::Pending, Poll::Pending));
        waiters.publish(Lsn(2));
        assert_eq!(
            (poll(&mut below), poll(&mut at), poll(&mut above)),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(())), Poll::Pending)
        );
        assert_eq!(waiters.lock().wakers.len(), 1);
    }

    #[test]
    fn dropped_wait_removes_its_waker() {
        let waiters = Waiters::new(Lsn(0));
        let mut wait = Box::pin(waiters.wait(Lsn(1)));
        assert_eq!(poll(&mut wait), Poll::Pending);
        drop(wait);
        assert_eq!(waiters.lock().wakers.len(), 0);
    }

    #[test]
    fn poison_fails_only_waits_that_are_not_durable() {
        let waiters = Waiters::new(Lsn(0));
        waiters.publish(Lsn(1));
        let mut lost = Box::pin(waiters.wait(Lsn(2)));
        assert_eq!(poll(&mut lost), Poll::Pending);
        waiters.poison(Poisoned(Arc::new(EngineError::Injected("first"))));
        waiters.poison(Poisoned(Arc::new(EngineError::Injected("second"))));
        let text = "the journal is poisoned, open the store again: injected fault: first".to_owned();
        assert_eq!(poll(&mut lost), Poll::Ready(Err(text)));
        assert_eq!(poll(&mut Box::pin(waiters.wait(Lsn(1)))), Poll::Ready(Ok(())));
    }
}
