//! Counts the values in a JSON text before it is parsed: a tree of values may take a hundred times the bytes of its text.

use serde::de::{DeserializeOwned, Error as _};

/// Maximum number of values of an external JSON text that is parsed into a tree. Such a tree takes up to 60 MB.
pub const MAX_VALUES: usize = 100_000;

/// Maximum nesting of arrays and objects in metadata. JSON parsers accept 128 levels, and responses nest it deeper.
pub const MAX_NESTING: usize = 100;
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
    if has_too_many(json.as_bytes()) {
        return Err(serde_json::Error::custom(format_args!("it has more than {MAX_VALUES} JSON values")));
    }
    serde_json::from_str(json)
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
