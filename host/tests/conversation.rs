//! Conversations over the API: open, send, wait, approve, cancel, branch, delete.

use std::sync::Mutex;

use crate::support::*;
use subtend_actors::{Environment, EnvironmentKey};
use subtend_models::closure::UnusableModel;
use subtend_models::model::{Model, ModelError};
use subtend_session::limits::Limits;
use subtend_session::outcome::ModelFail;

#[tokio::test]
async fn session_answers_over_http() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"title": "a talk", "input": {"text": "Good morning."}})).await;
    assert_eq!(opened.status, StatusCode::CREATED, "{}", opened.body);
    let opened = opened.json();
    let (id, input) =
        (opened["session"]["id"].as_str().expect("an id"), opened["input"]["input"].as_str().expect("one"));
    let answer = get(&app, &format!("/v1/sessions/{id}/inputs/{input}?wait=true&timeout=20000")).await.json();
    let expected = json!({
        "input": input, "answered": true, "text": "Hello. You said: Good morning.", "run": 1, "turn": 1,
    });
    assert_eq!(answer, expected);
    let run = get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await.json();
    assert_eq!((&run["in_flight"], &run["outcome"], &run["turns"]), (&json!(false), &json!("completed"), &json!(1)));
    let session = get(&app, &format!("/v1/sessions/{id}")).await.json();
    assert_eq!(
        (&session["title"], &session["state"], &session["outcome"]),
        (&json!("a talk"), &json!("quiet"), &json!("completed"))
    );
    finish(host, app).await;
}

/// The control: a host that has no loader of models uses its model for any name.
#[tokio::test]
async fn unknown_model_is_refused() {
    for (has_source, status) in [(true, 422), (false, 201)] {
        let model = fn_model("own", |_, _| std::future::pending());
        let mut builder = subtend_actors::Runtime::builder().model(std::sync::Arc::new(model));
        if has_source {
            builder = builder.model_source(|_| None);
        }
        let host = subtend_host::Host::new(builder.start().await.expect("a runtime"), Default::default());
        let app = host.router();
        for name in ["nonsense", "foo/bar", ""] {
            let opened = post(&app, "/v1/sessions", &json!({"model": name})).await;
            assert_eq!(opened.status.as_u16(), status, "{name}: {}", opened.body);
            assert!(!has_source || opened.problem().1 == "unknown_model", "{}", opened.body);
        }
        // Every host refuses these names, because lists of sessions would show them.
        for name in ["openai/x".repeat(100), "openai/x\r\nHost: evil".to_owned(), "openai/\u{202e}x".to_owned()] {
            let opened = post(&app, "/v1/sessions", &json!({"model": name})).await;
            assert_eq!(opened.problem(), (422, "unknown_model".to_owned()), "{name}");
        }
        assert_eq!(post(&app, "/v1/sessions", &json!({"model": "own"})).await.status, StatusCode::CREATED);
        finish(host, app).await;
    }
}

/// The control: a usable model of the same loader.
#[tokio::test]
async fn unusable_model_is_refused_with_its_reason() {
    let model = |name: &str| Arc::new(fn_model(name, |_, _| std::future::pending())) as Arc<dyn Model>;
    let source = move |name: &str| match name {
        "p/keyless" => {
            Some(Arc::new(UnusableModel::new(name, ModelError::new(ModelFail::Auth, "no key for p"))) as Arc<dyn Model>)
        }
        _ => name.starts_with("p/").then(|| model(name)),
    };
    let builder = subtend_actors::Runtime::builder().model(Arc::new(fn_model("own", |_, _| std::future::pending())));
    let runtime = builder.model_source(source).start().await.expect("a runtime");
    let host = subtend_host::Host::new(runtime, Default::default());
    let app = host.router();
    let opened = post(&app, "/v1/sessions", &json!({"model": "p/keyless"})).await;
    assert_eq!(opened.problem(), (422, "unknown_model".to_owned()));
    assert_eq!(opened.json()["detail"], "no key for p");
    assert_eq!(post(&app, "/v1/sessions", &json!({"model": "p/x"})).await.status, StatusCode::CREATED);
    for (model, warnings) in [("p/keyless", json!(["`model`: no key for p"])), ("p/x", json!([]))] {
        let text = json!({"text": format!("---\nmode: all\nmodel: {model}\n---\nHello.\n")}).to_string();
        let headers = [("content-type", "application/json")];
        let registered = request(&app, Method::PUT, "/v1/agents/critic", &headers, &text).await;
        assert_eq!(registered.json()["warnings"], warnings, "{}", registered.body);
    }
    finish(host, app).await;
}

/// The loader of the requested workspace resolves the model. It also resolves a list of models (`a,b`) in the host's own
/// workspace. The control: a workspace that cannot be used with any model.
#[tokio::test]
async fn model_is_checked_by_the_loader_of_its_environment() {
    let own = || fn_model("own", |_, _| std::future::pending());
    let load = move |key: &EnvironmentKey| match (&*key.workspace, key.model.as_deref()) {
        ("/gone", _) => Err("it is gone".to_owned()),
        (_, None | Some("a,b")) => Ok(Environment::default().model(own())),
        (_, Some(model)) => Err(format!("no model {model}")),
    };
    let runtime = subtend_actors::Runtime::builder().model(own()).environments(load).start().await.expect("a runtime");
    let options = HostOptions { home: Some("/home".to_owned()), ..HostOptions::default() };
    let host = subtend_host::Host::new(runtime, options);
    let app = host.router();
    let invisible = "model: a name has at most 512 bytes, and no control or invisible characters";
    for (body, code, why) in [
        (json!({"workspace": "/w", "model": "x"}), "unknown_model", "no model x"),
        (json!({"model": "a,x"}), "unknown_model", "no model a,x"),
        (json!({"workspace": "/w", "model": "a,b\u{202e}"}), "unknown_model", invisible),
        (json!({"workspace": "/gone", "model": "a,b"}), "workspace_unusable", "it is gone"),
    ] {
        let opened = post(&app, "/v1/sessions", &body).await;
        assert_eq!((opened.problem(), opened.json()["detail"].as_str()), ((422, code.to_owned()), Some(why)), "{body}");
    }
    let opened = post(&app, "/v1/sessions", &json!({"model": "a,b"})).await;
    assert_eq!(opened.status, StatusCode::CREATED, "{}", opened.body);
    assert_eq!(opened.json()["session"]["model"], "own");
    finish(host, app).await;
}

/// The creation of a model blocks until another task on the only thread of the runtime ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn opening_with_a_slow_model_does_not_block_other_tasks() {
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (end_wait, ended) = std::sync::mpsc::channel::<()>();
    let waited = Arc::new(Mutex::new(Vec::new()));
    let waits = Mutex::new((Some(begin), ended));
    let seen = Arc::clone(&waited);
    let source = move |_: &str| {
        let mut waits = waits.lock().expect("not poisoned");
        if let Some(begin) = waits.0.take() {
            begin.send(()).expect("it waits");
            seen.lock().expect("not poisoned").push(waits.1.recv_timeout(Duration::from_secs(60)));
        }
        None
    };
    let model = fn_model("own", |_, _| std::future::pending());
    let builder = subtend_actors::Runtime::builder().model(Arc::new(model)).model_source(source);
    let host = subtend_host::Host::new(builder.start().await.expect("a runtime"), Default::default());
    let limits = Limits { cost_micro: Some(1), ..Limits::default() };
    let options = OpenOptions { model: Some("made".into()), limits: Some(limits), ..OpenOptions::agent("general") };
    let opening = tokio::spawn({
        let host = host.clone();
        async move { drop(host.open(options).await) }
    });
    let other = tokio::spawn(async move {
        begun.await.expect("begun");
        end_wait.send(()).expect("it waits");
    });
    other.await.expect("it ran");
    opening.await.expect("it ran");
    assert_eq!(*waited.lock().expect("not poisoned"), [Ok(())]);
    end(host).await;
}

#[tokio::test]
async fn sessions_are_listed_in_pages_newest_first() {
    let (host, app) = hosted().await;
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        ids.push(open_and_finish(&app, text).await);
    }
    let page = get(&app, "/v1/sessions?limit=2").await.json();
    let listed = |page: &serde_json::Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items");
        items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
    };
    let next = page["next"].as_str().expect("a cursor");
    let rest = get(&app, &format!("/v1/sessions?limit=2&cursor={next}")).await.json();
    let all: Vec<_> = listed(&page).into_iter().chain(listed(&rest)).collect();
    ids.reverse();
    assert_eq!((all, &rest["next"]), (ids, &json!(null)));
    assert_eq!(listed(&get(&app, "/v1/sessions?q=TWO").await.json()).len(), 1);
    assert_eq!(listed(&get(&app, "/v1/sessions?in_flight=true").await.json()).len(), 0);
    finish(host, app).await;
}

#[tokio::test]
async fn approval_applies_once_and_only_to_the_shown_call() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "make it"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let approvals = loop {
        let approvals = get(&app, "/v1/approvals").await.json();
        if approvals[0].is_object() {
            break approvals[0].clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (&approvals["session"], &approvals["run"], &approvals["args"]),
        (&json!(id), &json!(1), &json!(r#"{"what":"a boat"}"#))
    );
    let place = format!("/v1/approvals/{id}/{}", approvals["call"].as_str().expect("a call"));
    let other = post(&app, &place, &json!({"verdict": "allow", "digest": "0".repeat(32)})).await;
    assert_eq!(other.problem(), (409, "approval_changed".to_owned()));
    let answer = json!({"verdict": "allow", "digest": approvals["digest"]});
    let (first, second) = tokio::join!(post(&app, &place, &answer), post(&app, &place, &answer));
    let mut statuses = [first.status.as_u16(), second.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 409]);
    let run = get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await.json();
    assert_eq!(run["outcome"], "completed");
    assert_eq!(post(&app, &place, &answer).await.problem(), (409, "approval_closed".to_owned()));
    finish(host, app).await;
}

#[tokio::test]
async fn run_in_flight_is_cancelled_by_two_clients_at_once() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "hang"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let now = get(&app, &format!("/v1/sessions/{id}/runs/1")).await.json();
    assert_eq!((&now["in_flight"], &now["outcome"]), (&json!(true), &json!(null)));
    let path = format!("/v1/sessions/{id}/cancel");
    let nothing = json!({});
    let (first, second) = tokio::join!(post(&app, &path, &nothing), post(&app, &path, &nothing));
    assert_eq!((first.status, second.status), (StatusCode::OK, StatusCode::OK));
    let run = get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await.json();
    assert_eq!(run["outcome"], "cancelled");
    let records = get(&app, &format!("/v1/sessions/{id}/records")).await.json();
    let ends = records.as_array().expect("records").iter().filter(|stored| stored["record"]["run_ended"].is_object());
    assert_eq!(ends.count(), 1, "{records}");
    finish(host, app).await;
}

/// A foreground host ends with its run, while another client waits for the end of that run.
#[tokio::test]
async fn waiting_client_gets_the_outcome_when_the_host_ends_too() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "one"}})).await.json();
    let (id, input) =
        (opened["session"]["id"].as_str().expect("an id"), opened["input"]["input"].as_str().expect("an id"));
    let run = format!("/v1/sessions/{id}/runs/1");
    assert_eq!(get(&app, &format!("{run}?wait=true")).await.json()["outcome"], "completed");
    host.ends().cancel();
    for query in ["", "?wait=true", "?wait=true&timeout=0"] {
        let run = get(&app, &format!("{run}{query}")).await.json();
        assert_eq!((&run["in_flight"], &run["outcome"]), (&json!(false), &json!("completed")), "{query}");
        let answer = get(&app, &format!("/v1/sessions/{id}/inputs/{input}{query}")).await.json();
        assert_eq!(answer["answered"], true, "{query}: {answer}");
    }
    finish(host, app).await;
}

#[tokio::test]
async fn tree_shows_children_to_the_given_depth() {
    let (host, app, id) = hosted_with("children").await;
    let whole = get(&app, &format!("/v1/trees/{id}")).await.json();
    assert_eq!(whole["tree"]["children"].as_array().expect("children").len(), 2, "{whole}");
    let top = get(&app, &format!("/v1/trees/{id}?depth=0")).await.json();
    assert_eq!((&top["tree"]["children"], &top["tree"]["child_count"]), (&json!([]), &json!(2)));
    let usage = get(&app, &format!("/v1/sessions/{id}/usage")).await.json();
    assert_eq!(usage["children"].as_array().expect("children").len(), 2);
    finish(host, app).await;
}

#[tokio::test]
async fn branch_continues_from_a_message() {
    let (host, app, id) = hosted_with("one").await;
    let made = post(&app, &format!("/v1/sessions/{id}/branches"), &json!({"title": "another way"})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let branch = made.json()["session"].as_str().expect("an id").to_owned();
    let sent = post(&app, &format!("/v1/sessions/{branch}/inputs"), &json!({"text": "two"})).await;
    assert_eq!(sent.status, StatusCode::ACCEPTED, "{}", sent.body);
    let place = sent.headers["location"].to_str().expect("a place").to_owned();
    let answer = get(&app, &format!("{place}?wait=true&timeout=20000")).await.json();
    assert_eq!(answer["text"], "Hello. You said: two");
    let branches = get(&app, &format!("/v1/sessions/{id}/branches")).await.json();
    assert_eq!((&branches[0]["id"], &branches[0]["kind"]), (&json!(branch), &json!("human")));
    finish(host, app).await;
}

#[tokio::test]
async fn answer_is_regenerated_and_switched() {
    let (host, app, id) = hosted_with("one").await;
    let made = post(&app, &format!("/v1/sessions/{id}/regenerate"), &json!({})).await.json();
    let (alternative, run) = (made["session"].as_str().expect("an id"), &made["run"]);
    let run = get(&app, &format!("/v1/sessions/{alternative}/runs/{run}?wait=true&timeout=20000")).await.json();
    assert_eq!(run["outcome"], "completed");
    let switched = post(&app, &format!("/v1/sessions/{id}/switch"), &json!({"to": "next"})).await;
    assert_eq!(switched.status, StatusCode::OK, "{}", switched.body);
    let alternatives = get(&app, &format!("/v1/sessions/{id}/alternatives")).await.json();
    assert_eq!(
        (&alternatives[0]["active"], alternatives[0]["choices"].as_array().map(Vec::len)),
        (&switched.json()["to"], Some(2))
    );
    finish(host, app).await;
}

#[tokio::test]
async fn queued_input_is_listed_and_removed() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "hang"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let sent = post(&app, &format!("/v1/sessions/{id}/inputs"), &json!({"text": "later"})).await.json();
    let input = sent["input"].as_str().expect("an id");
    let queue = get(&app, &format!("/v1/sessions/{id}/queue")).await.json();
    assert_eq!(
        (&queue[0]["id"], &queue[0]["text"], &queue[0]["lane"]),
        (&json!(input), &json!("later"), &json!("send"))
    );
    let path = format!("/v1/sessions/{id}/queue/{input}");
    let removed = request(&app, Method::DELETE, &path, &[], "").await;
    assert_eq!(removed.json(), json!({"removed": 1}));
    assert_eq!(request(&app, Method::DELETE, &path, &[], "").await.problem(), (404, "input_not_found".to_owned()));
    post(&app, &format!("/v1/sessions/{id}/cancel?tree=true"), &json!({})).await;
    finish(host, app).await;
}

#[tokio::test]
async fn deleted_session_is_gone() {
    let (host, app, id) = hosted_with("a secret").await;
    let deleted = request(&app, Method::DELETE, &format!("/v1/sessions/{id}"), &[], "").await;
    assert_eq!(deleted.json(), json!({"sessions": 1}));
    let gone = get(&app, &format!("/v1/sessions/{id}")).await.problem();
    assert!(gone == (410, "session_deleted".to_owned()) || gone == (404, "session_not_found".to_owned()), "{gone:?}");
    assert_eq!(get(&app, "/v1/sessions").await.json()["items"], json!([]));
    finish(host, app).await;
}

#[tokio::test]
async fn r6_tasks_are_spawned_listed_read_and_cancelled() {
    let (host, app) = hosted().await;
    let task = json!({"type": "explore", "prompt": "read everything", "description": "a survey"});
    let spawned = post(&app, "/v1/tasks/spawn", &task).await;
    assert_eq!(spawned.status, StatusCode::CREATED, "{}", spawned.body);
    let id = spawned.json()["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("task_"), "{id}");
    let done = get(&app, &format!("/v1/tasks/get/{id}?wait=true&timeout=20000")).await.json();
    assert_eq!(
        (&done["status"], &done["result"], &done["type"]),
        (&json!("completed"), &json!("Hello. You said: read everything"), &json!("explore"))
    );
    let hangs = post(&app, "/v1/tasks/spawn", &json!({"type": "explore", "prompt": "hang"})).await.json();
    let hanging = hangs["id"].as_str().expect("an id");
    let now = get(&app, &format!("/v1/tasks/get/{hanging}?wait=true&timeout=1")).await.json();
    assert_eq!(now["status"], "running");
    let cancelled = post(&app, &format!("/v1/tasks/cancel/{hanging}"), &json!({})).await.json();
    assert_eq!(cancelled["status"], "cancelled");
    let listed = post(&app, "/v1/tasks/list", &json!({"status": "cancelled"})).await.json();
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["id"]), (Some(1), &json!(hanging)));
    finish(host, app).await;
}

/// A list of tasks with long prompts and results has at most 8 MiB. The control: a single task is returned in full.
#[tokio::test]
async fn r6_task_list_is_bounded_and_continues() {
    let (host, app) = hosted().await;
    let prompt = "x".repeat(900_000);
    for _ in 0..5 {
        let spawned = post(&app, "/v1/tasks/spawn", &json!({"type": "explore", "prompt": prompt})).await.json();
        let id = spawned["id"].as_str().expect("an id");
        get(&app, &format!("/v1/tasks/get/{id}?wait=true&timeout=20000")).await;
    }
    let listed = post(&app, "/v1/tasks/list", &json!({})).await;
    assert!(listed.body.len() < 9 << 20, "{}", listed.body.len());
    let rows = listed.json().as_array().expect("rows").clone();
    let length = |row: &Value, key: &str| row[key].as_str().map(str::len);
    let facts = |row: &Value| (length(row, "prompt"), length(row, "result"), row["shortened"] == true);
    let (whole, short) = ((Some(900_000), Some(900_017), false), (Some(1_000), Some(1_000), true));
    assert_eq!(rows.iter().map(facts).collect::<Vec<_>>(), [whole, whole, whole, whole, short]);
    let last = &rows[4];
    let alone = get(&app, &format!("/v1/tasks/get/{}", last["id"].as_str().expect("an id"))).await;
    assert_eq!(facts(&alone.json()), whole);
    let cursor = |row: &Value| {
        let [created, session] = ["createdAt", "childSessionId"].map(|key| row[key].as_str().expect("a text"));
        format!("{created}.{session}")
    };
    let next = post(&app, "/v1/tasks/list", &json!({"before": cursor(&rows[3])})).await.json();
    assert_eq!(
        next.as_array().map(|rows| rows.iter().map(|row| row["id"].clone()).collect()),
        Some(vec![last["id"].clone()])
    );
    assert_eq!(post(&app, "/v1/tasks/list", &json!({"before": cursor(last)})).await.json(), json!([]));
    let session = last["childSessionId"].as_str().expect("a session");
    for before in
        ["yesterday".to_owned(), format!("1795510695042.{session}"), format!("2026-02-30T00:00:00.000Z.{session}")]
    {
        let bad = post(&app, "/v1/tasks/list", &json!({"before": before})).await;
        assert_eq!(bad.problem(), (400, "malformed".to_owned()), "{before}");
    }
    finish(host, app).await;
}

#[tokio::test]
async fn export_can_be_imported() {
    let (host, app, id) = hosted_with("children").await;
    let exported = get(&app, &format!("/v1/sessions/{id}/export")).await;
    assert_eq!(exported.headers["content-type"], "application/x-ndjson");
    let other =
        subtend_journal::Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("one");
    let within = subtend_journal::ImportBounds::none();
    let mut file = std::io::Cursor::new(exported.body.into_bytes());
    let tally = other.import(&mut file, &within, &mut |_| {}).await.expect("imported");
    assert_eq!(tally.sessions, 3);
    finish(host, app).await;
}

#[tokio::test]
async fn health_and_metrics_are_served() {
    let (host, app) = hosted().await;
    open_and_finish(&app, "one").await;
    assert_eq!(get(&app, "/healthz").await.status, StatusCode::NO_CONTENT);
    assert_eq!(get(&app, "/readyz").await.status, StatusCode::NO_CONTENT);
    let figures = get(&app, "/metrics").await.body;
    assert!(figures.contains("subtend_turns_total 1\n"), "{figures}");
    assert!(figures.contains("subtend_runs_ended_total{outcome=\"completed\"} 1\n"), "{figures}");
    assert!(figures.contains("resource=\"/v1/sessions\",status=\"201\""), "{figures}");
    for figure in
        ["subtend_journal_sync_seconds", "subtend_recovered_runs{state=\"lost\"} 0", "subtend_recovery_seconds"]
    {
        assert!(figures.contains(figure), "{figure}: {figures}");
    }
    host.ends().cancel();
    assert_eq!(get(&app, "/readyz").await.problem(), (503, "stopping".to_owned()));
    finish(host, app).await;
}
