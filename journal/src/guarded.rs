//! Code of a store, whose panic is an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::EngineError;

/// Runs code of a store; its panic is an error.
///
/// Unwinding leaves nothing of ours half done: what the closure captures is the store, which is not used again after an error.
pub(crate) fn guarded<T>(what: &'static str, work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let why = panic
            .downcast_ref::<&str>()
            .map(|words| (*words).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no words".to_owned());
        Err(EngineError::Panicked { what, why })
    })
}
