//! Counts the values in a JSON text before it is parsed: a tree of values may take a hundred times the bytes of its text.

use serde_json::Value;

/// Maximum number of values of an external JSON text that is parsed into a tree. Such a tree takes up to 60 MB.
pub const MAX_VALUES: usize = 100_000;

/// Returns the bytes that a text takes in JSON: a control character takes six times as much as in memory.
pub fn json_bytes(text: &str) -> u64 {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2_u64,
        ..=0x1f => 6,
        _ => 1,
    });
    bytes.sum()
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

/// Parses a foreign JSON text. Returns `None` for other text, and for JSON with too many values.
pub fn parse(json: &str) -> Option<Value> {
    let is_bounded = !has_too_many(json.as_bytes());
    is_bounded.then(|| serde_json::from_str(json).ok()).flatten()
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

    #[test]
    fn marks_in_strings_are_not_values() {
        assert_eq!([count("1"), count("[]"), count("[{},{}]"), count(r#"{"a":1}"#)], [1, 2, 5, 3]);
        assert_eq!(count(r#"["[,:{", "\"[,", "\\", 1]"#), count("[1, 2, 3, 4]"));
    }

    /// The control: a text of as many bytes with few values.
    #[test]
    fn json_with_too_many_values_is_not_parsed() {
        let many = format!("[{}0]", "[],".repeat(MAX_VALUES));
        assert_eq!(parse(&many), None);
        assert_eq!(parse(&Value::from(&*many).to_string()), Some(Value::from(many)));
        assert_eq!((parse("[1]"), parse("[1")), (Some(Value::from(vec![1])), None));
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
