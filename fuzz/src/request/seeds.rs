//! Seeds: requests to every resource of the API, and to every view and form of the page.

use std::collections::BTreeMap;

use serde_json::Value;
use subtend_host::api;

use super::scene::SESSIONS;

/// Bodies of API requests by method and path. Other requests have no body.
const BODIES: [(&str, &str); 19] = [
    ("PUT /v1/agents/{name}", r#"{"text":"---\nname: helper\ndescription: helps\nmode: primary\n---\nHelp."}"#),
    ("PATCH /v1/sessions/{id}", r#"{"title":"a title","metadata":{"n":1}}"#),
    ("POST /v1/approvals/{session}/{call}", r#"{"verdict":"allow","digest":"0"}"#),
    (
        "POST /v1/sessions",
        r#"{"agent":"general","title":"t","limits":{"turns":3},"ask":["fs.read"],"input":{"text":"child"}}"#,
    ),
    ("POST /v1/sessions/{id}/branches", r#"{"at":2,"fresh":true,"title":"a branch"}"#),
    ("POST /v1/sessions/{id}/continue", r#"{"text":"continue"}"#),
    (
        "POST /v1/sessions/{id}/inputs",
        r#"{"text":"hello","lane":"steer","turns":2,"metadata":{"a":[1]},"format":{"type":"object"}}"#,
    ),
    ("POST /v1/sessions/{id}/regenerate", r#"{"of":4}"#),
    ("POST /v1/sessions/{id}/rollback", r#"{"run":1}"#),
    ("POST /v1/sessions/{id}/switch", r#"{"to":"next"}"#),
    ("POST /v1/store/imports", r#"{"file":"/nowhere","within":{"layers":[]}}"#),
    ("POST /v1/store/reads", r#"{"get":{"table":"heads","key":""}}"#),
    ("POST /v1/tasks/list", r#"{"status":"running","limit":2}"#),
    (
        "POST /v1/tasks/spawn",
        r#"{"type":"explore","prompt":"read everything","parentSessionId":"01900000-0000-7000-8000-000000000001","metadata":{"n":1}}"#,
    ),
    ("POST /v1/workers/complete", r#"{"token":"t","result":{"ok":"done"}}"#),
    ("POST /v1/workers/renew", r#"{"token":"t","progress":"half"}"#),
    ("POST /v1/workers/take", r#"{"worker":"w","tools":["build"]}"#),
    ("POST /v1/sessions/{id}/close", ""),
    ("POST /v1/sessions/{id}/cancel", ""),
];

const QUERIES: [(&str, &str); 10] = [
    ("/v1/sessions", "?all=true&in_flight=true&q=hello&limit=2"),
    ("/v1/sessions/{id}/cancel", "?tree=true&run=1"),
    ("/v1/sessions/{id}/events", "?after=2"),
    ("/v1/sessions/{id}/inputs/{input}", "?wait=true&timeout=5"),
    ("/v1/sessions/{id}/interrupt", "?after=1"),
    ("/v1/sessions/{id}/records", "?from=2&limit=3"),
    ("/v1/sessions/{id}/runs/{run}", "?wait=true&timeout=5"),
    ("/v1/sessions/{id}/transcript", "?at=5&limit=2&children=true"),
    ("/v1/trees/{id}", "?depth=2"),
    ("/v1/trees/{id}/events", "?after=1.1"),
];

const VIEWS: [&str; 19] = [
    "/",
    "/approvals",
    "/agents",
    "/options",
    "/usage",
    "/assets/page.css",
    "/live/sessions",
    "/live/approvals",
    "/s/{id}",
    "/s/{id}/live?seen=2",
    "/s/{id}/tree",
    "/s/{id}/kids",
    "/s/{id}/live/tree",
    "/s/{id}/timeline",
    "/s/{id}/replay",
    "/s/{id}/replay/at?at=3",
    "/s/{id}/branches",
    "/s/{id}/usage",
    "/login?code=x",
];

const FORMS: [(&str, &str); 13] = [
    ("/open", "agent=general&text=hello&workspace=&model="),
    ("/s/{id}/send", "text=hello&lane=steer"),
    ("/s/{id}/cancel", ""),
    ("/s/{id}/interrupt", ""),
    ("/s/{id}/continue", ""),
    ("/s/{id}/queue/1/remove", ""),
    ("/s/{id}/approve", "call=1.0&digest=0&verdict=allow"),
    ("/s/{id}/branch", "at=2"),
    ("/s/{id}/regenerate", "of=4"),
    ("/s/{id}/switch", "of=4&to=next"),
    ("/options", "of=tool&id=make&key=a&value=b"),
    ("/v1/sessions", "text=hello"),
    ("/nowhere", "a=b"),
];

pub(crate) fn all() -> Vec<(String, Vec<u8>)> {
    let mut seeds: BTreeMap<String, String> = BTreeMap::new();
    let document: Value = api::document().ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    for (path, methods) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let Some(id) = operation.get("operationId").and_then(Value::as_str) else { continue };
            seeds.insert(format!("api-{id}"), requests_to(&method.to_uppercase(), path, operation));
        }
    }
    let views = VIEWS.map(|view| format!("admin GET {}\n\n", fill_path(view)));
    for (ix, views) in views.chunks(4).enumerate() {
        seeds.insert(format!("views-{ix}"), views.join("\n===\n"));
    }
    for (path, form) in FORMS {
        let name = path.replace("/s/{id}", "").replace('/', "-");
        let head = "content-type: application/x-www-form-urlencoded\norigin: http://127.0.0.1:7475";
        seeds.insert(format!("form{name}"), format!("admin POST {}\n{head}\n\n{form}", fill_path(path)));
    }
    for (name, story) in SEQUENCES {
        seeds.insert(name.to_owned(), fill_path(story));
    }
    seeds.into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
}

/// Returns two requests: one with a sufficient scope, and one with an insufficient scope.
fn requests_to(method: &str, path: &str, operation: &Value) -> String {
    let find = |all: &[(&str, &'static str)], key: &str| all.iter().find(|(own, _)| *own == key).map(|(_, text)| *text);
    let body = find(&BODIES, &format!("{method} {path}")).unwrap_or_default();
    let query = find(&QUERIES, path).unwrap_or_default();
    let takes = |name: &str| operation.get("parameters").is_some_and(|all| all.to_string().contains(name));
    let mut head = if body.is_empty() { String::new() } else { "content-type: application/json\n".to_owned() };
    if takes("Idempotency-Key") {
        head += "idempotency-key: k\n";
    }
    let path = fill_path(path);
    let by = |sender: &str| format!("{sender} {method} {path}{query}\n{head}\n{body}");
    let senders = match path.as_str() {
        path if path.starts_with("/v1/store") => ["socket", "admin"],
        path if path.starts_with("/v1/workers/") => ["work", "act"],
        _ if method == "GET" => ["admin", "none"],
        _ => ["admin", "read"],
    };
    senders.map(by).join("\n===\n")
}

fn fill_path(path: &str) -> String {
    let [(first, _), (asks, _), (hangs, _)] = SESSIONS;
    path.replace("{id}", &first.to_string())
        .replace("{session}", &asks.to_string())
        .replace("{hangs}", &hangs.to_string())
        .replace("{call}", "1.0")
        .replace("{run}", "1")
        .replace("{input}", "1")
        .replace("{name}", "helper")
}

/// Sequences of requests that build on each other.
const SEQUENCES: [(&str, &str); 6] = [
    (
        "story-open-twice",
        "act POST /v1/sessions\ncontent-type: application/json\nidempotency-key: a\n\n{\"input\":{\"text\":\"hello\"}}\n===\nact POST \
         /v1/sessions\ncontent-type: application/json\nidempotency-key: a\n\n{\"input\":{\"text\":\"other\"}}",
    ),
    (
        "story-steer-and-cancel",
        "act POST /v1/sessions/{hangs}/inputs\ncontent-type: application/json\n\n{\"text\":\"wait\"}\n===\nact GET \
         /v1/sessions/{hangs}/queue\n\n\n===\nact POST /v1/sessions/{hangs}/cancel?run=1\n\n\n===\nact POST \
         /v1/sessions/{hangs}/cancel?run=1\n\n\n===\nact POST /v1/sessions/{hangs}/close\n\n",
    ),
    (
        "story-delete-and-read",
        "admin DELETE /v1/sessions/{id}\n\n\n===\nread GET /v1/sessions/{id}\n\n\n===\nread GET \
         /v1/sessions/{id}/records\n\n\n===\nadmin DELETE /v1/sessions/{hangs}?force=true\n\n",
    ),
    (
        "story-branch-and-switch",
        "act POST /v1/sessions/{id}/branches\ncontent-type: application/json\nidempotency-key: b\n\n{}\n===\nact POST \
         /v1/sessions/{id}/regenerate\ncontent-type: application/json\nidempotency-key: r\n\n{}\n===\nact GET \
         /v1/sessions/{id}/alternatives\n\n\n===\nact POST /v1/sessions/{id}/switch\ncontent-type: \
         application/json\n\n{\"to\":\"next\"}",
    ),
    (
        "story-other-origin",
        "admin POST /v1/sessions\norigin: http://elsewhere\ncontent-type: application/json\n\n{}\n===\nadmin GET /v1/sessions\nhost: \
         elsewhere\n\n\n===\nnone GET /v1/sessions\nauthorization: Bearer x\n\n\n===\nnone GET /\naccept: text/html\ncookie: \
         subtend_login=x\n\n",
    ),
    ("refused", "other GET /v1/sessions\n\n"),
];
