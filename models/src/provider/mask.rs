//! Hides a key that a server repeats in an answer, because answers are stored, exported and displayed.

use std::borrow::Cow;

use super::key::Key;
use super::scrub::MASK;

/// Minimum length of a hidden key. Local servers accept any word as a key, such as `ollama`, and answers may contain this word.
const SHORTEST: usize = 8;

/// Maximum bytes of a text that are held back. A longer key is shown in part while the answer is written.
const MOST_HELD: usize = 128;

fn secret(key: Option<&Key>) -> Option<&str> {
    key.map(Key::reveal).filter(|key| key.len() >= SHORTEST)
}

/// Replaces the key in a text.
pub(super) fn mask(text: &str, key: Option<&Key>) -> String {
    secret(key).map_or_else(|| text.to_owned(), |key| text.replace(key, MASK))
}

/// Replaces the key in JSON text, such as arguments, even if characters of the key are escaped.
///
/// The text is not parsed, because it may be invalid JSON. Other parts of the text do not change.
pub(super) fn mask_json(text: &str, key: Option<&Key>) -> String {
    let masked = mask(text, key);
    let Some(key) = secret(key).filter(|_| masked.contains('\\')) else { return masked };
    let (plain, starts) = unescape(&masked);
    let start_of = |at: usize| starts.get(at).copied().unwrap_or(masked.len());
    // One pass: to replace each key within the text would move the rest of the text each time.
    let (mut hidden, mut copied) = (String::with_capacity(masked.len()), 0);
    for (at, _) in plain.match_indices(key) {
        hidden.push_str(masked.get(copied..start_of(at)).unwrap_or_default());
        hidden.push_str(MASK);
        copied = start_of(at.saturating_add(key.len()));
    }
    hidden.push_str(masked.get(copied..).unwrap_or_default());
    hidden
}

/// Returns the unescaped text, and for each of its bytes the position in `text`, followed by the length of `text`. Replaces each character that
/// no key can contain with one byte.
fn unescape(text: &str) -> (String, Vec<usize>) {
    let (mut plain, mut starts) = (String::with_capacity(text.len()), Vec::with_capacity(text.len()));
    let mut at = 0;
    while let Some(sign) = text.get(at..).and_then(|rest| rest.chars().next()) {
        starts.push(at);
        let rest = text.get(at.saturating_add(sign.len_utf8())..).unwrap_or_default();
        let (means, more) = if sign == '\\' { escape(rest) } else { (sign, 0) };
        plain.push(if means.is_ascii() { means } else { '\0' });
        at = at.saturating_add(sign.len_utf8()).saturating_add(more);
    }
    starts.push(text.len());
    (plain, starts)
}

/// Returns the character of an escape, and the number of its bytes after the backslash.
fn escape(rest: &str) -> (char, usize) {
    let hex = rest.strip_prefix('u').and_then(|rest| u32::from_str_radix(rest.get(..4)?, 16).ok());
    match (hex, rest.chars().next()) {
        (Some(code), _) => (char::from_u32(code).unwrap_or('\0'), 5),
        (None, Some(sign @ ('"' | '\\' | '/'))) => (sign, 1),
        // Other escapes are invalid, or stand for characters that no key can contain.
        (None, _) => ('\0', 0),
    }
}

/// Hides a key in a text that arrives in pieces.
///
/// Holds back the end of the text, whatever it is. If it held back only what may be the start of the key, a client that has a model
/// write guesses would see how the key continues.
#[derive(Clone, Default)]
pub(super) struct MaskedStream {
    held: String,
    /// Number of bytes of `held` that are already shown.
    shown: usize,
}

impl MaskedStream {
    /// Hides also the rest of a key that begins at the end of `earlier`, which this text may continue.
    pub(super) fn after(earlier: &str, key: Option<&Key>) -> Self {
        let held = secret(key).map_or("", |key| earlier.split_at(held_from(earlier, key)).1).to_owned();
        Self { shown: held.len(), held }
    }

    /// Adds a piece, and returns the text that can be shown.
    pub(super) fn push<'a>(&mut self, piece: &'a str, key: Option<&Key>) -> Cow<'a, str> {
        let Some(key) = secret(key) else { return piece.into() };
        self.held.push_str(piece);
        if let Some(at) = self.held.find(key) {
            self.held.drain(..at.min(std::mem::take(&mut self.shown)));
            self.held = self.held.replace(key, MASK);
        }
        let rest = self.held.split_off(held_from(&self.held, key));
        let mut text = std::mem::replace(&mut self.held, rest);
        let shown = self.shown.min(text.len());
        self.shown = self.shown.saturating_sub(shown);
        text.drain(..shown);
        let visible = self.held.floor_char_boundary(self.held.len().saturating_sub(MOST_HELD));
        text.push_str(self.held.get(self.shown..visible).unwrap_or_default());
        self.shown = self.shown.max(visible);
        text.into()
    }

    /// Returns whether text is held back.
    pub(super) fn is_holding(&self) -> bool {
        self.shown < self.held.len()
    }

    /// Returns the text that was held back. The rest of a key that begins in it is still hidden in the next pieces.
    pub(super) fn show_rest(&mut self) -> String {
        let shown = std::mem::replace(&mut self.shown, self.held.len());
        self.held.get(shown..).unwrap_or_default().to_owned()
    }
}

/// Returns the start of the part of `text` in which a key may begin that does not end in it.
fn held_from(text: &str, key: &str) -> usize {
    text.floor_char_boundary(text.len().saturating_sub(key.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-aab-sk-aac";

    fn mask_pieces(pieces: &[&str]) -> Vec<String> {
        let (key, mut stream) = (Key::new(KEY), MaskedStream::default());
        let mut said: Vec<String> = pieces
            .iter()
            .map(|piece| stream.push(piece, Some(&key)).into_owned())
            .filter(|text| !text.is_empty())
            .collect();
        said.push(stream.show_rest());
        said
    }

    /// What is shown, and when, depends on the length of the text. The control: the whole key is hidden.
    #[test]
    fn guess_of_a_key_is_shown_like_any_text() {
        for size in 1..KEY.len() {
            let lengths = |guess: &str| {
                let pieces = mask_pieces(&["a guess: ", guess, " and ", "more text after it"]);
                pieces.iter().map(String::len).collect::<Vec<_>>()
            };
            let (right, wrong) = (&KEY[..size], format!("{}?", &KEY[..size - 1]));
            assert_eq!(lengths(right), lengths(&wrong), "{right}");
        }
        assert_eq!(mask_pieces(&["at ", KEY, "!"]), ["at [key]!"], "the control");
        assert_eq!(mask_pieces(&["üüüüüüüa"]), ["ü", "üüüüüüa"]);
    }

    /// Text that is shown early, because a call follows, may be the start of a key.
    #[test]
    fn rest_of_a_key_is_hidden_after_text_was_shown() {
        let (key, mut stream) = (Key::new(KEY), MaskedStream::default());
        let mut said = String::new();
        for piece in ["at sk-", "aab-sk", "-aac and more text"] {
            said.push_str(&stream.push(piece, Some(&key)));
            said.push_str(&stream.show_rest());
        }
        assert_eq!(said, "at sk-aab-sk[key] and more text");
    }

    /// With a long key, an answer would appear long after its model wrote it.
    #[test]
    fn text_is_held_back_up_to_a_number_of_bytes() {
        let (key, mut stream) = (Key::new("k".repeat(300)), MaskedStream::default());
        let said: Vec<usize> = (0..4).map(|_| stream.push(&"x".repeat(100), Some(&key)).len()).collect();
        assert_eq!((said, stream.show_rest().len()), (vec![0, 72, 100, 100], MOST_HELD));
        let pieces = [&*"k".repeat(200), &*"k".repeat(100), "."];
        let said: String = pieces.iter().map(|piece| stream.push(piece, Some(&key)).into_owned()).collect();
        assert_eq!(said + &stream.show_rest(), format!("{}{MASK}.", "k".repeat(72)));
    }

    /// A run joins an answer that was truncated with its continuation. The control: other continuations do not change.
    #[test]
    fn key_is_hidden_across_two_answers() {
        let after = |earlier: &str, pieces: &[&str]| {
            let key = Key::new(KEY);
            let mut stream = MaskedStream::after(earlier, Some(&key));
            let said: String = pieces.iter().map(|piece| stream.push(piece, Some(&key)).into_owned()).collect();
            said + &stream.show_rest()
        };
        assert_eq!(after("at sk-aab", &["-sk-aac."]), "[key].");
        assert_eq!(after("at sk-aab", &["-sk", "-aac", "."]), "[key].");
        assert_eq!(after("sk-aab-sk-aa", &["b-sk-aac ", KEY]), "[key] [key]");
        for continued in ["-sk-aab.", "-sk-aa", "c", "", "sk-aab-sk"] {
            assert_eq!(after("at sk-aab", &[continued]), continued);
        }
        assert_eq!(after("at ", &[KEY, "!"]), "[key]!");
    }

    /// A short word is not a secret, and answers may contain it.
    #[test]
    fn short_key_is_not_hidden() {
        let key = Key::new("ollama");
        assert_eq!(mask("ollama", Some(&key)), "ollama");
        assert_eq!(MaskedStream::default().push("ollama", Some(&key)), "ollama");
    }

    #[test]
    fn key_with_escapes_is_hidden_in_json() {
        let key = Key::new("sk-\"a/b\\c-0");
        let hidden = |text: &str| mask_json(text, Some(&key));
        for written in [r#"sk-\"a/b\\c-0"#, r#"\u0073k-\u0022a\/b\u005cc-0"#, r#"sk\u002D\"a/b\\c-\u0030"#] {
            let around = format!(r#"{{"ä\n{written}": ["\ud83d\ude00{written}", "{written}{written}\""]}}"#);
            let expected = r#"{"ä\n[key]": ["\ud83d\ude00[key]", "[key][key]\""]}"#;
            assert_eq!(hidden(&around), expected);
            let broken = format!(r#"{{"a": "\q\u00{written}\"#);
            assert_eq!(hidden(&broken), r#"{"a": "\q\u00[key]\"#, "no JSON");
        }
        // The control: other text and its escapes do not change.
        for text in [r#"{"a": "\u0073k-\"a/b", "b": 1e400}"#, r#"{"a": "\\u0073k-"}"#, r"\", r"\u12"] {
            assert_eq!(hidden(text), text);
        }
    }

    /// Hundreds of thousands of escaped keys: to replace each within the text took seconds. The control: the result is the same
    /// as for one key.
    #[test]
    fn escaped_keys_are_hidden_in_linear_time() {
        let (key, copies) = (Key::new("zz345678"), 1_000_000);
        let hidden = |copies| mask_json(&format!(r#"{{"a":"{}"}}"#, r"\u007az345678".repeat(copies)), Some(&key));
        let begun = tokio::time::Instant::now();
        let all = hidden(copies);
        let took = begun.elapsed();
        assert_eq!(hidden(1), r#"{"a":"[key]"}"#);
        assert!(all == format!(r#"{{"a":"{}"}}"#, "[key]".repeat(copies)), "{} bytes", all.len());
        assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    }

    proptest! {
        #[test]
        fn no_split_of_a_text_shows_a_key(cuts in proptest::collection::vec(0_usize..60, 0..6), before in "[ska-]{0,9}", after in "[ska-]{0,9}") {
            let text = format!("{before}{KEY}{after}{KEY}");
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= text.len()).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(mask_pieces(&pieces).concat(), text.replace(KEY, MASK));
        }
    }
}
