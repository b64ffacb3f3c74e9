//! Converts a server's answer for a model: bounded text, with one line for each image or other content.

use std::error::Error;

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use rmcp::transport::DynamicTransportError;
use serde_json::Value;

use crate::bounded::{head, len, name};
use crate::secrets::Secrets;
use crate::tool::{ToolError, ToolOutput};

/// Bytes reserved for the line that reports truncation.
const FOOTER: u64 = 120;
/// Maximum bytes of a server's error.
const MAX_ERROR: usize = 4_000;
/// Maximum bytes of a name, an address or a media type.
const MAX_SHOWN: usize = 4 << 10;

pub(super) enum CallFailure {
    Disconnected(ServerText),
    Refused(ServerText),
    /// The server refused the call, because the login is missing or no longer valid.
    Unauthorized(ServerText),
    TimedOut,
}

/// A text that may quote a server, and with it a secret or a line of the host. It cannot be formatted, so that no log gets it as it is.
#[derive(Clone)]
pub(super) struct ServerText(String);

impl<T: Into<String>> From<T> for ServerText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl ServerText {
    /// Returns the text as one line without `secrets`.
    pub(super) fn one_line(&self, secrets: &Secrets) -> String {
        joined_lines(&secrets.redact(&self.0))
    }

    /// Returns the text for the result of a call, from which the registry removes secrets.
    pub(super) fn into_result(self) -> String {
        self.0
    }
}

/// Returns the result of a call, bounded to `max_bytes`.
pub(super) fn of(
    server: &str,
    result: &CallToolResult,
    (max_bytes, secrets): (u64, &Secrets),
) -> Result<ToolOutput, ToolError> {
    let mut text = join_parts(result.content.iter().map(|part| block(part, secrets)));
    let mut total = text.len();
    if let (true, Some(value)) = (text.is_empty(), &result.structured_content) {
        (text, total) = structured(value, (max_bytes, secrets));
    }
    if text.is_empty() {
        text = "[the server answered without content]".to_owned();
        total = text.len();
    }
    if result.is_error == Some(true) {
        return Err(ToolError::failed(format!("the MCP server `{server}` reports an error: {}", short(&text))));
    }
    Ok(cut(text, max_bytes, total))
}

/// Returns a structured answer without secrets, and its whole length. Redacts no more of it than the result may have.
fn structured(value: &Value, (max_bytes, secrets): (u64, &Secrets)) -> (String, usize) {
    let text = value.to_string();
    let total = text.len();
    let mut left = usize::try_from(max_bytes).unwrap_or(usize::MAX).max(MAX_ERROR);
    if total > left {
        return (head_of(value, (&mut left, secrets)).to_string(), total);
    }
    let text = if secrets.are_in(value) { secrets.redact_texts(value).to_string() } else { text };
    let total = text.len();
    (text, total)
}

/// Returns the first `left` bytes of the texts in a value, without secrets.
fn head_of(value: &Value, (left, secrets): (&mut usize, &Secrets)) -> Value {
    let text = |text: &str, left: &mut usize| {
        let redacted = secrets.redact_head(text, *left);
        let kept = head(&redacted, *left);
        // An empty text takes bytes too.
        *left = left.saturating_sub(kept.len().saturating_add(1));
        kept.to_owned()
    };
    match value {
        Value::String(one) => text(one, left).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            *left = left.saturating_sub(1);
            value.clone()
        }
        Value::Array(items) => {
            let mut kept = Vec::new();
            for item in items {
                if *left == 0 {
                    break;
                }
                kept.push(head_of(item, (&mut *left, secrets)));
            }
            kept.into()
        }
        Value::Object(fields) => {
            let mut kept = serde_json::Map::new();
            for (key, item) in fields {
                if *left == 0 {
                    break;
                }
                let key = text(key, left);
                kept.insert(key, head_of(item, (&mut *left, secrets)));
            }
            kept.into()
        }
    }
}

/// Joins the parts of an answer, one per line.
pub(super) fn join_parts(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("\n")
}

/// Truncates a text to `max_bytes`, including a last line that reports the truncation.
pub(super) fn truncate(text: String, max_bytes: u64) -> ToolOutput {
    let total = text.len();
    cut(text, max_bytes, total)
}

/// Truncates the start of a text that has `total` bytes.
fn cut(text: String, max_bytes: u64, total: usize) -> ToolOutput {
    let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    if text.len() <= most && total <= most {
        return ToolOutput::text(text);
    }
    let total = len(total);
    let kept = head(&text, usize::try_from(max_bytes.saturating_sub(FOOTER)).unwrap_or(usize::MAX));
    let content = format!("{kept}\n[truncated: {} of {total} bytes; ask the tool for less]", kept.len());
    ToolOutput { content: head(&content, most).into(), truncated_from: Some(total) }
}

/// Returns the message of a server's error, shortened and escaped.
pub(super) fn short(text: &str) -> String {
    let kept = head(text, MAX_ERROR);
    let more = text.len().saturating_sub(kept.len());
    let kept = crate::escape::harmless(kept);
    if more == 0 { kept } else { format!("{kept}… ({more} more bytes)") }
}

/// Joins the lines of a server's text: with line breaks, the text could pose as lines of the host.
fn joined_lines(text: &str) -> String {
    subtend_session::title::one_line(&crate::escape::harmless(text)).into_owned()
}

/// Returns an error with its causes. Removes the names of Rust types that errors of the library contain.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&cause| cause.source());
    let in_transport = causes.filter_map(|cause| cause.downcast_ref::<DynamicTransportError>()).last();
    let error: &(dyn Error + 'static) = match in_transport {
        Some(transport) => &*transport.error,
        None => error,
    };
    let (mut text, mut at) = (error.to_string(), error.source());
    while let Some(source) = at {
        let cause = source.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        at = source.source();
    }
    text
}

/// Returns a name of a server, redacted before its line breaks are replaced.
fn shown(text: &str, secrets: &Secrets) -> String {
    let redacted = secrets.redact_head(text, MAX_SHOWN);
    let mark = if text.len() > MAX_SHOWN { "…" } else { "" };
    format!("{}{mark}", name(head(&redacted, MAX_SHOWN)))
}

/// Returns the text of a part.
pub(super) fn block(block: &ContentBlock, secrets: &Secrets) -> String {
    let shown = |text: &str| shown(text, secrets);
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => omitted_note("an image", &shown(&image.mime_type), image.data.len()),
        ContentBlock::Audio(audio) => omitted_note("audio", &shown(&audio.mime_type), audio.data.len()),
        ContentBlock::Resource(embedded) => resource(&embedded.resource, secrets),
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", shown(&link.name), shown(&link.uri)),
        _ => "[content of an unknown kind is left out]".to_owned(),
    }
}

pub(super) fn resource(contents: &ResourceContents, secrets: &Secrets) -> String {
    let shown = |text: &str| shown(text, secrets);
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {}]\n{text}", shown(uri)),
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let kind = mime_type.as_deref().unwrap_or("unknown type");
            format!("[resource {}: {} bytes of base64, {}, left out]", shown(uri), blob.len(), shown(kind))
        }
        _ => "[a resource of an unknown kind is left out]".to_owned(),
    }
}

fn omitted_note(content: &str, kind: &str, bytes: usize) -> String {
    format!("[{content} is left out: {kind}, {bytes} bytes of base64]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_result(value: serde_json::Value) -> CallToolResult {
        serde_json::from_value(value).unwrap()
    }

    /// The control: a text without line breaks is unchanged.
    #[test]
    fn text_of_a_server_is_one_line() {
        assert_eq!(joined_lines("it ended\r\n\n\tsession: forged\u{1b}[2J"), "it ended session: forged<U+001B>[2J");
        assert_eq!(joined_lines("it ended: 7"), "it ended: 7");
    }

    #[test]
    fn non_text_content_is_replaced_by_a_line() {
        let result = text_result(serde_json::json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png\u{1b}"},
            {"type": "resource_link", "uri": "x:1", "name": "one\ntwo"},
            {"type": "resource", "resource": {"uri": "x:2", "text": "b"}}
        ]}));
        let text = "a\n[an image is left out: image/png\u{fffd}, 4 bytes of base64]\n[resource one\u{fffd}two: x:1]\n[resource x:2]\nb";
        assert_eq!(of("s", &result, (1_000, &Secrets::default())), Ok(ToolOutput::text(text)));
    }

    /// The control: the same parts without a secret stay.
    #[test]
    fn secret_in_several_parts_of_a_result_is_redacted() {
        let secrets = Secrets::of([("KEY", "sk-0123456789")]);
        let parts =
            ["the key: sk-0123", "456", "789", "end"].map(|text| serde_json::json!({"type": "text", "text": text}));
        let output =
            of("s", &text_result(serde_json::json!({"content": parts})), (1_000, &Secrets::default())).unwrap();
        let redacted = crate::redacted::redact_output(&secrets, output.clone());
        assert_eq!(redacted, ToolOutput::text("the key: [KEY redacted]\nend"));
        let other = Secrets::of([("KEY", "sk-9876543210")]);
        assert_eq!(crate::redacted::redact_output(&other, output.clone()), output);
    }

    #[test]
    fn structured_content_is_used_if_there_is_no_other() {
        let result = text_result(serde_json::json!({"structuredContent": {"n": 1}}));
        assert_eq!(of("s", &result, (1_000, &Secrets::default())), Ok(ToolOutput::text("{\"n\":1}")));
        let keys = Secrets::of([("KEY", "{\"a\": \"-----A\nbc\"}")]);
        let value =
            serde_json::json!({"structuredContent": {"is {\"a\": \"-----A\nbc\"}": ["{\"a\": \"-----A\nbc\"}", 1]}});
        let output = of("s", &text_result(value), (1_000, &keys));
        assert_eq!(output, Ok(ToolOutput::text("{\"is [KEY redacted]\":[\"[KEY redacted]\",1]}")));
        let result =
            text_result(serde_json::json!({"content": [{"type": "text", "text": "t"}], "structuredContent": 1}));
        assert_eq!(of("s", &result, (1_000, &Secrets::default())), Ok(ToolOutput::text("t")));
    }

    #[test]
    fn long_result_is_truncated_with_a_note() {
        let output = truncate("ü".repeat(5_000_000), 1_000);
        assert_eq!(output.truncated_from, Some(10_000_000));
        assert!(output.content.len() <= 1_000 && output.content.ends_with("of 10000000 bytes; ask the tool for less]"));
    }

    /// A text of 16 MiB would be redacted in a second. The controls: a short one, and one that is short without its secrets.
    #[test]
    fn long_structured_content_is_cut_before_it_is_redacted() {
        let keys = Secrets::of([("KEY", "sk-0123456789"), ("LONG", "ab-0123456789-0123456789")]);
        let result = |text: String, most| {
            let value = serde_json::json!({"structuredContent": {"a": ["sk-01\n23456789", text], "c": 1}});
            of("s", &text_result(value), (most, &keys))
        };
        let whole = ToolOutput::text(r#"{"a":["[KEY redacted]","bbb"],"c":1}"#);
        assert_eq!(result("b".repeat(3), 200), Ok(whole));
        let shorter = result("ab-0123456789-0123456789".repeat(150), 3_000).unwrap();
        assert_eq!((shorter.truncated_from, shorter.content.len()), (None, 150 * "[LONG redacted]".len() + 33));
        let kept = format!(r#"{{"a":["[KEY redacted]","{}"#, "b".repeat(56));
        let content = format!("{kept}\n[truncated: 80 of 5000034 bytes; ask the tool for less]");
        let cut = ToolOutput { content: content.into(), truncated_from: Some(5_000_034) };
        assert_eq!(result("b".repeat(5_000_000), 200), Ok(cut));
        // No part of a secret that is cut shows.
        for length in 3_900..4_100 {
            let text = format!("{}{}", "b".repeat(length), "sk-0123456789".repeat(5_000));
            let shown = shown(&text, &keys);
            assert!(!shown.contains("sk-") && shown.ends_with('…') && shown.len() <= MAX_SHOWN + 3, "{shown}");
        }
    }

    #[test]
    fn server_error_becomes_a_printable_tool_error() {
        let result =
            text_result(serde_json::json!({"isError": true, "content": [{"type": "text", "text": "no\u{1b}[31m"}]}));
        let error = of("s", &result, (1_000, &Secrets::default())).unwrap_err();
        assert_eq!(error.message, "the MCP server `s` reports an error: no<U+001B>[31m");
    }

    #[test]
    fn error_of_a_transport_is_shown_without_its_type() {
        let refused = || Box::new(std::io::Error::other("HTTP 500"));
        let transport = DynamicTransportError::from_parts("a::B<c::D>", std::any::TypeId::of::<()>(), refused());
        assert_eq!(chain(&rmcp::service::ServiceError::TransportSend(transport)), "HTTP 500");
        assert_eq!(chain(&*refused()), "HTTP 500");
    }
}
