//! Frames untrusted text for a model: printable, and between marker lines.

use crate::escape::harmless;
use crate::tool::ToolKey;

/// Returns the complete `text`, made printable, between marker lines that do not occur in it. `origin` names the author.
pub(crate) fn frame(key: &ToolKey, (about, origin): (&str, &str), text: &str) -> String {
    frame_printable(key, about, origin, harmless(text).trim())
}

/// Frames the printable text `shown`.
pub(crate) fn frame_printable(key: &ToolKey, about: &str, origin: &str, shown: &str) -> String {
    let digits = boundary(key);
    let line = format!("--- {digits}");
    // An author that knows its session can compute the digits. They contain no dash, so a replacement cannot create them again.
    let shown = shown.replace(&digits, "-");
    format!("[{about}. The text between the two lines {line} {origin}]\n{line}\n{shown}\n{line}")
}

/// Returns digits derived from the call.
fn boundary(key: &ToolKey) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
