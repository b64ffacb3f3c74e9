//! Texts of a server in messages.

use subtend_session::escape::on_one_line;

/// Maximum bytes of a text of the server in a message.
const MAX_TEXT: usize = 1_000;

/// Returns a text of the server on one line, escaped and shortened: an impostor may have sent it.
pub(super) fn server_text(text: &str) -> String {
    let start = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
    let rest = if start.len() < text.len() { "…" } else { "" };
    on_one_line(start) + rest
}
