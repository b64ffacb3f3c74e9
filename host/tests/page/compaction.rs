//! Compactions on request and their undo, on the page.

use super::transcript::{FORM, field, form};
use super::*;

/// Opens a session with two long messages, each answered.
async fn conversation(app: &Router) -> String {
    let id = open_and_finish(app, &"a long message ".repeat(40)).await;
    assert_eq!(form(app, &format!("/s/{id}/send"), "text=and+more&lane=send").await.body, "Accepted for run 2.");
    let run = get(app, &format!("/v1/sessions/{id}/runs/2?wait=true&timeout=20000")).await.json();
    assert_eq!(run["outcome"], "completed");
    id
}

fn hidden(page: &str) -> usize {
    page.matches(" hidden\">").count()
}

#[tokio::test]
async fn g14_page_compacts_a_session_and_undoes_it() {
    let (host, app) = hosted().await;
    let id = conversation(&app).await;
    let path = format!("/s/{id}");
    let page = get(&app, &path).await.body;
    let asks = part(&page, "<details class=\"sure\" id=\"compact-", "</details>");
    assert!(asks.contains("<summary>Compact…</summary>") && asks.contains(&format!("action=\"{path}/compact\"")));
    assert!(!page.contains("Undo compaction") && hidden(&page) == 0, "{page}");
    let done = form(&app, &format!("{path}/compact"), "").await;
    assert!(done.status == StatusCode::OK && done.body.starts_with("Compacted 2 messages: about "), "{}", done.body);
    let page = get(&app, &path).await.body;
    assert_eq!(hidden(&page), 2, "the first message and its answer");
    assert!(page.contains(" · compacted</span>") && page.contains("a long message a long message"), "{page}");
    let undo = part(&page, "<summary>Undo compaction…</summary>", "</details>");
    let revised = field(undo, "revised").parse::<u64>().expect("a record");
    // An outdated page does not undo anything.
    let late = form(&app, &format!("{path}/compact/undo"), &format!("revised={}", revised - 1)).await;
    let why = "after the page was shown, other messages became visible to models: check them again";
    assert_eq!((late.status, &*late.body), (StatusCode::CONFLICT, why));
    let body = format!("revised={revised}");
    let done = form(&app, &format!("{path}/compact/undo"), &body).await;
    assert_eq!((done.status, &*done.body), (StatusCode::OK, "The last compaction is undone."));
    let page = get(&app, &path).await.body;
    assert!(hidden(&page) == 0 && !page.contains("Undo compaction…"), "{page}");
    assert_eq!(form(&app, &format!("{path}/compact/undo"), &body).await.status, StatusCode::CONFLICT);
    finish(host, app).await;
}

/// A browser without scripts is redirected to the session; a refusal contains its reason.
#[tokio::test]
async fn g14_page_names_why_nothing_is_compacted() {
    let (host, app, id) = hosted_with("hello").await;
    let path = format!("/s/{id}/compact");
    let refused = form(&app, &path, "").await;
    let why = "cannot compact the session: not compacted: the history would still have about ";
    assert!(refused.status == StatusCode::CONFLICT && refused.body.starts_with(why), "{}", refused.body);
    let id = conversation(&app).await;
    let plain = request(&app, Method::POST, &format!("/s/{id}/compact"), &[FORM], "").await;
    assert_eq!(
        (plain.status, plain.headers["location"].as_bytes()),
        (StatusCode::SEE_OTHER, format!("/s/{id}").as_bytes())
    );
    finish(host, app).await;
}
