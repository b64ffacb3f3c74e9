//! How often a thing may be restarted, how long to wait before, and when failures are a storm.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The restart limit and the backoff of one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intensity {
    /// Restarts that one window admits.
    pub max: u32,
    /// Length of the sliding window.
    pub within: Duration,
    /// Ceiling of the first delay; each further one doubles.
    pub first: Duration,
    /// Ceiling of every delay.
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

/// The answer of a [`RestartBudget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Restart after this delay.
    After(Duration),
    /// The window is full: do not restart.
    Exhausted,
}

/// The restarts of one child; siblings never share one.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    intensity: Intensity,
    /// Admitted restarts that are still in the window, oldest first.
    admitted: VecDeque<Instant>,
    /// How often the delay has doubled since the child was last healthy for a whole window.
    doublings: u32,
}

impl RestartBudget {
    /// Opens a budget without restarts.
    pub fn new(intensity: Intensity) -> Self {
        Self { intensity, admitted: VecDeque::new(), doublings: 0 }
    }

    /// Admits a restart at `now`, or says that the window is full.
    ///
    /// A restart leaves the window when it is exactly `within` old. A refused one is not counted. The delay is full
    /// jitter: `jitter` (0 to 1, drawn by the caller from its seeded source) of the present ceiling; anything that is
    /// not a number counts as 1. A `now` before the last one ages nothing, so that a clock that steps back grants
    /// nothing.
    pub fn admit(&mut self, now: Instant, jitter: f64) -> Verdict {
        forget_older(&mut self.admitted, now, self.intensity.within);
        if self.admitted.is_empty() {
            self.doublings = 0;
        }
        if self.admitted.len() as u64 >= u64::from(self.intensity.max) {
            return Verdict::Exhausted;
        }
        self.admitted.push_back(now);
        let ceiling = self.ceiling();
        self.doublings = self.doublings.saturating_add(1);
        let share = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
        Verdict::After(ceiling.mul_f64(share))
    }

    /// Returns how many more restarts the window at `now` would admit.
    pub fn left(&mut self, now: Instant) -> u32 {
        forget_older(&mut self.admitted, now, self.intensity.within);
        let used = u32::try_from(self.admitted.len()).unwrap_or(u32::MAX);
        self.intensity.max.saturating_sub(used)
    }

    fn ceiling(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.doublings).unwrap_or(u32::MAX);
        self.intensity.first.saturating_mul(factor).min(self.intensity.cap)
    }
}

/// How many failures, in how long, one supervisor takes for granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StormLimit {
    /// Failures that one window takes without being a storm.
    pub max: u32,
    /// Length of the sliding window.
    pub within: Duration,
}

impl Default for StormLimit {
    fn default() -> Self {
        Self { max: 100, within: Duration::from_secs(10) }
    }
}

/// Tells a mass failure from single ones, per supervisor.
#[derive(Debug, Clone, Default)]
pub struct Storm {
    limit: StormLimit,
    failures: VecDeque<Instant>,
}

impl Storm {
    /// Opens a calm window.
    pub fn new(limit: StormLimit) -> Self {
        Self { limit, failures: VecDeque::new() }
    }

    /// Notes a failure at `now`; true if there were more than `max` within the window.
    ///
    /// Every failure counts, so it stays true until fewer fail; it holds `max` times at most, however many fail.
    pub fn note(&mut self, now: Instant) -> bool {
        forget_older(&mut self.failures, now, self.limit.within);
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

fn forget_older(times: &mut VecDeque<Instant>, now: Instant, within: Duration) {
    while times.front().is_some_and(|first| now.saturating_duration_since(*first) >= within) {
        times.pop_front();
    }
}

#[cfg(test)]
mod tests;
