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

/// The beginning of a model's answer in quotes, for errors: these are logged, and an answer may have megabytes.
#[derive(Debug)]
pub(crate) struct Excerpt(String);

impl Excerpt {
    pub(crate) fn of(answer: &str) -> Self {
        let start = answer.get(..answer.floor_char_boundary(200)).unwrap_or_default();
        let more =
            if start.len() < answer.len() { format!(" (cut, {} bytes in all)", answer.len()) } else { String::new() };
        Self(format!("{start:?}{more}"))
    }
}

impl std::fmt::Display for Excerpt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the first 2,000 bytes of a foreign text, truncated between characters.
pub(crate) fn truncate_message(text: &str) -> &str {
    text.get(..text.floor_char_boundary(2_000)).unwrap_or_default()
}
