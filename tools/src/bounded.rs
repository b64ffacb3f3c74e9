//! Results with a size limit. A truncated result says how much is missing.

use crate::result::ToolOutput;

/// Collects a result line by line. Lines beyond the limit are counted but not kept.
#[derive(Debug)]
pub(crate) struct BoundedLines {
    text: String,
    cap: usize,
    total: u64,
    omitted: u64,
}

/// Bytes reserved for the line that reports truncation.
const FOOTER: usize = 160;

impl BoundedLines {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { text: String::new(), cap: usize::try_from(max_bytes).unwrap_or(usize::MAX), total: 0, omitted: 0 }
    }

    /// Adds a line, or counts it as omitted. After the first line that does not fit, all further lines are omitted.
    pub(crate) fn push_line(&mut self, line: &str) -> bool {
        let bytes = line.len().saturating_add(1);
        self.total = self.total.saturating_add(len(bytes));
        let fits = self.text.len().saturating_add(bytes) <= self.cap.saturating_sub(FOOTER);
        if self.omitted > 0 || !fits {
            self.omitted = self.omitted.saturating_add(1);
            return false;
        }
        self.text.push_str(line);
        self.text.push('\n');
        true
    }

    pub(crate) fn omitted(&self) -> u64 {
        self.omitted
    }

    pub(crate) fn finish(mut self, footer: &str) -> ToolOutput {
        self.text.push_str(footer);
        let text = self.text.trim_end_matches('\n');
        let total = self.total.saturating_add(len(footer.len()));
        let kept = head(text, self.cap);
        let truncated_from = (self.omitted > 0 || kept.len() < text.len()).then_some(total);
        ToolOutput { content: kept.into(), truncated_from }
    }
}

/// Returns at most `bytes` of the start of `text`, cut between characters.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

pub(crate) fn len(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns a line for display, truncated with a mark if it is long.
pub(crate) fn shorten(line: &str, bytes: usize) -> std::borrow::Cow<'_, str> {
    let kept = head(line, bytes);
    match line.len().saturating_sub(kept.len()) {
        0 => kept.into(),
        more => format!("{kept}… ({more} more bytes)").into(),
    }
}

/// Returns a line for display like [`shorten`], without its line end. Invalid UTF-8 is shown as U+FFFD, which takes three bytes for each byte,
/// so only the start of the line is converted.
pub(crate) fn shorten_bytes(line: &[u8], bytes: usize) -> String {
    const MAX_CHAR: usize = 4;
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last.saturating_add(1));
    let line = line.get(..end).unwrap_or(line);
    let (start, rest) = line.split_at(line.len().min(bytes.saturating_add(MAX_CHAR)));
    let text = String::from_utf8_lossy(start);
    let kept = head(&text, bytes);
    let more = match line.strip_prefix(kept.as_bytes()) {
        Some(more) => more.len(),
        None => text.len().saturating_sub(kept.len()).saturating_add(rest.len()),
    };
    if more == 0 { kept.to_owned() } else { format!("{kept}… ({more} more bytes)") }
}

/// Replaces control characters in a name: with a line break, one name could look like several results.
pub(crate) fn name(name: &str) -> std::borrow::Cow<'_, str> {
    if name.contains(char::is_control) { name.replace(char::is_control, "\u{fffd}").into() } else { name.into() }
}

/// Returns a number with its noun, such as `1 file` or `2 files`.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_result_is_complete() {
        let mut out = BoundedLines::new(1000);
        assert!(out.push_line("a") && out.push_line("b"));
        assert_eq!(out.finish(""), ToolOutput { content: "a\nb".into(), truncated_from: None });
    }

    #[test]
    fn omitted_items_are_counted_within_the_bound() {
        for max in [0, 1, 10, 200, 300] {
            let mut out = BoundedLines::new(max);
            for _ in 0..100 {
                out.push_line("ünï");
            }
            let cut = out.omitted();
            let output = out.finish("more");
            assert!(cut > 0 && output.content.len() as u64 <= max, "{max}: {}", output.content.len());
            assert_eq!(output.truncated_from, Some(604));
        }
    }

    #[test]
    fn control_characters_in_a_name_are_replaced() {
        assert_eq!(name("a\nb  9 bytes\u{1b}"), "a\u{fffd}b  9 bytes\u{fffd}");
        assert_eq!(name("caf\u{e9}"), "caf\u{e9}");
    }

    #[test]
    fn long_line_is_cut_at_a_character_boundary() {
        assert_eq!(shorten("aü", 2), "a… (2 more bytes)");
        assert_eq!(shorten("aü", 3), "aü");
    }

    #[test]
    fn long_line_of_bytes_is_cut_like_text() {
        for line in ["aü", "", "abcdefgh", "aüüüüüü", "aaaaaaaü"] {
            for bytes in 0..16 {
                let shown = shorten_bytes(format!("{line}\r\n").as_bytes(), bytes);
                assert_eq!(shown, shorten(line, bytes), "{line} {bytes}");
            }
        }
        assert_eq!(shorten_bytes(b"\xff\xff\n", 6), "\u{fffd}\u{fffd}");
        assert_eq!(shorten_bytes(b"\xff\xff\xff\xff\n", 6), "\u{fffd}\u{fffd}… (6 more bytes)");
    }
}
