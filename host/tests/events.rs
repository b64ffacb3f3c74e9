//! Event streams send each durable event once and in order, across reconnections and restarts of the host (H-1).

use std::collections::BTreeMap;

use crate::support::*;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

#[derive(Clone, Debug, PartialEq)]
struct Sent {
    id: Option<String>,
    name: String,
    data: Value,
}

/// Reads events of `path` until `enough` is true for all of them, for at most 20 seconds.
async fn read(app: &Router, path: &str, last: Option<&str>, enough: impl Fn(&[Sent]) -> bool) -> Vec<Sent> {
    let read = read_all(app, path, last, enough);
    tokio::time::timeout(std::time::Duration::from_secs(20), read).await.expect("the events arrive")
}

async fn read_all(app: &Router, path: &str, last: Option<&str>, enough: impl Fn(&[Sent]) -> bool) -> Vec<Sent> {
    let mut request = Request::builder().uri(path);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = app.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("infallible");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut body, mut text, mut sent) = (response.into_body(), String::new(), Vec::new());
    while !enough(&sent) {
        let frame = body.frame().await.expect("the stream continues").expect("a frame");
        text.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        while let Some((event, rest)) = text.split_once("\n\n") {
            sent.extend(parse(event));
            text = rest.to_owned();
        }
    }
    sent
}

/// Reads one event; `None` for a heartbeat.
fn parse(event: &str) -> Option<Sent> {
    let field =
        |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned);
    let name = field("event")?;
    Some(Sent { id: field("id"), name, data: serde_json::from_str(&field("data")?).expect("JSON") })
}

fn records(sent: &[Sent]) -> Vec<&Sent> {
    sent.iter().filter(|sent| sent.name == "record").collect()
}

fn ends(sent: &[Sent], root: &str) -> usize {
    let is = |sent: &&Sent| sent.data["record"]["run_ended"].is_object() && sent.data["session"] == root;
    sent.iter().filter(is).count()
}

fn by_session(sent: &[Sent]) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for record in records(sent) {
        let session = record.data["session"].as_str().expect("a session").to_owned();
        all.entry(session).or_default().push(record.data["seq"].as_u64().expect("a number"));
    }
    all
}

#[tokio::test]
async fn session_stream_continues_after_the_last_id() {
    let (host, app, id) = hosted_with("one").await;
    let path = format!("/v1/sessions/{id}/events");
    let all = read(&app, &path, None, |sent| ends(sent, &id) == 1).await;
    let seqs = &by_session(&all)[&id];
    assert_eq!(*seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "from the first, without a gap");
    let third = records(&all)[2].id.clone().expect("an id");
    let rest = read(&app, &path, Some(&third), |sent| ends(sent, &id) == 1).await;
    assert_eq!(by_session(&rest)[&id], seqs[3..]);
    let query = read(&app, &format!("{path}?after={third}"), None, |sent| ends(sent, &id) == 1).await;
    assert_eq!(by_session(&query)[&id], seqs[3..]);
    // An empty header counts as absent.
    let first = read(&app, &path, Some(""), |sent| ends(sent, &id) == 1).await;
    assert_eq!(by_session(&first)[&id], *seqs);
    let query = read(&app, &format!("{path}?after={third}"), Some(""), |sent| ends(sent, &id) == 1).await;
    assert_eq!(by_session(&query)[&id], seqs[3..]);
    finish(host, app).await;
}

/// The stream begins after the session was deleted. The control: a stream before the deletion has all events.
#[tokio::test]
async fn stream_of_a_deleted_session_has_only_its_deletion() {
    let (host, app) = hosted().await;
    let (id, other) = (open_and_finish(&app, "secret").await, open_and_finish(&app, "other").await);
    let all = |sent: &[Sent]| ends(sent, &other) == 1;
    let before = read(&app, "/v1/events?after=0", None, all).await;
    assert!(by_session(&before)[&id].len() > 3);
    let deleted = request(&app, Method::DELETE, &format!("/v1/sessions/{id}"), &[], "").await;
    assert!(deleted.status.is_success(), "{}", deleted.body);
    let last = |sent: &[Sent]| sent.iter().any(|sent| sent.data["record"].get("session_deleted").is_some());
    let after = read(&app, "/v1/events?after=0", None, last).await;
    assert_eq!(by_session(&after)[&id].len(), 1);
    assert_eq!(by_session(&after)[&other], by_session(&before)[&other]);
    finish(host, app).await;
}

/// A slow client has received one event when the session is deleted. Records that the stream has read by then must not
/// be sent later. The controls: without the deletion, or without the delay, they are sent.
#[tokio::test(start_paused = true)]
async fn slow_stream_sends_no_record_of_a_session_deleted_since() {
    for (deletes, waits) in [(true, true), (true, false), (false, true)] {
        let (host, app) = hosted().await;
        let (id, other) = (open_and_finish(&app, "secret").await, open_and_finish(&app, "other").await);
        let request_of = Request::builder().uri("/v1/events?after=0").body(Body::empty()).expect("a request");
        let mut body = app.clone().oneshot(request_of).await.expect("infallible").into_body();
        let mut events = async || {
            let frame = body.frame().await.expect("the stream continues").expect("a frame");
            String::from_utf8(frame.data_ref().expect("data").to_vec()).expect("text")
        };
        let mut sent = vec![events().await];
        if deletes {
            let deleted = request(&app, Method::DELETE, &format!("/v1/sessions/{id}"), &[], "").await;
            assert!(deleted.status.is_success(), "{}", deleted.body);
        }
        if waits {
            tokio::time::advance(std::time::Duration::from_secs(2)).await;
        }
        let is_last = |event: &str| event.contains(&other) && event.contains("run_ended");
        while !sent.last().is_some_and(|event| is_last(event)) {
            sent.push(events().await);
        }
        let of_deleted = sent.iter().filter(|event| event.contains(&id) && event.contains("record")).count();
        assert_eq!(of_deleted == 1, deletes && waits, "{deletes} {waits}: {sent:?}");
        drop((body, app));
        end(host).await;
    }
}

#[tokio::test]
async fn tree_stream_resumes_without_loss_after_any_event() {
    let memory = Memory::new();
    let host = host(&memory).await;
    let app = host.router();
    let id = open_and_finish(&app, "children").await;
    let other = open_and_finish(&app, "not of this tree").await;
    let path = format!("/v1/trees/{id}/events");
    let all = read(&app, &path, None, |sent| ends(sent, &id) == 1).await;
    let whole = by_session(&all);
    assert_eq!((whole.len(), whole.contains_key(&other)), (3, false));
    for (session, seqs) in &whole {
        assert_eq!(*seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{session}");
    }
    // A client that reconnects after any event gets the rest once.
    let all = records(&all).into_iter().cloned().collect::<Vec<_>>();
    for cut in 1..all.len() {
        let rest = read(&app, &path, all[cut - 1].id.as_deref(), |sent| ends(sent, &id) == 1).await;
        let rest: Vec<_> = records(&rest).into_iter().cloned().collect();
        assert_eq!(rest, all[cut..], "after {:?}", all[cut - 1].id);
    }
    finish(host, app).await;
}

#[tokio::test]
async fn cursor_stays_valid_after_a_restart_of_the_host() {
    let memory = Memory::new();
    let (id, last) = {
        let host = host(&memory).await;
        let app = host.router();
        let id = open_and_finish(&app, "one").await;
        let all = read(&app, &format!("/v1/trees/{id}/events"), None, |sent| ends(sent, &id) == 1).await;
        finish(host, app).await;
        let last = records(&all).last().copied().expect("a record").clone();
        (id, last)
    };
    let host = host(&memory).await;
    let app = host.router();
    post(&app, &format!("/v1/sessions/{id}/inputs"), &json!({"text": "two"})).await;
    let rest = read(&app, &format!("/v1/trees/{id}/events"), last.id.as_deref(), |sent| ends(sent, &id) == 1).await;
    let first = by_session(&rest)[&id][0];
    assert_eq!(Some(first), last.data["seq"].as_u64().map(|seq| seq + 1));
    finish(host, app).await;
}

#[tokio::test]
async fn parts_of_an_answer_are_sent_before_its_record() {
    let (host, app) = hosted().await;
    let opened = post(&app, "/v1/sessions", &json!({})).await.json();
    let id = opened["session"]["id"].as_str().expect("an id").to_owned();
    let follow = tokio::spawn({
        let (app, id) = (app.clone(), id.clone());
        async move { read(&app, &format!("/v1/trees/{id}/events"), None, |sent| ends(sent, &id) == 1).await }
    });
    tokio::task::yield_now().await;
    post(&app, &format!("/v1/sessions/{id}/inputs"), &json!({"text": "one"})).await;
    let sent = follow.await.expect("followed");
    let answered = sent.iter().position(|sent| sent.data["record"]["turn_answered"].is_object()).expect("an answer");
    let pieces: Vec<_> = sent.iter().enumerate().filter(|(_, sent)| sent.name == "delta").collect();
    assert!(pieces.iter().all(|(at, sent)| *at < answered && sent.id.is_none()), "{sent:?}");
    finish(host, app).await;
}

/// A host that ends when idle must not end while a client follows it.
#[tokio::test]
async fn host_counts_as_followed_while_a_stream_is_open() {
    let (host, app, id) = hosted_with("one").await;
    assert!(!host.is_followed());
    let request = Request::builder().uri(format!("/v1/sessions/{id}/events")).body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    assert!(host.is_followed());
    drop(response);
    assert!(!host.is_followed());
    finish(host, app).await;
}

#[tokio::test]
async fn stream_ends_when_the_host_does() {
    let (host, app, id) = hosted_with("one").await;
    let request = Request::builder().uri(format!("/v1/sessions/{id}/events")).body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    drop(app);
    let reading = tokio::spawn(response.into_body().collect());
    end(host).await;
    assert!(reading.await.expect("read").is_ok());
}
