//! Redacts secret values in texts and streams.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mcp")]
use serde_json::Value;
use subtend_session::ids::Text;
use tokio::time::Instant;

#[cfg(feature = "mcp")]
use crate::bounded::head;

/// Minimum length of a redacted value. Shorter values also occur in other texts.
pub const SHORTEST: usize = 8;

/// Time without output after which a stream shows its last bytes, such as a prompt. The parts of a value that come further apart
/// are shown.
const QUIET: Duration = Duration::from_millis(500);

/// Secret values, which are replaced by their names in tool results.
///
/// A value is found verbatim, also across line breaks and their escapes `\n` and `\r`, but not encoded or split otherwise.
///
/// ```
/// use subtend_tools::secrets::Secrets;
///
/// let secrets = Secrets::of([("OPENAI_API_KEY", "sk-0123456789"), ("EMPTY", "")]);
/// assert_eq!(secrets.redact("key: sk-0123456789."), "key: [OPENAI_API_KEY redacted].");
/// assert_eq!(format!("{secrets:?}"), "Secrets([\"OPENAI_API_KEY\"])");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Arc<[(Text, String)]>);

impl Secrets {
    /// Creates secrets from names and values. Trims the values, and omits those shorter than [`SHORTEST`] bytes.
    pub fn of<N: Into<Text>, V: AsRef<str>>(values: impl IntoIterator<Item = (N, V)>) -> Self {
        let trimmed = values.into_iter().map(|(name, value)| (name.into(), value.as_ref().trim().to_owned()));
        let mut values: Vec<(Text, String)> = trimmed.filter(|(_, value)| value.len() >= SHORTEST).collect();
        // A value that contains another one must be replaced first.
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        Self(values.into())
    }

    #[cfg(feature = "mcp")]
    pub(crate) fn with(&self, other: &Self) -> Self {
        if other.is_empty() { self.clone() } else { Self::of(self.0.iter().chain(other.0.iter()).cloned()) }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `text` with each secret value replaced by its name. A part of a value stays: hiding a right start and showing a
    /// wrong one would tell a model the value, character by character.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (name, value) in self.0.iter() {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), &format!("[{name} redacted]")));
            }
        }
        self.redact_broken(&text).map_or(text, Cow::Owned)
    }

    /// Returns the redacted start of a text, which has at least `bytes` unless secrets are replaced by shorter names. Redaction of a whole text of a server would bind a
    /// thread of the runtime.
    #[cfg(feature = "mcp")]
    pub(crate) fn redact_head<'a>(&self, text: &'a str, bytes: usize) -> Cow<'a, str> {
        // A value may have line breaks within.
        let rest = self.0.first().map_or(0, |(_, value)| value.len()).saturating_mul(4);
        let first = head(text, bytes.saturating_add(rest));
        let redacted = self.redact(first);
        if first.len() == text.len() {
            return redacted;
        }
        // A value that is cut is not recognized.
        let kept = head(&redacted, redacted.len().saturating_sub(rest)).len();
        match redacted {
            Cow::Borrowed(text) => head(text, kept).into(),
            Cow::Owned(mut text) => {
                text.truncate(kept);
                text.into()
            }
        }
    }

    /// Returns whether a text in `value` has a secret, or the JSON of `value`, in which a secret with line breaks or quotes is
    /// escaped.
    #[cfg(feature = "mcp")]
    pub(crate) fn are_in(&self, value: &Value) -> bool {
        !self.is_empty() && (self.is_in(&value.to_string()) || self.are_in_texts(value))
    }

    #[cfg(feature = "mcp")]
    fn are_in_texts(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.is_in(text),
            Value::Array(items) => items.iter().any(|item| self.are_in_texts(item)),
            Value::Object(fields) => fields.iter().any(|(key, value)| self.is_in(key) || self.are_in_texts(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Returns `value` with each text redacted.
    #[cfg(feature = "mcp")]
    pub(crate) fn redact_texts(&self, value: &Value) -> Value {
        let text = |text: &String| self.redact(text).into_owned();
        match value {
            Value::String(one) => text(one).into(),
            Value::Array(items) => items.iter().map(|item| self.redact_texts(item)).collect(),
            Value::Object(fields) => fields.iter().map(|(key, one)| (text(key), self.redact_texts(one))).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    #[cfg(feature = "mcp")]
    pub(crate) fn is_in(&self, text: &str) -> bool {
        matches!(self.redact(text), Cow::Owned(_))
    }

    /// Replaces values that line breaks interrupt, as those between the parts of a server's answer. Returns `None` if it finds none.
    fn redact_broken(&self, text: &str) -> Option<String> {
        // A value may lose its own line breaks, as in an address.
        if !has_breaks(text) && !self.0.iter().any(|(_, value)| has_breaks(value)) {
            return None;
        }
        let joined = without_breaks(text);
        let mut found: Vec<(usize, usize, &Text)> = Vec::new();
        for (name, value) in self.0.iter() {
            let value = without_breaks(value);
            if value.len() >= SHORTEST {
                let ranges = joined.match_indices(&value).map(|(at, _)| (at, at.saturating_add(value.len()), name));
                found.extend(ranges);
            }
        }
        drop(joined);
        if found.is_empty() {
            return None;
        }
        // Of values that overlap, the longer one is replaced first, and the rest of the other one remains.
        found.sort_by_key(|(from, to, _)| (*from, std::cmp::Reverse(*to)));
        replace(text, &found)
    }
}

fn has_breaks(text: &str) -> bool {
    text.contains(['\n', '\r']) || text.contains("\\n") || text.contains("\\r")
}

fn without_breaks(text: &str) -> String {
    kept_parts(text).map(|(_, part)| part).collect()
}

/// Returns the parts of a text between its line breaks, with their positions.
fn kept_parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let of_break = move |at: usize| bytes.get(at..).map_or(0, break_len);
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        while of_break(at) > 0 {
            at = at.saturating_add(of_break(at));
        }
        let from = at;
        // A server may send millions of breaks, so they are searched for many bytes at a time.
        while let Some(next) = bytes.get(at..).and_then(|rest| memchr::memchr3(b'\n', b'\r', b'\\', rest)) {
            at = at.saturating_add(next);
            if of_break(at) > 0 {
                return Some((from, text.get(from..at)?));
            }
            at = at.saturating_add(1);
        }
        at = bytes.len();
        text.get(from..).filter(|part| !part.is_empty()).map(|part| (from, part))
    })
}

/// Returns the length of the line break with which `rest` starts, or of its escape. JSON that is quoted again has several backslashes.
fn break_len(rest: &[u8]) -> usize {
    const MAX_BACKSLASHES: usize = 4;
    let backslashes = rest.iter().take(MAX_BACKSLASHES).take_while(|byte| **byte == b'\\').count();
    match (backslashes, rest.get(backslashes)) {
        (0, Some(b'\n' | b'\r')) => 1,
        (1.., Some(b'n' | b'r')) => backslashes.saturating_add(1),
        _ => 0,
    }
}

/// Replaces sorted ranges of the text without breaks by the names of their secrets. Returns `None` without ranges.
fn replace(text: &str, found: &[(usize, usize, &Text)]) -> Option<String> {
    let mut parts = kept_parts(text);
    let (mut before, mut part) = (0_usize, parts.next()?);
    // Returns the position in `text` of a byte of the text without breaks. A list of all positions would take eight times the memory of the text.
    let mut position = |at: usize| {
        while at.saturating_sub(before) >= part.1.len() {
            before = before.saturating_add(part.1.len());
            part = parts.next()?;
        }
        Some(part.0.saturating_add(at.saturating_sub(before)))
    };
    let (mut out, mut done, mut done_in_text) = (String::new(), 0_usize, 0_usize);
    for (from, to, name) in found.iter().filter(|(from, to, _)| from < to) {
        if *from < done {
            continue;
        }
        let start = position(*from)?;
        out.push_str(text.get(done_in_text..start)?);
        out.push_str(&format!("[{name} redacted]"));
        done_in_text = position(to.saturating_sub(1))?.saturating_add(1);
        done = *to;
    }
    out.push_str(text.get(done_in_text..)?);
    (done > 0).then_some(out)
}

/// Redacts a stream, including values that arrive in several parts.
///
/// It holds back the last bytes, whatever they are: holding back only what may be the start of a value would tell a model that
/// prints guesses how the value continues.
pub(crate) struct RedactedStream {
    secrets: Secrets,
    held: Vec<u8>,
    /// When the last bytes arrived.
    arrived: Instant,
}

impl RedactedStream {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new(), arrived: Instant::now() }
    }

    /// Adds `bytes`, and writes those that can no longer be part of a value to `into`.
    pub(crate) fn push(&mut self, bytes: &[u8], into: &mut impl Extend<u8>) {
        if self.secrets.is_empty() {
            return into.extend(bytes.iter().copied());
        }
        self.arrived = Instant::now();
        self.held.extend_from_slice(bytes);
        let longest = self.secrets.0.first().map_or(0, |(_, value)| value.len());
        let end = self.held.len().saturating_sub(longest.saturating_sub(1));
        // The cut is between characters, since each part is shown by itself.
        let is_start = |at: &usize| self.held.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
        let start = (0..4).map(|back| end.saturating_sub(back)).find(is_start);
        self.pass_on(start.unwrap_or(end), into);
    }

    /// Writes the bytes that were held back.
    pub(crate) fn flush(&mut self, into: &mut impl Extend<u8>) {
        self.pass_on(self.held.len(), into);
    }

    /// Returns when the bytes that are held back are due, if no others arrive.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.arrived.checked_add(QUIET).filter(|_| !self.held.is_empty())
    }

    /// Writes the bytes before `end`, and the values that begin there.
    fn pass_on(&mut self, end: usize, into: &mut impl Extend<u8>) {
        let mut at = 0_usize;
        while let Some(rest) = self.held.get(at..).filter(|_| at < end) {
            // The longest value comes first.
            match self.secrets.0.iter().find(|(_, value)| rest.starts_with(value.as_bytes())) {
                Some((name, value)) => {
                    into.extend(format!("[{name} redacted]").into_bytes());
                    at = at.saturating_add(value.len());
                }
                None => {
                    into.extend(rest.first().copied());
                    at = at.saturating_add(1);
                }
            }
        }
        self.held.drain(..at.min(self.held.len()));
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Secrets").field(&self.0.iter().map(|(name, _)| &**name).collect::<Vec<_>>()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_value_is_replaced_first() {
        let secrets = Secrets::of([("SHORT", "abcdefgh"), ("LONG", " abcdefgh-ijkl\n"), ("TINY", "abc")]);
        assert_eq!(secrets.redact("abcdefgh-ijkl abcdefgh abc"), "[LONG redacted] [SHORT redacted] abc");
        assert_eq!(secrets.redact("nothing"), Cow::Borrowed("nothing"));
    }

    /// A value may be split over lines, as a server does that answers in several parts. The control: other text in between.
    #[test]
    fn secret_is_redacted_across_line_breaks() {
        let secrets =
            Secrets::of([("KEY", "sk-0123456789"), ("LONG", "sk-0123456789-ab"), ("PEM", "-----A\nbcdef\n-----")]);
        for (text, redacted) in [
            ("a sk-01\n234567\r\n89\nb", "a [KEY redacted]\nb"),
            ("sk-0123\n456789-ab.", "[LONG redacted]."),
            ("x\n-----Abc\ndef-----\ny", "x\n[PEM redacted]\ny"),
            ("s\nk\n-\n0\n1\n2\n3\n4\n5\n6\n7\n8\n9", "[KEY redacted]"),
            ("sk-0123\n456789 sk-01234\n56789", "[KEY redacted] [KEY redacted]"),
            ("sk-0123 456789\nsk-01", "sk-0123 456789\nsk-01"),
            (r#"{"key":"-----A\nbcdef\n-----"}"#, r#"{"key":"[PEM redacted]"}"#),
            (r#""{\"key\":\"-----A\\r\\nbcdef\\r\\n-----\"}""#, r#""{\"key\":\"[PEM redacted]\"}""#),
            ("a -----Abcdef----- b", "a [PEM redacted] b"),
            (r"sk-0123\n456789\t", r"[KEY redacted]\t"),
            (r"sk-0123\t456789\n", r"sk-0123\t456789\n"),
        ] {
            assert_eq!(secrets.redact(text), redacted, "{text:?}");
        }
    }

    /// A model can write any text and read how it is redacted: so a right start of a value must look like a wrong one.
    #[test]
    fn part_of_a_secret_is_shown_like_any_text() {
        let secrets = Secrets::of([("KEY", "sk-0123456789")]);
        for text in
            ["a sk-0123…", "a sk-012345678…", "sk-01\n[truncated: 9 of 20 bytes]", "bytes left out ...]\n456789"]
        {
            assert_eq!(secrets.redact(text), text);
        }
        assert_eq!(secrets.redact("a sk-0123456789…"), "a [KEY redacted]…", "the control");
    }

    #[test]
    fn r9_stream_redacts_a_value_in_parts() {
        let secrets = Secrets::of([("SHORT", "abcdefgh"), ("LONG", "abcdefgh-ijkl")]);
        for text in ["xabcdefgh-ijkl abcdefgh-ij abcdefg abcabcdefgh", "abcdefgh-", "abcdefg", "", "aabcdefghh"] {
            for size in 1..=text.len().max(1) {
                let (mut stream, mut out) = (RedactedStream::new(secrets.clone()), Vec::new());
                text.as_bytes().chunks(size).for_each(|part| stream.push(part, &mut out));
                stream.flush(&mut out);
                assert_eq!(String::from_utf8(out).unwrap(), secrets.redact(text), "{text} in parts of {size}");
            }
        }
    }

    #[test]
    fn r9_stream_holds_back_the_last_bytes_of_any_text() {
        let secrets = Secrets::of([("KEY", "sk-0123456789"), ("PEM", "-----A\nbcdef")]);
        for text in ["Password: sk-01", "Password: xx-xx", "Password:\n\n\n\n\n\n"] {
            let (mut stream, mut out) = (RedactedStream::new(secrets.clone()), Vec::new());
            stream.push(text.as_bytes(), &mut out);
            assert_eq!(out, b"Pas", "{text}");
            stream.flush(&mut out);
            assert_eq!(out, text.as_bytes());
        }
        let (mut stream, mut out) = (RedactedStream::new(secrets), Vec::new());
        stream.push("üüüüüüüa".as_bytes(), &mut out);
        assert_eq!(out, "ü".as_bytes(), "characters are not split");
        let (mut stream, mut out) = (RedactedStream::new(Secrets::default()), Vec::new());
        stream.push(b"x", &mut out);
        assert_eq!((out, stream.due()), (b"x".to_vec(), None), "without secrets");
    }
}
