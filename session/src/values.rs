//! Counts the values in a JSON text before it is parsed: a tree of values may take a hundred times the bytes of its text.

use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::ids::Text;

/// Maximum number of values of an external JSON text that is parsed into a tree. Such a tree takes up to 60 MB.
pub const MAX_VALUES: usize = 100_000;

/// Maximum nesting of arrays and objects in metadata. JSON parsers accept 128 levels, and responses nest it deeper.
pub const MAX_NESTING: usize = 100;
/// Maximum bytes of metadata as JSON.
pub const MAX_METADATA_BYTES: usize = 64 << 10;
/// Maximum number of values and keys in metadata.
pub const MAX_METADATA_VALUES: usize = 10_000;
/// Number of JSON values that the arguments of each call of an answer may have in any case.
const VALUES_PER_CALL: usize = 16;

/// Returns the maximum number of values in the arguments of an answer with this number of calls.
///
/// It grows with the calls, for a runtime whose `calls_per_answer` is far above the default.
pub fn max_argument_values(calls: usize) -> usize {
    MAX_VALUES.max(calls.saturating_mul(VALUES_PER_CALL))
}

/// Parses a JSON text of a record. Records may come from an import, so all that is recorded is parsed by this function.
///
/// # Errors
/// The error of serde_json, also if the text has more than [`MAX_VALUES`] values.
pub fn parse_recorded<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    parse_foreign(json.as_bytes())
}

/// Parses a JSON text that a server or another program sent, also into known types: a list of empty objects takes many times its bytes.
///
/// # Errors
/// The error of serde_json, also if the text has more than [`MAX_VALUES`] values.
pub fn parse_foreign<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    if has_too_many(json) {
        return Err(serde_json::Error::custom(format_args!("it has more than {MAX_VALUES} JSON values")));
    }
    serde_json::from_slice(json)
}

/// Checks the metadata of a command; `what` names it in the error. Lists contain the metadata of many sessions.
///
/// # Errors
/// A sentence that names the limit.
pub fn check_metadata(what: &str, json: &str) -> Result<(), String> {
    if json.len() > MAX_METADATA_BYTES {
        return Err(format!("{what} has {} bytes, the limit is {MAX_METADATA_BYTES}", json.len()));
    }
    let values = ValueCount::default().add(json.as_bytes());
    if values > MAX_METADATA_VALUES {
        return Err(format!("{what} has {values} JSON values and keys, the limit is {MAX_METADATA_VALUES}"));
    }
    // The outermost object is not counted.
    if nesting(json.as_bytes()) > MAX_NESTING.saturating_add(1) {
        return Err(format!("{what} nests more than {MAX_NESTING} arrays and objects"));
    }
    Ok(())
}

/// A JSON value as text. It is parsed only while it is written, so that a list holds the values of one row at a time.
///
/// Other text, and text with more than [`MAX_VALUES`] values, is written as a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(pub Text);

impl JsonText {
    /// Returns metadata, by default `{}`.
    pub fn of_metadata(text: Option<&Text>) -> Self {
        Self(text.map_or_else(|| "{}".into(), Arc::clone))
    }

    pub fn value(&self) -> Value {
        parse_recorded(&self.0).unwrap_or_else(|_| Value::from(&*self.0))
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(to)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Value::deserialize(from)?.to_string().into()))
    }
}

/// Returns the maximum nesting of arrays and objects in a JSON text.
pub fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut most, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth = depth.saturating_add(1);
                most = depth.max(most);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Returns the bytes that a text takes in JSON: a control character takes six times as much as in memory.
pub fn json_bytes(text: &str) -> u64 {
    // 32 numbers of at most 5 fit in a byte. Without a branch or a wider sum, the compiler counts many bytes at a time.
    let more = |byte: &u8| -> u8 {
        let is_short = matches!(byte, b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c);
        let is_long = *byte <= 0x1f && !is_short;
        u8::from(is_short) | (u8::from(is_long) << 2) | u8::from(is_long)
    };
    let escapes = text.as_bytes().chunks(32);
    let escapes = escapes.map(|few| u64::from(few.iter().map(more).fold(0, u8::wrapping_add)));
    escapes.fold(text.len() as u64, u64::saturating_add)
}

/// Returns whether a JSON text has too many values to be read into a tree.
///
/// ```
/// use subtend_session::values::{MAX_VALUES, has_too_many};
///
/// assert!(has_too_many(format!("[{}]", "{},".repeat(MAX_VALUES)).as_bytes()));
/// assert!(!has_too_many(format!("[\"{}\"]", "{},".repeat(MAX_VALUES)).as_bytes()));
/// ```
pub fn has_too_many(json: &[u8]) -> bool {
    // A text has at least one byte per value.
    json.len() > MAX_VALUES && ValueCount::default().add(json) > MAX_VALUES
}

/// An approximate counter of the values in a JSON text in pieces: at most twice the actual number.
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueCount {
    marks: usize,
    in_string: bool,
    is_escaped: bool,
}

impl ValueCount {
    /// Counts the next piece, and returns the count so far.
    pub fn add(&mut self, piece: &[u8]) -> usize {
        for byte in piece {
            if self.in_string {
                self.in_string = self.is_escaped || *byte != b'"';
                self.is_escaped = !self.is_escaped && *byte == b'\\';
            } else if *byte == b'"' {
                self.in_string = true;
            } else if matches!(byte, b'[' | b'{' | b',' | b':') {
                self.marks = self.marks.saturating_add(1);
            }
        }
        self.marks.saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(json: &str) -> usize {
        ValueCount::default().add(json.as_bytes())
    }

    /// The control: texts of different lengths.
    #[test]
    fn bytes_in_json_are_those_that_are_written() {
        let ascii: String = (0..128_u8).map(char::from).collect();
        for text in ["", "a", "\u{1}", &"\u{1f}".repeat(65), &ascii, &ascii.repeat(3), "日本語\n\"é\"\u{7f}\u{2028}"]
        {
            let written = serde_json::to_string(text).unwrap();
            assert_eq!(json_bytes(text), written.len() as u64 - 2, "{written}");
        }
    }

    /// The control: half of the values.
    #[test]
    fn text_with_too_many_values_is_not_parsed() {
        let parsed = |values: usize| {
            let json = format!("[{}0]", "0,".repeat(values - 1));
            parse_recorded::<Vec<u8>>(&json).map(|values| values.len()).map_err(|error| error.to_string())
        };
        assert_eq!(parsed(MAX_VALUES), Err("it has more than 100000 JSON values".to_owned()));
        assert_eq!(parsed(MAX_VALUES / 2), Ok(MAX_VALUES / 2));
    }

    /// The controls: the most of each that is accepted.
    #[test]
    fn metadata_beyond_a_limit_is_refused() {
        let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        let values = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let checked = |json: String| check_metadata("it", &json);
        let accepted = [nested(MAX_NESTING), values(MAX_METADATA_VALUES), text(MAX_METADATA_BYTES)];
        assert_eq!(accepted.map(checked), [Ok(()), Ok(()), Ok(())]);
        let refused = [nested(MAX_NESTING + 1), values(MAX_METADATA_VALUES + 1), text(MAX_METADATA_BYTES + 1)];
        let why = [
            "it nests more than 100 arrays and objects",
            "it has 10001 JSON values and keys, the limit is 10000",
            "it has 65537 bytes, the limit is 65536",
        ];
        assert_eq!(refused.map(checked), why.map(|why| Err(why.to_owned())));
    }

    #[test]
    fn json_text_is_written_as_its_value() {
        let texts = [r#"{"b": [1], "a": {}}"#, "plain", r#""x""#].map(|text| JsonText(text.into()));
        let json = serde_json::to_string(&texts).unwrap();
        assert_eq!(json, r#"[{"b":[1],"a":{}},"plain","x"]"#);
        let read: Vec<JsonText> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, [r#"{"b":[1],"a":{}}"#, r#""plain""#, r#""x""#].map(|text| JsonText(text.into())));
    }

    #[test]
    fn marks_in_strings_are_not_values() {
        assert_eq!([count("1"), count("[]"), count("[{},{}]"), count(r#"{"a":1}"#)], [1, 2, 5, 3]);
        assert_eq!(count(r#"["[,:{", "\"[,", "\\", 1]"#), count("[1, 2, 3, 4]"));
    }

    #[test]
    fn count_does_not_depend_on_the_pieces() {
        let json = r#"{"a":["\",[",{"b":"\\"}],"c":[1,2]}"#;
        for at in 0..=json.len() {
            let mut count = ValueCount::default();
            count.add(&json.as_bytes()[..at]);
            assert_eq!(count.add(&json.as_bytes()[at..]), 11, "{at}");
        }
    }
}
