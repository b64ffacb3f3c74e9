//! Random values that are drawn from the seed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A random generator; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SeededRng(Arc<Mutex<fastrand::Rng>>);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    fn rng(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn below(&self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.rng().u64(..most) }
    }

    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        self.rng().u64(least..=most.max(least))
    }

    /// Returns true with a probability of 1 in `of`, or never if `of` is 0.
    pub(crate) fn one_in(&self, of: u64) -> bool {
        of > 0 && self.below(of) == 0
    }

    pub(crate) fn pick<T: Clone>(&self, of: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(of.len() as u64)).unwrap_or_default();
        of.get(at).cloned()
    }

    /// Returns one of the values, chosen by weight. `None` if all weights are 0.
    pub(crate) fn pick_weighted<T: Copy>(&self, of: &[(T, u32)]) -> Option<T> {
        let total = of.iter().fold(0_u64, |sum, (_, weight)| sum.saturating_add(u64::from(*weight)));
        if total == 0 {
            return None;
        }
        let mut at = self.below(total);
        for (what, weight) in of {
            match at.checked_sub(u64::from(*weight)) {
                Some(rest) => at = rest,
                None => return Some(*what),
            }
        }
        None
    }

    pub(crate) fn ms(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }
}
