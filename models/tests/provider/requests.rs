use super::server::*;
use subtend_models::model::Model as _;
use subtend_session::message::ToolSpec;
use subtend_session::settings::Effort;

/// Returns the request that a model sends. `model` has the form `PROVIDER/MODEL`.
async fn received_request(model: &str, request: Request) -> ReceivedRequest {
    let server = Server::start([Reply::with_head("500 Oops", "")]).await;
    server.ask(model, request).await.0.unwrap_err();
    server.received_request()
}

fn tool(name: &str) -> ToolSpec {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    ToolSpec { name: name.into(), description: "Reads.".into(), schema: Arc::new(schema) }
}

#[tokio::test]
async fn each_protocol_has_its_own_path_and_shape() {
    for (name, line) in [
        ("anthropic/m:1", "POST /v1/messages HTTP/1.1"),
        ("openai/org/m:1", "POST /v1/chat/completions HTTP/1.1"),
        ("openai-responses/m", "POST /v1/responses HTTP/1.1"),
        ("gemini/m", "POST /v1beta/models/m:streamGenerateContent?alt=sse HTTP/1.1"),
        ("ollama/hf.co/a/b:q4", "POST /api/chat HTTP/1.1"),
    ] {
        assert_eq!(received_request(name, request()).await.line, line, "{name}");
    }
    let body = received_request("openai/org/m:1", request()).await.body;
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]);
    let expected =
        json!({"model": "org/m:1", "stream": true, "stream_options": {"include_usage": true}, "messages": messages});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn request_has_no_key_when_none_is_configured() {
    for name in ["anthropic/m", "openai/m", "openai-responses/m", "gemini/m", "ollama/m"] {
        let server = Server::start([Reply::with_head("500 Oops", "")]).await;
        let target = Target::parse(name).unwrap().with_base_url(&server.url).unwrap();
        let Ok(model) = Provider::new(target) else { panic!("{name} needs no key with a base URL") };
        model.call(request(), Deltas::none()).await.unwrap_err();
        let received = server.received_request();
        let no_key_is_set = model.name().starts_with("ollama") || std::env::var("OPENAI_API_KEY").is_err();
        let keys = ["authorization", "x-api-key", "x-goog-api-key"];
        let sends_no_key = keys.iter().all(|header| !received.headers.contains(header));
        assert!(sends_no_key || !no_key_is_set, "{name}: {}", received.headers);
        assert_eq!(received.headers.contains("anthropic-version: "), name.starts_with("anthropic"), "{name}");
    }
}

#[tokio::test]
async fn model_name_is_sent_unchanged() {
    for name in ["qwen-max", "x-high", "o4-mini-low", "a::b", "ns::x-none", "deep/er-zero"] {
        for provider in ["anthropic", "openai", "openai-responses", "ollama"] {
            let body = received_request(&format!("{provider}/{name}"), request()).await.body;
            assert_eq!(body["model"], name, "{provider}");
            for field in ["reasoning_effort", "reasoning", "thinking", "output_config", "think"] {
                assert_eq!(body.get(field), None, "{provider}/{name}: {body}");
            }
        }
        if !name.contains('/') {
            let received = received_request(&format!("gemini/{name}"), request()).await;
            assert_eq!(received.line, format!("POST /v1beta/models/{name}:streamGenerateContent?alt=sse HTTP/1.1"));
            assert_eq!(received.body.get("generationConfig"), None);
        }
    }
}

#[tokio::test]
async fn settings_are_sent_in_each_protocols_fields() {
    let settings =
        Settings { output_tokens: Some(3000), temperature: Some(0.5), top_p: Some(0.9), effort: Some(Effort::Low) };
    let body = async |name| received_request(name, Request { settings, ..request() }).await.body;
    let openai = body("openai/m").await;
    assert_eq!(
        (&openai["max_tokens"], &openai["temperature"], &openai["top_p"]),
        (&json!(3000), &json!(0.5), &json!(0.9))
    );
    assert_eq!(openai["reasoning_effort"], "low");
    let responses = body("openai-responses/m").await;
    assert_eq!((&responses["max_output_tokens"], &responses["reasoning"]), (&json!(3000), &json!({"effort": "low"})));
    assert_eq!(responses["include"], json!(["reasoning.encrypted_content"]));
    let gemini = body("gemini/m").await["generationConfig"].clone();
    assert_eq!(
        (&gemini["maxOutputTokens"], &gemini["temperature"], &gemini["topP"]),
        (&json!(3000), &json!(0.5), &json!(0.9))
    );
    let ollama = body("ollama/m").await;
    assert_eq!(ollama["options"], json!({"num_predict": 3000, "temperature": 0.5, "top_p": 0.9}));
    // Reasoning models refuse a temperature.
    for name in ["openai/gpt-5-mini", "openai-responses/o4-mini"] {
        let reasoning = body(name).await;
        assert_eq!((reasoning.get("temperature"), reasoning.get("top_p")), (None, None), "{name}");
    }
    // With thinking, no temperature is sent, and enough of the cap remains for the answer.
    let anthropic = body("anthropic/claude-sonnet-4").await;
    assert_eq!((anthropic.get("temperature"), anthropic.get("top_p")), (None, None));
    assert_eq!(anthropic["thinking"], json!({"type": "enabled", "budget_tokens": 1024}));
}

#[tokio::test]
async fn b18_cap_of_a_call_is_in_its_request() {
    let settings = Settings { output_tokens: Some(77), ..Settings::default() };
    for (name, place) in [
        ("anthropic/m", "/max_tokens"),
        ("openai/m", "/max_tokens"),
        ("openai-responses/m", "/max_output_tokens"),
        ("gemini/m", "/generationConfig/maxOutputTokens"),
        ("ollama/m", "/options/num_predict"),
    ] {
        let body = received_request(name, Request { settings, ..request() }).await.body;
        assert_eq!(body.pointer(place), Some(&json!(77)), "{name}: {body}");
        let uncapped = received_request(name, request()).await.body;
        assert_ne!(uncapped.pointer(place), Some(&json!(77)), "{name}: {uncapped}");
    }
}

#[tokio::test]
async fn format_is_requested_if_no_tools_are_offered() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    let format = Some(schema.to_string().into());
    let body = async |name, tools: Vec<ToolSpec>| {
        received_request(name, Request { format: format.clone(), tools: tools.into(), ..request() }).await.body
    };
    assert_eq!(body("openai/m", vec![]).await["response_format"]["json_schema"]["schema"], schema);
    assert_eq!(body("openai-responses/m", vec![]).await["text"]["format"]["schema"], schema);
    assert_eq!(body("gemini/m", vec![]).await["generationConfig"]["responseJsonSchema"], schema);
    // The prompt contains the schema, because this protocol has no field for it.
    let ollama = body("ollama/m", vec![]).await;
    let requested = ollama["messages"][0]["content"].as_str().unwrap_or_default();
    assert_eq!((&ollama["format"], requested.ends_with(&schema.to_string())), (&json!("json"), true), "{requested}");
    assert_eq!(body("anthropic/m", vec![]).await["output_config"]["format"]["schema"], schema);
    let both = body("openai/m", vec![tool("read")]).await;
    assert_eq!((both.get("response_format"), both["tools"][0]["function"]["name"].as_str()), (None, Some("read")));
}

#[tokio::test]
async fn tools_with_names_of_provider_tools_are_sent_unchanged() {
    let body =
        async |model, name| received_request(model, Request { tools: vec![tool(name)].into(), ..request() }).await.body;
    let schema = &*tool("x").schema;
    for name in ["read", "web_search"] {
        let anthropic = body("anthropic/m", name).await;
        assert_eq!(anthropic["tools"], json!([{"name": name, "description": "Reads.", "input_schema": schema}]));
        let responses = body("openai-responses/m", name).await;
        let expected =
            json!([{"type": "function", "name": name, "description": "Reads.", "parameters": schema, "strict": false}]);
        assert_eq!(responses["tools"], expected);
        let openai = body("openai/m", name).await;
        let function = json!({"name": name, "description": "Reads.", "parameters": schema, "strict": false});
        assert_eq!(openai["tools"], json!([{"type": "function", "function": function}]));
    }
    let gemini = body("gemini/m", "codeExecution").await;
    let expected = json!({"name": "codeExecution", "description": "Reads.", "parametersJsonSchema": schema});
    assert_eq!(gemini["tools"], json!([{"functionDeclarations": [expected]}]));
}
