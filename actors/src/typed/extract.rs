//! Extraction of JSON from an answer with other text.

use serde::de::IgnoredAny;

/// Returns the only JSON value in `text`: the whole text, its only fenced block, or the part from the first brace to the last.
/// Only the position is flexible: the value must be valid JSON.
pub(super) fn json(text: &str) -> Result<&str, String> {
    let text = text.trim();
    let whole = match check(text) {
        Ok(()) => return Ok(text),
        Err(error) => error,
    };
    match find_fenced(text) {
        Fenced::One(block) => return check(block).map(|()| block),
        Fenced::Many => return Err("it has several code blocks; send only one".to_owned()),
        Fenced::None => {}
    }
    match find_outermost(text) {
        Some(json) => check(json).map(|()| json),
        None => Err(whole),
    }
}

fn check(text: &str) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|error| format!("it is not JSON: {error}"))
}

enum Fenced<'a> {
    None,
    One(&'a str),
    Many,
}

fn find_fenced(text: &str) -> Fenced<'_> {
    let mut parts = text.split("```");
    let (_, inner, rest) = (parts.next(), parts.next(), parts.next());
    match (inner, rest, parts.next()) {
        (Some(block), Some(_), None) => {
            // The first line is the block's language, unless it starts the value.
            let (first, body) = block.split_once('\n').unwrap_or(("", block));
            let language = first.trim().chars().all(|c| c.is_ascii_alphanumeric());
            Fenced::One(if language { body } else { block }.trim())
        }
        (Some(_), Some(_), Some(_)) => Fenced::Many,
        (_, None, _) | (None, _, _) => Fenced::None,
    }
}

fn find_outermost(text: &str) -> Option<&str> {
    let start = text.find(['{', '['])?;
    let close = if text.get(start..)?.starts_with('{') { '}' } else { ']' };
    let end = text.rfind(close)?;
    text.get(start..=end)
}

#[cfg(test)]
mod tests {
    use super::json;

    #[test]
    fn value_is_found_bare_fenced_or_within_text() {
        for text in [
            r#"{"a": 1}"#,
            " \n{\"a\": 1}\n",
            "```json\n{\"a\": 1}\n```",
            "```\n{\"a\": 1}\n```",
            "Here it is:\n```json\n{\"a\": 1}\n```\nWell?",
            r#"Certainly! {"a": 1} is the answer."#,
        ] {
            assert_eq!(json(text), Ok(r#"{"a": 1}"#), "{text}");
        }
        assert_eq!(json("so: [1, {\"b\": 2}]"), Ok(r#"[1, {"b": 2}]"#));
        assert_eq!(json("```{\"a\": 1}```"), Ok(r#"{"a": 1}"#));
        // A fence inside a string of the value is ignored.
        assert_eq!(json(r#"{"code": "```x```"}"#), Ok(r#"{"code": "```x```"}"#));
    }

    #[test]
    fn text_without_exactly_one_value_is_refused() {
        let why = |text: &str| json(text).unwrap_err();
        assert_eq!(why("I do not know."), "it is not JSON: expected value at line 1 column 1");
        assert_eq!(why("one {\"a\": 1} two {\"a\": 2}"), "it is not JSON: trailing characters at line 1 column 10");
        assert_eq!(why("{\"a\": 1"), "it is not JSON: EOF while parsing an object at line 1 column 7");
        assert_eq!(why("```json\n1\n```\nor\n```json\n2\n```"), "it has several code blocks; send only one");
    }
}
