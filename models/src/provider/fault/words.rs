//! Recognizes error messages of providers.

use serde_json::Value;
use subtend_session::outcome::ModelFail;

/// Maximum characters of a message.
const MAX_CHARS: usize = 500;

/// Returns the message of an error, from any of the fields that providers use.
pub(super) fn message(body: &Value) -> Option<String> {
    let places = ["/error/message", "/error", "/message", "/detail", "/0/error/message", "/response/error/message"];
    let found = places.iter().find_map(|place| body.pointer(place).and_then(Value::as_str));
    found.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns the error's own kind, such as `overloaded_error`.
pub(super) fn kind(body: &Value) -> Option<&str> {
    let places = ["/error/type", "/error/code", "/error/status", "/code", "/0/error/status"];
    places.iter().find_map(|place| body.pointer(place).and_then(Value::as_str)).filter(|kind| !kind.is_empty())
}

pub(super) fn kinds(body: &Value) -> String {
    let places = ["/error/type", "/error/code", "/error/status", "/type", "/code", "/0/error/status"];
    let found = places.iter().filter_map(|place| body.pointer(place).and_then(Value::as_str));
    found.collect::<Vec<_>>().join(" ")
}

/// Returns the text of a body that is not JSON; `None` for an HTML page.
pub(super) fn plain(body: &str) -> Option<String> {
    let body = body.trim();
    (!body.is_empty() && !body.starts_with('<')).then(|| body.to_owned())
}

/// Classifies a failure by the message alone.
pub(super) fn fail(text: &str) -> ModelFail {
    let says = |phrases: &[&str]| phrases.iter().any(|word| text.contains(word));
    if says(&["overloaded", "unavailable", "server_error", "api_error", "timeout", "timed out", "internal_error"]) {
        ModelFail::Unavailable
    } else if says(&["rate_limit", "rate limit", "resource_exhausted", "too many requests"]) {
        ModelFail::Rate
    } else if says(&["authentication", "unauthorized", "invalid_api_key", "unauthenticated"]) {
        ModelFail::Auth
    } else if says(&["permission_"]) || is_unsupported_region(text) {
        ModelFail::Access
    } else if says(&["invalid_request", "invalid_argument", "not_found"]) {
        ModelFail::InvalidRequest
    } else {
        ModelFail::BadAnswer
    }
}

pub(super) fn is_context_overflow(text: &str) -> bool {
    const WORDS: [&str; 14] = [
        "context length",
        "context_length",
        "context window",
        "context size",
        "context_size",
        "maximum context",
        "prompt is too long",
        "prompt too long",
        "input is too long",
        "too many tokens",
        "input token count",
        "maximum number of tokens",
        "request_too_large",
        "tokens exceed",
    ];
    WORDS.iter().any(|word| text.contains(word))
}

/// Returns whether the account has no credit, so that waiting does not help. Gemini's message for a rate limit mentions a quota and a plan too,
/// but does not match.
pub(super) fn is_out_of_credit(text: &str) -> bool {
    const WORDS: [&str; 18] = [
        "insufficient_quota",
        "billing_error",
        "billing_not_active",
        "billing_hard_limit",
        "exceeded_current_quota",
        "credit balance is too low",
        "insufficient credit",
        "insufficient balance",
        "insufficient_balance",
        "out of credit",
        "credits are depleted",
        "requires more credits",
        "have any credits",
        "no credits",
        "payment required",
        "specified api usage limits",
        "spending limit",
        "spend limit",
    ];
    WORDS.iter().any(|word| text.contains(word))
}

/// Returns whether the key is missing or refused, although the status says "bad request" or "forbidden".
pub(super) fn is_key_refused(body: &Value, text: &str) -> bool {
    const WORDS: [&str; 6] = [
        "api key not valid",
        "invalid_api_key",
        "invalid api key",
        "api key was reported as leaked",
        "api key expired",
        "unregistered callers",
    ];
    let reasons = body.pointer("/error/details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let refused = |detail: &Value| detail.get("reason").and_then(Value::as_str) == Some("API_KEY_INVALID");
    text.contains("authentication_error") || WORDS.iter().any(|word| text.contains(word)) || reasons.iter().any(refused)
}

pub(super) fn is_unsupported_region(text: &str) -> bool {
    ["unsupported_country", "country, region", "location is not supported", "not available in your"]
        .iter()
        .any(|word| text.contains(word))
}

pub(super) fn is_unknown_model(text: &str) -> bool {
    text.contains("model")
        && ["not found", "not_found", "does not exist", "not a valid model", "unknown model", "invalid model"]
            .iter()
            .any(|word| text.contains(word))
}

pub(super) fn line(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= MAX_CHARS {
        return line;
    }
    let cut: String = line.chars().take(MAX_CHARS).collect();
    format!("{cut}…")
}
