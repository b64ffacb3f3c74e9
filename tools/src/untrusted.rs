//! Text of others for a model: printable, and between lines that mark it.

use crate::escape::harmless;
use crate::tool::ToolKey;

/// Returns the whole of `text` below `about`, printable, between lines that it does not hold. `origin` says who wrote it.
pub(crate) fn between(key: &ToolKey, (about, origin): (&str, &str), text: &str) -> String {
    enclosed(key, about, origin, harmless(text).trim())
}

pub(crate) fn enclosed(key: &ToolKey, about: &str, origin: &str, shown: &str) -> String {
    let digits = boundary(key);
    let line = format!("--- {digits}");
    // They contain no dash, so no replacement makes them again. An author may know its session, and so the digits.
    let shown = shown.replace(&digits, "-");
    format!("[{about}. What is between the two lines {line} {origin}]\n{line}\n{shown}\n{line}")
}

/// Returns digits that follow from the call.
fn boundary(key: &ToolKey) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
