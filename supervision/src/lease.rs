//! A lease: a permission to start work, which its holder must renew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Maximum time between two checks of the clock. Timers stop while the machine sleeps, and the clock of a lease does not.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Time between two checks for other holders of a lease.
const RELEASE_POLL: Duration = Duration::from_millis(100);

/// A permission to start work for some time after a renewal (cheap clone, shared state). An ended one stays ended.
///
/// The default lease never ends. It is for a process that does not share its work with others.
#[derive(Clone, Default)]
pub struct Lease {
    term: Option<Arc<Term>>,
}

struct Term {
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    length: Duration,
    /// Time of the clock in milliseconds at which the lease expires; 0 before the first renewal.
    until: AtomicU64,
    ended: CancellationToken,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("is_valid", &self.is_valid()).finish_non_exhaustive()
    }
}

impl Lease {
    /// Creates a lease that lasts for `length` after each renewal. It begins with the first renewal. The clock must never
    /// step back, and must also advance while the process is stopped.
    pub fn new(length: Duration, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let (until, ended) = (AtomicU64::new(0), CancellationToken::new());
        Self { term: Some(Arc::new(Term { clock: Box::new(clock), length, until, ended })) }
    }

    /// Returns the time of its clock. Read it before a renewal is sent.
    pub fn now(&self) -> Duration {
        self.term.as_ref().map_or(Duration::ZERO, |term| (term.clock)())
    }

    /// Extends the lease after a renewal that was sent at `sent`. Returns whether it is valid: a late renewal has no effect.
    pub fn renew(&self, sent: Duration) -> bool {
        let Some(term) = &self.term else { return true };
        let before = term.until.load(Ordering::Acquire);
        if before > 0 && !term.is_valid() {
            return false;
        }
        term.until.fetch_max(ms(sent.saturating_add(term.length)).max(1), Ordering::AcqRel);
        term.is_valid()
    }

    /// Ends the lease permanently.
    pub fn end(&self) {
        if let Some(term) = &self.term {
            term.ended.cancel();
        }
    }

    pub fn is_valid(&self) -> bool {
        self.term.as_ref().is_none_or(|term| term.is_valid())
    }

    /// Waits until the lease has ended. Never returns for the default lease.
    /// # Cancel safety
    /// Dropping the future has no effect; call it again.
    pub async fn ended(&self) {
        let Some(term) = &self.term else { return std::future::pending().await };
        while !term.ended.is_cancelled() {
            let until = term.until.load(Ordering::Acquire);
            let remaining = match until {
                0 => term.length,
                until => Duration::from_millis(until.saturating_sub(ms((term.clock)()))),
            };
            if remaining.is_zero() {
                return term.ended.cancel();
            }
            tokio::select! {
                () = term.ended.cancelled() => {}
                () = tokio::time::sleep(remaining.min(MAX_SLEEP)) => {}
            }
        }
    }

    /// Waits until no other clone of the lease exists, so that all work that checks it is gone. Never returns for the
    /// default lease.
    /// # Cancel safety
    /// Dropping the future has no effect; call it again.
    pub async fn released(&self) {
        let Some(term) = &self.term else { return std::future::pending().await };
        while Arc::strong_count(term) > 1 {
            tokio::time::sleep(RELEASE_POLL).await;
        }
    }
}

impl Term {
    fn is_valid(&self) -> bool {
        let is_valid = !self.ended.is_cancelled() && ms((self.clock)()) < self.until.load(Ordering::Acquire);
        if !is_valid && self.until.load(Ordering::Acquire) > 0 {
            // Work was refused, so a later renewal must not revive the lease.
            self.ended.cancel();
        }
        is_valid
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    fn lease() -> Lease {
        let start = Instant::now();
        Lease::new(LENGTH, move || start.elapsed() + Duration::from_secs(100))
    }

    #[tokio::test(start_paused = true)]
    async fn lease_runs_from_when_a_renewal_was_sent() {
        let lease = lease();
        assert!(!lease.is_valid(), "it is not valid before its first renewal");
        let sent = lease.now();
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(lease.renew(sent));
        tokio::time::advance(Duration::from_millis(5_999)).await;
        assert!(lease.is_valid());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!lease.is_valid());
    }

    #[tokio::test(start_paused = true)]
    async fn late_renewal_does_not_revive_the_lease() {
        let lease = lease();
        assert!(lease.renew(lease.now()));
        tokio::time::advance(LENGTH).await;
        assert!(!lease.renew(lease.now()));
        assert!(!lease.is_valid());
        lease.ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn lease_end_is_awaited_across_renewals() {
        let lease = lease();
        let start = Instant::now();
        lease.renew(lease.now());
        let renewals = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(5)).await;
                assert!(lease.renew(lease.now()));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = lease.ended() => {}
            () = renewals => {}
        }
        assert_eq!(start.elapsed(), Duration::from_secs(25));
    }

    /// A machine sleeps: its timers stop, and the clock of the lease continues.
    #[tokio::test(start_paused = true)]
    async fn lease_end_is_noticed_soon_after_the_machine_slept() {
        let (start, slept) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let asleep = Arc::clone(&slept);
        let clock = move || start.elapsed() + Duration::from_millis(asleep.load(Ordering::Relaxed));
        let lease = Lease::new(LENGTH, clock);
        assert!(lease.renew(lease.now()));
        let sleeps = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            slept.store(3_600_000, Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = lease.ended() => {}
            () = sleeps => {}
        }
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_released_when_its_last_holder_is_gone() {
        let (lease, start) = (lease(), Instant::now());
        for ms in [150, 2_950] {
            let holder = lease.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                drop(holder);
            });
        }
        lease.released().await;
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn ended_lease_ends_for_every_clone() {
        let (lease, forever) = (lease(), Lease::default());
        lease.renew(lease.now());
        let other = lease.clone();
        lease.end();
        assert!(!other.is_valid() && forever.is_valid());
        forever.end();
        assert!(forever.is_valid());
    }
}
