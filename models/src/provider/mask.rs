//! Hides a key that a server repeats in an answer: an answer goes to the journal, to exports and to screens.

use std::borrow::Cow;

use super::key::Key;
use super::scrub::MASK;

/// Bytes of a key that is hidden. Servers of one's own take words such as `ollama` for one, which answers may contain.
const SHORTEST: usize = 8;

fn secret(key: Option<&Key>) -> Option<&str> {
    key.map(Key::reveal).filter(|key| key.len() >= SHORTEST)
}

/// Returns a text without the key.
pub(super) fn mask(text: &str, key: Option<&Key>) -> String {
    secret(key).map_or_else(|| text.to_owned(), |key| text.replace(key, MASK))
}

/// A text that comes in pieces. What may be the start of the key is held back until the next piece.
#[derive(Default)]
pub(super) struct MaskedStream(String);

impl MaskedStream {
    /// Takes a piece, and returns what can be said.
    pub(super) fn push<'a>(&mut self, piece: &'a str, key: Option<&Key>) -> Cow<'a, str> {
        let Some(key) = secret(key) else { return piece.into() };
        self.0.push_str(piece);
        if self.0.contains(key) {
            self.0 = self.0.replace(key, MASK);
        }
        let rest = self.0.split_off(self.0.len().saturating_sub(begun(&self.0, key)));
        std::mem::replace(&mut self.0, rest).into()
    }

    /// Returns what was held back.
    pub(super) fn rest(&mut self) -> String {
        std::mem::take(&mut self.0)
    }
}

/// Returns how many bytes at the end of `text` are the start of the key. A key is ASCII.
fn begun(text: &str, key: &str) -> usize {
    let most = text.len().min(key.len().saturating_sub(1));
    (1..=most).rev().find(|size| key.get(..*size).is_some_and(|start| text.ends_with(start))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-aab-sk-aac";

    fn said(pieces: &[&str]) -> Vec<String> {
        let (key, mut stream) = (Key::new(KEY), MaskedStream::default());
        let mut said: Vec<String> = pieces
            .iter()
            .map(|piece| stream.push(piece, Some(&key)).into_owned())
            .filter(|text| !text.is_empty())
            .collect();
        said.push(stream.rest());
        said
    }

    #[test]
    fn a_key_is_hidden_across_pieces_and_other_text_is_not_delayed() {
        assert_eq!(said(&["at ", KEY, "!"]), ["at ", "[key]", "!", ""]);
        assert_eq!(said(&["a sk-aab-", "sk-a", "ac b"]), ["a ", "[key] b", ""]);
        assert_eq!(said(&["sk-aab-sk-aab-sk-aac"]), ["sk-aab-[key]", ""]);
        assert_eq!(said(&["one ", "sk-", "two sk"]), ["one ", "sk-two ", "sk"]);
    }

    /// Such a word is not a secret, and answers may be about it.
    #[test]
    fn a_short_key_is_not_hidden() {
        let key = Key::new("ollama");
        assert_eq!(mask("ollama", Some(&key)), "ollama");
        assert_eq!(MaskedStream::default().push("ollama", Some(&key)), "ollama");
    }

    proptest! {
        #[test]
        fn no_cut_shows_a_key(cuts in proptest::collection::vec(0_usize..60, 0..6), before in "[ska-]{0,9}", after in "[ska-]{0,9}") {
            let text = format!("{before}{KEY}{after}{KEY}");
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= text.len()).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(said(&pieces).concat(), text.replace(KEY, MASK));
        }
    }
}
