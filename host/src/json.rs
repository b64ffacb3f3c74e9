//! JSON of requests and responses. That of axum would turn on a feature of `serde_json` with which a text within a value
//! is parsed as a value of its own, beyond every limit of size and nesting.

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
        match serde_json::to_vec(&self.0) {
            Ok(body) => JsonText(body).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// The text of a response in JSON.
#[derive(Debug)]
pub(crate) struct JsonText(pub(crate) Vec<u8>);

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

    #[test]
    fn types_of_json_are_recognized() {
        let of = |kind: &'static str| is_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]));
        let types =
            ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json", "text/json", ""];
        assert_eq!(types.map(of), [true, true, true, false, false]);
        assert!(!is_json(&HeaderMap::new()));
    }
}
