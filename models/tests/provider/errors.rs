use super::server::*;
use subtend_models::model::Model as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn error(spec: &str, head: &str, body: &str) -> ModelError {
    answer(spec, Reply::with_head(head, body)).await.unwrap_err()
}

fn error_text(error: &ModelError) -> String {
    let (before, after) = error.message.split_once("http://127.0.0.1:").unwrap_or((&error.message, ""));
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    if before.len() == error.message.len() { before.into() } else { format!("{before}HERE{after}") }
}

#[tokio::test]
async fn each_status_maps_to_its_kind_of_failure() {
    for (status, kind) in [
        ("400 Bad Request", ModelFail::InvalidRequest),
        ("401 Unauthorized", ModelFail::Auth),
        ("402 Payment Required", ModelFail::Credit),
        ("403 Forbidden", ModelFail::Access),
        ("408 Request Timeout", ModelFail::Unavailable),
        ("409 Conflict", ModelFail::InvalidRequest),
        ("413 Payload Too Large", ModelFail::ContextOverflow),
        ("422 Unprocessable Entity", ModelFail::InvalidRequest),
        ("429 Too Many Requests", ModelFail::Rate),
        ("500 Internal Server Error", ModelFail::Unavailable),
        ("502 Bad Gateway", ModelFail::Unavailable),
        ("529 Overloaded", ModelFail::Unavailable),
    ] {
        for spec in ["anthropic/m", "openai/m", "openai-responses/m", "gemini/m", "ollama/m"] {
            let error = error(spec, status, "<html>sorry</html>").await;
            assert_eq!(error.kind, kind, "{spec} {status}");
            assert!(!error.message.contains('<') && error.message.contains(&status[..3]), "{error}");
        }
    }
}

#[tokio::test]
async fn provider_message_is_shown_on_one_line() {
    let body = json!({"error": {"type": "invalid_request_error", "message": "temperature:\n  must be\tat most 2"}});
    let report = error("openai/m", "400 Bad Request", &body.to_string()).await;
    assert_eq!(error_text(&report), "HERE answered 400: temperature: must be at most 2");
    for body in [
        "{\"error\": \"no\"}",
        "{\"message\": \"no\"}",
        "{\"detail\": \"no\"}",
        "[{\"error\": {\"message\": \"no\"}}]",
        "no",
    ] {
        assert_eq!(error_text(&error("openai/m", "500 Oops", body).await), "HERE answered 500: no", "{body}");
    }
    let long = error("openai/m", "500 Oops", &"x ".repeat(9000)).await;
    assert!((490..560).contains(&long.message.chars().count()), "{}", long.message.len());
}

#[tokio::test]
async fn too_long_conversation_has_its_own_error() {
    for body in [
        json!({"error": {"code": "context_length_exceeded", "message": "too much"}}),
        json!({"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
        json!({"error": {"type": "exceed_context_size_error", "message": "request (9015 tokens) exceeds the available context size"}}),
        json!({"error": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}),
    ] {
        let error = error("openai/m", "400 Bad Request", &body.to_string()).await;
        assert_eq!(error.kind, ModelFail::ContextOverflow, "{body}");
    }
}

/// The messages come from the documentation of the providers and from bug reports.
#[tokio::test]
async fn a9_account_out_of_credit_is_reported_per_protocol() {
    let openai = json!({"error": {"message": "You exceeded your current quota, please check your plan and billing details.",
        "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}});
    let inactive = json!({"error": {"message": "Your account is not active.", "type": "billing_not_active", "code": "billing_not_active"}});
    let anthropic = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "Your credit balance is too low to access the Anthropic API."}});
    let billing =
        json!({"type": "error", "error": {"type": "billing_error", "message": "There is an issue with your billing."}});
    let gemini = json!({"error": {"code": 429, "message": "Your prepayment credits are depleted.", "status": "RESOURCE_EXHAUSTED"}});
    let router = json!({"error": {"code": 402, "message": "Insufficient credits. Add more."}});
    for (spec, status, body) in [
        ("openai/m", "429 Too Many Requests\r\nretry-after: 20", &openai),
        ("openai-responses/m", "429 Too Many Requests", &openai),
        ("openai/m", "429 Too Many Requests", &inactive),
        ("anthropic/m", "400 Bad Request", &anthropic),
        ("anthropic/m", "402 Payment Required", &billing),
        ("gemini/m", "429 Too Many Requests", &gemini),
        ("openai/m", "402 Payment Required", &router),
        ("ollama/m", "402 Payment Required", &json!({"error": "upgrade for more"})),
    ] {
        let error = error(spec, status, &body.to_string()).await;
        assert_eq!((error.kind, error.retry_after_ms), (ModelFail::Credit, None), "{spec}: {error}");
        assert!(error.message.contains("the account is out of credit: "), "{spec}: {error}");
    }
    let limited = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota, please check your plan and billing details."}});
    let rate = error("gemini/m", "429 Too Many Requests", &limited.to_string()).await;
    assert_eq!(rate.kind, ModelFail::Rate, "its rate limits mention a quota too: {rate}");
}

#[tokio::test]
async fn a9_missing_access_is_not_reported_as_a_refused_key() {
    let region = json!({"error": {"code": "unsupported_country_region_territory", "param": null, "type": "request_forbidden",
        "message": "Country, region, or territory not supported"}});
    let project = json!({"error": {"message": "Project `p` does not have access to model `m`", "type": "invalid_request_error",
        "code": "model_not_found"}});
    let anthropic = json!({"type": "error", "error": {"type": "permission_error",
        "message": "Your API key does not have permission to use the specified resource."}});
    let blocked = json!({"error": {"type": "forbidden", "message": "Request not allowed"}});
    let disabled = json!({"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "The API has not been used in project 7.",
        "details": [{"reason": "SERVICE_DISABLED"}]}});
    let location = json!({"error": {"code": 400, "status": "FAILED_PRECONDITION",
        "message": "User location is not supported for the API use."}});
    for (spec, status, body) in [
        ("openai/m", "403 Forbidden", &region),
        ("openai-responses/m", "403 Forbidden", &project),
        ("anthropic/m", "403 Forbidden", &anthropic),
        ("anthropic/m", "403 Forbidden", &blocked),
        ("gemini/m", "403 Forbidden", &disabled),
        ("gemini/m", "400 Bad Request", &location),
        ("ollama/m", "403 Forbidden", &json!({"error": "this model requires a subscription"})),
    ] {
        let error = error(spec, status, &body.to_string()).await;
        assert_eq!(error.kind, ModelFail::Access, "{spec}: {error}");
        assert!(error.message.contains(" refused access (") && !error.message.contains("key was refused"), "{error}");
    }
    let leaked = json!({"error": {"code": 403, "status": "PERMISSION_DENIED",
        "message": "Your API key was reported as leaked. Please use another API key."}});
    let error = error("gemini/m", "403 Forbidden", &leaked.to_string()).await;
    assert_eq!(error.kind, ModelFail::Auth, "{error}");
}

/// A plain server answers a TLS handshake with plain text, or closes the connection.
#[tokio::test]
async fn a9_tls_to_a_plain_port_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut greeting = [0_u8; 16];
            let _ = connection.read(&mut greeting).await;
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        }
    });
    let error = call(&url).await;
    let expected =
        format!("could not reach {url}: the server does not speak TLS on this port. Give its base URL as http://…");
    assert_eq!((error.kind, error.message), (ModelFail::Unavailable, expected));
}

#[tokio::test]
async fn a9_close_before_tls_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            // Read the whole handshake, so that the close is not a reset.
            let mut greeting = [0_u8; 4096];
            let _ = connection.read(&mut greeting).await;
            let _ = connection.shutdown().await;
        }
    });
    let error = call(&url).await;
    assert_eq!(error.kind, ModelFail::Unavailable);
    assert!(error.message.contains("closed the connection before TLS was established"), "{error}");
}

async fn call(url: &str) -> ModelError {
    let target = Target::parse("openai/m").unwrap().with_base_url(url).unwrap();
    Provider::new(target).unwrap().call(request(), Deltas::none()).await.unwrap_err()
}

#[tokio::test]
async fn retry_after_is_passed_on() {
    let wait = async |headers: &str| {
        error("openai/m", &format!("429 Too Many Requests{headers}"), "slow").await.retry_after_ms
    };
    assert_eq!(wait("").await, None);
    assert_eq!(wait("\r\nretry-after: 2").await, Some(2000));
    assert_eq!(wait("\r\nretry-after-ms: 1500\r\nretry-after: 9").await, Some(1500));
    let dates = "\r\ndate: Wed, 21 Oct 2026 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2026 07:28:07 GMT";
    assert_eq!(wait(dates).await, Some(7000));
}

#[tokio::test]
async fn unknown_model_is_reported_with_similar_names() {
    let missing = json!({"type": "error", "error": {"type": "not_found_error", "message": "model: claude-sonet-5"}});
    let models = json!({"data": [{"id": "claude-opus-5"}, {"id": "claude-sonnet-5"}, {"id": "other"}]});
    let server = Server::start([
        Reply::with_head("404 Not Found", missing.to_string()),
        Reply::with_head("200 OK\r\ncontent-type: application/json", models.to_string()),
    ])
    .await;
    let error = server.ask("anthropic/claude-sonet-5", request()).await.0.unwrap_err();
    assert_eq!(error.kind, ModelFail::InvalidRequest);
    let expected = "HERE answered 404: model: claude-sonet-5; did you mean `anthropic/claude-sonnet-5` or `anthropic/claude-opus-5`?";
    assert_eq!(error_text(&error), expected);
    assert_eq!(server.all()[1].line, "GET /v1/models HTTP/1.1");
}

#[tokio::test]
async fn unreachable_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let target = Target::parse("openai/m").unwrap().with_base_url(&url).unwrap();
    let error = Provider::new(target).unwrap().call(request(), Deltas::none()).await.unwrap_err();
    let expected = format!("could not reach {url}: connection refused");
    assert_eq!((error.kind, error.message), (ModelFail::Unavailable, expected));
}

#[tokio::test]
async fn connection_closed_without_an_answer_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let target = Target::parse("openai/m").unwrap().with_base_url(&url).unwrap();
    let error = Provider::new(target).unwrap().call(request(), Deltas::none()).await.unwrap_err();
    assert_eq!(error.kind, ModelFail::Unavailable, "{error}");
}
