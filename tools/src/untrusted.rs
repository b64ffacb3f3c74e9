//! Frames untrusted text for a model: escapes it, and puts it between marker lines.

use crate::escape::harmless;
use crate::tool::ToolKey;

/// Escapes the complete `text`, and puts it between marker lines that do not occur in it. `origin` says who wrote the text.
pub(crate) fn frame(key: &ToolKey, (about, origin): (&str, &str), text: &str) -> String {
    frame_printable(key, about, origin, harmless(text).trim())
}

/// Frames the escaped text `shown`.
pub(crate) fn frame_printable(key: &ToolKey, about: &str, origin: &str, shown: &str) -> String {
    let digits = boundary(key);
    let line = format!("--- {digits}");
    // An author that knows its session can compute the digits, so they are removed from the text. Digits contain no dash, so the removal
    // cannot create the line again.
    let shown = shown.replace(&digits, "-");
    format!("[{about}. The text between the two lines {line} {origin}]\n{line}\n{shown}\n{line}")
}

/// Returns digits for the marker lines, derived from the call.
fn boundary(key: &ToolKey) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
