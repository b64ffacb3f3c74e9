//! JSON on stdout. Invisible characters are escaped, because users also read it at terminals.

use std::io::Write;

use serde::Serialize;
use serde_json::ser::Formatter;
use subtend_session::unseen::is_unseen;

use super::fail::Fail;

/// Returns the JSON of `value` with invisible characters escaped as `\u`.
pub(crate) fn text(value: &impl Serialize) -> Result<String, Fail> {
    let mut out = Vec::new();
    write(&mut out, value)?;
    String::from_utf8(out).map_err(|error| Fail::Other(error.to_string()))
}

/// Writes the JSON of `value` with invisible characters escaped as `\u`, without building it in memory.
pub(crate) fn write(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Fail> {
    Ok(value.serialize(&mut serde_json::Serializer::with_formatter(out, EscapeInvisible))?)
}

/// As [`write`], with a line end.
pub(crate) fn write_line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Fail> {
    write(out, value)?;
    Ok(writeln!(out)?)
}

/// Compact JSON with escaped invisible characters.
struct EscapeInvisible;

impl Formatter for EscapeInvisible {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> std::io::Result<()> {
        let mut rest = fragment;
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| needs_escape(*c)) {
            let (shown, after) = rest.split_at(at);
            out.write_all(shown.as_bytes())?;
            for unit in found.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = after.get(found.len_utf8()..).unwrap_or_default();
        }
        out.write_all(rest.as_bytes())
    }
}

fn needs_escape(c: char) -> bool {
    !c.is_ascii() && is_unseen(c) || c == '\u{7f}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_characters_are_escaped_and_read_back() {
        let value = serde_json::json!({"a\u{202e}": "é\u{200b}\u{7f}\u{e0041}\n\u{9b}"});
        let json = text(&value).expect("JSON");
        assert_eq!(json, r#"{"a\u202e":"é\u200b\u007f\udb40\udc41\n\u009b"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), value);
    }
}
