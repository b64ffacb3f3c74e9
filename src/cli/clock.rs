//! The wall clock, for ages in listings.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 for an earlier clock.
#[expect(clippy::disallowed_methods, reason = "an age is said to a person; nothing is decided by it")]
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
