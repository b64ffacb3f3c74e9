//! Idempotency keys: a repeated command takes effect once, even after a restart (H-2).

use std::io::Cursor;

use crate::support::*;
use subtend_actors::CONTINUE_TEXT;
use subtend_agents::slash::SlashCommands;
use subtend_host::slash::CommandFiles;
use subtend_journal::faulty::Faulty;
use subtend_journal::{ImportBounds, Scope};
use subtend_session::authority::Authority;

async fn send_keyed(app: &axum::Router, path: &str, key: &str, body: &Value) -> HttpResponse {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    request(app, Method::POST, path, &headers, &body.to_string()).await
}

#[tokio::test]
async fn repeated_prompt_runs_once_across_a_restart() {
    let memory = Memory::new();
    let open = json!({"title": "an invoice", "input": {"text": "Pay the invoice."}});
    let first = {
        let host = host(&memory).await;
        let app = host.router();
        let reply = send_keyed(&app, "/v1/sessions", "invoice-17", &open).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.body);
        let id = reply.json()["session"]["id"].as_str().expect("an id").to_owned();
        get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await;
        let again = send_keyed(&app, "/v1/sessions", "invoice-17", &open).await;
        assert_eq!((again.status, &again.json()["session"]["id"]), (StatusCode::OK, &json!(id)));
        finish(host, app).await;
        reply.json()
    };
    let host = host(&memory).await;
    let app = host.router();
    let again = send_keyed(&app, "/v1/sessions", "invoice-17", &open).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.body);
    let again = again.json();
    assert_eq!(again["session"]["id"], first["session"]["id"]);
    assert_eq!((&again["input"]["input"], &again["input"]["again"]), (&first["input"]["input"], &json!(true)));
    let id = again["session"]["id"].as_str().expect("an id");
    let records = get(&app, &format!("/v1/sessions/{id}/records")).await.json();
    let runs = records.as_array().expect("records").iter().filter(|stored| stored["record"]["run_opened"].is_object());
    assert_eq!(runs.count(), 1);
    finish(host, app).await;
}

/// The id of a session follows from its key and its command. A user who knows them makes the same session in another store, and its export brings it
/// here. The control: an import without bounds, of a file that this host wrote itself.
#[tokio::test]
async fn key_finds_no_imported_session() {
    let open = json!({"title": "an invoice", "input": {"text": "Pay the invoice."}});
    let mut file = Vec::new();
    {
        let other = host(&Memory::new()).await;
        let app = other.router();
        let reply = send_keyed(&app, "/v1/sessions", "invoice-17", &open).await;
        let id = reply.json()["session"]["id"].as_str().expect("an id").to_owned();
        get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await;
        other.runtime().journal().settled().await.expect("durable");
        other.runtime().journal().export(Scope::Store, &mut file, &mut |_| {}).expect("an export");
        finish(other, app).await;
    }
    let bounded = ImportBounds { rights: Authority::deny_all(), limits: None, memory: usize::MAX };
    for (within, is_found) in [(bounded, false), (ImportBounds::none(), true)] {
        let host = host(&Memory::new()).await;
        let app = host.router();
        host.runtime().import(&mut Cursor::new(&file), &within, &mut |_| {}).await.expect("imported");
        let reply = send_keyed(&app, "/v1/sessions", "invoice-17", &open).await;
        match is_found {
            true => assert_eq!(reply.status, StatusCode::OK, "{}", reply.body),
            false => assert_eq!(reply.problem(), (422, "idempotency_key_reused".to_owned())),
        }
        finish(host, app).await;
    }
}

/// An export lists its deleted sessions, and their ids follow from keys too. A deletion that no session of the file
/// names is left out; an id that one names is not taken for a session that was deleted here. The control: a file that
/// this host wrote itself.
#[tokio::test]
async fn key_finds_no_imported_deletion() {
    let open = json!({"title": "an invoice", "input": {"text": "Pay the invoice."}});
    let mut file = Vec::new();
    let root = {
        let other = host(&Memory::new()).await;
        let app = other.router();
        let root = open_and_finish(&app, "one").await;
        let path = format!("/v1/sessions/{root}/branches");
        let named = send_keyed(&app, &path, "b", &json!({})).await.json()["session"].clone();
        let alone = send_keyed(&app, "/v1/sessions", "invoice-17", &open).await.json()["session"]["id"].clone();
        for id in [named, alone].map(|id| id.as_str().expect("an id").to_owned()) {
            get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await;
            let deleted = request(&app, Method::DELETE, &format!("/v1/sessions/{id}"), &[], "").await;
            assert!(deleted.status.is_success(), "{}", deleted.body);
        }
        other.runtime().journal().settled().await.expect("durable");
        other.runtime().journal().export(Scope::Store, &mut file, &mut |_| {}).expect("an export");
        finish(other, app).await;
        root
    };
    let bounded = ImportBounds { rights: Authority::deny_all(), limits: None, memory: usize::MAX };
    let reused = (422, "idempotency_key_reused".to_owned());
    for (within, expected) in [(bounded, reused), (ImportBounds::none(), (410, "session_deleted".to_owned()))] {
        let host = host(&Memory::new()).await;
        let app = host.router();
        let tally = host.runtime().import(&mut Cursor::new(&file), &within, &mut |_| {}).await.expect("imported");
        assert_eq!((tally.sessions, tally.deleted), (1, 1));
        let path = format!("/v1/sessions/{root}/branches");
        assert_eq!(send_keyed(&app, &path, "b", &json!({})).await.problem(), expected);
        let reply = send_keyed(&app, "/v1/sessions", "invoice-17", &open).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.body);
        finish(host, app).await;
    }
}

/// Each command is sent twice concurrently, and again after a restart.
#[tokio::test]
async fn repeated_branches_and_continuations_take_effect_once() {
    let memory = Memory::new();
    let (mut id, mut first) = (String::new(), Vec::new());
    for restart in [false, true] {
        let host = host(&memory).await;
        let app = host.router();
        if !restart {
            id = open_and_finish(&app, "one").await;
        }
        let nothing = json!({});
        let mut made = Vec::new();
        for (path, key) in [("branches", "b"), ("regenerate", "r"), ("continue", "c")] {
            let path = format!("/v1/sessions/{id}/{path}");
            let (one, two) =
                tokio::join!(send_keyed(&app, &path, key, &nothing), send_keyed(&app, &path, key, &nothing));
            assert!(one.status.is_success() && two.status.is_success(), "{path}: {} {}", one.body, two.body);
            let name = |reply: &HttpResponse| (reply.json()["session"].clone(), reply.json()["input"].clone());
            assert_eq!(name(&one), name(&two), "{path}");
            made.push(name(&one));
        }
        if restart {
            assert_eq!(made, first);
        }
        first = made;
        let branches = get(&app, &format!("/v1/sessions/{id}/branches")).await.json();
        assert_eq!(branches.as_array().expect("branches").len(), 2);
        let other = send_keyed(&app, &format!("/v1/sessions/{id}/regenerate"), "b", &json!({})).await;
        assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()));
        let other = send_keyed(&app, &format!("/v1/sessions/{id}/continue"), "c", &json!({"text": "another"})).await;
        assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()));
        get(&app, &format!("/v1/sessions/{id}/runs/2?wait=true&timeout=20000")).await;
        finish(host, app).await;
    }
}

/// Without a run number, a repeated cancel would stop the next run.
#[tokio::test]
async fn cancel_of_a_run_does_not_cancel_the_next() {
    let (host, app, id) = hosted_with("one").await;
    let path = format!("/v1/sessions/{id}");
    assert!(post(&app, &format!("{path}/inputs"), &json!({"text": "hang"})).await.status.is_success());
    let old = post(&app, &format!("{path}/cancel?run=1"), &json!({})).await;
    assert_eq!(old.json(), json!({"result": "already_ended", "run": 1, "outcome": "completed", "cancelled": null}));
    assert_eq!(get(&app, &format!("{path}/runs/2")).await.json()["in_flight"], true);
    let now = post(&app, &format!("{path}/cancel?run=2"), &json!({})).await;
    assert_eq!((&now.json()["result"], &now.json()["run"]), (&json!("done"), &json!(2)), "{}", now.body);
    finish(host, app).await;
}

/// The client lost the reply, and repeats its cancel without a run number.
#[tokio::test]
async fn repeated_cancel_names_the_run_that_had_ended() {
    let (host, app, id) = hosted_with("one").await;
    let path = format!("/v1/sessions/{id}");
    assert!(post(&app, &format!("{path}/inputs"), &json!({"text": "hang"})).await.status.is_success());
    let first = post(&app, &format!("{path}/cancel"), &json!({})).await.json();
    assert_eq!((&first["result"], &first["run"]), (&json!("done"), &json!(2)));
    get(&app, &format!("{path}/runs/2?wait=true&timeout=20000")).await;
    let ended = json!({"result": "already_ended", "run": 2, "outcome": "cancelled", "cancelled": null});
    for control in ["cancel", "interrupt"] {
        assert_eq!(post(&app, &format!("{path}/{control}"), &json!({})).await.json(), ended, "{control}");
    }
    let none = post(&app, &format!("{path}/cancel?run=3"), &json!({})).await;
    assert_eq!(none.problem(), (404, "run_not_found".to_owned()));
    finish(host, app).await;
}

#[tokio::test]
async fn key_of_another_command_is_refused() {
    let (host, app) = hosted().await;
    let opened = send_keyed(&app, "/v1/sessions", "k", &json!({"title": "one"})).await;
    let id = opened.json()["session"]["id"].as_str().expect("an id").to_owned();
    let other = send_keyed(&app, "/v1/sessions", "k", &json!({"title": "two"})).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()));
    let path = format!("/v1/sessions/{id}/inputs");
    assert_eq!(send_keyed(&app, &path, "i", &json!({"text": "one"})).await.status, StatusCode::ACCEPTED);
    let same = send_keyed(&app, &path, "i", &json!({"text": "one"})).await;
    assert_eq!((same.status, &same.json()["again"]), (StatusCode::ACCEPTED, &json!(true)));
    let other = send_keyed(&app, &path, "i", &json!({"text": "two"})).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()));
    finish(host, app).await;
}

#[tokio::test]
async fn repeated_task_starts_once() {
    let (host, app) = hosted().await;
    let task = json!({"type": "explore", "prompt": "read everything"});
    let (first, second) =
        tokio::join!(send_keyed(&app, "/v1/tasks/spawn", "t", &task), send_keyed(&app, "/v1/tasks/spawn", "t", &task));
    assert_eq!(first.json()["id"], second.json()["id"], "{} {}", first.body, second.body);
    let id = first.json()["childSessionId"].as_str().expect("an id").to_owned();
    get(&app, &format!("/v1/tasks/get/{id}?wait=true&timeout=20000")).await;
    let third = send_keyed(&app, "/v1/tasks/spawn", "t", &task).await.json();
    let records = get(&app, &format!("/v1/sessions/{id}/records")).await.json();
    let runs = records.as_array().expect("records").iter().filter(|stored| stored["record"]["run_opened"].is_object());
    assert_eq!((third["childSessionId"].as_str(), runs.count()), (Some(&*id), 1));
    finish(host, app).await;
}

#[tokio::test]
async fn key_of_a_deleted_session_opens_no_other() {
    let (host, app) = hosted().await;
    let opened = send_keyed(&app, "/v1/sessions", "k", &json!({})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    request(&app, Method::DELETE, &format!("/v1/sessions/{id}"), &[], "").await;
    assert_eq!(send_keyed(&app, "/v1/sessions", "k", &json!({})).await.problem(), (410, "session_deleted".to_owned()));
    finish(host, app).await;
}

async fn last_record(app: &axum::Router, path: &str) -> u64 {
    let records = get(app, &format!("{path}/records?limit=1000")).await.json();
    records.as_array().expect("records").len() as u64
}

/// Sends an input, and cancels a run that hangs; returns the run once it is over.
async fn run_to_end(app: &axum::Router, path: &str, text: &str) -> u64 {
    let sent = post(app, &format!("{path}/inputs"), &json!({"text": text})).await.json();
    let run = sent["run"].as_u64().unwrap_or_else(|| panic!("{sent}"));
    if text == "hang" {
        post(app, &format!("{path}/cancel?run={run}"), &json!({})).await;
    }
    get(app, &format!("{path}/runs/{run}?wait=true&timeout=20000")).await;
    run
}

/// Interrupts, closes, rolls back and switches, each followed by a command that a repetition would undo.
async fn send_controls(app: &axum::Router, path: &str) -> Vec<(String, Value)> {
    let none = json!({});
    assert!(post(app, &format!("{path}/inputs"), &json!({"text": "hang"})).await.status.is_success());
    let interrupt = format!("{path}/interrupt?after={}", last_record(app, path).await);
    assert_eq!(post(app, &interrupt, &none).await.json()["run"], 2);
    run_to_end(app, path, "two").await;
    let close = format!("{path}/close?after={}", last_record(app, path).await);
    assert_eq!(post(app, &close, &none).await.status, StatusCode::NO_CONTENT);
    let cancelled = run_to_end(app, path, "hang").await;
    let roll_back = format!("{path}/rollback?after={}", last_record(app, path).await);
    assert_eq!(post(app, &roll_back, &none).await.json()["run"], cancelled);
    let other = post(app, &format!("{path}/regenerate"), &none).await.json();
    let other = other["session"].as_str().expect("an alternative");
    get(app, &format!("/v1/sessions/{other}/runs/1?wait=true&timeout=20000")).await;
    run_to_end(app, path, "hang").await;
    let switch = format!("{path}/switch?after={}", last_record(app, path).await);
    let previous = json!({"to": "previous"});
    let switched = post(app, &switch, &previous).await;
    assert_eq!(switched.status, StatusCode::OK, "{}", switched.body);
    vec![(interrupt, none.clone()), (close, none.clone()), (roll_back, none), (switch, previous)]
}

/// A repeated control must not undo a later command, even after a restart.
#[tokio::test]
async fn repeated_control_with_the_last_record_acts_once() {
    let memory = Memory::new();
    let (mut path, mut sent) = (String::new(), Vec::new());
    for restart in [false, true] {
        let host = host(&memory).await;
        let app = host.router();
        if !restart {
            path = format!("/v1/sessions/{}", open_and_finish(&app, "one").await);
            sent = send_controls(&app, &path).await;
        }
        let before = last_record(&app, &path).await;
        for (request, body) in &sent {
            let again = post(&app, request, body).await;
            assert!(again.status.is_success(), "{request}: {}", again.body);
        }
        assert_eq!(last_record(&app, &path).await, before, "a repeated command was recorded twice");
        // The control: without the record, the same command acts on the current state.
        let rolled = post(&app, &format!("{path}/rollback"), &json!({})).await;
        assert_eq!(
            (rolled.status, last_record(&app, &path).await > before),
            (StatusCode::OK, !restart),
            "{}",
            rolled.body
        );
        finish(host, app).await;
    }
}

/// The records after a client's last one are read in parts of 1 MiB. The control: small records need one part less.
#[tokio::test]
async fn records_of_a_repeated_control_are_read_in_parts() {
    let mut ranges = Vec::new();
    for len in [1, 300_000] {
        let (engine, faults) = Faulty::new(Box::new(Memory::new()));
        let host = Host::new(runtime_on(Box::new(engine)).await, HostOptions::default());
        let app = host.router();
        let path = format!("/v1/sessions/{}", open_and_finish(&app, &"x".repeat(len)).await);
        for _ in 0..3 {
            run_to_end(&app, &path, &"x".repeat(len)).await;
        }
        let before = faults.ranges();
        let none = post(&app, &format!("{path}/interrupt?after=1"), &json!({})).await;
        assert_eq!(none.json()["result"], "already_ended", "{}", none.body);
        ranges.push(faults.ranges() - before);
        finish(host, app).await;
    }
    assert_eq!(ranges, [3, 4]);
}

/// Resources that do not store keys refuse them.
#[tokio::test]
async fn key_is_refused_where_it_has_no_effect() {
    let (host, app, id) = hosted_with("one").await;
    for command in ["cancel", "interrupt", "close", "rollback", "switch", "worktree/merge"] {
        let reply = send_keyed(&app, &format!("/v1/sessions/{id}/{command}"), "k", &json!({"to": "next"})).await;
        assert_eq!(reply.problem(), (400, "malformed".to_owned()), "{command}");
        assert!(reply.body.contains("?after="), "{command}: {}", reply.body);
    }
    finish(host, app).await;
}

/// A request continues the trace of its sender; a request without a trace gets a new one.
#[tokio::test]
async fn response_names_the_trace_of_its_request() {
    let (host, app) = hosted().await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = request(&app, Method::GET, "/healthz", &[("traceparent", parent)], "").await;
    let response = traced.headers["traceresponse"].to_str().expect("text").to_owned();
    assert!(response.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && response.ends_with("-01"), "{response}");
    assert_ne!(response, parent, "the span is the host's own");
    let [one, two] = ["00-zz", "00-zz"].map(|wrong| vec![("traceparent", wrong)]);
    let one = request(&app, Method::GET, "/healthz", &one, "").await.headers["traceresponse"].clone();
    let two = request(&app, Method::GET, "/healthz", &two, "").await.headers["traceresponse"].clone();
    assert_ne!(one.to_str().expect("text")[..35], two.to_str().expect("text")[..35]);
    finish(host, app).await;
}

/// Two commands have the same key, in both orders, even with the same text. The control: a repetition gets its receipt.
#[tokio::test]
async fn key_of_one_command_is_refused_for_another_with_equal_text() {
    let (host, app, id) = hosted_with("one").await;
    let input = (format!("/v1/sessions/{id}/inputs"), json!({"text": CONTINUE_TEXT}));
    let continued = (format!("/v1/sessions/{id}/continue"), json!({}));
    for (key, (path, body), (other_path, other_body)) in [
        ("i", &input, &continued),
        ("c", &continued, &input),
        ("n", &continued, &(input.0.clone(), json!({"text": "new"}))),
    ] {
        let first = send_keyed(&app, path, key, body).await;
        assert!(first.status.is_success(), "{}", first.body);
        let other = send_keyed(&app, other_path, key, other_body).await;
        assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()), "{key}");
        let again = send_keyed(&app, path, key, body).await;
        let receipt = json!({"session": id, "input": first.json()["input"], "run": first.json()["run"], "again": true});
        assert_eq!(again.json(), receipt, "{key}");
    }
    finish(host, app).await;
}

#[derive(Debug)]
struct Greeting(tempfile::TempDir);

impl Greeting {
    fn write(&self, text: &str) {
        std::fs::write(self.0.path().join(".subtend/commands/greet.md"), text).expect("written");
    }
}

impl CommandFiles for Greeting {
    fn of(&self, _: &str) -> Result<SlashCommands, String> {
        Ok(SlashCommands::load(self.0.path()))
    }
}

/// The file of a slash command changes, and is then removed, before its input is repeated. The control: another request
/// with the same key is refused.
#[tokio::test]
async fn repeated_slash_command_gets_its_first_receipt() {
    let files = Greeting(tempfile::tempdir().expect("a directory"));
    std::fs::create_dir_all(files.0.path().join(".subtend/commands")).expect("a directory");
    let files = Arc::new(files);
    files.write("Greet $ARGUMENTS.");
    let options = HostOptions {
        commands: Some(Arc::clone(&files) as Arc<dyn CommandFiles>),
        home: Some("/".to_owned()),
        ..HostOptions::default()
    };
    let host = Host::new(runtime(&Memory::new()).await, options);
    let app = host.router();
    let command = json!({"text": "/greet you", "expand": true});
    let open = json!({"input": command});
    let opened = send_keyed(&app, "/v1/sessions", "o", &open).await;
    assert_eq!(opened.status, StatusCode::CREATED, "{}", opened.body);
    let id = opened.json()["session"]["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sessions/{id}/inputs");
    let first = send_keyed(&app, &path, "i", &command).await.json();
    let answer =
        get(&app, &format!("{path}/{}?wait=true&timeout=20000", first["input"].as_str().expect("an id"))).await;
    assert_eq!(answer.json()["text"], "Hello. You said: Greet you.");
    for text in [Some("Greet $ARGUMENTS, and more."), None] {
        match text {
            Some(text) => files.write(text),
            None => std::fs::remove_file(files.0.path().join(".subtend/commands/greet.md")).expect("removed"),
        }
        let again = send_keyed(&app, &path, "i", &command).await.json();
        assert_eq!((&again["input"], &again["again"]), (&first["input"], &json!(true)), "{again}");
        let again = send_keyed(&app, "/v1/sessions", "o", &open).await;
        assert_eq!((again.status, &again.json()["input"]["input"]), (StatusCode::OK, &opened.json()["input"]["input"]));
        let other = send_keyed(&app, &path, "i", &json!({"text": "/greet them", "expand": true})).await;
        assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()));
        let plain = send_keyed(&app, &path, "i", &json!({"text": "/greet you"})).await;
        assert_eq!(plain.problem(), (422, "idempotency_key_reused".to_owned()));
    }
    let unknown = send_keyed(&app, &path, "new", &command).await;
    assert_eq!(unknown.problem(), (422, "unknown_command".to_owned()));
    finish(host, app).await;
}
