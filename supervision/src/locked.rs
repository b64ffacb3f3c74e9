//! A mutex whose critical sections run no foreign code, so that poison carries no news.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value behind a mutex that ignores poison.
///
/// Poison says that a holder panicked half-way. Our sections call nothing of the caller's but `Eq`, `Ord` and `Hash`
/// of plain ids; refusing every later release because of it would turn one panic into a stuck runtime.
#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
