//! One quota: its places, its accounts, its rest and its queue.

use std::cmp::Reverse;

use subtend_session::ids::Text;
use tokio::time::Instant;

use super::bucket::Bucket;
use super::lanes::Lanes;
use super::rates::Rates;

/// Names a quota. The order is that in which calls take quotas, the narrowest first: `a/b` before `a`. That it is one order
/// for all calls, whatever order they name their quotas in, keeps two calls from holding what the other one waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    parts: Reverse<usize>,
    pub(super) name: Text,
}

impl Key {
    pub(super) fn of(name: &Text) -> Self {
        Self { parts: Reverse(name.matches('/').count()), name: Text::clone(name) }
    }
}

/// Whether a call gets in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Now.
    Now,
    /// When a call ends.
    Full,
    /// Not before then.
    NotBefore(Instant),
}

/// What is known of one quota.
#[derive(Debug)]
pub(super) struct Quota {
    concurrent: Option<u32>,
    /// Held: by calls that run, and by calls that were let in here and have not started.
    places: u32,
    running: u32,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    cooling: Option<Instant>,
    pub(super) lanes: Lanes,
    /// When the timer is to look at it again.
    pub(super) due: Option<Instant>,
}

impl Quota {
    pub(super) fn new(rates: Rates, now: Instant) -> Self {
        let requests = |rate| Bucket::full(u64::from(rate), u64::from(Rates::burst(rate)), now);
        let tokens = |rate| Bucket::full(rate, rate, now);
        Self {
            concurrent: rates.concurrent,
            places: 0,
            running: 0,
            requests: rates.requests_per_minute.map(requests),
            tokens: rates.tokens_per_minute.map(tokens),
            cooling: None,
            lanes: Lanes::default(),
            due: None,
        }
    }

    pub(super) fn running(&self) -> u32 {
        self.running
    }

    /// Calls that came here and have not started: they wait for this quota, for a wider one, or to be polled.
    pub(super) fn waiting(&self) -> usize {
        let ahead = usize::try_from(self.places.saturating_sub(self.running)).unwrap_or(usize::MAX);
        self.lanes.waiting().saturating_add(ahead)
    }

    pub(super) fn cooling(&self, now: Instant) -> Option<Instant> {
        self.cooling.filter(|until| *until > now)
    }

    pub(super) fn cool(&mut self, until: Instant) {
        self.cooling = self.cooling.max(Some(until));
    }

    /// Whether a call of `tokens` gets in.
    pub(super) fn room(&mut self, tokens: u64, now: Instant) -> Room {
        if self.concurrent.is_some_and(|bound| self.places >= bound) {
            return Room::Full;
        }
        self.not_before(tokens, now).map_or(Room::Now, Room::NotBefore)
    }

    fn not_before(&mut self, tokens: u64, now: Instant) -> Option<Instant> {
        let requests = self.requests.as_mut().and_then(|bucket| bucket.short_until(1, now));
        let tokens = self.tokens.as_mut().and_then(|bucket| bucket.short_until(tokens, now));
        self.cooling(now).max(requests).max(tokens)
    }

    /// Lets a call in: it holds a place, and what it costs is put by.
    pub(super) fn admit(&mut self, tokens: u64) {
        self.places = self.places.saturating_add(1);
        self.put_by(tokens);
    }

    /// A call that was let in gives up.
    pub(super) fn give_back(&mut self, tokens: u64) {
        self.places = self.places.saturating_sub(1);
        self.free(tokens);
    }

    /// Whether a call that was let in may start as well: the quota may have been told to cool since, or have come into debt.
    pub(super) fn still_open(&mut self, tokens: u64, now: Instant) -> bool {
        self.free(tokens);
        let open = self.not_before(tokens, now).is_none();
        self.put_by(tokens);
        open
    }

    /// A call that was let in starts.
    pub(super) fn start(&mut self, tokens: u64) {
        self.free(tokens);
        self.running = self.running.saturating_add(1);
        if let Some(bucket) = &mut self.requests {
            bucket.pay(1);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.pay(tokens);
        }
    }

    /// A call that ran ends, having cost `cost` instead of `tokens`.
    pub(super) fn finish(&mut self, tokens: u64, cost: u64, now: Instant) {
        self.places = self.places.saturating_sub(1);
        self.running = self.running.saturating_sub(1);
        if let Some(bucket) = &mut self.tokens {
            bucket.correct(tokens, cost, now);
        }
    }

    /// All calls that have not started give up.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        self.places = self.running;
        for bucket in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            bucket.free_all();
        }
    }

    /// Whether no call knows it.
    pub(super) fn idle(&self) -> bool {
        self.places == 0 && self.lanes.is_empty()
    }

    /// When an idle one will be as good as new; nothing if it is.
    pub(super) fn resting_until(&mut self, now: Instant) -> Option<Instant> {
        let requests = self.requests.as_mut().and_then(|bucket| bucket.filling_until(now));
        let tokens = self.tokens.as_mut().and_then(|bucket| bucket.filling_until(now));
        self.cooling(now).max(requests).max(tokens)
    }

    fn put_by(&mut self, tokens: u64) {
        if let Some(bucket) = &mut self.requests {
            bucket.put_by(1);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.put_by(tokens);
        }
    }

    fn free(&mut self, tokens: u64) {
        if let Some(bucket) = &mut self.requests {
            bucket.free(1);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.free(tokens);
        }
    }
}
