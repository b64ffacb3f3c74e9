//! Coverage: the number of worlds in which each predicate examined a claim, and so could have failed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ALWAYS, Predicate, QUIESCENT, Verdict, World};

thread_local! {
    /// Claims examined by this thread. Several threads judge worlds in parallel.
    static EXAMINED: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn examine() {
    EXAMINED.set(EXAMINED.get().wrapping_add(1));
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub judged: u64,
    /// Worlds with at least one examined claim.
    pub relevant: u64,
}

/// Counts per predicate, filled by several threads.
#[derive(Debug)]
pub struct Coverage(Vec<[AtomicU64; 2]>);

impl Default for Coverage {
    fn default() -> Self {
        Self(all_predicates().map(|_| Default::default()).collect())
    }
}

fn all_predicates() -> impl Iterator<Item = &'static Predicate> {
    ALWAYS.iter().chain(QUIESCENT)
}

impl Coverage {
    /// Judges [`ALWAYS`], and at rest also [`QUIESCENT`]. Counts the worlds in which each predicate examined a claim.
    /// # Errors
    /// The first violation.
    pub fn judge(&self, world: &World<'_>, at_rest: bool) -> Verdict {
        let judged = if at_rest { usize::MAX } else { ALWAYS.len() };
        all_predicates().zip(&self.0).take(judged).try_for_each(|(predicate, [worlds, relevant])| {
            let before = EXAMINED.get();
            let verdict = (predicate.check)(world);
            worlds.fetch_add(1, Ordering::Relaxed);
            relevant.fetch_add(u64::from(EXAMINED.get() != before), Ordering::Relaxed);
            verdict
        })
    }

    pub fn add(&self, other: &Self) {
        for ([worlds, relevant], [more_worlds, more_relevant]) in self.0.iter().zip(&other.0) {
            worlds.fetch_add(more_worlds.load(Ordering::Relaxed), Ordering::Relaxed);
            relevant.fetch_add(more_relevant.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns each predicate with its counts, in the order of [`ALWAYS`] and [`QUIESCENT`].
    pub fn counts(&self) -> impl Iterator<Item = (&'static Predicate, Count)> {
        all_predicates().zip(&self.0).map(|(predicate, [judged, relevant])| {
            let (judged, relevant) = (judged.load(Ordering::Relaxed), relevant.load(Ordering::Relaxed));
            (predicate, Count { judged, relevant })
        })
    }
}
