//! A host over a journal, and a client that sends requests to its router.

pub(crate) mod files;

pub(crate) use std::net::SocketAddr;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use axum::Router;
pub(crate) use axum::body::Body;
pub(crate) use axum::http::{Method, Request, StatusCode};
pub(crate) use serde_json::{Value, json};
pub(crate) use subtend_actors::{OpenOptions, Options, Runtime};
pub(crate) use subtend_host::auth::{Guard, TokenFile, TokenScope};
pub(crate) use subtend_host::listen::Bounds;
pub(crate) use subtend_host::{Host, HostOptions};
pub(crate) use subtend_journal::Journal;
pub(crate) use subtend_journal::engine::Engine;
pub(crate) use subtend_journal::memory::Memory;
pub(crate) use subtend_models::closure::fn_model;
pub(crate) use subtend_models::model::Answer;
pub(crate) use subtend_session::authority::{Rule, RuleSet, Verdict};
pub(crate) use subtend_session::message::Message;
pub(crate) use subtend_session::record::ToolCall;
pub(crate) use subtend_tools::registry::Registry;

use axum::http::HeaderMap;
use http_body_util::BodyExt as _;
use subtend_session::call::ToolEffect;
use subtend_session::message::ToolSpec;
use subtend_tools::closure::FnTool;
use subtend_tools::tool::ToolOutput;
use tower::ServiceExt as _;

/// Returns a host whose agent greets, calls a tool that needs an approval, starts children or hangs, by its input.
pub(crate) async fn host(memory: &Memory) -> Host {
    Host::new(runtime(memory).await, HostOptions::default())
}

pub(crate) async fn hosted() -> (Host, Router) {
    let host = host(&Memory::new()).await;
    let app = host.router();
    (host, app)
}

/// As `hosted`, with a session whose first run has ended.
pub(crate) async fn hosted_with(text: &str) -> (Host, Router, String) {
    let (host, app) = hosted().await;
    let id = open_and_finish(&app, text).await;
    (host, app, id)
}

pub(crate) async fn runtime(memory: &Memory) -> Runtime {
    runtime_on(Box::new(memory.clone())).await
}

pub(crate) async fn runtime_on(engine: Box<dyn Engine>) -> Runtime {
    runtime_with(engine, Options::default()).await
}

pub(crate) async fn runtime_with(engine: Box<dyn Engine>, options: Options) -> Runtime {
    let model = fn_model("script", |request, _| async move {
        if &*request.agent == "compaction" {
            return Ok(Answer::of_text("A message was answered."));
        }
        // The turn after tool calls has their results.
        if let Some(Message::Result { .. } | Message::Notice { .. }) = request.messages.iter().last() {
            return Ok(Answer::of_text("done"));
        }
        let text = request.messages.iter().rev().find_map(|message| match message {
            Message::User { text, .. } => Some(text.to_string()),
            _ => None,
        });
        let text = text.unwrap_or_default();
        if text.contains("hang") {
            return std::future::pending().await;
        }
        let called = |tool: &str, args: serde_json::Value| ToolCall {
            provider_id: "c".into(),
            tool: tool.into(),
            args: args.to_string().into(),
        };
        let task = || called("task", serde_json::json!({"subagent_type": "explore", "prompt": "read everything"}));
        Ok(match &*text {
            "make it" => Answer::of_calls(None, vec![called("make", serde_json::json!({"what": "a boat"}))]),
            "children" => Answer::of_calls(None, vec![task(), task()]),
            text if text.starts_with("make ") => Answer::of_calls(
                None,
                vec![called("make", serde_json::json!({"what": text.trim_start_matches("make ")}))],
            ),
            _ => Answer::of_text(format!("Hello. You said: {text}")),
        })
    });
    let journal = Journal::open(engine, subtend_journal::Options::default()).expect("a journal");
    let rule = |action: &str, verdict| Rule { action: action.into(), resource: "*".into(), verdict };
    let policy = RuleSet { default: Verdict::Allow, rules: vec![rule("make.*", Verdict::Ask)] };
    let spec = ToolSpec {
        name: "make".into(),
        description: "makes a thing".into(),
        schema: Arc::new(serde_json::json!({"type": "object"})),
    };
    let make = FnTool::new(spec, ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("made")) }).access(|args| {
        let what = args.and_then(|args| args["what"].as_str()).unwrap_or("*");
        vec![subtend_session::authority::Access { action: "make.thing".into(), resource: what.into() }]
    });
    Runtime::builder()
        .journal(journal)
        .policy(policy)
        .tools(Registry::builder().tool(Arc::new(make)).expect("one tool").build())
        .options(Options { titles: false, summaries: false, ..options })
        .model(Arc::new(model))
        .start()
        .await
        .expect("a runtime")
}

pub(crate) async fn finish(host: Host, app: Router) {
    drop(app);
    end(host).await;
}

pub(crate) async fn end(host: Host) {
    let report = host.shutdown(Duration::from_secs(5)).await.expect("no request holds the host");
    assert_eq!((report.actors, report.tasks), (0, 0));
}

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    pub(crate) fn problem(&self) -> (u16, String) {
        let json = self.json();
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.body);
        assert_eq!(json["status"], self.status.as_u16());
        (self.status.as_u16(), json["code"].as_str().expect("a code").to_owned())
    }
}

pub(crate) async fn request(
    app: &Router,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let body = String::from_utf8(body.to_vec()).expect("text");
    HttpResponse { status: parts.status, headers: parts.headers, body }
}

pub(crate) async fn get(app: &Router, path: &str) -> HttpResponse {
    request(app, Method::GET, path, &[], "").await
}

pub(crate) async fn post(app: &Router, path: &str, body: &Value) -> HttpResponse {
    request(app, Method::POST, path, &[("content-type", "application/json")], &body.to_string()).await
}

/// Opens a session with a first input; returns its id once its run is over.
pub(crate) async fn open_and_finish(app: &Router, text: &str) -> String {
    let opened = post(app, "/v1/sessions", &serde_json::json!({"input": {"text": text}})).await;
    assert_eq!(opened.status, StatusCode::CREATED, "{}", opened.body);
    let json = opened.json();
    let (id, run) = (json["session"]["id"].as_str().expect("an id").to_owned(), json["input"]["run"].clone());
    let ended = get(app, &format!("/v1/sessions/{id}/runs/{run}?wait=true&timeout=20000")).await;
    assert_eq!(ended.json()["outcome"], "completed", "{}", ended.body);
    id
}
