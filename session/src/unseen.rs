//! Characters by which one text can imitate another. Records, approvals and screens check for them.

/// Returns whether a character is invisible: a control character, a direction mark, or a character without width.
///
/// ```
/// use subtend_session::unseen::is_unseen;
///
/// assert!(['\u{1b}', '\n', '\u{200b}', '\u{202e}', '\u{feff}', '\u{1d173}'].into_iter().all(is_unseen));
/// assert!(!['a', ' ', 'ü', '字'].into_iter().any(is_unseen));
/// ```
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || changes_direction(c)
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a character looks like a space but is not one: a shell reads it as part of a word.
///
/// ```
/// use subtend_session::unseen::is_blank;
///
/// assert!(['\u{a0}', '\u{2800}', '\u{3000}'].into_iter().all(is_blank));
/// assert!(![' ', '\t', '\n'].into_iter().any(is_blank));
/// ```
pub fn is_blank(c: char) -> bool {
    c == '\u{2800}' || (c.is_whitespace() && !c.is_ascii() && !is_unseen(c))
}

pub fn changes_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
