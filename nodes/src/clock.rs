//! The clock of a node's lease.

use std::time::Duration;

/// Returns the time since the machine started. It runs on while the process is stopped or the machine sleeps, and no one sets it.
#[cfg(target_os = "linux")]
pub(crate) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(now.tv_sec)).saturating_add(Duration::from_nanos(part(now.tv_nsec)))
}

/// Returns the time of the monotonic clock.
#[cfg(not(target_os = "linux"))]
pub(crate) fn since_boot() -> Duration {
    static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(tokio::time::Instant::now).elapsed()
}
