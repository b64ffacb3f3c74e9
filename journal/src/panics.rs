use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::EngineError;

/// Runs engine code and converts a panic into an error. The closure captures only the store, which is not used after an error.
pub(crate) fn catch_panics<T>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let why = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        Err(EngineError::Panicked { what, why })
    })
}

/// Drops `value` as a panic of its owner would, without a message: its destructor sees that the thread panics.
#[cfg(feature = "redb")]
pub(crate) fn drop_unwinding<T>(value: T) {
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _value = value;
        resume_unwind(Box::new(()))
    }));
    // It always unwinds, and has no message.
    drop(unwound);
}
