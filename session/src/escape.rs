//! Text that is safe to print: terminal control and invisible characters are escaped.

use std::fmt;

use crate::unseen::{is_blank, is_unseen};

/// Returns `text` with line breaks and tabs intact and other invisible or control characters escaped, as `<U+202E>`.
///
/// Joiners and variation selectors remain after a character that they can modify, such as an emoji.
///
/// ```
/// use subtend_session::escape::harmless;
///
/// assert_eq!(harmless("a\tb\u{1b}[31m\u{202e}c"), "a\tb<U+001B>[31m<U+202E>c");
/// ```
pub fn harmless(text: &str) -> String {
    harmless_pieces(text).to_string()
}

/// Returns a value that is displayed as [`harmless`] returns it, piece by piece: an escaped text can be eight times as long.
pub fn harmless_pieces(text: &str) -> EscapedPieces<'_> {
    EscapedPieces {
        text,
        is_escaped: |before, c, after| match c {
            '\r' => after != Some('\n'),
            '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => before.is_none_or(|before| before.is_ascii()),
            c => is_unseen(c),
        },
    }
}

/// Returns `text` escaped as by [`harmless`], and also line breaks and tabs. For a name on a line with other text.
pub fn on_one_line(text: &str) -> String {
    harmless(text).chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '\n' | '\r' | '\t' => out.push_str(&named(c)),
            c => out.push(c),
        }
        out
    })
}

/// Returns `text` escaped as by [`harmless`], and also every invisible character and space lookalike. For approvals.
pub fn exact(text: &str) -> String {
    exact_pieces(text).to_string()
}

/// Returns a value that is displayed as [`exact`] returns it, piece by piece.
pub fn exact_pieces(text: &str) -> EscapedPieces<'_> {
    EscapedPieces { text, is_escaped: |_, c, _| is_unseen(c) || is_blank(c) }
}

/// A text that is escaped while it is displayed.
#[derive(Clone, Copy, Debug)]
pub struct EscapedPieces<'a> {
    text: &'a str,
    /// Decides by the characters before and after.
    is_escaped: fn(Option<char>, char, Option<char>) -> bool,
}

impl fmt::Display for EscapedPieces<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut before, mut plain) = (None, 0);
        let mut chars = self.text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let after = chars.peek().map(|(_, after)| *after);
            if matches!(c, '\n' | '\t') || !(self.is_escaped)(before, c, after) {
                before = Some(c);
                continue;
            }
            out.write_str(self.text.get(plain..at).unwrap_or_default())?;
            out.write_str(&named(c))?;
            // The last written character: a joiner after an escaped character must be escaped too.
            (before, plain) = (Some('>'), at.saturating_add(c.len_utf8()));
        }
        out.write_str(self.text.get(plain..).unwrap_or_default())
    }
}

fn named(c: char) -> String {
    format!("<U+{:04X}>", u32::from(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_text_keeps_its_lines() {
        assert_eq!(harmless("a\n\tb\u{1b}[31m\u{202e}c\r"), "a\n\tb<U+001B>[31m<U+202E>c<U+000D>");
        assert_eq!(harmless("a\r\nb"), "a\r\nb", "CR LF ends a line");
    }

    #[test]
    fn name_on_a_line_has_no_line_breaks() {
        assert_eq!(on_one_line("a\nb\r\nc\td\u{1b}"), "a<U+000A>b<U+000D><U+000A>c<U+0009>d<U+001B>");
    }

    #[test]
    fn u4_characters_without_a_width_are_named() {
        assert_eq!(harmless("a\u{200b}b\u{feff}\u{2066}\u{e0041}"), "a<U+200B>b<U+FEFF><U+2066><U+E0041>");
        let emoji = "\u{2764}\u{fe0f}\u{200d}\u{1f525}";
        assert_eq!((harmless(emoji), harmless("a\u{200d}b")), (emoji.to_owned(), "a<U+200D>b".to_owned()));
        assert_eq!(harmless("\u{e9}\u{202e}\u{200d}"), "\u{e9}<U+202E><U+200D>");
        assert_eq!(exact(emoji), "\u{2764}<U+FE0F><U+200D>\u{1f525}");
        assert_eq!(exact("a\r\nb\tc"), "a<U+000D>\nb\tc");
        assert_eq!(exact("rm\u{2800}-rf\u{a0}/"), "rm<U+2800>-rf<U+00A0>/");
        assert_eq!(harmless("2\u{a0}kg \u{2803}"), "2\u{a0}kg \u{2803}");
    }
}
