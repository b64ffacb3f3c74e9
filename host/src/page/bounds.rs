//! Size limits for the HTML of a view. A notice says how much was left out and where to read it.

use subtend_session::ids::{Seq, SessionId};

/// Maximum size in bytes of shown arguments and results.
pub(super) const MAX_RESULT_BYTES: usize = 64 << 10;
pub(super) const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Maximum size in bytes of the HTML of one entry.
pub(super) const MAX_ENTRY_BYTES: usize = 1 << 20;
/// Maximum size in bytes of the HTML of all entries of a view.
pub(super) const MAX_ENTRIES_BYTES: usize = 8 << 20;
pub(super) const MAX_HTML_BYTES: usize = 16 << 20;

/// Returns a text, truncated to `most` bytes with a notice about the rest.
pub(super) fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most);
    format!(
        "{}\n[{} bytes more: the API has them]",
        text.get(..end).unwrap_or_default(),
        text.len().saturating_sub(end)
    )
}

/// Returns how many of the last parts, whose sizes are given, fit within both bounds.
pub(super) fn count_newest(sizes: impl DoubleEndedIterator<Item = usize>, most: usize, most_bytes: usize) -> usize {
    let mut bytes = 0_usize;
    let fits = |size: &usize| {
        bytes = bytes.saturating_add(*size);
        bytes <= most_bytes
    };
    sizes.rev().take(most).take_while(fits).count()
}

/// Returns the notice for an entry with too much HTML, with the address of the whole entry.
pub(super) fn entry_left_out(session: SessionId, record: Seq, bytes: usize) -> String {
    let after = record.0.saturating_sub(1);
    format!(
        "[this entry has {bytes} bytes of HTML, the limit is {MAX_ENTRY_BYTES}: \
         GET /v1/sessions/{session}/transcript?after={after}&limit=1 has all of it]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_parts_within_both_bounds_are_counted() {
        let newest = |most, most_bytes| count_newest([5, 4, 3].into_iter(), most, most_bytes);
        let counts = [newest(9, 99), newest(2, 99), newest(9, 7), newest(9, 6), newest(9, 2), newest(0, 9)];
        assert_eq!(counts, [3, 2, 2, 1, 0, 0]);
    }

    #[test]
    fn clipped_text_says_how_much_is_left_out() {
        assert_eq!(clip("aüb", 4), "aüb");
        assert_eq!(clip("aüb", 2), "a\n[3 bytes more: the API has them]");
    }
}
