//! The live tree.

use super::*;

#[tokio::test]
async fn tree_shows_children_and_what_each_did() {
    let (host, app, id) = hosted_with("children").await;
    let tree = get(&app, &format!("/v1/trees/{id}")).await.json();
    let name = |of: &serde_json::Value, field: &str| of[field].as_str().expect("text").to_owned();
    let children: Vec<_> = tree["tree"]["children"].as_array().expect("children").iter().collect();
    let (one, two) = (name(children[0], "id"), name(children[1], "id"));
    let shorts = [&tree["tree"], children[0], children[1]].map(|of| name(of, "short"));
    let ids =
        [(&*id, "TOP"), (&*one, "ONE"), (&*two, "TWO"), (&*shorts[0], "a"), (&*shorts[1], "b"), (&*shorts[2], "c")];
    let page = get(&app, &format!("/s/{id}/tree")).await.body;
    let row = part(&page, &format!("<div class=\"row\" id=\"row-{one}\">"), "</div>");
    let expected = "<div class=\"row\" id=\"row-ONE\"><span class=\"twist\" aria-hidden=\"true\" data-kids=\"0\"></span>\n\
        <a class=\"name\" id=\"name-ONE\" href=\"/s/ONE\" tabindex=\"-1\">explore <span class=\"dim\">b</span></a>\n\
        <span class=\"state good\">completed</span>\n\
        <span class=\"doing\">read everything</span>\n\
        <span class=\"facts\">1 turn · 0 tokens</span></div>";
    assert_eq!(plain(row, &ids), expected);
    let item = part(&page, &format!("<li role=\"treeitem\" id=\"n-{id}\""), "</div>");
    let expected = "<li role=\"treeitem\" id=\"n-TOP\" aria-level=\"1\" aria-expanded=\"true\" tabindex=\"-1\" aria-labelledby=\"row-TOP\">\n\
        <div class=\"row\" id=\"row-TOP\"><span class=\"twist\" aria-hidden=\"true\" data-kids=\"2\"></span>\n\
        <a class=\"name\" id=\"name-TOP\" href=\"/s/TOP\" tabindex=\"-1\">general <span class=\"dim\">a</span></a>\n\
        <span class=\"state good\">completed</span>\n\
        <span class=\"doing\">children</span>\n\
        <span class=\"facts\">2 turns · 0 tokens · subtree 0 tokens · 2 below</span></div>";
    assert_eq!(plain(item, &ids), expected);
    let children = get(&app, &format!("/s/{id}/kids")).await.body;
    assert_eq!(children.matches("role=\"treeitem\"").count(), 2);
    // Children are one level below their line.
    let deeper = get(&app, &format!("/s/{id}/kids?level=4")).await.body;
    let levels = [&children, &deeper].map(|html| part(html, "aria-level=\"", "\" ").to_owned());
    assert_eq!(levels, ["aria-level=\"2\" ", "aria-level=\"5\" "]);
    finish(host, app).await;
}

#[tokio::test]
async fn tree_follows_a_run_to_its_end() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "hang"}})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id");
    let mut stream = Stream::open(&app, &format!("/s/{id}/live/tree")).await;
    let working = stream.until("working").await;
    assert!(working.contains("asking script"), "{working}");
    post(&app, &format!("/v1/sessions/{id}/cancel"), &json!({})).await;
    let ended = stream.until("cancelled").await;
    let start = format!("<hx-partial hx-target=\"#row-{id}\" hx-swap=\"innerMorph\">");
    assert!(ended.starts_with(&start), "{ended}");
    drop((stream, app));
    end(host).await;
}

#[tokio::test]
async fn session_that_does_not_exist_is_refused_as_a_page() {
    let (host, app) = hosted().await;
    let refused = get(&app, "/s/none/tree").await;
    assert_eq!(
        (refused.status, &refused.headers["content-type"]),
        (StatusCode::NOT_FOUND, &"text/html; charset=utf-8".parse().expect("a value"))
    );
    assert!(refused.body.contains("<h1>Not Found</h1>"), "{}", refused.body);
    finish(host, app).await;
}

/// A whole page within a page would repeat the ids of elements.
#[tokio::test]
async fn refusal_for_a_part_of_a_page_is_plain_text() {
    let (host, app) = hosted().await;
    let within = [("hx-request", "true")];
    let text = "no session &#34;none&#34;: GET /v1/sessions lists those that exist";
    let requests = [(Method::POST, "/s/none/continue"), (Method::GET, "/s/none/kids")];
    for (method, path) in requests {
        let refused = request(&app, method.clone(), path, &within, "").await;
        assert_eq!((refused.status, &*refused.body), (StatusCode::NOT_FOUND, text), "{path}");
        // Positive control: a browser without scripts gets the refusal as a page.
        let page = request(&app, method, path, &[], "").await;
        assert!(page.body.starts_with("<!doctype html>") && page.body.contains(text), "{path}: {}", page.body);
    }
    let browser = [("accept", "text/html"), within[0]];
    let unknown = request(&app, Method::GET, "/sesions", &browser, "").await;
    let text = "no page has this address: the list of sessions leads to the others";
    assert_eq!((unknown.status, &*unknown.body), (StatusCode::NOT_FOUND, text));
    finish(host, app).await;
}
