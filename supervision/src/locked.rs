use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value behind a mutex that ignores poisoning.
/// Critical sections call no foreign code except `Eq`, `Ord` and `Hash` of plain ids, so a panic leaves consistent state.
/// With poisoning, one panic would make every later release fail and block the runtime.
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
