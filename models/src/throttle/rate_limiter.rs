//! All quotas and waiting calls, behind one lock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use subtend_session::ids::Text;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::QuotaUsage;
use super::bucket::saturating_later;
use super::quota::{Availability, Quota};
use super::rates::Rates;
#[cfg(test)]
use super::tests::Bug;

/// The quotas of a call without duplicates, narrowest first: `a/b` before `a`.
pub(super) type Path = Arc<[Text]>;

pub(super) fn path(quotas: &[Text]) -> Path {
    let mut path = quotas.to_vec();
    path.sort_by(|a, b| (Reverse(a.matches('/').count()), a).cmp(&(Reverse(b.matches('/').count()), b)));
    path.dedup();
    path.into()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum QuotaCheck {
    Starts,
    /// The call must wait until it is woken, or until this time.
    Waits(Option<Instant>),
}

#[derive(Debug)]
struct WaitingCall {
    tokens: u64,
    wakeup: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct RateLimiter {
    default: Rates,
    named: BTreeMap<Text, Rates>,
    quotas: BTreeMap<Text, Quota>,
    /// Queues of waiting calls, by their quotas. A queue is in order of arrival.
    queues: BTreeMap<Path, BTreeMap<u64, WaitingCall>>,
    tickets: u64,
    /// Waiting calls to wake once the lock is released.
    pending_wakeups: Vec<Arc<Notify>>,
    /// Number of processes that share the rates.
    divided: u32,
    #[cfg(test)]
    pub(super) bug: Option<Bug>,
}

impl RateLimiter {
    pub(super) fn new(default: Rates, named: BTreeMap<Text, Rates>) -> Self {
        Self {
            default,
            named,
            quotas: BTreeMap::new(),
            queues: BTreeMap::new(),
            tickets: 0,
            pending_wakeups: Vec::new(),
            divided: 1,
            #[cfg(test)]
            bug: None,
        }
    }

    pub(super) fn take_wakeups(&mut self) -> Vec<Arc<Notify>> {
        mem::take(&mut self.pending_wakeups)
    }

    pub(super) fn join(&mut self, path: &Path, tokens: u64, wakeup: Arc<Notify>) -> u64 {
        self.tickets = self.tickets.saturating_add(1);
        self.queues.entry(Arc::clone(path)).or_default().insert(self.tickets, WaitingCall { tokens, wakeup });
        self.tickets
    }

    /// Starts a call if it is the first of its queue, and if every quota allows it in addition to earlier calls.
    ///
    /// Checks the first calls of all queues in ticket order. A blocked call reserves its first exhausted quota. A call that may start but has not been
    /// polled yet reserves all its quotas.
    pub(super) fn check(&mut self, path: &Path, ticket: u64, now: Instant) -> QuotaCheck {
        let mut reserved = BTreeSet::new();
        for (first, of, tokens) in self.first_calls() {
            let blocked = of.iter().find_map(|name| match self.availability(name, &reserved, tokens, now) {
                Availability::Now => None,
                Availability::Full => Some((name, None)),
                Availability::NotBefore(then) => Some((name, Some(then))),
            });
            match blocked {
                Some((_, until)) if first == ticket => return QuotaCheck::Waits(until),
                None if first == ticket => {
                    self.start(path, ticket, tokens, now);
                    return QuotaCheck::Starts;
                }
                Some((name, _)) => drop(reserved.insert(Text::clone(name))),
                None => reserved.extend(of.iter().cloned()),
            }
        }
        QuotaCheck::Waits(None)
    }

    /// Returns the first calls of all queues, in order of arrival.
    fn first_calls(&self) -> Vec<(u64, Path, u64)> {
        let first = |queue: &BTreeMap<u64, WaitingCall>| {
            #[cfg(test)]
            if self.bug == Some(Bug::Unfair) {
                return queue.last_key_value().map(|(ticket, waiting)| (*ticket, waiting.tokens));
            }
            queue.first_key_value().map(|(ticket, waiting)| (*ticket, waiting.tokens))
        };
        let firsts = self
            .queues
            .iter()
            .filter_map(|(path, queue)| first(queue).map(|(t, tokens)| (t, Arc::clone(path), tokens)));
        let mut firsts: Vec<_> = firsts.collect();
        firsts.sort_unstable_by_key(|(ticket, ..)| *ticket);
        firsts
    }

    fn availability(&mut self, name: &Text, reserved: &BTreeSet<Text>, tokens: u64, now: Instant) -> Availability {
        if reserved.contains(name) {
            return Availability::Full;
        }
        #[cfg(test)]
        let early = self.bug == Some(Bug::TooEarly);
        let availability = self.quota(name, now).availability(tokens, now);
        #[cfg(test)]
        let availability = if early && availability != Availability::Full { Availability::Now } else { availability };
        availability
    }

    fn start(&mut self, path: &Path, ticket: u64, tokens: u64, now: Instant) {
        self.remove(path, ticket);
        path.iter().for_each(|name| self.quota(name, now).start(tokens));
        self.wake_first();
    }

    pub(super) fn leave(&mut self, path: &Path, ticket: u64) {
        #[cfg(test)]
        if self.bug == Some(Bug::TicketLost) {
            return;
        }
        self.remove(path, ticket);
        self.wake_first();
    }

    fn remove(&mut self, path: &Path, ticket: u64) {
        if let Some(queue) = self.queues.get_mut(path) {
            queue.remove(&ticket);
            if queue.is_empty() {
                self.queues.remove(path);
            }
        }
    }

    pub(super) fn finish(&mut self, path: &Path, tokens: u64, cost: u64, now: Instant) {
        path.iter().for_each(|name| self.quota(name, now).finish(tokens, cost, now));
        self.quotas.retain(|_, quota| !quota.is_unused(now));
        self.wake_first();
    }

    pub(super) fn pause(&mut self, name: &Text, ms: u64, now: Instant) {
        if ms > 0 {
            self.quota(name, now).pause(saturating_later(now, Duration::from_millis(ms)));
            // A call that now waits for this quota no longer reserves a wider quota.
            self.wake_first();
        }
    }

    pub(super) fn paused_ms(&self, name: &Text, now: Instant) -> Option<u64> {
        self.quotas.get(name).and_then(|quota| paused_ms(quota, now))
    }

    pub(super) fn active_quotas(&mut self, now: Instant) -> Vec<QuotaUsage> {
        self.quotas.retain(|_, quota| !quota.is_unused(now));
        let mut waiting: BTreeMap<&Text, usize> = self.quotas.keys().map(|name| (name, 0)).collect();
        for (path, queue) in &self.queues {
            for name in path.iter() {
                let waiting = waiting.entry(name).or_default();
                *waiting = waiting.saturating_add(queue.len());
            }
        }
        let usage = |(name, waiting): (&Text, usize)| {
            let quota = self.quotas.get(name);
            QuotaUsage {
                name: Text::clone(name),
                running: quota.map_or(0, Quota::running),
                waiting,
                paused_ms: quota.and_then(|quota| paused_ms(quota, now)),
            }
        };
        waiting.into_iter().map(usage).collect()
    }

    pub(super) fn divide(&mut self, by: u32, now: Instant) {
        if by == self.divided {
            return;
        }
        self.divided = by;
        let (default, named) = (self.default, &self.named);
        self.quotas.iter_mut().for_each(|(name, quota)| quota.set(rates(name, default, named).divide(by), now));
        // The new rates may allow more calls than before.
        self.wake_first();
    }

    /// Wakes the first calls of all queues, in order of arrival. Each of them may start now, or must compute a new time.
    fn wake_first(&mut self) {
        for (ticket, path, _) in self.first_calls() {
            let waiting = self.queues.get(&path).and_then(|queue| queue.get(&ticket));
            self.pending_wakeups.extend(waiting.map(|waiting| Arc::clone(&waiting.wakeup)));
        }
    }

    fn quota(&mut self, name: &Text, now: Instant) -> &mut Quota {
        let (default, named, by) = (self.default, &self.named, self.divided);
        self.quotas.entry(Text::clone(name)).or_insert_with(|| Quota::new(rates(name, default, named).divide(by), now))
    }
}

/// Returns the named rates, or else the default. A model of a named provider is unlimited, because the rates of the provider apply to it.
fn rates(name: &Text, default: Rates, named: &BTreeMap<Text, Rates>) -> Rates {
    let provider = || name.split_once('/').and_then(|(provider, _)| named.get(provider));
    match (named.get(name), provider()) {
        (Some(rates), _) => *rates,
        (None, Some(_)) => Rates::unbounded(),
        (None, None) => default,
    }
}

/// Returns the remaining pause, rounded up, because 0 would mean that the pause is over.
fn paused_ms(quota: &Quota, now: Instant) -> Option<u64> {
    let left = quota.paused_until(now)?.saturating_duration_since(now);
    Some(u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
