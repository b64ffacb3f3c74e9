//! Tasks below a session, started and followed over HTTP.

use crate::support::*;

fn word<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} in {row}"))
}

async fn spawn(app: &axum::Router, kind: &str, prompt: &str, parent: &str) -> Value {
    let task = json!({"type": kind, "prompt": prompt, "description": prompt, "parentSessionId": parent});
    let spawned = post(app, "/v1/tasks/spawn", &task).await;
    assert_eq!(spawned.status, StatusCode::CREATED, "{}", spawned.body);
    spawned.json()
}

/// The task also has the fields of a task record. The control: a task without a parent.
#[tokio::test]
async fn r6_task_of_a_session_is_its_child() {
    let (host, app, parent) = hosted_with("one").await;
    let short = get(&app, &format!("/v1/sessions/{parent}")).await.json();
    let task = spawn(&app, "explore", "survey", word(&short, "short")).await;
    let (id, child) = (word(&task, "id").to_owned(), word(&task, "childSessionId").to_owned());
    let alone = post(&app, "/v1/tasks/spawn", &json!({"type": "explore", "prompt": "alone"})).await.json();
    assert!(alone.get("parentSessionId").is_none(), "{alone}");
    let done = get(&app, &format!("/v1/tasks/get/{id}?wait=true&timeout=20000")).await.json();
    let at = ["createdAt", "updatedAt", "completedAt"].map(|key| word(&done, key).to_owned());
    assert!(at[0] <= at[2] && at[2] <= at[1], "{done}");
    for time in &at {
        let form: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(form, "0000-00-00T00:00:00.000Z", "{done}");
    }
    let created =
        host.runtime().journal().head(child.parse().expect("an id")).expect("a row").expect("a head").created_ms;
    let of_day = created.rem_euclid(86_400_000);
    let [hours, minutes] = [of_day / 3_600_000, of_day / 60_000 % 60];
    let clock = format!("{hours:02}:{minutes:02}:{:02}.{:03}Z", of_day / 1_000 % 60, of_day % 1_000);
    assert_eq!(at[0].get(11..), Some(&*clock), "{done}");
    let expected = json!({
        "id": format!("task_{}", child.replace('-', "")), "childSessionId": child, "short": task["short"], "type": "explore",
        "status": "completed", "outcome": "completed", "description": "survey", "prompt": "survey",
        "parentSessionId": parent, "root": parent, "result": "Hello. You said: survey", "metadata": {},
        "createdAt": at[0], "updatedAt": at[1], "completedAt": at[2],
    });
    assert_eq!(done, expected);
    let listed = |body: Value| {
        let app = app.clone();
        async move {
            let rows = post(&app, "/v1/tasks/list", &body).await.json();
            rows.as_array().expect("rows").iter().map(|row| word(row, "description").to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(listed(json!({"parentSessionId": parent})).await, ["survey"]);
    assert_eq!(listed(json!({})).await, ["alone", "survey"]);
    let shown = get(&app, &format!("/v1/trees/{parent}")).await;
    assert!(shown.body.contains(&child), "{}", shown.body);
    finish(host, app).await;
}

/// Polling responds at once, a wait ends at its time limit, and the task continues until it is cancelled.
#[tokio::test]
async fn r6_task_of_a_session_is_polled_and_cancelled() {
    let (host, app, parent) = hosted_with("one").await;
    let id = word(&spawn(&app, "explore", "hang", &parent).await, "id").to_owned();
    for query in ["", "?wait=false&timeout=20000", "?wait=true&timeout=1"] {
        let now = get(&app, &format!("/v1/tasks/get/{id}{query}")).await.json();
        assert!(matches!(word(&now, "status"), "pending" | "running"), "{query}: {now}");
        let absent = ["result", "completedAt", "outcome", "cause", "error", "shortened"];
        assert_eq!(absent.map(|key| now.get(key)), [None; 6], "{query}: {now}");
    }
    let cancelled = post(&app, &format!("/v1/tasks/cancel/{id}"), &json!({})).await.json();
    let facts = ["status", "error"].map(|key| cancelled[key].clone());
    assert_eq!(facts, [json!("cancelled"), json!("cancelled by a person")]);
    let again = post(&app, &format!("/v1/tasks/cancel/{id}"), &json!({})).await.json();
    assert_eq!(again, cancelled);
    finish(host, app).await;
}

/// A session that may not start agents, or is deleted, is refused as a parent. The control: the parent of that session.
#[tokio::test]
async fn r6_task_needs_a_parent_that_may_start_its_agent() {
    let (host, app, parent) = hosted_with("one").await;
    let explorer = spawn(&app, "explore", "survey", &parent).await;
    get(&app, &format!("/v1/tasks/get/{}?wait=true&timeout=20000", word(&explorer, "id"))).await;
    let before = host.runtime().journal().last_appended();
    let task = json!({"type": "explore", "prompt": "more", "parentSessionId": word(&explorer, "childSessionId")});
    let refused = post(&app, "/v1/tasks/spawn", &task).await;
    assert_eq!(refused.problem(), (409, "refused".to_owned()));
    let why = format!(
        "session {} may not start the agent `explore`: its permissions deny task:explore. Name another parent, or none",
        word(&explorer, "short")
    );
    assert_eq!(refused.json()["detail"], why);
    assert_eq!(host.runtime().journal().last_appended(), before, "a refused task was recorded");
    request(&app, Method::DELETE, &format!("/v1/sessions/{parent}"), &[], "").await;
    for path in ["/v1/tasks/spawn", "/v1/tasks/list"] {
        let mut body = json!({"parentSessionId": parent});
        if path.ends_with("spawn") {
            body = json!({"type": "explore", "prompt": "more", "parentSessionId": parent});
        }
        let gone = post(&app, path, &body).await.problem();
        let is_gone = gone == (410, "session_deleted".to_owned()) || gone == (404, "session_not_found".to_owned());
        assert!(is_gone, "{path}: {gone:?}");
    }
    finish(host, app).await;
}

/// The same key starts one task per parent. The control: with another prompt, the key is refused.
#[tokio::test]
async fn r6_repeated_task_of_a_session_starts_once() {
    let (host, app) = hosted().await;
    let parents = [open_and_finish(&app, "one").await, open_and_finish(&app, "two").await];
    let keyed = |parent: &str, prompt: &str| {
        let (app, body) = (app.clone(), json!({"type": "explore", "prompt": prompt, "parentSessionId": parent}));
        async move {
            let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
            request(&app, Method::POST, "/v1/tasks/spawn", &headers, &body.to_string()).await
        }
    };
    let (first, second) = tokio::join!(keyed(&parents[0], "survey"), keyed(&parents[0], "survey"));
    let child = word(&first.json(), "childSessionId").to_owned();
    assert_eq!(word(&second.json(), "childSessionId"), child);
    get(&app, &format!("/v1/tasks/get/{child}?wait=true&timeout=20000")).await;
    assert_eq!(word(&keyed(&parents[0], "survey").await.json(), "childSessionId"), child);
    let records = get(&app, &format!("/v1/sessions/{child}/records")).await.json();
    let runs = records.as_array().expect("records").iter().filter(|stored| stored["record"]["run_opened"].is_object());
    assert_eq!(runs.count(), 1);
    let other = keyed(&parents[0], "another").await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".to_owned()));
    assert_ne!(word(&keyed(&parents[1], "survey").await.json(), "childSessionId"), child);
    finish(host, app).await;
}
