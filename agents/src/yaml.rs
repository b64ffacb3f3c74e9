//! YAML of files that a person or a repository wrote, with limits of what aliases repeat.

use serde_json::Value;

/// Maximum number of nodes that aliases repeat in one file. A workspace may have a thousand files.
const MAX_REPEATED: usize = 1_000;

/// Bytes of texts that each file may have, with those that aliases repeat. A larger file may have twice its size.
const MIN_TEXT_BYTES: usize = 16 << 10;

/// Parses a file; an empty one is null.
///
/// # Errors
/// A text on one line: it is not YAML, or its aliases repeat too much.
pub fn parse(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED },
        budget: serde_saphyr::budget! { max_total_scalar_bytes: text.len().saturating_mul(2).max(MIN_TEXT_BYTES) },
    };
    serde_saphyr::from_str_with_options::<Option<Value>>(text, options).map(Option::unwrap_or_default).map_err(
        |error| {
            // This is the library's formatter for users. Its other formatters mention options of the library.
            let message = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            message.split_whitespace().collect::<Vec<_>>().join(" ")
        },
    )
}
