use tokio::time::Instant;

use super::bucket::Bucket;
use super::rates::Rates;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Availability {
    Now,
    Full,
    NotBefore(Instant),
}

#[derive(Debug)]
pub(super) struct Quota {
    concurrent: Option<u32>,
    running: u32,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    paused: Option<Instant>,
}

impl Quota {
    pub(super) fn new(rates: Rates, now: Instant) -> Self {
        let requests = |rate| Bucket::full(u64::from(rate), u64::from(Rates::burst(rate)), now);
        let tokens = |rate| Bucket::full(rate, rate, now);
        Self {
            concurrent: rates.concurrent,
            running: 0,
            requests: rates.requests_per_minute.map(requests),
            tokens: rates.tokens_per_minute.map(tokens),
            paused: None,
        }
    }

    /// Changes the rates. Amounts that were already charged do not change.
    pub(super) fn set(&mut self, rates: Rates, now: Instant) {
        let other = Self::new(rates, now);
        self.concurrent = other.concurrent;
        for (own, other) in [(&mut self.requests, other.requests), (&mut self.tokens, other.tokens)] {
            if let (Some(own), Some(other)) = (own, other) {
                own.set(&other, now);
            }
        }
    }

    pub(super) fn running(&self) -> u32 {
        self.running
    }

    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused.filter(|until| *until > now)
    }

    pub(super) fn pause(&mut self, until: Instant) {
        self.paused = self.paused.max(Some(until));
    }

    pub(super) fn availability(&mut self, tokens: u64, now: Instant) -> Availability {
        if self.concurrent.is_some_and(|bound| self.running >= bound) {
            return Availability::Full;
        }
        let requests = self.requests.as_mut().and_then(|bucket| bucket.available_from(1, now));
        let tokens = self.tokens.as_mut().and_then(|bucket| bucket.available_from(tokens, now));
        self.paused_until(now).max(requests).max(tokens).map_or(Availability::Now, Availability::NotBefore)
    }

    pub(super) fn start(&mut self, tokens: u64) {
        self.running = self.running.saturating_add(1);
        if let Some(bucket) = &mut self.requests {
            bucket.take(1);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.take(tokens);
        }
    }

    /// Ends a call that cost `cost` instead of `tokens`.
    pub(super) fn finish(&mut self, tokens: u64, cost: u64, now: Instant) {
        self.running = self.running.saturating_sub(1);
        if let Some(bucket) = &mut self.tokens {
            bucket.correct(tokens, cost, now);
        }
    }

    /// Returns whether the quota equals a new quota: no call runs, its buckets are full, and it is not paused.
    pub(super) fn is_unused(&mut self, now: Instant) -> bool {
        let buckets = [&mut self.requests, &mut self.tokens];
        let is_full = buckets.into_iter().flatten().all(|bucket| bucket.is_full(now));
        self.running == 0 && is_full && self.paused_until(now).is_none()
    }
}
