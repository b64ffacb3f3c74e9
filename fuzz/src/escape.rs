//! Fuzzes the escaping of text for a terminal.

use subtend_tools::escape::{exact, harmless};

use super::InputResult;

/// Checks that escaped text contains no terminal control characters, and that escaping is idempotent.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let text = String::from_utf8_lossy(bytes);
    let shown = harmless(&text);
    for (escaped, again, joiners) in [(&shown, harmless(&shown), true), (&exact(&text), exact(&exact(&text)), false)] {
        let mut chars = escaped.chars().peekable();
        while let Some(c) = chars.next() {
            let line_end = joiners && c == '\r' && chars.peek() == Some(&'\n');
            assert!(matches!(c, '\n' | '\t') || line_end || !c.is_control(), "{c:?} remains in {escaped:?}");
            assert!(!changes_direction(c), "{c:?} remains in {escaped:?}");
            assert!(!is_invisible(c) || (joiners && is_joiner(c)), "{c:?} remains in {escaped:?}");
        }
        let lines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
        assert_eq!(lines(escaped), lines(&text), "a line was added or lost: {escaped:?}");
        assert_eq!(again, *escaped, "escaped text changes when it is escaped again");
        // `<U+10FFFF>`, the longest escape, has ten bytes and replaces at least one.
        assert!(escaped.len() <= text.len().saturating_mul(10), "{} bytes of {}", escaped.len(), text.len());
    }
    if shown == *text { InputResult::Accepted } else { InputResult::Refused }
}

fn changes_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2064}' | '\u{feff}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{e0001}'..='\u{e007f}')
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}')
}
