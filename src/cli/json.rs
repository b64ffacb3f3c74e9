//! JSON on stdout. Invisible characters are escaped, since users also read it at terminals.

use std::io::Write;

use serde::Serialize;
use subtend_session::unseen::is_unseen;

use super::fail::Fail;

/// Returns the JSON of `value` with invisible characters escaped as `\u`.
pub(crate) fn text(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(escape_controls(serde_json::to_string(value)?))
}

pub(crate) fn escape_controls(json: String) -> String {
    if !json.contains(needs_escape) {
        return json;
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if needs_escape(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

fn needs_escape(c: char) -> bool {
    !c.is_ascii() && is_unseen(c) || c == '\u{7f}'
}

pub(crate) fn write(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Fail> {
    Ok(out.write_all(text(value)?.as_bytes())?)
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
