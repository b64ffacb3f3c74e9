//! Deadlines in coarse ticks, with a linked list of timers for each tick.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::FixedState;

const TICK_NANOS: u64 = 5_000_000;

const NONE: u32 = u32::MAX;

/// A multiple of 5 ms since the start of the timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

impl Tick {
    pub(super) const FIRST: Self = Self(0);
    pub(super) const LAST: Self = Self(u64::MAX);

    /// Returns the first tick at or after the deadline. It rounds up, so that no key fires early.
    fn covering(due_nanos: u64) -> Self {
        Self(due_nanos.div_ceil(TICK_NANOS))
    }

    /// Returns the last tick that has started at this time.
    pub(super) fn begun(now_nanos: u64) -> Self {
        Self(now_nanos / TICK_NANOS)
    }

    /// Returns the time from the start of the timers to the start of this tick.
    pub(super) fn starts(self) -> Duration {
        Duration::from_nanos(self.0.saturating_mul(TICK_NANOS))
    }
}

/// Armed keys by tick. Each timer is a slab node in the list of its tick, so that a disarm unlinks it without a search.
pub(super) struct Wheel<K> {
    index: HashMap<K, u32, FixedState>,
    nodes: Vec<WheelNode<K>>,
    free: Vec<u32>,
    ticks: BTreeMap<Tick, u32>,
}

#[derive(Clone, Copy)]
struct WheelNode<K> {
    key: K,
    due_nanos: u64,
    tick: Tick,
    before: u32,
    next: u32,
}

impl<K: Copy + Eq + Hash + Ord> Wheel<K> {
    pub(super) fn new() -> Self {
        Self { index: HashMap::default(), nodes: Vec::new(), free: Vec::new(), ticks: BTreeMap::new() }
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.index.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn first(&self) -> Option<Tick> {
        self.ticks.first_key_value().map(|(tick, _)| *tick)
    }

    /// Arms or moves a key. Returns its tick.
    pub(super) fn arm(&mut self, key: K, due_nanos: u64) -> Tick {
        let tick = Tick::covering(due_nanos);
        let node = WheelNode { key, due_nanos, tick, before: NONE, next: NONE };
        let at = match self.index.entry(key) {
            Entry::Occupied(present) => {
                let at = *present.get();
                self.unlink(at);
                at
            }
            Entry::Vacant(vacant) => {
                let at = self.free.pop().unwrap_or_else(|| u32::try_from(self.nodes.len()).unwrap_or(NONE));
                *vacant.insert(at)
            }
        };
        match self.nodes.get_mut(at as usize) {
            Some(reused) => *reused = node,
            None => self.nodes.push(node),
        }
        self.link(at, tick);
        tick
    }

    pub(super) fn disarm(&mut self, key: &K) -> bool {
        let Some(at) = self.index.remove(key) else { return false };
        self.unlink(at);
        self.free.push(at);
        true
    }

    /// Returns the keys whose tick has begun at `now`, in the order in which they fire. They stay armed.
    pub(super) fn due(&self, now: Tick) -> Vec<K> {
        let mut due = Vec::new();
        for (_, first) in self.ticks.range(..=now) {
            let mut at = *first;
            while let Some(node) = self.nodes.get(at as usize) {
                due.push((node.due_nanos, node.key));
                at = node.next;
            }
        }
        due.sort_unstable();
        due.into_iter().map(|(_, key)| key).collect()
    }

    /// Disarms `key` if it is armed and due at `now`.
    pub(super) fn take_due(&mut self, key: &K, now: Tick) -> bool {
        let due = |at: &u32| self.nodes.get(*at as usize).is_some_and(|node| node.tick <= now);
        self.index.get(key).is_some_and(due) && self.disarm(key)
    }

    fn link(&mut self, at: u32, tick: Tick) {
        let old_first = self.ticks.insert(tick, at).unwrap_or(NONE);
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.next = old_first;
        }
        if let Some(node) = self.nodes.get_mut(old_first as usize) {
            node.before = at;
        }
    }

    fn unlink(&mut self, at: u32) {
        let Some(WheelNode { tick, before, next, .. }) = self.nodes.get(at as usize).copied() else { return };
        if let Some(node) = self.nodes.get_mut(next as usize) {
            node.before = before;
        }
        if let Some(node) = self.nodes.get_mut(before as usize) {
            node.next = next;
        } else if next == NONE {
            self.ticks.remove(&tick);
        } else {
            self.ticks.insert(tick, next);
        }
    }
}
