//! The views of timeline, replay, usage, agents and branches.

use subtend_models::model::ModelError;
use subtend_models::throttle::Rates;
use subtend_session::outcome::ModelFail;

use super::*;

#[tokio::test]
async fn timeline_draws_a_line_for_each_session() {
    let (host, app, id) = hosted_with("children").await;
    let page = get(&app, &format!("/s/{id}/timeline")).await.body;
    let chart = part(&page, "<svg class=\"chart wide\"", "</svg>");
    // Three sessions: the parent calls its model twice, each child once.
    assert_eq!(chart.matches("<rect class=\"waitbar\"").count(), 3, "{chart}");
    assert_eq!(chart.matches("<rect class=\"model\"").count(), 4, "{chart}");
    assert!(chart.contains("<title>script, turn 1: "), "{chart}");
    assert!(!page.contains("hx-trigger=\"every"), "an ended tree is not read again: {page}");
    assert_eq!(page.matches("<tr><td><a href=\"/s/").count(), 3, "{page}");
    finish(host, app).await;
}

/// The wait for a permit does not count as time of the model call.
#[tokio::test]
async fn timeline_draws_the_wait_for_a_permit() {
    let release = Arc::new(tokio::sync::Notify::new());
    let model = Arc::clone(&release);
    let model = fn_model("narrow", move |request, _| {
        let release = Arc::clone(&model);
        async move {
            let is_first =
                request.messages.iter().any(|it| matches!(it, Message::User { text, .. } if &**text == "first"));
            if is_first {
                release.notified().await;
            }
            Ok(Answer::of_text("done"))
        }
    });
    let rates = Rates { concurrent: Some(1), ..Rates::default() };
    let runtime = Runtime::builder().model(Arc::new(model.with_quotas(["narrow"]))).rates(rates).options(Options {
        titles: false,
        summaries: false,
        ..Options::default()
    });
    let host = Host::new(runtime.start().await.expect("a runtime"), HostOptions::default());
    let app = host.router();
    let mut ids = Vec::new();
    for text in ["first", "second"] {
        let opened = post(&app, "/v1/sessions", &json!({"input": {"text": text}})).await.json();
        ids.push(opened["session"]["id"].as_str().expect("an id").to_owned());
    }
    let calls = |waiting| host.runtime().quotas().iter().any(|seen| (seen.running, seen.waiting) == (1, waiting));
    while !calls(1) {
        tokio::task::yield_now().await;
    }
    let begun = host.runtime().now_ms();
    // One ms more than the asserted wait, because both clocks are rounded.
    while host.runtime().now_ms() < begun + 6 {
        tokio::task::yield_now().await;
    }
    release.notify_one();
    for id in &ids {
        let ended = get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await;
        assert_eq!(ended.json()["outcome"], "completed", "{}", ended.body);
    }
    let mut bars = Vec::new();
    for id in &ids {
        let page = get(&app, &format!("/s/{id}/timeline")).await.body;
        bars.push(
            ["permitbar", "model"].map(|class| part(&page, "<svg class=\"chart", "</svg>").matches(class).count()),
        );
        assert!(page.contains("</svg> waits for a permit</li>"), "{page}");
    }
    assert_eq!(bars, [[0, 1], [1, 1]], "bars of the wait and of the call");
    let entries = get(&app, &format!("/v1/sessions/{}/transcript", ids[1])).await.json();
    let answer = entries["entries"].as_array().expect("entries").iter().find(|entry| entry["type"] == "answer");
    assert!(answer.expect("an answer")["queued_ms"].as_u64() >= Some(5), "{entries}");
    finish(host, app).await;
}

/// The bar of a running call extends to the current time, and the browser reloads the chart until the run ends.
#[tokio::test]
async fn timeline_of_a_running_tree_is_current() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "hang"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let chart = || async { get(&app, &format!("/s/{id}/timeline/chart")).await.body };
    let first = loop {
        let chart = chart().await;
        if chart.contains("class=\"model\"") {
            break chart;
        }
        tokio::task::yield_now().await;
    };
    assert!(first.contains("hx-trigger=\"every 2s\"") && first.contains(", not ended</title>"), "{first}");
    let width = |chart: &str| part(chart, "turn 1: ", "</title>").to_owned();
    while width(&chart().await) == width(&first) {
        tokio::task::yield_now().await;
    }
    post(&app, &format!("/v1/sessions/{id}/cancel"), &json!({})).await;
    let last = chart().await;
    assert!(!last.contains("hx-trigger") && !last.contains("not ended"), "{last}");
    finish(host, app).await;
}

#[tokio::test]
async fn replay_shows_what_the_model_saw_at_a_record() {
    let (host, app, id) = hosted_with("one").await;
    let last = get(&app, &format!("/s/{id}/replay/at")).await.body;
    assert!(
        last.contains("<strong>assistant</strong></header><pre tabindex=\"0\">Hello. You said: one</pre>"),
        "{last}"
    );
    assert!(last.contains("<span class=\"state good\">completed</span>"), "{last}");
    let first = get(&app, &format!("/s/{id}/replay/at?at=1")).await.body;
    assert!(first.contains("<code>session_created</code>") && !first.contains("<strong>user</strong>"), "{first}");
    // Before the answer is recorded, the model sees the input, and the run is in flight.
    let records = get(&app, &format!("/v1/sessions/{id}/records")).await.json();
    let answered =
        records.as_array().expect("records").iter().position(|stored| stored["record"]["turn_answered"].is_object());
    let page_before = get(&app, &format!("/s/{id}/replay/at?at={}", answered.expect("an answer"))).await.body;
    assert!(page_before.contains("<strong>user</strong></header><pre tabindex=\"0\">one</pre>"), "{page_before}");
    assert!(
        page_before.contains("<span class=\"state live\">working</span>") && !page_before.contains("Hello."),
        "{page_before}"
    );
    let tree = open_and_finish(&app, "children").await;
    let page = get(&app, &format!("/s/{tree}/replay")).await.body;
    let sessions = part(&page, "<h2>Sessions</h2>", "</ul>");
    assert_eq!(sessions.matches("<li").count(), 3, "{sessions}");
    finish(host, app).await;
}

/// The last record of a tree may belong to a descendant, such as the session that writes the title.
#[tokio::test]
async fn replay_opens_with_the_messages_of_its_own_session() {
    let (host, app, id) = hosted_with("one").await;
    let fresh = post(&app, &format!("/v1/sessions/{id}/branches"), &json!({"fresh": true})).await.json();
    let child = fresh["session"].as_str().expect("a child").to_owned();
    post(&app, &format!("/v1/sessions/{child}/inputs"), &json!({"text": "two"})).await;
    get(&app, &format!("/v1/sessions/{child}/runs/1?wait=true&timeout=20000")).await;
    let mut events = Stream::open(&app, &format!("/v1/sessions/{id}/events")).await;
    events.until("notice_taken").await;
    drop(events);
    let renamed = request(
        &app,
        Method::PATCH,
        &format!("/v1/sessions/{child}"),
        &[("content-type", "application/json")],
        r#"{"title":"renamed"}"#,
    )
    .await;
    assert_eq!(renamed.status, StatusCode::OK, "{}", renamed.body);
    let opened = get(&app, &format!("/s/{id}/replay")).await.body;
    assert!(opened.contains("Hello. You said: one") && !opened.contains("Hello. You said: two"), "{opened}");
    // The control: if the slider selects the same record, the messages are those of the session that wrote it.
    let records = part(&opened, "<strong aria-live=\"polite\">", "</strong>");
    let last = records.trim_end_matches("</strong>").rsplit(' ').next().expect("a number");
    let chosen = get(&app, &format!("/s/{id}/replay/at?at={last}")).await.body;
    assert!(chosen.contains("Hello. You said: two"), "{chosen}");
    // A chosen session stays chosen from record to record.
    let of_top = get(&app, &format!("/s/{id}/replay?at={last}&of={id}")).await.body;
    let hidden = format!("<input type=\"hidden\" name=\"of\" value=\"{id}\">");
    let before: usize = last.parse::<usize>().expect("a number") - 1;
    for shown in [hidden, format!("/replay?at={before}&of={id}\">Previous"), "Hello. You said: one".to_owned()] {
        assert!(of_top.contains(&shown), "{shown} in {of_top}");
    }
    assert!(!opened.contains("name=\"of\""), "{opened}");
    finish(host, app).await;
}

/// The control: before the deletion, the child is shown.
#[tokio::test]
async fn replay_leaves_out_a_deleted_child() {
    let (host, app, id) = hosted_with("one").await;
    let fresh = post(&app, &format!("/v1/sessions/{id}/branches"), &json!({"fresh": true})).await.json();
    let child = fresh["session"].as_str().expect("a child").to_owned();
    let sent = post(&app, &format!("/v1/sessions/{child}/inputs"), &json!({"text": "secret"})).await;
    assert!(sent.status.is_success(), "{}", sent.body);
    get(&app, &format!("/v1/sessions/{child}/runs/1?wait=true&timeout=20000")).await;
    let replay = || async { get(&app, &format!("/s/{id}/replay")).await };
    let of_child = || async { get(&app, &format!("/s/{id}/replay/at?of={child}")).await };
    // A record of the parent still names the child by its id.
    let row = format!("of={child}");
    assert!(replay().await.body.contains(&row) && of_child().await.body.contains("secret"));
    let deleted = request(&app, Method::DELETE, &format!("/v1/sessions/{child}"), &[], "").await;
    assert!(deleted.status.is_success(), "{}", deleted.body);
    for shown in [replay().await, of_child().await] {
        assert_eq!(shown.status, StatusCode::OK, "{}", shown.body);
        assert!(!shown.body.contains(&row) && !shown.body.contains("secret"), "{}", shown.body);
    }
    finish(host, app).await;
}

#[tokio::test]
async fn usage_sums_up_by_agent_model_and_session() {
    let (host, app, id) = hosted_with("children").await;
    for path in ["/usage", &format!("/s/{id}/usage")] {
        let page = get(&app, path).await.body;
        let agents = part(&page, "<h2>By agent</h2>", "</table>");
        assert!(agents.contains("<tr><td>explore</td>") && agents.contains("<tr><td>general</td>"), "{agents}");
        let models = part(&page, "<h2>By model</h2>", "</table>");
        assert_eq!(models.matches("<tr><td>").count(), 1, "{models}");
        let sessions = part(&page, "<h2>By session</h2>", "</table>");
        assert_eq!(sessions.matches("<tr><td>").count(), 3, "{sessions}");
    }
    finish(host, app).await;
}

#[tokio::test]
async fn agents_and_branches_are_listed() {
    let (host, app) = hosted().await;
    let agents = get(&app, "/agents").await.body;
    assert!(agents.contains("<strong>general</strong>") && agents.contains("<strong>explore</strong>"), "{agents}");
    let id = open_and_finish(&app, "children").await;
    let branches = get(&app, &format!("/s/{id}/branches")).await.body;
    assert_eq!(branches.matches("<strong>read everything</strong>").count(), 2, "{branches}");
    assert!(branches.contains("<span class=\"facts\">subagent · explore "), "{branches}");
    finish(host, app).await;
}

/// Browser tabs and the history show only titles.
#[tokio::test]
async fn views_of_a_session_have_its_title() {
    let (host, app, id) = hosted_with("mend the <boat>").await;
    let short = get(&app, &format!("/v1/sessions/{id}")).await.json()["short"].as_str().expect("a name").to_owned();
    let mut titles = Vec::new();
    for view in ["", "/tree", "/timeline", "/replay", "/branches", "/usage", "/worktree"] {
        let page = get(&app, &format!("/s/{id}{view}")).await.body;
        let title = part(&page, "<title>", " · subtend</title>").trim_end_matches(" · subtend</title>");
        titles.push(title.replace(&short, "SHORT"));
    }
    let about = |view: &str| format!("<title>{view}: mend the &#60;boat&#62; (general SHORT)");
    let views = ["Tree", "Timeline", "Replay", "Branches", "Usage", "Worktree"].map(about);
    assert_eq!(titles[0], "<title>mend the &#60;boat&#62; (general SHORT)");
    assert_eq!(titles[1..], views);
    finish(host, app).await;
}

/// The list shows until when a run waits for its provider, as the tree does. The control: after its end, it does not.
#[tokio::test]
async fn session_list_shows_until_when_a_run_is_parked() {
    let model = fn_model("limited", |_, _| async {
        let error = ModelError::new(ModelFail::Rate, "the weekly limit is reached");
        Err(ModelError { retry_after_ms: Some(3_600_000), ..error })
    });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().model(Arc::new(model.with_quotas(["limited"]))).options(options);
    let host = Host::new(runtime.start().await.expect("a runtime"), HostOptions::default());
    let app = host.router();
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "go"}})).await.json()["session"].clone();
    let [id, short] = ["id", "short"].map(|field| opened[field].as_str().expect("a text").to_owned());
    while !get(&app, &format!("/v1/trees/{id}")).await.json()["tree"]["limited_until"].is_i64() {
        tokio::task::yield_now().await;
    }
    let facts = async || {
        let list = get(&app, "/").await.body;
        let here = std::env::current_dir().expect("a directory").display().to_string();
        plain(part(&list, "<span class=\"facts\">", "</span>"), &[(&short, "SHORT"), (&here, ".")])
    };
    let tree = get(&app, &format!("/s/{id}/tree")).await.body;
    let until = part(&tree, "waiting for the provider", " UTC");
    assert!(until.contains(" limit until "), "{until}");
    assert_eq!(facts().await, format!("<span class=\"facts\">general SHORT · {until} · . · TIME</span>"));
    post(&app, &format!("/v1/sessions/{id}/cancel"), &json!({})).await;
    get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await;
    assert_eq!(facts().await, "<span class=\"facts\">general SHORT · . · TIME</span>");
    finish(host, app).await;
}
