//! Timeline, replay, usage, agents and branches.

use super::*;

#[tokio::test]
async fn timeline_draws_a_line_for_each_session() {
    let host = host(&Memory::new()).await;
    let app = host.router();
    let id = talk(&app, "children").await;
    let page = get(&app, &format!("/s/{id}/timeline")).await.body;
    let chart = part(&page, "<svg class=\"chart wide\"", "</svg>");
    // Three sessions: the top calls its model twice, each child once.
    assert_eq!(chart.matches("<rect class=\"waitbar\"").count(), 3, "{chart}");
    assert_eq!(chart.matches("<rect class=\"model\"").count(), 4, "{chart}");
    assert!(chart.contains("<title>script, turn 1: "), "{chart}");
    assert!(!page.contains("hx-trigger=\"every"), "an ended tree is not read again: {page}");
    assert_eq!(page.matches("<tr><td><a href=\"/s/").count(), 3, "{page}");
    drop(app);
    end(host).await;
}

/// The bar of a call that runs grows to now, and the chart is read again until the run ends.
#[tokio::test]
async fn timeline_of_a_running_tree_is_current() {
    let host = host(&Memory::new()).await;
    let app = host.router();
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
    drop(app);
    end(host).await;
}

#[tokio::test]
async fn replay_shows_what_the_model_saw_at_a_record() {
    let host = host(&Memory::new()).await;
    let app = host.router();
    let id = talk(&app, "one").await;
    let last = get(&app, &format!("/s/{id}/replay/at")).await.body;
    assert!(
        last.contains("<strong>assistant</strong></header><pre tabindex=\"0\">Hello. You said: one</pre>"),
        "{last}"
    );
    assert!(last.contains("<span class=\"state good\">completed</span>"), "{last}");
    let first = get(&app, &format!("/s/{id}/replay/at?at=1")).await.body;
    assert!(first.contains("<code>session_created</code>") && !first.contains("<strong>user</strong>"), "{first}");
    // Before the answer is recorded the model sees the input, and the run works.
    let records = get(&app, &format!("/v1/sessions/{id}/records")).await.json();
    let answered =
        records.as_array().expect("records").iter().position(|stored| stored["record"]["turn_answered"].is_object());
    let page_before = get(&app, &format!("/s/{id}/replay/at?at={}", answered.expect("an answer"))).await.body;
    assert!(page_before.contains("<strong>user</strong></header><pre tabindex=\"0\">one</pre>"), "{page_before}");
    assert!(
        page_before.contains("<span class=\"state live\">working</span>") && !page_before.contains("Hello."),
        "{page_before}"
    );
    let tree = talk(&app, "children").await;
    let page = get(&app, &format!("/s/{tree}/replay")).await.body;
    let sessions = part(&page, "<h2>Sessions</h2>", "</ul>");
    assert_eq!(sessions.matches("<li").count(), 3, "{sessions}");
    drop(app);
    end(host).await;
}

#[tokio::test]
async fn usage_sums_up_by_agent_model_and_session() {
    let host = host(&Memory::new()).await;
    let app = host.router();
    let id = talk(&app, "children").await;
    for path in ["/usage", &format!("/s/{id}/usage")] {
        let page = get(&app, path).await.body;
        let agents = part(&page, "<h2>By agent</h2>", "</table>");
        assert!(agents.contains("<tr><td>explore</td>") && agents.contains("<tr><td>general</td>"), "{agents}");
        let models = part(&page, "<h2>By model</h2>", "</table>");
        assert_eq!(models.matches("<tr><td>").count(), 1, "{models}");
        let sessions = part(&page, "<h2>By session</h2>", "</table>");
        assert_eq!(sessions.matches("<tr><td>").count(), 3, "{sessions}");
    }
    drop(app);
    end(host).await;
}

#[tokio::test]
async fn agents_and_branches_are_listed() {
    let host = host(&Memory::new()).await;
    let app = host.router();
    let agents = get(&app, "/agents").await.body;
    assert!(agents.contains("<strong>general</strong>") && agents.contains("<strong>explore</strong>"), "{agents}");
    let id = talk(&app, "children").await;
    let branches = get(&app, &format!("/s/{id}/branches")).await.body;
    assert_eq!(branches.matches("<strong>read everything</strong>").count(), 2, "{branches}");
    assert!(branches.contains("<span class=\"facts\">subagent · explore "), "{branches}");
    drop(app);
    end(host).await;
}
