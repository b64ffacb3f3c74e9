//! Tests tokens of each scope with each operation of the document and each view of the page.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::Value;
use subtend_host::auth::{Guard, TokenFile, TokenScope};
use subtend_journal::memory::Memory;
use tower::ServiceExt as _;

use crate::support::{end, host, open_and_finish};

const NONE: &str = "00000000-0000-7000-8000-000000000000";

/// Operations, by method and path, and the scopes of which they need one.
type ScopeGroup = (&'static str, &'static [TokenScope]);

/// All operations by group. A new operation must be added here.
const GROUPS: [ScopeGroup; 6] = [
    // Needs no token.
    ("GET /healthz, GET /readyz, GET /assets/{name}", &[]),
    // For the Unix socket only.
    ("POST /v1/store/reads, POST /v1/store/imports, GET /v1/store/imports", &[]),
    (
        "GET /metrics, GET /v1/agents, GET /v1/agents/{name}, GET /v1/approvals, \
         GET /v1/approvals/{session}/{call}, GET /v1/events, GET /v1/host, \
         GET /v1/sessions, GET /v1/sessions/{id}, GET /v1/sessions/{id}/alternatives, GET /v1/sessions/{id}/branches, \
         GET /v1/sessions/{id}/events, GET /v1/sessions/{id}/inputs/{input}, GET /v1/sessions/{id}/queue, \
         GET /v1/sessions/{id}/records, GET /v1/sessions/{id}/runs/{run}, GET /v1/sessions/{id}/transcript, \
         GET /v1/sessions/{id}/usage, GET /v1/sessions/{id}/warnings, GET /v1/tasks/get/{id}, POST /v1/tasks/list, \
         GET /v1/trees/{id}, GET /v1/trees/{id}/events, GET /v1/trees/{id}/worktrees, GET /v1/workers, GET /, \
         GET /live/sessions, GET /approvals, GET /live/approvals, GET /asks, GET /parts/{list}, GET /parts/{list}/live, \
         GET /s/{id}, GET /s/{id}/live, GET /s/{id}/tree, \
         GET /s/{id}/kids, GET /s/{id}/live/tree, GET /s/{id}/timeline, GET /s/{id}/timeline/chart, GET /s/{id}/replay, \
         GET /s/{id}/replay/at, GET /s/{id}/branches, GET /s/{id}/usage, GET /usage, GET /agents, GET /options",
        &[TokenScope::Read, TokenScope::Act, TokenScope::Admin],
    ),
    (
        "POST /v1/approvals/{session}/{call}, POST /v1/sessions, PATCH /v1/sessions/{id}, \
         POST /v1/sessions/{id}/branches, POST /v1/sessions/{id}/cancel, POST /v1/sessions/{id}/close, \
         POST /v1/sessions/{id}/compaction, DELETE /v1/sessions/{id}/compaction, POST /v1/sessions/{id}/continue, \
         POST /v1/sessions/{id}/inputs, POST /v1/sessions/{id}/interrupt, DELETE /v1/sessions/{id}/queue, \
         DELETE /v1/sessions/{id}/queue/{input}, POST /v1/sessions/{id}/regenerate, POST /v1/sessions/{id}/reload, \
         GET /v1/sessions/{id}/restore, POST /v1/sessions/{id}/rollback, POST /v1/sessions/{id}/summary, \
         POST /v1/sessions/{id}/switch, GET /v1/sessions/{id}/worktree, POST /v1/sessions/{id}/worktree/discard, \
         POST /v1/sessions/{id}/worktree/keep, POST /v1/sessions/{id}/worktree/merge, POST /v1/tasks/cancel/{id}, \
         POST /v1/tasks/spawn, POST /open, POST /s/{id}/send, POST /s/{id}/cancel, POST /s/{id}/interrupt, \
         POST /s/{id}/continue, POST /s/{id}/queue/{input}/remove, POST /s/{id}/approve, POST /s/{id}/branch, \
         POST /s/{id}/rollback, POST /s/{id}/compact, POST /s/{id}/compact/undo, GET /s/{id}/restore, \
         GET /s/{id}/worktree, POST /s/{id}/worktree/merge, POST /s/{id}/worktree/keep, \
         POST /s/{id}/worktree/discard, POST /s/{id}/regenerate, POST /s/{id}/switch",
        &[TokenScope::Act, TokenScope::Admin],
    ),
    (
        "PUT /v1/agents/{name}, DELETE /v1/agents/{name}, DELETE /v1/sessions/{id}, GET /v1/sessions/{id}/export, \
         POST /options",
        &[TokenScope::Admin],
    ),
    (
        "POST /v1/workers/complete, POST /v1/workers/renew, POST /v1/workers/take",
        &[TokenScope::Work, TokenScope::Admin],
    ),
];

fn groups() -> BTreeMap<String, usize> {
    let of = |(no, (operations, _)): (usize, &ScopeGroup)| {
        operations.split(", ").map(|operation| (operation.to_owned(), no)).collect::<Vec<_>>()
    };
    GROUPS.iter().enumerate().flat_map(of).collect()
}

/// Returns the operations of the document, and those of the page as found in its source.
fn operations() -> Vec<String> {
    let document: Value = serde_json::from_str(&subtend_host::api::document().expect("JSON")).expect("JSON");
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let methods = methods.as_object().expect("methods").keys();
        all.extend(methods.map(|method| format!("{} {path}", method.to_ascii_uppercase())));
    }
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/page.rs")).expect("text");
    for route in page.split(".route(\"").skip(1) {
        let (path, handlers) = route.split_once("\", ").expect("a handler");
        let handlers = handlers.lines().next().expect("a line");
        for method in ["get", "post", "put", "patch", "delete"] {
            if handlers.starts_with(&format!("{method}(")) || handlers.contains(&format!(").{method}(")) {
                all.push(format!("{} {path}", method.to_ascii_uppercase()));
            }
        }
    }
    all.sort();
    all
}

/// Sends a request; returns the status, and the code of a refusal. Drops other responses unread: streams have no end.
async fn send(app: &Router, operation: &str, token: Option<&str>) -> (u16, String) {
    let (method, path) = operation.split_once(' ').expect("a path");
    let body = match path {
        "/v1/store/reads" => r#"{"read":"heads"}"#,
        "/v1/store/imports" => r#"{"file":"/no/such/file","within":[]}"#,
        _ => "[]",
    };
    let method: Method = method.parse().expect("a method");
    let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:7475");
    let request = token.iter().fold(request, |request, token| request.header("authorization", *token));
    let request = request.header("content-type", "application/json").body(Body::from(body)).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    let status = response.status().as_u16();
    if ![401, 403].contains(&status) {
        return (status, String::new());
    }
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let problem: Value = serde_json::from_slice(&body).expect("a problem");
    (status, problem["code"].as_str().expect("a code").to_owned())
}

/// The controls: operations within the scope pass the guard and find no session.
#[tokio::test]
async fn token_is_refused_operations_outside_its_scope() {
    let groups = groups();
    assert_eq!(groups.keys().cloned().collect::<Vec<_>>(), operations(), "each operation needs one group");
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let host = host(&Memory::new()).await;
    let id = open_and_finish(&host.router(), "one").await;
    let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
    let app = Guard::new(address, [], tokens.clone()).protect(host.router());
    let before = host.runtime().journal().last_appended();
    let attacks: [Option<TokenScope>; 5] =
        [None, Some(TokenScope::Work), Some(TokenScope::Read), Some(TokenScope::Act), Some(TokenScope::Admin)];
    let mut wrong = Vec::new();
    for scope in attacks {
        let token = scope.map(|scope| format!("Bearer {}", tokens.create(&scope.to_string(), scope).expect("a token")));
        for (operation, group) in &groups {
            let passes = *group == 0 || scope.is_some_and(|scope| GROUPS[*group].1.contains(&scope));
            let named = if passes { NONE } else { &id };
            let filled = operation.replace("{id}", named).replace("{session}", named).replace("{input}", NONE);
            let filled = filled.replace("{call}", "1.0").replace("{run}", "1").replace("{name}", "none");
            let (status, code) = send(&app, &filled, token.as_deref()).await;
            let refused = if scope.is_none() { (401, "unauthorized") } else { (403, "scope_too_small") };
            let is_right = if passes {
                !["unauthorized", "scope_too_small"].contains(&&*code)
            } else {
                (status, &*code) == refused
            };
            if !is_right {
                wrong.push(format!("{scope:?} {operation}: {status} {code}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(host.runtime().journal().last_appended(), before, "a refused request was recorded");
    drop(app);
    end(host).await;
}

/// Another spelling of a path may need a smaller scope, so it must find no resource. The control: the normal spelling.
#[tokio::test]
async fn other_spellings_of_a_path_find_no_resource() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let host = host(&Memory::new()).await;
    let id = open_and_finish(&host.router(), "one").await;
    let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
    let app = Guard::new(address, [], tokens.clone()).protect(host.router());
    let token = |scope: TokenScope| format!("Bearer {}", tokens.create(&scope.to_string(), scope).expect("a token"));
    let (read, admin) = (token(TokenScope::Read), token(TokenScope::Admin));
    let attacks: [&str; 10] = [
        "/v1/sessions/{id}/%65xport",
        "/v1/sessions/{id}/export/",
        "/v1/sessions/{id}/Export",
        "/v1/sessions/{id}%2Fexport",
        "/v1/sessions/{id}/./export",
        "/v1/sessions//{id}/export",
        "/%76%31/sessions/{id}/export",
        "/v1/sessions/{id}/worktre%65",
        "/s/{id}/restor%65",
        "/s/{id}/worktree/",
    ];
    for attack in attacks {
        let (status, code) = send(&app, &format!("GET {}", attack.replace("{id}", &id)), Some(&read)).await;
        assert_eq!((status, &*code), (404, ""), "{attack}");
    }
    let export = format!("GET /v1/sessions/{id}/export");
    assert_eq!(send(&app, &export, Some(&read)).await, (403, "scope_too_small".to_owned()));
    assert_eq!(send(&app, &export, Some(&admin)).await, (200, String::new()));
    drop(app);
    end(host).await;
}
