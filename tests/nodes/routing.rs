//! Requests for any session, sent to any node.

use serde_json::{Value, json};

use crate::cluster::{Cluster, shares};
use crate::events::Follower;

#[test]
fn d4_any_node_answers_for_every_session() {
    let mut cluster = Cluster::steady(2, 4);
    let sessions: Vec<String> = (0..6).map(|n| cluster.open(n % 2, &format!("quick {n}"))).collect();
    for session in &sessions {
        for node in 0..2 {
            assert_eq!(cluster.outcome(node, session), "completed");
            let (status, shown) = cluster.ask(node, &format!("GET /v1/sessions/{session}"), "", &Value::Null);
            assert_eq!((status, &shown["id"]), (200, &json!(session)));
        }
    }
    let list = |node: usize, query: &str| cluster.ask(node, &format!("GET /v1/sessions{query}"), "", &Value::Null).1;
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let whole = list(0, "");
    assert_eq!((ids(&whole).len(), &whole["next"]), (6, &Value::Null));
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(1, &format!("?limit=2{cursor}"));
        paged.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, ids(&whole), "the pages do not merge all shards, newest first");
    let newest = whole["items"][0]["short"].as_str().unwrap();
    let (status, found) = cluster.ask(0, &format!("GET /v1/sessions/{newest}"), "", &Value::Null);
    assert_eq!((status, &found["id"]), (200, &whole["items"][0]["id"]), "the session is not found by its short name");
    let missing = cluster.ask(0, "GET /v1/sessions/0192d1f0-1111-7abc-8def-0123456789ab", "", &Value::Null);
    assert_eq!((missing.0, &missing.1["code"]), (404, &json!("session_not_found")));
    let spread = sessions.iter().filter(|session| cluster.owner_of(session) == 0).count();
    assert_eq!(spread, 3, "a node must open sessions in its own shards");
    cluster.end();
}

#[test]
fn d4_command_with_a_key_takes_effect_once_on_any_node() {
    let mut cluster = Cluster::steady(2, 4);
    let open = |node: usize, text: &str| {
        cluster.ask(node, "POST /v1/sessions", "idempotency-key: invoice-17\r\n", &json!({"input": {"text": text}}))
    };
    // Both are sent concurrently, so that neither finds the session of the other.
    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let requests: Vec<_> = (0..8).map(|n| scope.spawn(move || open(n % 2, "quick"))).collect();
        requests.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    let ids: std::collections::BTreeSet<&str> =
        answers.iter().map(|(_, opened)| opened["session"]["id"].as_str().unwrap_or("none")).collect();
    assert_eq!(ids.len(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1);
    let reused = open(0, "quick, but another");
    assert_eq!((reused.0, &reused.1["code"]), (422, &json!("idempotency_key_reused")));
    cluster.end();
}

/// A client sends invalid commands, each with a new key. The control: the key of a command that took effect is kept,
/// even if it is used again.
#[test]
fn d4_key_of_an_invalid_command_is_not_kept() {
    let mut cluster = Cluster::steady(2, 4);
    let keys = |cluster: &Cluster| cluster.server.sql("SELECT count(*) FROM subtend.placement");
    let open = |cluster: &Cluster, key: &str, body: &Value| {
        cluster.ask(0, "POST /v1/sessions", &format!("idempotency-key: {key}\r\n"), body).0
    };
    for n in 0..3 {
        assert_eq!(open(&cluster, &format!("bad-{n}"), &json!({"agent": 7})), 422);
        assert_eq!(open(&cluster, &format!("bad-{n}"), &json!({"input": {"text": ""}})), 422);
    }
    assert_eq!(keys(&cluster), "0");
    assert_eq!(open(&cluster, "good", &json!({"input": {"text": "quick"}})), 201);
    assert_eq!(open(&cluster, "good", &json!({"agent": 7})), 422);
    assert_eq!(keys(&cluster), "1");
    cluster.end();
}

/// The control: the stream has all records of the other sessions.
#[test]
fn d4_merged_stream_has_only_the_deletion_of_a_session() {
    let mut cluster = Cluster::steady(2, 4);
    let sessions = [0, 1, 0, 1].map(|node| cluster.open(node, "quick"));
    for session in &sessions {
        cluster.outcome(0, session);
    }
    let [gone, kept @ ..] = &sessions;
    let deleted = cluster.ask(0, &format!("DELETE /v1/sessions/{gone}"), "", &Value::Null);
    assert_eq!(deleted.0, 200, "{deleted:?}");
    let ports = cluster.nodes.iter().map(|node| node.port).collect();
    let follower = Follower::start(&cluster.client, ports);
    let is_whole = |records: &Vec<u64>| records.len() > 3;
    cluster.wait_for(|_| {
        let received = follower.so_far();
        received.contains_key(gone) && kept.iter().all(|session| received.get(session).is_some_and(is_whole))
    });
    assert_eq!(follower.received()[gone].len(), 1);
    cluster.end();
}

#[test]
fn d4_nodes_forward_only_permitted_requests_of_a_token() {
    let mut cluster = Cluster::steady(2, 2);
    let session = cluster.open(0, "quick");
    cluster.outcome(0, &session);
    let other = 1 - cluster.owner_of(&session);
    let port = cluster.nodes[other].port;
    let anonymous = crate::client::NodeClient { token: "none".to_owned() };
    assert_eq!(anonymous.ask(port, &format!("GET /v1/sessions/{session}"), "", "").unwrap().0, 401);
    let forged = "subtend-forwarded: admin 0000000000000000000000000000000000000000000000000000000000000000\r\n";
    assert_eq!(anonymous.ask(port, &format!("DELETE /v1/sessions/{session}"), forged, "").unwrap().0, 401);
    let deleted = cluster.ask(other, &format!("DELETE /v1/sessions/{session}"), "", &Value::Null);
    assert_eq!(deleted.0, 200, "{deleted:?}");
    let gone = cluster.ask(other, &format!("GET /v1/sessions/{session}"), "", &Value::Null);
    assert_eq!(gone.0, 410);
    cluster.end();
}

#[test]
fn d2_shards_are_shared_evenly_on_join_and_leave() {
    let mut cluster = Cluster::steady(3, 6);
    let even = |members: &Value| shares(members) == [("a".to_owned(), 2), ("b".to_owned(), 2), ("c".to_owned(), 2)];
    cluster.wait_for(even);
    cluster.signal(2, "TERM");
    assert_eq!(cluster.ended(2), Some(0), "{}", cluster.log(2));
    cluster.wait_for(|members| shares(members) == [("a".to_owned(), 3), ("b".to_owned(), 3)]);
    cluster.start_node(2, 6);
    cluster.wait_for(even);
    cluster.end();
    assert_eq!(cluster.server.sql("SELECT count(*) FROM subtend.node"), "0");
    crate::history::check(&cluster.server);
}

/// All nodes share the slots. The control: a single node has all four, of which one tree takes three (`live_runs`).
#[test]
fn d2_slots_are_divided_among_live_nodes() {
    let mut cluster = Cluster::start_with_args(2, 2, &["--host", "slots=4"]);
    let working = |cluster: &Cluster| {
        let (_, list) = cluster.ask(0, "GET /v1/sessions?all=true", "", &Value::Null);
        list["items"].as_array().into_iter().flatten().filter(|row| row["state"] == "working").count()
    };
    cluster.open(0, "wide");
    cluster.wait_for(|_| working(&cluster) >= 2);
    // By now, a third child would have started.
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert_eq!(working(&cluster), 2);
    cluster.kill(1);
    cluster.wait_for(|_| working(&cluster) == 3);
    cluster.end();
}
