//! The one place where calls are let through: all quotas and all calls that wait, behind one lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use subtend_session::ids::{SessionId, Text};
use tokio::time::Instant;

use super::QuotaSeen;
use super::bucket::later;
use super::lanes::Ticket;
use super::quota::{Key, Quota};
use super::rates::Rates;

mod turns;

/// What bounds a call.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// The session that calls.
    pub(super) who: SessionId,
    /// The quotas, the narrowest first, each once.
    pub(super) path: Arc<[Key]>,
    /// What the call is thought to cost.
    pub(super) tokens: u64,
}

/// A call that has not started.
#[derive(Debug)]
struct Waiting {
    claim: Claim,
    /// How many quotas of the path have let it in. With all of them it is called up: it starts when it is polled.
    passed: usize,
    waker: Option<Waker>,
}

/// What a poll of a call finds.
#[derive(Debug)]
pub(super) enum Polled {
    /// It starts. Its waker is to be dropped without the lock.
    Starts(Option<Waker>),
    /// It waits.
    Waits,
    /// The desk is closed.
    Closed,
}

/// All quotas and all calls that wait.
///
/// A call goes along its path, from quota to quota: it waits in the lanes of the first that has not let it in and holds a
/// place in those that have. Each of them puts by what the call costs; it is paid when the call starts, which is when it is
/// polled and every quota is still open to it.
#[derive(Debug)]
pub(super) struct Desk {
    default: Rates,
    named: BTreeMap<Text, Rates>,
    quotas: BTreeMap<Key, Quota>,
    waiting: HashMap<Ticket, Waiting>,
    tickets: u64,
    /// Quotas to look at, the narrowest first: a call that gets there takes its turn in the wide one before that is given.
    look: BTreeSet<Key>,
    dues: BTreeSet<(Instant, Key)>,
    /// Calls that were called up: woken after the lock is released, for a waker may do anything.
    called: Vec<Waker>,
    closed: bool,
    #[cfg(test)]
    pub(super) bug: Option<super::tests::Bug>,
    #[cfg(test)]
    pub(super) looks: u64,
}

impl Desk {
    pub(super) fn new(default: Rates, named: BTreeMap<Text, Rates>) -> Self {
        Self {
            default,
            named,
            quotas: BTreeMap::new(),
            waiting: HashMap::new(),
            tickets: 0,
            look: BTreeSet::new(),
            dues: BTreeSet::new(),
            called: Vec::new(),
            closed: false,
            #[cfg(test)]
            bug: None,
            #[cfg(test)]
            looks: 0,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The calls to wake.
    pub(super) fn take_called(&mut self) -> Vec<Waker> {
        mem::take(&mut self.called)
    }

    /// When the timer is to look again.
    pub(super) fn first_due(&self) -> Option<Instant> {
        self.dues.first().map(|(due, _)| *due).filter(|_| !self.closed)
    }

    /// A call comes. At a closed desk its ticket is good for nothing.
    pub(super) fn join(&mut self, claim: Claim, now: Instant) -> Ticket {
        self.tickets = self.tickets.saturating_add(1);
        let ticket = Ticket(self.tickets);
        if self.closed {
            return ticket;
        }
        let who = claim.who;
        let first = claim.path.first().cloned();
        self.waiting.insert(ticket, Waiting { claim, passed: 0, waker: None });
        if let Some(key) = first {
            self.quota(&key, now).lanes.join(who, ticket);
            self.look.insert(key);
        }
        self.work(now);
        ticket
    }

    /// A call is polled: it starts if it was called up and every quota is still open to it.
    ///
    /// Between the two a quota may have been told to cool, or a call that ended may have cost more than was thought: then
    /// the call waits there again, at the head of its lane and with the next turn.
    pub(super) fn start(&mut self, ticket: Ticket, now: Instant) -> Polled {
        let Some(waiting) = self.waiting.get(&ticket) else { return Polled::Closed };
        let claim = waiting.claim.clone();
        if waiting.passed < claim.path.len() {
            return Polled::Waits;
        }
        if let Some(shut) = self.first_shut(&claim, claim.path.len(), now) {
            self.send_back(ticket, shut);
            self.work(now);
            return Polled::Waits;
        }
        for key in claim.path.iter() {
            self.quota(key, now).start(claim.tokens);
        }
        Polled::Starts(self.waiting.remove(&ticket).and_then(|waiting| waiting.waker))
    }

    /// Remembers whom to wake. The waker that this replaces is handed back, to be dropped without the lock.
    pub(super) fn wake_with(&mut self, ticket: Ticket, waker: &Waker) -> Option<Waker> {
        let waiting = self.waiting.get_mut(&ticket)?;
        match &waiting.waker {
            Some(old) if old.will_wake(waker) => None,
            Some(_) | None => waiting.waker.replace(waker.clone()),
        }
    }

    /// A call that has not started gives up, wherever it is on its way. Its waker is handed back, to be dropped without the
    /// lock.
    pub(super) fn leave(&mut self, ticket: Ticket, now: Instant) -> Option<Waker> {
        let Waiting { claim, passed, waker } = self.waiting.remove(&ticket)?;
        // The wider ones do not know of it, and may be forgotten themselves.
        for (ix, key) in claim.path.iter().enumerate().take(passed.saturating_add(1)) {
            #[cfg(test)]
            if self.has_bug(super::tests::Bug::PlaceLost) && passed == claim.path.len() {
                continue;
            }
            let quota = self.quota(key, now);
            if ix < passed {
                quota.give_back(claim.tokens);
                quota.lanes.gone(claim.who, ticket);
            } else {
                quota.lanes.leave(claim.who, ticket);
            }
            self.look.insert(key.clone());
        }
        self.work(now);
        waker
    }

    /// A call that ran ends.
    pub(super) fn finish(&mut self, claim: &Claim, cost: u64, now: Instant) {
        for key in claim.path.iter() {
            self.quota(key, now).finish(claim.tokens, cost, now);
            self.look.insert(key.clone());
        }
        self.work(now);
    }

    /// Nobody starts under `name` for so long.
    pub(super) fn cool(&mut self, name: &Text, ms: u64, now: Instant) {
        if self.closed || ms == 0 {
            return;
        }
        let key = Key::of(name);
        self.quota(&key, now).cool(later(now, Duration::from_millis(ms)));
        // The next in line of a wider quota may hold a place in this one: the wider one is to call the one after it.
        self.look.extend(self.quotas.keys().cloned());
        self.work(now);
    }

    pub(super) fn cooling_ms(&self, name: &Text, now: Instant) -> Option<u64> {
        self.quotas.get(&Key::of(name)).and_then(|quota| cooling_ms(quota, now))
    }

    pub(super) fn seen(&self, now: Instant) -> Vec<QuotaSeen> {
        let seen = |(key, quota): (&Key, &Quota)| QuotaSeen {
            name: Text::clone(&key.name),
            running: quota.running(),
            waiting: quota.waiting(),
            cooling_ms: cooling_ms(quota, now),
        };
        let mut all: Vec<QuotaSeen> = self.quotas.iter().map(seen).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The timer fires: looks at the quotas that are due.
    pub(super) fn tick(&mut self, now: Instant) {
        while self.dues.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, key)) = self.dues.pop_first() else { break };
            if let Some(quota) = self.quotas.get_mut(&key) {
                quota.due = None;
            }
            self.look.insert(key);
        }
        self.work(now);
    }

    /// Everybody who waits is sent away, and whoever comes later does not wait.
    pub(super) fn close(&mut self, now: Instant) {
        self.closed = true;
        self.called.extend(self.waiting.drain().filter_map(|(_, waiting)| waiting.waker));
        for quota in self.quotas.values_mut() {
            quota.clear();
        }
        self.look.extend(self.quotas.keys().cloned());
        self.work(now);
    }

    #[cfg(test)]
    fn has_bug(&self, bug: super::tests::Bug) -> bool {
        self.bug == Some(bug)
    }

    fn quota(&mut self, key: &Key, now: Instant) -> &mut Quota {
        let (default, named) = (self.default, &self.named);
        self.quotas.entry(key.clone()).or_insert_with(|| Quota::new(rates(&key.name, default, named), now))
    }
}

/// The rates that are named; else the default, but none for a model whose provider is named: that bound is meant for all of
/// its models.
fn rates(name: &Text, default: Rates, named: &BTreeMap<Text, Rates>) -> Rates {
    let provider = || name.split_once('/').and_then(|(provider, _)| named.get(provider));
    match (named.get(name), provider()) {
        (Some(rates), _) => *rates,
        (None, Some(_)) => Rates::unbounded(),
        (None, None) => default,
    }
}

/// What is left, rounded up: 0 would read as over.
fn cooling_ms(quota: &Quota, now: Instant) -> Option<u64> {
    let left = quota.cooling(now)?.saturating_duration_since(now);
    Some(u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
