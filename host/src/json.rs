//! JSON of requests and responses. That of axum would turn on a feature of `serde_json` with which a text within a value
//! is parsed as a value of its own, beyond every limit of size and nesting.

use std::io::{self, Write};

use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// A response in JSON.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        JsonText::of(&self.0).into_response()
    }
}

/// The text of a response in JSON.
#[derive(Debug)]
pub(crate) struct JsonText(pub(crate) Vec<u8>);

impl JsonText {
    /// Serializes `value`, or returns the reason for a response of an error.
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, (StatusCode, String)> {
        let failed = |error: io::Error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        text_between(["", ""], value).map(Self).map_err(failed)
    }
}

/// Serializes `value` between two texts.
pub(crate) fn text_between(around: [&str; 2], value: &impl Serialize) -> io::Result<Vec<u8>> {
    match short_text_between(around, value)? {
        Ok(text) => Ok(text),
        Err(len) => {
            // A buffer that grows would take up to three times the bytes of a large text.
            let mut text = Vec::with_capacity(len);
            write_between(&mut text, around, value)?;
            Ok(text)
        }
    }
}

/// Serializes `value` between two texts. Returns the length of a large text instead of it.
pub(crate) fn short_text_between(around: [&str; 2], value: &impl Serialize) -> io::Result<Result<Vec<u8>, usize>> {
    let mut first = FirstBytes::default();
    write_between(&mut first, around, value)?;
    Ok(if first.len == first.text.len() { Ok(first.text) } else { Err(first.len) })
}

fn write_between(mut to: impl Write, [before, after]: [&str; 2], value: &impl Serialize) -> io::Result<()> {
    to.write_all(before.as_bytes())?;
    serde_json::to_writer(&mut to, value)?;
    to.write_all(after.as_bytes())
}

/// Counts the bytes of a text, and keeps them while they are few.
#[derive(Debug, Default)]
struct FirstBytes {
    text: Vec<u8>,
    len: usize,
}

impl FirstBytes {
    const MAX: usize = 1 << 20;
}

impl Write for FirstBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len = self.len.saturating_add(bytes.len());
        if self.len <= Self::MAX {
            self.text.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl IntoResponse for JsonText {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], self.0).into_response()
    }
}

/// Parses the body of a request.
///
/// # Errors
/// A problem that names the field, for another type than JSON, for other text and for values that do not belong there.
pub(crate) fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Problem> {
    if !is_json(headers) {
        let why = "Expected request with `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why));
    }
    let malformed =
        |why: &dyn std::fmt::Display| Problem::malformed(format!("Failed to parse the request body as JSON: {why}"));
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        if error.inner().is_data() {
            let why = format!("Failed to deserialize the JSON body into the target type: {error}");
            Problem::invalid("invalid_body", why)
        } else {
            malformed(&error)
        }
    })?;
    json.end().map_err(|error| malformed(&error))?;
    Ok(value)
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Attack: a text within a body is parsed as values that no limit has counted. The control: the text itself is parsed.
    #[test]
    fn name_of_a_raw_value_does_not_parse_its_text() {
        let body = json!({"$serde_json::private::RawValue": "[[1]]"});
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let parsed: Value = parse(&headers, body.to_string().as_bytes()).ok().unwrap();
        assert_eq!(parsed, body);
        assert_eq!(parse::<Value>(&headers, b"[[1]]").ok(), Some(json!([[1]])));
    }

    /// The control: a short text, which is written once.
    #[test]
    fn large_json_takes_no_more_than_its_bytes() {
        for len in [FirstBytes::MAX / 2, FirstBytes::MAX - 2, FirstBytes::MAX - 1, 5 * FirstBytes::MAX + 1] {
            let JsonText(text) = JsonText::of(&"x".repeat(len)).unwrap();
            assert_eq!((text.len(), text.last()), (len + 2, Some(&b'"')));
            assert!(text.capacity() == text.len() || len < FirstBytes::MAX, "{}", text.capacity());
        }
    }

    #[test]
    fn types_of_json_are_recognized() {
        let of = |kind: &'static str| is_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]));
        let types =
            ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json", "text/json", ""];
        assert_eq!(types.map(of), [true, true, true, false, false]);
        assert!(!is_json(&HeaderMap::new()));
    }
}
