//! Bounded texts of panics and of other foreign errors.

use subtend_session::ids::Text;

/// Returns the message of a panic, truncated.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> Text {
    let text = panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    truncate_message(text).into()
}

/// Returns the first 2,000 bytes of a foreign text, truncated between characters.
pub(crate) fn truncate_message(text: &str) -> &str {
    let mut end = text.len().min(2_000);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}
