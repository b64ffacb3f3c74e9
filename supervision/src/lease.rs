//! Lease: permission to start work that its holder must renew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Permission to start work, for some time after the last renewal (cheap clone, shared state). One that ended stays ended.
///
/// The default never ends: it is for a process that shares its work with none.
#[derive(Clone, Default)]
pub struct Lease {
    term: Option<Arc<Term>>,
}

struct Term {
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    length: Duration,
    /// Milliseconds of the clock until which it runs; 0 before the first renewal.
    until: AtomicU64,
    ended: CancellationToken,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("runs", &self.runs()).finish_non_exhaustive()
    }
}

impl Lease {
    /// Makes a lease that runs for `length` after each renewal, by a clock that never goes back, and that also runs while the process
    /// is stopped. It begins with its first renewal.
    pub fn new(length: Duration, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let (until, ended) = (AtomicU64::new(0), CancellationToken::new());
        Self { term: Some(Arc::new(Term { clock: Box::new(clock), length, until, ended })) }
    }

    /// Returns the time by its clock, to be read before a renewal is sent.
    pub fn now(&self) -> Duration {
        self.term.as_ref().map_or(Duration::ZERO, |term| (term.clock)())
    }

    /// Extends it after a renewal that was sent at `sent`. Returns whether it runs: a renewal that came too late revives nothing.
    pub fn renewed(&self, sent: Duration) -> bool {
        let Some(term) = &self.term else { return true };
        let before = term.until.load(Ordering::Acquire);
        if before > 0 && !term.runs() {
            return false;
        }
        term.until.fetch_max(ms(sent.saturating_add(term.length)).max(1), Ordering::AcqRel);
        term.runs()
    }

    /// Ends it for good.
    pub fn end(&self) {
        if let Some(term) = &self.term {
            term.ended.cancel();
        }
    }

    /// Returns whether work may start.
    pub fn runs(&self) -> bool {
        self.term.as_ref().is_none_or(|term| term.runs())
    }

    /// Waits until it has ended. Never returns for the default lease.
    /// # Cancel safety
    /// Changes nothing; call it again.
    pub async fn ended(&self) {
        let Some(term) = &self.term else { return std::future::pending().await };
        while !term.ended.is_cancelled() {
            let until = term.until.load(Ordering::Acquire);
            let left = match until {
                0 => term.length,
                until => Duration::from_millis(until.saturating_sub(ms((term.clock)()))),
            };
            if left.is_zero() {
                return term.ended.cancel();
            }
            tokio::select! {
                () = term.ended.cancelled() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}

impl Term {
    fn runs(&self) -> bool {
        let runs = !self.ended.is_cancelled() && ms((self.clock)()) < self.until.load(Ordering::Acquire);
        if !runs && self.until.load(Ordering::Acquire) > 0 {
            // Work was refused: no later renewal may hide that.
            self.ended.cancel();
        }
        runs
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
        assert!(!lease.runs(), "not before its first renewal");
        let sent = lease.now();
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(lease.renewed(sent));
        tokio::time::advance(Duration::from_millis(5_999)).await;
        assert!(lease.runs());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!lease.runs());
    }

    #[tokio::test(start_paused = true)]
    async fn late_renewal_revives_nothing() {
        let lease = lease();
        assert!(lease.renewed(lease.now()));
        tokio::time::advance(LENGTH).await;
        assert!(!lease.renewed(lease.now()));
        assert!(!lease.runs());
        lease.ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn its_end_is_awaited_across_renewals() {
        let lease = lease();
        let start = Instant::now();
        lease.renewed(lease.now());
        let renewals = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(5)).await;
                assert!(lease.renewed(lease.now()));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = lease.ended() => {}
            () = renewals => {}
        }
        assert_eq!(start.elapsed(), Duration::from_secs(25));
    }

    #[tokio::test(start_paused = true)]
    async fn lease_that_was_ended_ends_for_every_clone() {
        let (lease, forever) = (lease(), Lease::default());
        lease.renewed(lease.now());
        let other = lease.clone();
        lease.end();
        assert!(!other.runs() && forever.runs());
        forever.end();
        assert!(forever.runs());
    }
}
