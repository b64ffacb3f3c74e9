//! Malformed, oversized, unauthenticated, cross-origin and replayed requests are refused with a problem and no effect.

use crate::support::*;

/// Method, path, headers and body of a request, and the status and code of its refusal.
type RefusalCase<'a> = (Method, String, Vec<(&'a str, &'a str)>, String, u16, &'a str);
/// A request without a needed right: a description, method and path, headers, and the status and code of the refusal.
type ScopeCase<'a> = (&'a str, (Method, &'a str), Vec<(&'a str, &'a str)>, u16, &'a str);

fn bearer(token: &str) -> (&str, &str) {
    ("authorization", token)
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn malformed_requests_are_refused_and_change_nothing() {
    let (host, app, id) = hosted_with("one").await;
    let before = host.runtime().journal().last_appended();
    let none = "00000000-0000-7000-8000-000000000000";
    let s = format!("/v1/sessions/{id}");
    let long = "k".repeat(257);
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    #[rustfmt::skip]
    let cases: Vec<RefusalCase<'_>> = vec![
        (Method::GET, "/nothing".into(), vec![], String::new(), 404, "no_such_resource"),
        (Method::GET, "/v2/sessions".into(), vec![], String::new(), 404, "no_such_resource"),
        (Method::GET, "/v1/sessions/".into(), vec![], String::new(), 404, "no_such_resource"),
        (Method::GET, "/v1/../etc/passwd".into(), vec![], String::new(), 404, "no_such_resource"),
        (Method::PUT, "/v1/sessions".into(), vec![], String::new(), 405, "method_not_allowed"),
        (Method::POST, s.clone(), vec![JSON], "{}".into(), 405, "method_not_allowed"),
        (Method::GET, format!("/v1/sessions/{none}"), vec![], String::new(), 404, "session_not_found"),
        (Method::GET, "/v1/sessions/%00".into(), vec![], String::new(), 404, "session_not_found"),
        (Method::GET, "/v1/sessions/%ff".into(), vec![], String::new(), 400, "malformed"),
        (Method::GET, "/v1/sessions/..%2f..%2fetc".into(), vec![], String::new(), 404, "session_not_found"),
        (Method::GET, "/v1/sessions/%20".into(), vec![], String::new(), 404, "session_not_found"),
        (Method::GET, "/v1/sessions?limit=many".into(), vec![], String::new(), 400, "malformed"),
        (Method::GET, "/v1/sessions?limit=-1".into(), vec![], String::new(), 400, "malformed"),
        (Method::GET, "/v1/sessions?cursor=x".into(), vec![], String::new(), 400, "malformed"),
        (Method::GET, "/v1/sessions?colour=red".into(), vec![], String::new(), 400, "malformed"),
        (Method::GET, "/v1/sessions?parent=x".into(), vec![], String::new(), 400, "malformed"),
        (Method::GET, "/v1/agents/unknown".into(), vec![], String::new(), 404, "agent_not_found"),
        (Method::POST, "/v1/sessions".into(), vec![], "{}".into(), 415, "unsupported_media_type"),
        (Method::POST, "/v1/sessions".into(), vec![("content-type", "text/plain")], "{}".into(), 415, "unsupported_media_type"),
        (Method::POST, "/v1/sessions".into(), vec![("content-type", "application/x-www-form-urlencoded")], "a=b".into(), 415, "unsupported_media_type"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], String::new(), 400, "malformed"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], "{".into(), 400, "malformed"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], deep, 422, "invalid_body"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], "[]".into(), 422, "invalid_body"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"agnet":"general"}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"agent":7}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"agent":"unknown"}"#.into(), 422, "unknown_agent"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"agent":"explore"}"#.into(), 422, "unknown_agent"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"model":"pool:none"}"#.into(), 422, "unknown_model"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"limits":{"turns":0}}"#.into(), 422, "invalid_limit"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"title":""}"#.into(), 422, "invalid_title"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"metadata":"text"}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"input":{}}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/sessions".into(), vec![JSON], r#"{"input":{"text":"x","turns":0}}"#.into(), 422, "invalid_input"),
        (Method::POST, "/v1/sessions".into(), vec![JSON, ("idempotency-key", "")], "{}".into(), 400, "malformed"),
        (Method::POST, "/v1/sessions".into(), vec![JSON, ("idempotency-key", &long)], "{}".into(), 400, "malformed"),
        (Method::POST, "/v1/sessions".into(), vec![JSON, ("idempotency-key", "a\tb")], "{}".into(), 400, "malformed"),
        (Method::POST, "/v1/sessions".into(), vec![JSON, ("idempotency-key", "k\u{e9}y")], "{}".into(), 400, "malformed"),
        (Method::POST, "/v1/sessions".into(), vec![JSON, ("idempotency-key", "a"), ("idempotency-key", "b")], "{}".into(), 400, "malformed"),
        (Method::POST, format!("{s}/inputs"), vec![JSON], "{}".into(), 422, "invalid_body"),
        (Method::POST, format!("{s}/inputs"), vec![JSON], r#"{"text":"x","lane":"fast"}"#.into(), 422, "invalid_body"),
        (Method::POST, format!("{s}/inputs"), vec![JSON], r#"{"text":"x","turns":0}"#.into(), 422, "invalid_input"),
        (Method::POST, format!("{s}/inputs"), vec![JSON], r#"{"text":"x","agent":"unknown"}"#.into(), 422, "invalid_input"),
        (Method::POST, format!("/v1/sessions/{none}/inputs"), vec![JSON], r#"{"text":"x"}"#.into(), 404, "session_not_found"),
        (Method::GET, format!("{s}/inputs/x"), vec![], String::new(), 400, "malformed"),
        (Method::GET, format!("{s}/inputs/{none}"), vec![], String::new(), 404, "input_not_found"),
        (Method::GET, format!("{s}/runs/x"), vec![], String::new(), 400, "malformed"),
        (Method::GET, format!("{s}/runs/9"), vec![], String::new(), 404, "run_not_found"),
        (Method::GET, format!("{s}/runs/1?wait=perhaps"), vec![], String::new(), 400, "malformed"),
        (Method::GET, format!("{s}/runs/1?timeout=soon"), vec![], String::new(), 400, "malformed"),
        (Method::DELETE, format!("{s}/queue/x"), vec![], String::new(), 400, "malformed"),
        (Method::DELETE, format!("{s}/queue/{none}"), vec![], String::new(), 404, "input_not_found"),
        (Method::GET, format!("{s}/events?after=x"), vec![], String::new(), 400, "malformed"),
        (Method::GET, format!("{s}/events"), vec![("last-event-id", "x")], String::new(), 400, "malformed"),
        (Method::POST, format!("{s}/cancel?run=1&tree=true"), vec![JSON], "{}".into(), 400, "malformed"),
        (Method::POST, format!("{s}/branches"), vec![JSON, ("idempotency-key", "")], "{}".into(), 400, "malformed"),
        (Method::GET, format!("{s}/transcript?at=0"), vec![], String::new(), 404, "record_not_found"),
        (Method::GET, format!("{s}/transcript?at=999"), vec![], String::new(), 404, "record_not_found"),
        (Method::GET, format!("{s}/events?after=999"), vec![], String::new(), 404, "record_not_found"),
        (Method::GET, format!("{s}/events"), vec![("last-event-id", "999")], String::new(), 404, "record_not_found"),
        (Method::GET, format!("/v1/trees/{id}/events?after=999999"), vec![], String::new(), 404, "record_not_found"),
        (Method::GET, "/v1/events?after=999999.1".into(), vec![], String::new(), 404, "record_not_found"),
        (Method::GET, format!("{s}/transcript?at=last"), vec![], String::new(), 400, "malformed"),
        (Method::GET, format!("{s}/transcript?at=1&children=true"), vec![], String::new(), 400, "malformed"),
        (Method::GET, format!("/v1/sessions/{none}/transcript"), vec![], String::new(), 404, "session_not_found"),
        (Method::GET, format!("/v1/trees/{id}/events?after=1.2.3"), vec![], String::new(), 400, "malformed"),
        (Method::GET, format!("/v1/trees/{id}?depth=-1"), vec![], String::new(), 400, "malformed"),
        (Method::POST, format!("/v1/approvals/{id}/x"), vec![JSON], r#"{"verdict":"allow","digest":""}"#.into(), 400, "malformed"),
        (Method::POST, format!("/v1/approvals/{id}/1.0"), vec![JSON], r#"{"verdict":"allow","digest":""}"#.into(), 409, "approval_closed"),
        (Method::GET, format!("/v1/approvals/{id}/1.0"), vec![], String::new(), 404, "approval_not_found"),
        (Method::GET, "/v1/approvals?after=x".into(), vec![], String::new(), 400, "malformed"),
        (Method::POST, format!("/v1/approvals/{id}/1.0"), vec![JSON], r#"{"verdict":"perhaps","digest":""}"#.into(), 422, "invalid_body"),
        (Method::POST, format!("{s}/branches"), vec![JSON], r#"{"at":99}"#.into(), 404, "not_found"),
        (Method::POST, format!("{s}/switch"), vec![JSON], r#"{"to":"sideways"}"#.into(), 422, "invalid_body"),
        (Method::POST, format!("{s}/switch"), vec![JSON], r#"{"to":"next"}"#.into(), 409, "refused"),
        (Method::POST, format!("{s}/rollback"), vec![JSON], r#"{"run":9}"#.into(), 404, "not_found"),
        (Method::PATCH, s.clone(), vec![JSON], r#"{"title":""}"#.into(), 422, "invalid_title"),
        (Method::PATCH, s.clone(), vec![JSON], r#"{"agent":"x"}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/tasks/spawn".into(), vec![JSON], r#"{"type":"unknown","prompt":"x"}"#.into(), 422, "unknown_agent"),
        (Method::POST, "/v1/tasks/spawn".into(), vec![JSON], r#"{"type":"explore"}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/tasks/list".into(), vec![JSON], r#"{"status":"odd"}"#.into(), 422, "unknown_status"),
        (Method::GET, format!("/v1/tasks/get/{id}"), vec![], String::new(), 404, "task_not_found"),
        (Method::GET, format!("/v1/tasks/get/task_{none}"), vec![], String::new(), 404, "task_not_found"),
        (Method::POST, "/v1/tasks/cancel/none".into(), vec![JSON], "{}".into(), 404, "task_not_found"),
        (Method::POST, "/v1/tasks/list".into(), vec![JSON], r#"{"parentSessionId":"none"}"#.into(), 404, "session_not_found"),
        (Method::POST, "/v1/tasks/list".into(), vec![JSON], r#"{"parent":"none"}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/tasks/spawn".into(), vec![JSON], r#"{"type":"explore","prompt":"x","parentSessionId":"none"}"#.into(), 404, "session_not_found"),
        (Method::POST, "/v1/tasks/spawn".into(), vec![JSON], r#"{"type":"explore","prompt":"x","parentSessionId":7}"#.into(), 422, "invalid_body"),
        (Method::POST, "/v1/tasks/spawn".into(), vec![JSON], format!(r#"{{"type":"unknown","prompt":"x","parentSessionId":"{id}"}}"#), 422, "unknown_agent"),
        (Method::POST, "/v1/tasks/spawn".into(), vec![JSON], format!(r#"{{"type":"explore","prompt":"x","description":"two\nlines","parentSessionId":"{id}"}}"#), 422, "invalid_title"),
        (Method::POST, format!("/v1/tasks/cancel/{id}"), vec![JSON], "{}".into(), 404, "task_not_found"),
        (Method::DELETE, format!("{s}?force=perhaps"), vec![], String::new(), 400, "malformed"),
    ];
    assert!(cases.len() >= 60, "{}", cases.len());
    let mut wrong = Vec::new();
    for (method, path, headers, body, status, code) in cases {
        let reply = request(&app, method.clone(), &path, &headers, &body).await;
        let found = (reply.status.as_u16(), reply.json()["code"].as_str().unwrap_or_default().to_owned());
        if found != (status, code.to_owned()) {
            wrong.push(format!("{method} {path} {body}: {found:?}, not {status} {code}: {}", reply.body));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(host.runtime().journal().last_appended(), before, "a refused request was recorded");
    finish(host, app).await;
}

/// The control: without the key, none of these commands is malformed.
#[tokio::test]
async fn key_is_refused_by_commands_that_do_not_store_it() {
    let (host, app, id) = hosted_with("one").await;
    let s = format!("/v1/sessions/{id}");
    for (method, path, body) in [
        (Method::PATCH, s.clone(), r#"{"title":"a talk"}"#),
        (Method::POST, format!("{s}/summary"), ""),
        (Method::POST, format!("/v1/approvals/{id}/1.0"), r#"{"verdict":"allow","digest":""}"#),
        (Method::DELETE, format!("{s}/queue"), ""),
        (Method::DELETE, format!("{s}/queue/00000000-0000-7000-8000-000000000000"), ""),
        (Method::POST, "/v1/tasks/cancel/none".into(), ""),
        (Method::DELETE, s.clone(), ""),
    ] {
        let before = host.runtime().journal().last_appended();
        let keyed = request(&app, method.clone(), &path, &[JSON, ("idempotency-key", "k")], body).await;
        assert_eq!(keyed.problem(), (400, "malformed".to_owned()), "{method} {path}");
        assert_eq!(host.runtime().journal().last_appended(), before, "{method} {path}");
        let plain = request(&app, method.clone(), &path, &[JSON], body).await;
        assert!(plain.status.is_success() || plain.problem().1 != "malformed", "{method} {path}: {}", plain.body);
    }
    finish(host, app).await;
}

#[tokio::test]
async fn oversized_body_is_refused() {
    let (host, app) = hosted().await;
    let text = "x".repeat(5 << 20);
    let reply = post(&app, "/v1/sessions", &json!({"input": {"text": text}})).await;
    assert_eq!(reply.problem(), (413, "too_large".to_owned()));
    assert_eq!(get(&app, "/v1/sessions").await.json()["items"], json!([]));
    finish(host, app).await;
}

#[tokio::test]
async fn requests_without_right_are_refused_over_tcp() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let [read, act, admin] = [TokenScope::Read, TokenScope::Act, TokenScope::Admin]
        .map(|scope| format!("Bearer {}", tokens.create(&scope.to_string(), scope).expect("a token")));
    let host = host(&Memory::new()).await;
    let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
    let guard = Guard::new(address, ["box.lan:7475".to_owned()], tokens.clone());
    let app = guard.protect(host.router());
    let own = ("host", "127.0.0.1:7475");
    let (read, act, admin) = (read.as_str(), act.as_str(), admin.as_str());
    let (list, open) = ((Method::GET, "/v1/sessions"), (Method::POST, "/v1/sessions"));
    let other = format!("Bearer {}", "0".repeat(64));
    let none = "00000000-0000-7000-8000-000000000000";
    let (delete, export) = (format!("/v1/sessions/{none}"), format!("/v1/sessions/{none}/export"));
    #[rustfmt::skip]
    let cases: Vec<ScopeCase<'_>> = vec![
        ("no token", list.clone(), vec![own], 401, "unauthorized"),
        ("no token, to act", open.clone(), vec![own, JSON], 401, "unauthorized"),
        ("an unknown token", list.clone(), vec![own, bearer(&other)], 401, "unauthorized"),
        ("an empty token", list.clone(), vec![own, bearer("Bearer ")], 401, "unauthorized"),
        ("another scheme", list.clone(), vec![own, bearer("Basic YTpi")], 401, "unauthorized"),
        ("two authorizations", list.clone(), vec![own, bearer(read), bearer(&other)], 400, "malformed"),
        ("no Host", list.clone(), vec![bearer(read)], 421, "host_not_allowed"),
        ("DNS rebinding", list.clone(), vec![("host", "evil.example:7475"), bearer(read)], 421, "host_not_allowed"),
        ("another port", list.clone(), vec![("host", "127.0.0.1:80"), bearer(read)], 421, "host_not_allowed"),
        ("two Hosts", list.clone(), vec![own, ("host", "evil.example"), bearer(read)], 400, "malformed"),
        ("a target of another host", (Method::GET, "http://evil.example:7475/v1/sessions"), vec![own, bearer(read)], 421, "host_not_allowed"),
        ("a target with a user", (Method::GET, "http://127.0.0.1:7475@evil.example/v1/sessions"), vec![own, bearer(read)], 421, "host_not_allowed"),
        ("a target and two Hosts", (Method::GET, "http://127.0.0.1:7475/v1/sessions"), vec![own, own, bearer(read)], 400, "malformed"),
        ("another origin", list.clone(), vec![own, bearer(admin), ("origin", "http://evil.example")], 403, "cross_origin"),
        ("another port's origin", list.clone(), vec![own, bearer(admin), ("origin", "http://127.0.0.1:80")], 403, "cross_origin"),
        ("a null origin", list.clone(), vec![own, bearer(admin), ("origin", "null")], 403, "cross_origin"),
        ("reading token that acts", open.clone(), vec![own, bearer(read), JSON], 403, "scope_too_small"),
        ("acting token that deletes", (Method::DELETE, &delete), vec![own, bearer(act)], 403, "scope_too_small"),
        ("acting token that exports", (Method::GET, &export), vec![own, bearer(act)], 403, "scope_too_small"),
        ("acting token that deletes a session called queue", (Method::DELETE, "/v1/sessions/queue"), vec![own, bearer(act)], 403, "scope_too_small"),
        ("acting token that deletes below no session", (Method::DELETE, "/v1/queue/x"), vec![own, bearer(act)], 403, "scope_too_small"),
        ("an unknown cookie", list.clone(), vec![own, ("cookie", "subtend_login=0")], 401, "unauthorized"),
        ("an unknown login code", (Method::GET, "/login?code=0"), vec![own], 401, "login_refused"),
        ("a login without code", (Method::GET, "/login"), vec![own], 401, "login_refused"),
        ("a login from another page", (Method::GET, "/login?code=0"), vec![own, ("origin", "http://evil.example")], 403, "cross_origin"),
        ("figures without token", (Method::GET, "/metrics"), vec![own], 401, "unauthorized"),
        ("the document without token", (Method::GET, "/v1/openapi.json"), vec![own], 401, "unauthorized"),
        ("an unknown resource without token", (Method::GET, "/v1/other"), vec![own], 401, "unauthorized"),
    ];
    let mut wrong = Vec::new();
    for (what, (method, path), headers, status, code) in cases {
        let reply = request(&app, method, path, &headers, "{}").await;
        let found = (reply.status.as_u16(), reply.json()["code"].as_str().unwrap_or_default().to_owned());
        if found != (status, code.to_owned()) {
            wrong.push(format!("{what}: {found:?}, not {status} {code}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The control: the same requests without the fault.
    for name in ["127.0.0.1:7475", "localhost:7475", "LOCALHOST:7475", "[::1]:7475", "box.lan:7475"] {
        let reply = request(&app, Method::GET, "/v1/sessions", &[("host", name), bearer(read)], "").await;
        assert_eq!(reply.status, 200, "{name}: {}", reply.body);
    }
    // RFC 9112, 3.2.2: the authority of the target takes precedence over the Host header.
    for header in ["127.0.0.1:7475", "other.example"] {
        let target = "http://127.0.0.1:7475/v1/sessions";
        let reply = request(&app, Method::GET, target, &[("host", header), bearer(read)], "").await;
        assert_eq!(reply.status, 200, "{header}: {}", reply.body);
    }
    assert_eq!(request(&app, Method::POST, "/v1/sessions", &[own, bearer(act), JSON], "{}").await.status, 201);
    tokens.revoke("act").expect("revoked");
    assert_eq!(request(&app, Method::POST, "/v1/sessions", &[own, bearer(act), JSON], "{}").await.status, 401);
    assert_eq!(request(&app, Method::GET, "/healthz", &[own], "").await.status, 204);
    finish(host, app).await;
}

#[tokio::test]
async fn login_link_opens_one_browser_and_guards_its_commands() {
    let dir = tempfile::tempdir().expect("a directory");
    let host = host(&Memory::new()).await;
    let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
    let guard = Guard::new(address, [], TokenFile::at(dir.path().join("tokens.json")));
    let app = guard.protect(host.router());
    let own = ("host", "127.0.0.1:7475");
    let path = format!("/login?code={}", guard.logins().link().expect("a code"));
    let opened = request(&app, Method::GET, &path, &[own], "").await;
    let cookie = opened.headers["set-cookie"].to_str().expect("text").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert_eq!((opened.status.as_u16(), &opened.headers["location"]), (303, &"/".parse().expect("a value")));
    assert_eq!(request(&app, Method::GET, &path, &[own], "").await.problem(), (401, "login_refused".to_owned()));
    let cookie = ("cookie", cookie.split(';').next().expect("a pair"));
    let reply = request(&app, Method::GET, "/v1/sessions", &[own, cookie], "").await;
    assert_eq!(reply.status, 200);
    assert!(reply.headers["content-security-policy"].to_str().expect("text").starts_with("default-src 'none'"));
    let bare = request(&app, Method::POST, "/v1/sessions", &[own, cookie, JSON], "{}").await;
    assert_eq!(bare.problem(), (403, "cross_origin".to_owned()));
    let origin = ("origin", "http://127.0.0.1:7475");
    assert_eq!(request(&app, Method::POST, "/v1/sessions", &[own, cookie, origin, JSON], "{}").await.status, 201);
    finish(host, app).await;
}

/// A body of `POST /v1/sessions`, and the status and code with the scopes `act` and `admin`, and on the Unix socket.
type Reach<'a> = (&'a str, [(u16, &'a str); 3]);

#[tokio::test]
async fn options_of_an_opening_need_their_scope() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let [act, admin] = [TokenScope::Act, TokenScope::Admin]
        .map(|scope| format!("Bearer {}", tokens.create(&scope.to_string(), scope).expect("a token")));
    let host = host(&Memory::new()).await;
    let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
    let app = Guard::new(address, [], tokens).protect(host.router());
    let (no, unusable, made) = ((403, "scope_too_small"), (422, "workspace_unusable"), (201, ""));
    #[rustfmt::skip]
    let cases: Vec<Reach<'_>> = vec![
        (r#"{"allow":["shell.run"]}"#, [no, made, made]),
        (r#"{"ask":["shell.run"]}"#, [made, made, made]),
        (r#"{"allow":["shell.rum"]}"#, [no, (422, "invalid_rule"), (422, "invalid_rule")]),
        (r#"{"allow":["fs.write=/etc"]}"#, [no, (422, "invalid_rule"), (422, "invalid_rule")]),
        (r#"{"workspace":"/elsewhere"}"#, [no, unusable, unusable]),
        (r#"{"workspace":"elsewhere"}"#, [no, unusable, unusable]),
        (r#"{"model":"scripted:/tmp/x.json"}"#, [no, no, made]),
        (r#"{"model":"a,b"}"#, [no, made, made]),
        (r#"{"model":"a"}"#, [made, made, made]),
        (r#"{"servers":["http://127.0.0.1:1"]}"#, [no, no, (422, "invalid_servers")]),
        (r#"{"limits":{"turns":null}}"#, [(422, "invalid_limit"); 3]),
        (r#"{"limits":{"truns":3}}"#, [(422, "invalid_limit"); 3]),
        (r#"{"limits":{"live_runs":1000000}}"#, [(422, "invalid_limit"); 3]),
        (r#"{"limits":{"turns":3}}"#, [made, made, made]),
    ];
    let own = ("host", "127.0.0.1:7475");
    let mut wrong = Vec::new();
    for (body, expected) in cases {
        let sent = [
            request(&app, Method::POST, "/v1/sessions", &[own, bearer(&act), JSON], body).await,
            request(&app, Method::POST, "/v1/sessions", &[own, bearer(&admin), JSON], body).await,
            request(&host.router(), Method::POST, "/v1/sessions", &[JSON], body).await,
        ];
        let found =
            sent.map(|reply| (reply.status.as_u16(), reply.json()["code"].as_str().unwrap_or_default().to_owned()));
        if found != expected.map(|(status, code)| (status, code.to_owned())) {
            wrong.push(format!("{body}: {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    finish(host, app).await;
}

/// A refusal names the permitted sizes. The controls: the smallest and the largest page.
#[tokio::test]
async fn page_size_out_of_range_is_refused() {
    let host = host(&Memory::new()).await;
    let app = host.router();
    let id = open_and_finish(&app, "one").await;
    let s = format!("/v1/sessions/{id}");
    let lists = [("/v1/sessions".to_owned(), 500), (format!("{s}/records"), 1_000), (format!("{s}/transcript"), 1_000)];
    for (path, most) in lists {
        let ask = async |limit: usize| get(&app, &format!("{path}?limit={limit}")).await;
        for limit in [0, most + 1, usize::MAX] {
            let refused = ask(limit).await;
            let detail = format!("limit {limit}: give 1 to {most}, or leave it out");
            let found = (refused.problem(), refused.json()["detail"].clone());
            assert_eq!(found, ((400, "malformed".to_owned()), detail.into()), "{path}");
        }
        assert_eq!([ask(1).await.status, ask(most).await.status], [StatusCode::OK; 2], "{path}");
    }
    for (limit, status) in [(0, 400), (1, 200), (500, 200), (501, 400)] {
        let listed = post(&app, "/v1/tasks/list", &json!({"limit": limit})).await;
        assert_eq!(listed.status, status, "{limit}: {}", listed.body);
    }
    drop(app);
    end(host).await;
}

/// Parameters of a list without pages, which would have no effect. The controls: the lists without them.
#[tokio::test]
async fn parameters_of_lists_without_pages_are_refused() {
    let host = host(&Memory::new()).await;
    let app = host.router();
    let id = open_and_finish(&app, "one").await;
    let of_session = ["queue", "warnings"].map(|list| format!("/v1/sessions/{id}/{list}"));
    for path in ["agents", "workers"].map(|list| format!("/v1/{list}")).into_iter().chain(of_session) {
        let refused = get(&app, &format!("{path}?limit=1")).await;
        let detail = "?limit=1: this list is complete and takes no parameters: leave them out";
        let found = (refused.problem(), refused.json()["detail"].clone());
        assert_eq!(found, ((400, "malformed".to_owned()), detail.into()), "{path}");
        assert_eq!(get(&app, &path).await.status, StatusCode::OK, "{path}");
    }
    drop(app);
    end(host).await;
}

/// A too long wait and a record before the first are refused. The controls: the longest wait, and the first record.
#[tokio::test]
async fn wait_and_record_out_of_range_are_refused() {
    let host = host(&Memory::new()).await;
    let app = host.router();
    let id = open_and_finish(&app, "one").await;
    let s = format!("/v1/sessions/{id}");
    let long = "Failed to deserialize query string: timeout: give 600000 ms at most, or leave it out";
    for (path, valid, refused, detail) in [
        (format!("{s}/runs/1?wait=true&timeout="), "600000", "600001", long),
        (format!("{s}/runs/1?timeout="), "600000", "18446744073709551615", long),
        (format!("{s}/records?from="), "1", "0", "from 0: give 1 or more, or leave it out"),
    ] {
        let malformed = get(&app, &format!("{path}{refused}")).await;
        let found = (malformed.problem(), malformed.json()["detail"].clone());
        assert_eq!(found, ((400, "malformed".to_owned()), detail.into()), "{path}{refused}");
        assert_eq!(get(&app, &format!("{path}{valid}")).await.status, StatusCode::OK, "{path}{valid}");
    }
    drop(app);
    end(host).await;
}

/// Only the owner of the store may read its rows, over the Unix socket. Tokens read sessions by other resources.
#[tokio::test]
async fn rows_of_the_store_are_read_on_the_socket_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let admin = format!("Bearer {}", tokens.create("admin", TokenScope::Admin).expect("a token"));
    let host = host(&Memory::new()).await;
    let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
    let guard = Guard::new(address, [], tokens);
    let app = guard.protect(host.router());
    let (own, origin) = (("host", "127.0.0.1:7475"), ("origin", "http://127.0.0.1:7475"));
    let link = format!("/login?code={}", guard.logins().link().expect("a code"));
    let login = request(&app, Method::GET, &link, &[own], "").await;
    let cookie = login.headers["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
    let (path, body) = ("/v1/store/reads", r#"{"read":"heads"}"#);
    let by_token = request(&app, Method::POST, path, &[own, bearer(&admin), JSON], body).await;
    assert_eq!(by_token.problem(), (403, "scope_too_small".to_owned()));
    let by_login = request(&app, Method::POST, path, &[own, ("cookie", &cookie), origin, JSON], body).await;
    assert_eq!(by_login.problem(), (403, "scope_too_small".to_owned()));
    let on_socket = request(&host.router(), Method::POST, path, &[JSON], body).await;
    assert_eq!((on_socket.status.as_u16(), on_socket.body.as_str()), (200, "[]"), "the control");
    let unknown = request(&host.router(), Method::POST, path, &[JSON], r#"{"read":"everything"}"#).await;
    assert_eq!(unknown.problem(), (422, "invalid_body".to_owned()));
    // Files of the host's machine are imported only over the Unix socket, too.
    let (path, body) = ("/v1/store/imports", r#"{"file":"/no/such/file","within":[]}"#);
    let by_token = request(&app, Method::POST, path, &[own, bearer(&admin), JSON], body).await;
    assert_eq!(by_token.problem(), (403, "scope_too_small".to_owned()));
    let on_socket = request(&host.router(), Method::POST, path, &[JSON], body).await;
    assert_eq!(on_socket.problem(), (422, "invalid_input".to_owned()), "the control");
    drop((app, guard));
    end(host).await;
}
