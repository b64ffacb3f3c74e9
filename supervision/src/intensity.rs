//! Restart budgets with backoff, and detection of mass failures.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Restart limit and backoff of one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intensity {
    /// Maximum number of restarts in one window.
    pub max: u32,
    /// Length of the sliding window.
    pub within: Duration,
    /// Upper bound of the first delay, doubled with each restart.
    pub first: Duration,
    /// Upper bound of every delay.
    pub cap: Duration,
}

impl Default for Intensity {
    fn default() -> Self {
        Self {
            max: 3,
            within: Duration::from_secs(60),
            first: Duration::from_millis(100),
            cap: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    After(Duration),
    /// The window is full: do not restart.
    Exhausted,
}

#[derive(Debug, Clone)]
pub struct RestartBudget {
    intensity: Intensity,
    /// Times of the admitted restarts in the window, oldest first.
    admitted: VecDeque<Instant>,
    /// Number of doublings of the delay since the child was last healthy for a whole window.
    doublings: u32,
}

impl RestartBudget {
    pub fn new(intensity: Intensity) -> Self {
        Self { intensity, admitted: VecDeque::new(), doublings: 0 }
    }

    /// Admits a restart at `now`, unless the window is full. A refused restart is not counted.
    ///
    /// The delay is the current upper bound times `jitter`, which the caller draws from 0 to 1; NaN counts as 1. If the clock
    /// steps back, restarts do not leave the window.
    pub fn admit(&mut self, now: Instant, jitter: f64) -> RestartDecision {
        drop_expired(&mut self.admitted, now, self.intensity.within);
        if self.admitted.is_empty() {
            self.doublings = 0;
        }
        if self.admitted.len() as u64 >= u64::from(self.intensity.max) {
            return RestartDecision::Exhausted;
        }
        self.admitted.push_back(now);
        let ceiling = self.ceiling();
        self.doublings = self.doublings.saturating_add(1);
        let share = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
        RestartDecision::After(ceiling.mul_f64(share))
    }

    /// Returns the number of restarts that the window at `now` would still admit.
    pub fn remaining(&mut self, now: Instant) -> u32 {
        drop_expired(&mut self.admitted, now, self.intensity.within);
        let used = u32::try_from(self.admitted.len()).unwrap_or(u32::MAX);
        self.intensity.max.saturating_sub(used)
    }

    /// Returns whether no restart is in the window at `now`, as in a new budget.
    pub fn is_unused(&mut self, now: Instant) -> bool {
        drop_expired(&mut self.admitted, now, self.intensity.within);
        self.admitted.is_empty()
    }

    fn ceiling(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.doublings).unwrap_or(u32::MAX);
        self.intensity.first.saturating_mul(factor).min(self.intensity.cap)
    }
}

/// Number of failures in a window that a supervisor tolerates. More failures are a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StormLimit {
    pub max: u32,
    pub within: Duration,
}

impl Default for StormLimit {
    fn default() -> Self {
        Self { max: 100, within: Duration::from_secs(10) }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Storm {
    limit: StormLimit,
    failures: VecDeque<Instant>,
}

impl Storm {
    pub fn new(limit: StormLimit) -> Self {
        Self { limit, failures: VecDeque::new() }
    }

    /// Records a failure at `now`. Returns whether the window has more than `max` failures.
    pub fn record_failure(&mut self, now: Instant) -> bool {
        drop_expired(&mut self.failures, now, self.limit.within);
        let full = self.failures.len() as u64 >= u64::from(self.limit.max);
        if full {
            self.failures.pop_front();
        }
        if self.limit.max > 0 {
            self.failures.push_back(now);
        }
        full
    }
}

fn drop_expired(times: &mut VecDeque<Instant>, now: Instant, within: Duration) {
    while times.front().is_some_and(|first| now.saturating_duration_since(*first) >= within) {
        times.pop_front();
    }
}

#[cfg(test)]
mod tests;
