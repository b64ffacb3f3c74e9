//! Rate limits per provider and model, for the whole runtime, in FIFO order.
//!
//! A quota is a name under which calls count, such as `anthropic/claude-x` or `anthropic`. A call usually has two quotas, one of its model and one
//! of its provider, and starts when both allow it. A quota may limit concurrent calls, starts per minute and tokens ([`Rates`]). After a retry-after
//! of the provider, the quota is paused ([`Throttles::pause`]).
//!
//! Calls with the same quotas wait in one queue. A call that cannot start reserves its first exhausted quota, so that later calls do not overtake
//! it there. A session has one call at a time, so FIFO order is fair between sessions. A call takes all its permits at once. A waiting call holds
//! no permits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use subtend_session::ids::Text;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

mod bucket;
mod quota;
mod rate_limiter;
mod rates;

#[cfg(test)]
mod tests;

pub use rates::{BadRates, Rates};

use rate_limiter::{Path, QuotaCheck, RateLimiter};

/// The quotas of one runtime. Clones share their state. An unused quota is removed when it is fully refilled. The time of an operation is linear in
/// the number of queues (about one per model), and logarithmic in the number of waiting calls.
#[derive(Clone)]
pub struct Throttles {
    shared: Arc<Shared>,
    closing: Arc<ClosingState>,
}

/// The closing of one runtime, after which its calls no longer wait. Other runtimes may share the quotas.
#[derive(Default)]
struct ClosingState {
    closed: AtomicBool,
    wakeup: Notify,
}

struct Shared(Mutex<RateLimiter>);

impl Shared {
    /// Runs `act` on the limiter, and then wakes calls that may start. The lock is released before a call is woken,
    /// because a waker may run any code.
    fn with_limiter<R>(&self, act: impl FnOnce(&mut RateLimiter, Instant) -> R) -> R {
        let mut limiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut limiter, Instant::now());
        let pending_wakeups = limiter.take_wakeups();
        drop(limiter);
        pending_wakeups.iter().for_each(|wakeup| wakeup.notify_one());
        result
    }
}

/// The state of a quota, for monitoring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    pub name: Text,
    pub running: u32,
    pub waiting: usize,
    /// The remaining retry-after, if any.
    pub paused_ms: Option<u64>,
}

impl Throttles {
    /// Creates quotas with these rates by name, and with `default` for other names. If only the provider of a model `provider/model` is named, just the
    /// rates of the provider apply. A rate of 0 counts as 1; [`Rates::check`] reports it.
    pub fn new(default: Rates, named: impl IntoIterator<Item = (Text, Rates)>) -> Self {
        let named: BTreeMap<_, _> = named.into_iter().map(|(name, rates)| (name, rates.at_least_one())).collect();
        let shared = Arc::new(Shared(Mutex::new(RateLimiter::new(default.at_least_one(), named))));
        Self { shared, closing: Arc::default() }
    }

    /// Returns the same quotas for another runtime, which is closed separately.
    #[must_use]
    pub fn for_runtime(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), closing: Arc::default() }
    }

    /// Divides every rate by the number of processes that share it from now on. Each rate remains at least 1. Running calls continue.
    pub fn divide(&self, by: u32) {
        self.shared.with_limiter(|limiter, now| limiter.divide(by.max(1), now));
    }

    /// Waits for permits of all `quotas`. `tokens` is the estimated cost. Returns at once if `quotas` is empty, and after [`Throttles::close`]. The
    /// first poll, which must be inside a tokio runtime, joins the queue.
    /// # Cancel safety
    /// Dropping the future removes the call from the queue. A waiting call holds nothing else.
    pub async fn enter(&self, quotas: &[Text], tokens: u64) -> Permit {
        let path = rate_limiter::path(quotas);
        if path.is_empty() {
            return Permit { held: None };
        }
        let queued = QueuedCall::take(&self.shared, path, tokens);
        loop {
            let closes = self.closing.wakeup.notified();
            tokio::pin!(closes);
            // Register before the check, so that a later close is not missed.
            closes.as_mut().enable();
            if self.closing.closed.load(Ordering::Acquire) {
                return Permit { held: None };
            }
            let until = match queued.check() {
                QuotaCheck::Starts => return queued.into_permit(),
                QuotaCheck::Waits(until) => until,
            };
            let due = async {
                match until {
                    None => std::future::pending().await,
                    Some(until) => sleep_until(until).await,
                }
            };
            tokio::select! {
                biased;
                () = queued.wakeup.notified() => {}
                () = closes => {}
                () = due => {}
            }
        }
    }

    /// Pauses `quota` for a retry-after. Does not shorten a longer pause. Running calls continue.
    pub fn pause(&self, quota: &Text, ms: u64) {
        if !self.closing.closed.load(Ordering::Acquire) {
            self.shared.with_limiter(|limiter, now| limiter.pause(quota, ms, now));
        }
    }

    pub fn paused_ms(&self, quota: &Text) -> Option<u64> {
        self.shared.with_limiter(|limiter, now| limiter.paused_ms(quota, now))
    }

    /// Returns the quotas that are in use, paused or refilling, by name.
    pub fn active_quotas(&self) -> Vec<QuotaUsage> {
        self.shared.with_limiter(|limiter, now| limiter.active_quotas(now))
    }

    /// Ends all waits. From now on, every [`Throttles::enter`] returns at once, with a permit that holds nothing.
    pub fn close(&self) {
        self.closing.closed.store(true, Ordering::Release);
        self.closing.wakeup.notify_waiters();
    }
}

impl fmt::Debug for Throttles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttles").field("quotas", &self.active_quotas()).finish()
    }
}

struct QueuedCall<'a> {
    shared: &'a Arc<Shared>,
    path: Path,
    tokens: u64,
    wakeup: Arc<Notify>,
    /// `None` once the call has started.
    ticket: Option<u64>,
}

impl<'a> QueuedCall<'a> {
    fn take(shared: &'a Arc<Shared>, path: Path, tokens: u64) -> Self {
        let wakeup = Arc::new(Notify::new());
        let ticket = shared.with_limiter(|limiter, _| limiter.join(&path, tokens, Arc::clone(&wakeup)));
        Self { shared, path, tokens, wakeup, ticket: Some(ticket) }
    }

    fn check(&self) -> QuotaCheck {
        let ticket = self.ticket.unwrap_or_default();
        self.shared.with_limiter(|limiter, now| limiter.check(&self.path, ticket, now))
    }

    fn into_permit(mut self) -> Permit {
        self.ticket = None;
        Permit { held: Some((Arc::clone(self.shared), Arc::clone(&self.path), self.tokens)) }
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.with_limiter(|limiter, _| limiter.leave(&self.path, ticket));
        }
    }
}

/// The permit of one call. A drop returns the permit, and charges the estimate of the call.
#[must_use = "dropping the permit returns it at once"]
pub struct Permit {
    /// `None` for a call without quotas, or after a close.
    held: Option<(Arc<Shared>, Path, u64)>,
}

impl Permit {
    /// Ends the call, and replaces its estimate with the actual tokens.
    pub fn settle(mut self, tokens: u64) {
        self.end(Some(tokens));
    }

    fn end(&mut self, cost: Option<u64>) {
        if let Some((shared, path, tokens)) = self.held.take() {
            shared.with_limiter(|limiter, now| limiter.finish(&path, tokens, cost.unwrap_or(tokens), now));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("quotas", &self.held.as_ref().map(|(_, path, _)| path)).finish()
    }
}
