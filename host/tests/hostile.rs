//! Attacks of clients and models on a host, each with a control.

use crate::support::*;
use axum::body::Bytes;
use futures_util::stream;
use tower::ServiceExt as _;

const JSON: (&str, &str) = ("content-type", "application/json");

async fn send_keyed(app: &axum::Router, path: &str, key: &str, body: &Value) -> HttpResponse {
    request(app, Method::POST, path, &[JSON, ("idempotency-key", key)], &body.to_string()).await
}

/// A repeated key returns its session only for the same request; another could get rights that it did not name.
#[tokio::test]
async fn key_of_an_opening_with_other_rights_is_refused() {
    let (host, app) = hosted().await;
    let open = json!({"allow": ["fs.write=docs/**"], "metadata": {"n": 1}});
    let first = send_keyed(&app, "/v1/sessions", "k", &open).await;
    assert_eq!(first.status, 201, "{}", first.body);
    let attacks: [Value; 9] = [
        json!({}),
        json!({"allow": ["fs.write"], "metadata": {"n": 1}}),
        json!({"allow": ["fs.write=docs/**"], "ask": ["shell.run"], "metadata": {"n": 1}}),
        json!({"allow": ["fs.write=docs/**"], "workspace": "/elsewhere", "metadata": {"n": 1}}),
        json!({"allow": ["fs.write=docs/**"], "limits": {"turns": 3}, "metadata": {"n": 1}}),
        json!({"allow": ["fs.write=docs/**"], "model": "offline", "metadata": {"n": 1}}),
        json!({"allow": ["fs.write=docs/**"], "on_restart": "resume", "metadata": {"n": 1}}),
        json!({"allow": ["fs.write=docs/**"], "title": "other", "metadata": {"n": 1}}),
        json!({"allow": ["fs.write=docs/**"], "metadata": {"n": 2}}),
    ];
    for attack in attacks {
        let reply = send_keyed(&app, "/v1/sessions", "k", &attack).await;
        assert_eq!(reply.problem(), (422, "idempotency_key_reused".to_owned()), "{attack}: {}", reply.body);
    }
    // The controls: the same request, even with an input, gets the session; a failed command frees its key.
    let again = send_keyed(&app, "/v1/sessions", "k", &open).await;
    assert_eq!((again.status.as_u16(), &again.json()["session"]["id"]), (200, &first.json()["session"]["id"]));
    assert_eq!(send_keyed(&app, "/v1/sessions", "f", &json!({"agent": "unknown"})).await.status, 422);
    assert_eq!(send_keyed(&app, "/v1/sessions", "f", &json!({})).await.status, 201);
    finish(host, app).await;
}

/// Keys of sessions, tasks and branches are separate: no command uses up a key, or reaches a session, of another kind.
#[tokio::test]
async fn each_kind_of_command_has_its_own_keys() {
    let (host, app, id) = hosted_with("one").await;
    let squatted = send_keyed(&app, "/v1/sessions", &format!("branch of {id}: b"), &json!({})).await;
    assert_eq!(squatted.status, 201);
    let branch = send_keyed(&app, &format!("/v1/sessions/{id}/branches"), "b", &json!({})).await;
    assert_eq!(branch.status, 201, "{}", branch.body);
    let opened = send_keyed(&app, "/v1/sessions", "k", &json!({})).await.json();
    let task = json!({"type": "explore", "prompt": "an injected prompt"});
    let task = send_keyed(&app, "/v1/tasks/spawn", "k", &task).await;
    assert_eq!(task.status, 201, "{}", task.body);
    assert_ne!(task.json()["childSessionId"], opened["session"]["id"]);
    let id = opened["session"]["id"].as_str().expect("an id");
    let records = get(&app, &format!("/v1/sessions/{id}/records")).await;
    assert!(!records.body.contains("injected"), "{}", records.body);
    // The control: the key is used up for tasks.
    let other = send_keyed(&app, "/v1/tasks/spawn", "k", &json!({"type": "explore", "prompt": "another"})).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()));
    finish(host, app).await;
}

/// A repeated key returns its receipt only for the same input. The control: the same input, with each option.
#[tokio::test]
async fn key_of_an_input_with_other_options_is_refused() {
    let (host, app, id) = hosted_with("one").await;
    let inputs = format!("/v1/sessions/{id}/inputs");
    let full = json!({"text": "T", "agent": "plan", "lane": "steer", "turns": 2, "metadata": {"a": {"b": 1}, "c": 2},
        "format": {"type": "object"}});
    for (key, first) in [("plain", json!({"text": "T"})), ("full", full)] {
        let sent = send_keyed(&app, &inputs, key, &first).await;
        assert_eq!(sent.status, 202, "{}", sent.body);
        let attacks: [Value; 7] = [
            json!({"text": "U"}),
            json!({"text": "T", "agent": "explore"}),
            json!({"text": "T", "lane": "steer"}),
            json!({"text": "T", "turns": 1}),
            json!({"text": "T", "metadata": {}}),
            json!({"text": "T", "format": {"type": "string"}}),
            json!({"text": "T", "agent": "plan", "turns": 2}),
        ];
        for attack in attacks {
            let reply = send_keyed(&app, &inputs, key, &attack).await;
            let code = reply.json()["code"].as_str().unwrap_or_default().to_owned();
            assert!(["idempotency_key_reused", "invalid_input"].contains(&&*code), "{key}, {attack}: {}", reply.body);
        }
        let again = send_keyed(&app, &inputs, key, &first).await;
        assert_eq!((again.status.as_u16(), &again.json()["again"]), (202, &json!(true)), "{}", again.body);
        assert_eq!(again.json()["input"], sent.json()["input"]);
    }
    finish(host, app).await;
}

/// Clients could not parse lists that contain such metadata. The control: the deepest permitted body.
#[tokio::test]
async fn bodies_that_nest_too_deep_are_refused() {
    let (host, app) = hosted().await;
    let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let task = |levels| format!(r#"{{"type":"explore","prompt":"}}]]","metadata":{}}}"#, nested(levels));
    let open = |levels| format!(r#"{{"metadata":{}}}"#, nested(levels));
    let attacks: [(&str, String); 4] = [
        ("/v1/tasks/spawn", task(100)),
        ("/v1/tasks/spawn", task(124)),
        ("/v1/sessions", open(124)),
        ("/v1/sessions", format!(r#"{{"input":{{"text":"x","metadata":{}}}}}"#, nested(99))),
    ];
    for (path, body) in attacks {
        let reply = request(&app, Method::POST, path, &[JSON], &body).await;
        assert_eq!(reply.problem(), (422, "invalid_body".to_owned()), "{}", reply.body);
    }
    let spawned = request(&app, Method::POST, "/v1/tasks/spawn", &[JSON], &task(99)).await;
    assert_eq!(spawned.status, 201, "{}", spawned.body);
    let listed = post(&app, "/v1/tasks/list", &json!({})).await;
    assert_eq!(listed.json()[0]["id"], spawned.json()["id"]);
    finish(host, app).await;
}

/// Control characters take seven times their size in a refusal, and its sender may not read it. The controls: a refusal names
/// short texts, and the longest name of a body is found.
#[tokio::test]
async fn refusals_do_not_repeat_long_texts() {
    let (host, app) = hosted().await;
    let attack = "\u{7f}".repeat(3 << 20);
    let (list, spawn, open) = ("/v1/tasks/list", "/v1/tasks/spawn", "/v1/sessions");
    let cases = |text: &str| -> [(&str, Value, u16); 11] {
        [
            (list, json!({"parentSessionId": text}), 404),
            (list, json!({"status": text}), 422),
            (list, json!({"before": text}), 400),
            (list, json!({"limit": text}), 422),
            (list, json!({text: 1}), 422),
            (spawn, json!({"type": text, "prompt": "p"}), 422),
            (spawn, json!({"type": "explore", "prompt": "p", "parentSessionId": text}), 404),
            (open, json!({"agent": text}), 422),
            (open, json!({"workspace": text}), 422),
            (open, json!({"ask": [text]}), 422),
            (open, json!({"on_restart": text}), 422),
        ]
    };
    for (path, body, _) in cases(&attack) {
        let reply = request(&app, Method::POST, path, &[JSON], &body.to_string()).await;
        assert!(
            matches!(reply.status.as_u16(), 400..500) && reply.body.len() < 32 << 10,
            "{path}: {}",
            reply.body.len()
        );
        assert!(reply.body.contains("more bytes") || reply.body.contains("it has 3145728 bytes"), "{}", reply.body);
    }
    for (path, body, status) in cases("xy") {
        let reply = request(&app, Method::POST, path, &[JSON], &body.to_string()).await;
        assert_eq!((reply.status.as_u16(), reply.body.contains("xy")), (status, true), "{body}: {}", reply.body);
    }
    let longest = json!({"parentSessionId": "x".repeat(512)});
    assert_eq!(post(&app, list, &longest).await.problem(), (404, "session_not_found".to_owned()));
    finish(host, app).await;
}

/// A body of tiny values takes seventy times its size in memory when parsed, on each route with a body.
#[tokio::test]
async fn body_with_too_many_json_values_is_refused() {
    let (host, app, id) = hosted_with("one").await;
    let session = format!("/v1/sessions/{id}");
    let (inputs, branches) = (format!("{session}/inputs"), format!("{session}/branches"));
    let values = vec![json!({}); 30_000];
    let attacks: [(Method, &str, Value); 9] = [
        (Method::PATCH, &session, json!({"metadata": {"a": values}})),
        (Method::POST, "/v1/sessions", json!({"metadata": {"a": values}})),
        (Method::POST, "/v1/sessions", json!({"limits": {"turns": values}})),
        (Method::POST, "/v1/sessions", json!({"input": {"text": "two", "format": {"a": values}}})),
        (Method::POST, &inputs, json!({"text": "two", "metadata": {"a": values}})),
        (Method::POST, &inputs, json!({"text": "two", "format": {"enum": values}})),
        (Method::POST, &branches, json!({"metadata": {"a": values}})),
        (Method::POST, "/v1/tasks/spawn", json!({"type": "explore", "prompt": "two", "metadata": {"a": values}})),
        (Method::POST, "/v1/approvals/x/1.0", json!({"verdict": values, "digest": ""})),
    ];
    let sessions = get(&app, "/v1/sessions").await.json();
    for (method, path, body) in attacks {
        let reply = request(&app, method.clone(), path, &[JSON], &body.to_string()).await;
        assert_eq!(reply.problem(), (413, "too_large".to_owned()), "{method} {path}: {}", reply.body);
    }
    assert_eq!(get(&app, "/v1/sessions").await.json(), sessions);
    // The controls: the most values that metadata can have, and a body of the same size with one text.
    let most = json!({"metadata": {"a": vec![json!({}); 4_998]}});
    assert_eq!(request(&app, Method::PATCH, &session, &[JSON], &most.to_string()).await.status, 200);
    let long = json!({"text": "{},".repeat(30_000)});
    assert_eq!(request(&app, Method::POST, &inputs, &[JSON], &long.to_string()).await.status, 202);
    finish(host, app).await;
}

/// Lists contain the metadata of many sessions. The control: the largest metadata.
#[tokio::test]
async fn metadata_beyond_the_limits_is_refused_on_each_route() {
    let (host, app, id) = hosted_with("one").await;
    let session = format!("/v1/sessions/{id}");
    let (inputs, branches) = (format!("{session}/inputs"), format!("{session}/branches"));
    let task = json!({"type": "explore", "prompt": "two"});
    let routes: [(Method, &str, Value); 5] = [
        (Method::PATCH, &session, json!({})),
        (Method::POST, "/v1/sessions", json!({})),
        (Method::POST, &inputs, json!({"text": "two"})),
        (Method::POST, &branches, json!({})),
        (Method::POST, "/v1/tasks/spawn", task),
    ];
    let send = async |metadata: &Value| {
        let mut replies = Vec::new();
        for (method, path, body) in &routes {
            let mut body = body.clone();
            body["metadata"] = metadata.clone();
            let reply = request(&app, method.clone(), path, &[JSON], &body.to_string()).await;
            let why = reply.json()["detail"].as_str().and_then(|why| Some(why.rsplit_once(": ")?.1.to_owned()));
            let detail = why.map(|why| why.split(" at line").next().unwrap_or_default().to_owned());
            replies.push((reply.status.as_u16(), detail));
        }
        replies
    };
    let refused = |why: &str| vec![(422, Some(why.to_owned())); 5];
    let values = |count: usize| json!({"a": vec![0; count]});
    let long = json!({"a": "x".repeat(64 << 10)});
    let sessions = get(&app, "/v1/sessions").await.json();
    assert_eq!(send(&values(9_998)).await, refused("it has 10001 JSON values and keys, the limit is 10000"));
    assert_eq!(send(&long).await, refused("it has 65544 bytes, the limit is 65536"));
    assert_eq!(get(&app, "/v1/sessions").await.json(), sessions);
    let accepted = [200, 201, 202, 201, 201].map(|status| (status, None));
    assert_eq!(send(&values(9_997)).await, accepted);
    let limits = async |values: usize| {
        post(&app, "/v1/sessions", &json!({"limits": {"turns": vec![0; values]}})).await.problem()
    };
    assert_eq!(limits(2_048).await, (422, "invalid_body".to_owned()));
    assert_eq!(limits(2_000).await, (422, "invalid_limit".to_owned()));
    finish(host, app).await;
}

/// The control: GET of one branch has all of its metadata.
#[tokio::test]
async fn list_of_branches_with_large_metadata_is_bounded() {
    let (host, app, id) = hosted_with("one").await;
    let branches = format!("/v1/sessions/{id}/branches");
    let metadata = json!({"a": "x".repeat(60_000)});
    let mut made = Vec::new();
    for _ in 0..141 {
        let branch = post(&app, &branches, &json!({"fresh": true, "metadata": metadata})).await.json();
        made.push(branch["session"].as_str().expect("an id").to_owned());
    }
    let listed = get(&app, &branches).await;
    assert!(listed.body.len() < 9 << 20, "{}", listed.body.len());
    let rows = listed.json().as_array().expect("rows").clone();
    assert_eq!(rows.iter().map(|row| row["id"].as_str().expect("an id")).collect::<Vec<_>>(), made);
    let facts = |row: &Value| (row["metadata"] == metadata, row["shortened"] == true);
    assert_eq!(rows.iter().map(facts).collect::<Vec<_>>(), [vec![(true, false); 139], vec![(false, true); 2]].concat());
    let alone = get(&app, &format!("/v1/sessions/{}/transcript", made[140])).await.json();
    assert_eq!((&alone["metadata"], &alone["branch"]["metadata"]), (&metadata, &metadata));
    let ids = async |query: String| {
        let page = get(&app, &format!("{branches}?{query}")).await.json();
        page.as_array()
            .expect("rows")
            .iter()
            .map(|row| row["id"].as_str().expect("an id").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("limit=2".to_owned()).await, made[..2]);
    assert_eq!(ids(format!("limit=2&after={}", made[1])).await, made[2..4]);
    assert_eq!(ids(format!("after={}", made[140])).await, [""; 0]);
    let page = get(&app, &format!("/s/{id}/branches?after={}", made[139])).await.body;
    assert_eq!([&made[139], &made[140]].map(|branch| page.contains(&format!("href=\"/s/{branch}\""))), [false, true]);
    assert_eq!(get(&app, &format!("{branches}?limit=501")).await.problem(), (400, "malformed".to_owned()));
    finish(host, app).await;
}

/// A script would be a file that the client chooses.
#[tokio::test]
async fn script_among_several_models_is_refused_over_tcp() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let admin = format!("Bearer {}", tokens.create("admin", TokenScope::Admin).expect("a token"));
    let host = host(&Memory::new()).await;
    let address: SocketAddr = "127.0.0.1:7475".parse().expect("an address");
    let app = Guard::new(address, [], tokens).protect(host.router());
    let headers = [("host", "127.0.0.1:7475"), ("authorization", &admin), JSON];
    let attacks: [&str; 5] = [
        "scripted:/tmp/x.json",
        " scripted:/tmp/x.json",
        "offline,scripted:/tmp/x.json",
        "offline, scripted:/tmp/x.json",
        "scripted:/tmp/x.json,offline",
    ];
    for model in attacks {
        let body = json!({"model": model}).to_string();
        let reply = request(&app, Method::POST, "/v1/sessions", &headers, &body).await;
        assert_eq!(reply.problem(), (403, "scope_too_small".to_owned()), "{model}: {}", reply.body);
    }
    // The control: a list without a script.
    let body = json!({"model": "offline,ollama/m"}).to_string();
    assert_eq!(request(&app, Method::POST, "/v1/sessions", &headers, &body).await.status, 201);
    finish(host, app).await;
}

/// Returns a body that yields a byte every ten seconds of virtual time.
fn trickle(pieces: usize) -> Body {
    Body::from_stream(stream::unfold(0, move |sent| async move {
        let rest = if sent == 0 {
            "{"
        } else if sent == pieces {
            "}"
        } else {
            " "
        };
        tokio::time::sleep(Duration::from_secs(10)).await;
        (sent <= pieces).then(|| (Ok::<_, std::convert::Infallible>(Bytes::from_static(rest.as_bytes())), sent + 1))
    }))
}

#[tokio::test(start_paused = true)]
async fn trickling_body_is_refused_after_the_time_limit() {
    let (host, app) = hosted().await;
    let sent = async |pieces| {
        let request = Request::post("/v1/sessions").header("content-type", "application/json").body(trickle(pieces));
        let started = tokio::time::Instant::now();
        let response = app.clone().oneshot(request.expect("a request")).await.expect("infallible");
        (response.status().as_u16(), started.elapsed())
    };
    let (status, took) = sent(10_000).await;
    assert_eq!((status, took.as_secs()), (400, 30));
    // The control: a slow body that is complete in time.
    assert_eq!(sent(1).await.0, 201);
    finish(host, app).await;
}

/// Invisible and direction-changing characters are replaced with their names; approvals also name invisible blanks.
#[tokio::test]
async fn page_names_invisible_characters() {
    const HOSTILE: &str = "boat\u{202e}\u{200b}\u{2066}\u{ad}\u{1b}[31m\u{2800}<script>alert(1)</script>";
    let unseen = |text: &str| text.contains(['\u{202e}', '\u{200b}', '\u{2066}', '\u{ad}', '\u{1b}']);
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": format!("make {HOSTILE}")}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id").to_owned();
    let approvals = loop {
        let approvals = get(&app, "/v1/approvals").await.json();
        if approvals != json!([]) {
            break approvals;
        }
        tokio::task::yield_now().await;
    };
    // The control: the API returns the arguments unchanged.
    assert!(
        unseen(approvals[0]["resource"].as_str().expect("text"))
            || unseen(approvals[0]["args"].as_str().expect("text"))
    );
    let attacks: [String; 5] =
        ["/".into(), "/approvals".into(), format!("/s/{id}"), format!("/s/{id}/tree"), format!("/s/{id}/replay")];
    for path in attacks {
        let page = get(&app, &path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(!unseen(&page.body) && !page.body.contains("<script>alert"), "{path}: {}", page.body);
        assert!(path != "/approvals" || page.body.contains("boat&#60;U+202E&#62;&#60;U+200B&#62;"), "{}", page.body);
        assert!(path != "/approvals" || !page.body.contains('\u{2800}'), "{}", page.body);
    }
    post(&app, &format!("/v1/sessions/{id}/cancel"), &json!({})).await;
    finish(host, app).await;
}

/// Waiting calls with large arguments are listed in part, page by page. Each is shown whole by itself, with the digest
/// that answers it. The control: the first calls, which the bound admits whole.
#[tokio::test]
async fn list_of_large_calls_is_bounded_and_each_call_is_shown_whole() {
    let (host, app) = hosted().await;
    let mut ids = Vec::new();
    for n in 10..22 {
        let input = format!("make {n}{}", "x".repeat(900_000));
        let opened = post(&app, "/v1/sessions", &json!({"input": {"text": input}})).await.json();
        ids.push(opened["session"]["id"].as_str().expect("an id").to_owned());
        while host.runtime().waiting_calls().await.expect("calls").len() < ids.len() {
            tokio::task::yield_now().await;
        }
    }
    ids.sort();
    let listed = get(&app, "/v1/approvals").await;
    assert!(listed.body.len() < 9 << 20, "{}", listed.body.len());
    let rows = listed.json();
    let shown = |row: &Value| (row["digest"].is_string(), row["shortened"].clone(), row["args"].as_str().map(str::len));
    let (whole, part) = ((true, Value::Null, Some(900_013)), (false, json!(true), Some(1_000)));
    let expected: Vec<_> = (0..12).map(|at| if at < 9 { whole.clone() } else { part.clone() }).collect();
    assert_eq!(rows.as_array().expect("rows").iter().map(shown).collect::<Vec<_>>(), expected);
    let sessions = |rows: &Value| -> Vec<String> {
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| row["session"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(sessions(&rows), ids);
    let place = format!("/v1/approvals/{}/1.0", ids[11]);
    let one = get(&app, &place).await.json();
    assert_eq!(shown(&one), whole);
    assert!(one["args"].as_str().expect("text").starts_with(rows[11]["args"].as_str().expect("text")));
    let changed = post(&app, &place, &json!({"verdict": "allow", "digest": rows[0]["digest"]})).await;
    assert_eq!(changed.problem(), (409, "approval_changed".to_owned()));
    assert_eq!(post(&app, &place, &json!({"verdict": "allow", "digest": one["digest"]})).await.status, 204);
    assert_eq!(get(&app, &place).await.problem(), (404, "approval_not_found".to_owned()));
    let mut pages = vec![get(&app, "/v1/approvals?limit=5").await.json()];
    for last in [4, 9] {
        pages.push(get(&app, &format!("/v1/approvals?limit=5&after={}.1.0", ids[last])).await.json());
    }
    assert_eq!(pages.iter().map(sessions).collect::<Vec<_>>(), [&ids[..5], &ids[5..10], &ids[10..11]]);
    drop(app);
    end(host).await;
}
