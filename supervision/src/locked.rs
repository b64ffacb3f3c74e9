//! Mutex that ignores poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Value behind a mutex that ignores poison.
///
/// Critical sections call no foreign code but `Eq`, `Ord` and `Hash` of plain ids. Refusing every later release would turn one panic into
/// a stuck runtime.
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
