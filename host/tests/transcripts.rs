//! Transcripts in full, in pages, and as of an earlier record.

use crate::support::*;

fn entries(page: &Value) -> Vec<Value> {
    page["entries"].as_array().expect("entries").clone()
}

#[tokio::test]
async fn transcript_has_inputs_and_answers_with_their_records() {
    let (host, app, id) = hosted_with("one").await;
    let page = get(&app, &format!("/v1/sessions/{id}/transcript")).await.json();
    let texts: Vec<_> = entries(&page).iter().map(|entry| (entry["type"].clone(), entry["text"].clone())).collect();
    let expected = [("input", json!("one")), ("answer", json!("Hello. You said: one")), ("ended", Value::Null)];
    assert_eq!(texts, expected.map(|(kind, text)| (json!(kind), text)));
    let session = get(&app, &format!("/v1/sessions/{id}")).await.json();
    assert_eq!(
        (&page["id"], &page["last_seq"], &page["next"], &page["state"], &page["outcome"]),
        (&json!(id), &session["last_seq"], &Value::Null, &json!("quiet"), &json!("completed"))
    );
    finish(host, app).await;
}

#[tokio::test]
async fn pages_of_a_transcript_add_up_to_the_whole() {
    let (host, app, id) = hosted_with("children").await;
    let path = format!("/v1/sessions/{id}/transcript");
    let whole = entries(&get(&app, &path).await.json());
    assert!(whole.len() >= 3, "{whole:?}");
    for limit in 1..=whole.len() {
        let (mut all, mut after) = (Vec::new(), json!(0));
        loop {
            let page = get(&app, &format!("{path}?limit={limit}&after={after}")).await.json();
            all.extend(entries(&page));
            after = page["next"].clone();
            if after.is_null() {
                break;
            }
        }
        assert_eq!(all, whole, "limit {limit}");
    }
    finish(host, app).await;
}

/// The attack: a page of few entries whose texts are large. The control: all pages have all entries.
#[tokio::test]
async fn page_of_a_transcript_ends_at_its_bytes() {
    let (host, app, id) = hosted_with("one").await;
    let session = host.runtime().session(id.parse().expect("an id")).expect("read").expect("a session");
    for _ in 0..9 {
        let receipt = session.send("x".repeat(1_000_000)).await.expect("accepted");
        session.run(receipt.run).ended().await.expect("an end");
    }
    let (mut lens, mut after) = (Vec::new(), json!(0));
    while !after.is_null() {
        let page = get(&app, &format!("/v1/sessions/{id}/transcript?after={after}")).await.json();
        lens.push(entries(&page).len());
        after = page["next"].clone();
    }
    assert!(lens.len() > 1 && lens.iter().all(|len| *len > 0) && lens.iter().sum::<usize>() == 30, "{lens:?}");
    drop(session);
    finish(host, app).await;
}

#[tokio::test]
async fn records_are_read_up_to_the_limit() {
    let (host, app, id) = hosted_with("one").await;
    let read = async |query: &str| {
        let records = get(&app, &format!("/v1/sessions/{id}/records?{query}")).await.json();
        let records = records.as_array().expect("records").clone();
        records.iter().map(|record| record["seq"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!((read("from=2&limit=1").await, read("from=2&limit=3").await), (vec![2], vec![2, 3, 4]));
    finish(host, app).await;
}

/// A transcript as of a record equals the one read when that record was the last.
#[tokio::test]
async fn transcript_at_a_record_equals_the_earlier_one() {
    let (host, app, id) = hosted_with("one").await;
    let path = format!("/v1/sessions/{id}/transcript");
    let then = get(&app, &path).await.json();
    let sent = post(&app, &format!("/v1/sessions/{id}/inputs"), &json!({"text": "make it"})).await.json();
    let status = get(&app, &format!("/v1/sessions/{id}/inputs/{}", sent["input"].as_str().expect("one"))).await;
    assert_eq!(status.status, 200, "{}", status.body);
    let at = then["last_seq"].as_u64().expect("a number");
    assert_eq!(get(&app, &format!("{path}?at={at}")).await.json(), then);
    // Before the answer, the run is in flight, and the transcript contains only the input.
    let early = get(&app, &format!("{path}?at={}", entries(&then)[0]["record"])).await.json();
    assert_eq!((&early["state"], &early["outcome"], entries(&early).len()), (&json!("working"), &Value::Null, 1));
    get(&app, &format!("/v1/sessions/{id}/cancel")).await;
    finish(host, app).await;
}

#[tokio::test]
async fn unlisted_children_are_in_their_calls_on_request() {
    let (host, app, id) = hosted_with("children").await;
    let path = format!("/v1/sessions/{id}/transcript");
    let is_read = |page: &Value| -> Vec<bool> {
        let calls = entries(page)
            .into_iter()
            .filter(|entry| entry["type"] == "answer")
            .flat_map(|entry| entry["calls"].as_array().expect("calls").clone());
        calls.map(|call| call["transcript"]["entries"].is_array()).collect()
    };
    assert_eq!(is_read(&get(&app, &path).await.json()), [false, false]);
    assert_eq!(is_read(&get(&app, &format!("{path}?children=true")).await.json()), [true, true]);
    finish(host, app).await;
}
