//! A token bucket whose level may become negative (debt).

use std::time::Duration;

use tokio::time::Instant;

/// Parts of one request or token. A rate of r per minute is r parts per nanosecond, so integer arithmetic is exact.
const PARTS: i128 = 60_000_000_000;

/// Maximum debt in minutes of the rate: one wrong usage report must not block a provider forever.
const MAX_DEBT_MINUTES: i128 = 60;

/// Maximum wait, so that times stay within the range of the clock.
const MAX_AHEAD: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) fn saturating_later(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait.min(MAX_AHEAD)).unwrap_or(now)
}

/// A bucket that fills at a steady rate up to its capacity.
#[derive(Debug)]
pub(super) struct Bucket {
    per_minute: i128,
    capacity: i128,
    level: i128,
    at: Instant,
}

impl Bucket {
    pub(super) fn full(per_minute: u64, capacity: u64, now: Instant) -> Self {
        let capacity = i128::from(capacity).saturating_mul(PARTS);
        Self { per_minute: i128::from(per_minute), capacity, level: capacity, at: now }
    }

    /// Returns the level that a call of `amount` requires. For a call above the capacity, a full bucket is enough.
    fn needed_level(&self, amount: u64) -> i128 {
        i128::from(amount).saturating_mul(PARTS).min(self.capacity)
    }

    fn fill(&mut self, now: Instant) {
        let passed = i128::try_from(now.saturating_duration_since(self.at).as_nanos()).unwrap_or(i128::MAX);
        self.level = self.level.saturating_add(self.per_minute.saturating_mul(passed)).min(self.capacity);
        self.at = self.at.max(now);
    }

    /// Returns the time at which `missing` will be available; `None` if nothing is missing.
    fn available_at(&self, missing: i128, now: Instant) -> Option<Instant> {
        if missing <= 0 {
            return None;
        }
        let rate = self.per_minute.max(1);
        let nanos = missing / rate + i128::from(missing % rate != 0);
        Some(saturating_later(now, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))))
    }

    /// Sets the rate and the capacity to those of another bucket.
    pub(super) fn set(&mut self, other: &Self, now: Instant) {
        self.fill(now);
        (self.per_minute, self.capacity) = (other.per_minute, other.capacity);
        self.level = self.level.min(self.capacity);
    }

    /// Returns the time at which `amount` will be available without other calls. Returns `None` if it is available now.
    pub(super) fn available_from(&mut self, amount: u64, now: Instant) -> Option<Instant> {
        self.fill(now);
        self.available_at(self.needed_level(amount).saturating_sub(self.level), now)
    }

    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.level == self.capacity
    }

    /// Takes `amount`. The level may become negative.
    pub(super) fn take(&mut self, amount: u64) {
        self.change(i128::from(amount).saturating_neg());
    }

    /// Replaces the estimate of a call with its cost.
    pub(super) fn correct(&mut self, estimate: u64, cost: u64, now: Instant) {
        self.fill(now);
        self.change(i128::from(estimate).saturating_sub(i128::from(cost)));
    }

    fn change(&mut self, by: i128) {
        let deepest = self.per_minute.saturating_mul(PARTS).saturating_mul(-MAX_DEBT_MINUTES);
        self.level = self.level.saturating_add(by.saturating_mul(PARTS)).clamp(deepest, self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn bucket_gives_its_capacity_at_once_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(60, 2, start);
        for _ in 0..2 {
            assert_eq!(bucket.available_from(1, start), None);
            bucket.take(1);
        }
        assert_eq!(bucket.available_from(1, start), Some(after(start, 1_000)));
        assert_eq!(bucket.available_from(1, after(start, 999)), Some(after(start, 1_000)));
        assert_eq!(bucket.available_from(1, after(start, 1_000)), None);
        assert!(!bucket.is_full(after(start, 1_999)) && bucket.is_full(after(start, 2_000)));
    }

    #[test]
    fn frequent_reads_do_not_change_the_level() {
        let start = Instant::now();
        let mut bucket = Bucket::full(7, 1, start);
        bucket.take(1);
        // A seventh of a minute, rounded up to the nanosecond.
        let full = start + Duration::from_nanos(8_571_428_572);
        for nanos in (0..8_571_428_571).step_by(999_983) {
            assert_eq!(bucket.available_from(1, start + Duration::from_nanos(nanos)), Some(full));
        }
        assert!(bucket.is_full(full) && bucket.is_full(start));
    }

    #[test]
    fn call_above_capacity_starts_when_full_and_leaves_a_debt() {
        let start = Instant::now();
        let mut bucket = Bucket::full(600, 600, start);
        bucket.take(1);
        assert_eq!(bucket.available_from(1_800, start), Some(after(start, 100)));
        assert_eq!(bucket.available_from(1_800, after(start, 100)), None);
        bucket.take(1_800);
        // A debt of 1,200, and one token.
        assert_eq!(bucket.available_from(0, after(start, 100)), Some(after(start, 120_100)));
        assert_eq!(bucket.available_from(1, after(start, 100)), Some(after(start, 120_200)));
    }

    #[test]
    fn implausible_usage_blocks_for_at_most_an_hour() {
        let start = Instant::now();
        let mut bucket = Bucket::full(60, 60, start);
        bucket.correct(0, u64::MAX, start);
        assert_eq!(bucket.available_from(0, start), Some(after(start, 3_600_000)));
        bucket.correct(u64::MAX, 0, start);
        assert!(bucket.is_full(start));
    }
}
