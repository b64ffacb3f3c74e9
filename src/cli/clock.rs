//! The wall clock, for ages in listings.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the Unix time in ms; 0 if the clock is before 1970.
#[expect(clippy::disallowed_methods, reason = "an age is only displayed; no decision depends on it")]
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
