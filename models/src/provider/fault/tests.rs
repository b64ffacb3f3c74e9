use reqwest::header::HeaderMap;
use serde_json::json;

use super::*;
use crate::provider::key::Key;
use crate::provider::target::Target;

#[test]
fn error_is_found_in_each_known_field_and_only_there() {
    for frame in
        [json!({"error": "no"}), json!({"error": {"message": "no"}}), json!({"type": "error", "message": "no"})]
    {
        assert_eq!(of_frame(&frame).map(|fault| fault.text), Some("the answer is an error: no".into()), "{frame}");
    }
    for frame in [json!({"error": null, "choices": []}), json!({"type": "ping"}), json!({})] {
        assert_eq!(of_frame(&frame), None, "{frame}");
    }
}

#[test]
fn status_within_a_stream_counts_like_one_before_it() {
    let kind = |code: u16| of_frame(&json!({"error": {"code": code, "message": "x"}})).map(|fault| fault.kind);
    assert_eq!(kind(429), Some(ModelFail::Rate));
    assert_eq!(kind(503), Some(ModelFail::Unavailable));
    assert_eq!(kind(400), Some(ModelFail::InvalidRequest));
}

#[test]
fn account_without_credit_is_not_retried() {
    let kind =
        |code: &str| of_frame(&json!({"error": {"status": 429, "code": code, "message": "x"}})).map(|of| of.kind);
    assert_eq!(kind("rate_limit_exceeded"), Some(ModelFail::Rate));
    let broke = json!({"error": {"http_code": 429, "type": "insufficient_quota", "message": "x"}});
    assert_eq!(of_frame(&broke).map(|fault| fault.kind), Some(ModelFail::Credit));
    let failed = json!({"type": "error", "code": "insufficient_quota", "message": "You exceeded your current quota."});
    assert_eq!(of_frame(&failed).map(|fault| fault.kind), Some(ModelFail::Credit));
}

#[test]
fn context_overflow_is_recognised_by_its_message() {
    let long = json!({"error": {"code": 400, "message": "This model's maximum context length is 8192 tokens."}});
    assert_eq!(of_frame(&long).map(|fault| fault.kind), Some(ModelFail::ContextOverflow));
    let busy = json!({"error": {"code": 503, "message": "no context window is free"}});
    assert_eq!(of_frame(&busy).map(|fault| fault.kind), Some(ModelFail::Unavailable));
}

/// Returns the message for a refused key of model `spec` with `variables`.
fn refusal_text(spec: &str, base_url: Option<&str>, variables: &[(&str, &str)], key: Option<&str>) -> String {
    let target = Target::parse(spec).unwrap();
    let target = key.map_or(target.clone(), |key| target.with_key(Key::new(key)));
    let target = base_url.map_or(Ok(target.clone()), |url| target.with_base_url(url)).unwrap();
    let variable = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
    let client = Client::new(target, variable).unwrap();
    let fault =
        http::of_status(StatusCode::UNAUTHORIZED, &HeaderMap::new(), "{\"error\": \"bad key secret-1\"}", &client);
    let error = fault.into_error(&client);
    assert_eq!(error.kind, ModelFail::Auth);
    error.message
}

#[test]
fn refused_key_is_named_by_its_source() {
    let variables = [("ANTHROPIC_API_KEY", "secret-1"), ("OPENAI_API_KEY", "secret-1")];
    assert_eq!(
        refusal_text("anthropic/m", None, &variables, None),
        "the key in ANTHROPIC_API_KEY was refused by anthropic (401): bad key [key]"
    );
    assert_eq!(
        refusal_text("openai/m", Some("http://h:1/v1"), &variables, None),
        "the key in OPENAI_API_KEY was refused by http://h:1 (401): bad key [key]"
    );
    assert_eq!(
        refusal_text("openai/m", None, &[], Some("secret-1")),
        "the key was refused by openai (401): bad key [key]"
    );
    assert_eq!(
        refusal_text("gemini/m", Some("https://h"), &[], None),
        "https://h requires a key (401): set GEMINI_API_KEY: bad key secret-1"
    );
    assert_eq!(
        refusal_text("ollama/m", None, &[], None),
        "http://127.0.0.1:11434 requires a key (401): bad key secret-1"
    );
}

#[test]
fn error_without_a_message_is_reported_as_such() {
    for frame in [r#"{"error":{"code":317}}"#, r#"{"error":{"message":"\u0001"}}"#, r#"{"type":"error"}"#] {
        let fault = of_frame(&serde_json::from_str(frame).unwrap()).unwrap();
        assert!(
            fault.display_text(None).starts_with("the answer is an error"),
            "{frame}: {}",
            fault.display_text(None)
        );
    }
}
