//! Two clocks: one measures a node's lease, the other follows the database's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The clock of the database as last read. All nodes of a database use it, because they cannot read the clocks of other machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct DatabaseClock {
    /// Unix time in ms at which this machine started, by the database's clock.
    started: Arc<AtomicU64>,
}

impl DatabaseClock {
    /// Sets the clock to `time_ms`, just received from the server.
    pub(crate) fn set(&self, time_ms: u64) {
        self.started.store(time_ms.saturating_sub(boot_ms()), Ordering::Relaxed);
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.started.load(Ordering::Relaxed).saturating_add(boot_ms())
    }
}

fn boot_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time since boot. This clock also advances while the process is stopped or the machine sleeps.
#[cfg(target_os = "linux")]
pub(crate) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(now.tv_sec)).saturating_add(Duration::from_nanos(part(now.tv_nsec)))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn since_boot() -> Duration {
    static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(tokio::time::Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time far from this machine's clock, which must have no influence.
    const TIME_MS: u64 = 9_000_000_000_000;

    #[test]
    fn d2_clock_of_the_database_continues_from_its_last_time() {
        let clock = DatabaseClock::default();
        let shared = clock.clone();
        for time_ms in [TIME_MS, TIME_MS * 2, TIME_MS] {
            clock.set(time_ms);
            let (first, second) = (shared.now_ms(), shared.now_ms());
            assert!((time_ms..time_ms + 600_000).contains(&first) && first <= second, "{first}, {second}");
        }
    }

    #[test]
    fn d2_time_before_the_start_of_the_machine_does_not_wrap() {
        let clock = DatabaseClock::default();
        clock.set(0);
        let (before, now, after) = (boot_ms(), clock.now_ms(), boot_ms());
        assert!((before..=after).contains(&now), "{now} is not between {before} and {after}");
    }
}
