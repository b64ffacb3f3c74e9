//! Shards without an owner, nodes without shards, and a database without its last records.

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Cluster, LEASE, STORE_FAILED, owned, shares, this_version};

/// Requests a list from all shards. Returns its status, the shards that it lacks, and its JSON.
fn listed(cluster: &Cluster, request: &str, body: &str) -> (u16, String, Value) {
    let mut answer = cluster.client.open(cluster.nodes[0].port, request, "", body).unwrap();
    let missing = answer.headers.lines().find_map(|line| line.strip_prefix("subtend-missing-shards: "));
    let (missing, mut text) = (missing.unwrap_or_default().to_owned(), String::new());
    answer.body.read_to_string(&mut text).unwrap();
    (answer.status, missing, serde_json::from_str(&text).unwrap())
}

/// The figures of the first node that alerts use: its lease, its shards, nodes that live, and shards without an owner.
fn figures(cluster: &Cluster) -> [Option<u64>; 4] {
    let (_, text) = cluster.ask(0, "GET /metrics", "", &Value::Null);
    let text = text.as_str().unwrap_or_default();
    let figure = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    ["node_lease ", "node_shards ", "nodes_alive ", "shards_without_owner "]
        .map(|name| figure(&format!("subtend_{name}")))
}

/// The only node that may claim some shards is killed. The control: the same lists before the kill.
#[test]
fn d4_list_names_the_shards_that_it_lacks() {
    let mut cluster = Cluster::start(1, 2);
    let labelled = cluster.add_node(this_version(), &["--label", "gpu"], 2);
    let count = |name: &str, count: usize| (name.to_owned(), count);
    cluster.wait_for(|members| shares(members) == [count("a", 1), count("b", 3)]);
    let here = cluster.open(0, "quick");
    let both = cluster.ask(0, "POST /v1/sessions?label=gpu&shard=shard-1", "", &json!({"input": {"text": "quick"}}));
    assert_eq!((both.0, &both.1["code"]), (400, &json!("malformed")), "{both:?}");
    let (status, there) = cluster.ask(0, "POST /v1/sessions?label=gpu", "", &json!({"input": {"text": "quick"}}));
    assert_eq!(status, 201, "{there}");
    let there = there["session"]["id"].as_str().unwrap().to_owned();
    for session in [&here, &there] {
        assert_eq!(cluster.outcome(0, session), "completed");
    }
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
        items.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let (status, missing, page) = listed(&cluster, "GET /v1/sessions?partial=true", "");
    assert_eq!((status, &*missing, ids(&page)), (200, "", vec![there, here.clone()]), "the control");
    assert_eq!(figures(&cluster), [1, 1, 2, 0].map(Some));
    cluster.kill(labelled);
    cluster.wait_for(|members| shares(members) == [count("a", 2), count("none", 2)]);
    let lacks = "gpu-shard-1, gpu-shard-2";
    // The node may still be opening a shard that it has claimed.
    cluster.wait_for(|_| listed(&cluster, "GET /v1/sessions?partial=true", "").1 == lacks);
    let (status, missing, page) = listed(&cluster, "GET /v1/sessions?partial=true", "");
    assert_eq!((status, &*missing, ids(&page)), (200, lacks, vec![here]));
    assert_eq!(figures(&cluster), [1, 2, 1, 2].map(Some));
    for (request, body) in [("GET /v1/approvals?partial=true", ""), ("POST /v1/tasks/list?partial=true", "{}")] {
        let (status, missing, list) = listed(&cluster, request, body);
        assert_eq!((status, &*missing, list.is_array()), (200, lacks, true), "{request}: {list}");
    }
    let (status, missing, refused) = listed(&cluster, "GET /v1/sessions", "");
    assert_eq!((status, &*missing, &refused["code"]), (503, "", &json!("no_owner")));
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("gpu-shard-1") && detail.contains("?partial=true"), "{detail}");
    cluster.end();
}

/// The only node that may claim a shard is killed: the events of the other shard are still sent, until it is back.
#[test]
fn d4_partial_events_end_when_a_missing_shard_returns() {
    let mut cluster = Cluster::start(1, 1);
    let labelled = cluster.add_node(this_version(), &["--label", "gpu"], 1);
    cluster.wait_for(|members| owned(members) == 2);
    cluster.kill(labelled);
    cluster.wait_for(|members| owned(members) == 1);
    let here = cluster.open(0, "quick");
    let open = |request: &str| cluster.client.open(cluster.nodes[0].port, request, "", "").unwrap();
    assert_eq!(open("GET /v1/events").status, 503, "the control");
    let partial = open("GET /v1/events?partial=true");
    let lacks = partial.headers.lines().any(|line| line == "subtend-missing-shards: gpu-shard-1");
    assert_eq!((partial.status, lacks), (200, true), "{}", partial.headers);
    let mut lines = partial.body.lines();
    let data = |line: &str| serde_json::from_str(line.strip_prefix("data: ")?).ok();
    let first: Value = lines.find_map(|line| data(&line.unwrap())).unwrap();
    assert_eq!(first["session"], json!(here));
    cluster.start_node(labelled, 1);
    // The stream ends, and a later one has all shards.
    let left = lines.map_while(Result::ok).filter(|line| line.starts_with("id: gpu-shard-1")).count();
    let whole =
        (0..50).find(|_| cluster.client.open(cluster.nodes[0].port, "GET /v1/events", "", "").unwrap().status == 200);
    assert!(left == 0 && whole.is_some(), "{left} {whole:?}");
    cluster.end();
}

/// A node keeps leases in memory, so it answers its workers without asking other nodes. The control: nodes with shards.
#[test]
fn d6_worker_is_answered_by_the_node_that_it_connects_to() {
    let mut cluster = Cluster::steady(2, 2);
    let third = cluster.add_node(this_version(), &[], 2);
    let take = json!({"worker": "w", "tools": ["seek"]});
    for (node, code) in [(0, "unknown_remote_tool"), (1, "unknown_remote_tool"), (third, "no_owner")] {
        let (status, workers) = cluster.ask(node, "GET /v1/workers", "", &Value::Null);
        assert_eq!(status == 200, node != third, "{workers}");
        let (_, refused) = cluster.ask(node, "POST /v1/workers/take", "", &take);
        assert_eq!(refused["code"], code, "{refused}");
        let detail = refused["detail"].as_str().unwrap();
        assert_eq!(detail.starts_with("this node has no shard now"), node == third, "{detail}");
    }
    // Other requests that only this node answers, and one that any node answers.
    assert_eq!(cluster.ask(third, "HEAD /v1/nodes", "", &Value::Null).0, 200);
    assert_eq!(cluster.ask(third, "GET /v1/agents", "", &Value::Null).0, 200);
    cluster.end();
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

fn shard_dir(cluster: &Cluster, node: usize, shard: &str) -> PathBuf {
    let name = &cluster.nodes[node].name;
    cluster.path(&format!("data-{name}/postgres/node-{name}/{shard}"))
}

pub(crate) fn watermark_lsn(cluster: &Cluster, node: usize, shard: &str) -> u64 {
    let bytes = std::fs::read(shard_dir(cluster, node, shard).join("WATERMARK")).unwrap_or_default();
    let slot = |at: usize| Some(u64::from_be_bytes(bytes.get(at + 4..at + 12)?.try_into().unwrap()));
    slot(0).max(slot(512)).unwrap_or(0)
}

/// The database is restored to an earlier moment, the watermark is not. The control: a start that accepts the loss.
#[test]
fn d8_restored_database_is_refused_by_a_node_that_saw_more() {
    let mut cluster = Cluster::start(2, 2);
    let (data, kept) = (cluster.server.dir().join("data"), cluster.server.dir().join("kept"));
    let first = cluster.open(0, "quick");
    assert_eq!(cluster.outcome(0, &first), "completed");
    cluster.server.crash();
    copy(&data, &kept);
    cluster.server.up();
    cluster.wait_for(|members| shares(members).len() == 2 && owned(members) == 2);
    let later = cluster.open(0, "quick, later");
    assert_eq!(cluster.outcome(0, &later), "completed");
    let other = 1 - cluster.owner_of(&later);
    let key = later.replace('-', "");
    let row = cluster.server.sql(&format!(
        "SELECT name, last_lsn FROM subtend.shard WHERE id = (SELECT shard FROM subtend.head WHERE key = '\\x{key}')"
    ));
    let (shard, last) = row.split_once('|').unwrap();
    let last: u64 = last.parse().unwrap();
    cluster.wait_for(|_| watermark_lsn(&cluster, other, shard) >= last);
    [0, 1].into_iter().for_each(|node| cluster.kill(node));
    cluster.server.crash();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&kept, &data).unwrap();
    cluster.server.up();
    cluster.start_node(other, 2);
    assert_eq!(cluster.ended(other), Some(STORE_FAILED));
    let log = std::fs::read_to_string(cluster.path(&cluster.nodes[other].name)).unwrap();
    let end = log.lines().last().unwrap();
    assert!(end.contains(&format!("{shard} is refused: ")), "{log}");
    assert!(end.contains(&format!("but {last} was acknowledged")), "{log}");
    cluster.nodes[other].args = vec!["--accept-loss"];
    cluster.start_node(other, 2);
    cluster.wait_for(|members| owned(members) == 2);
    assert_eq!(cluster.outcome(other, &first), "completed");
    let (status, lost) = cluster.ask(other, &format!("GET /v1/sessions/{later}"), "", &Value::Null);
    assert_eq!((status, &lost["code"]), (404, &json!("session_not_found")));
    assert!(watermark_lsn(&cluster, other, shard) < last, "the loss was accepted, so it is refused no more");
    cluster.end();
}

/// Returns how often a node logged `what` about a shard.
fn logged(cluster: &Cluster, node: usize, shard: &str, what: &str) -> usize {
    let log = std::fs::read_to_string(cluster.path(&cluster.nodes[node].name)).unwrap_or_default();
    let shard = format!("\"{shard}\"");
    log.lines().filter(|line| line.contains(what) && line.contains(&shard)).count()
}

/// A node cannot write the watermarks of shards that it does not own. It retries although the shards do not change, and
/// logs the failure once.
#[test]
fn d8_watermark_is_written_after_a_failed_attempt() {
    let mut cluster = Cluster::start(2, 2);
    let shards = cluster.members(0)["shards"].clone();
    let blocked: Vec<(usize, String)> = shards
        .as_array()
        .unwrap()
        .iter()
        .map(|shard| (usize::from(shard["node"] == cluster.nodes[0].name), shard["name"].as_str().unwrap().to_owned()))
        .collect();
    for (other, shard) in &blocked {
        let dir = shard_dir(&cluster, *other, shard);
        // The directory exists if the node owned the shard before.
        drop(std::fs::remove_dir_all(&dir));
        std::fs::write(dir, "not a directory").unwrap();
    }
    let session = cluster.open(0, "quick");
    assert_eq!(cluster.outcome(0, &session), "completed");
    let key = session.replace('-', "");
    let shard = cluster.server.sql(&format!(
        "SELECT name FROM subtend.shard WHERE id = (SELECT shard FROM subtend.head WHERE key = '\\x{key}')"
    ));
    let other = blocked.iter().find(|(_, name)| *name == shard).unwrap().0;
    let fails = "the watermark of the shard cannot be written";
    cluster.wait_for(|_| logged(&cluster, other, &shard, fails) > 0);
    let failed = Instant::now();
    // Several heartbeats, each with an attempt.
    cluster.wait_for(|_| failed.elapsed() > Duration::from_secs(LEASE));
    for (other, shard) in &blocked {
        std::fs::remove_file(shard_dir(&cluster, *other, shard)).unwrap();
    }
    let rows = cluster.server.sql("SELECT name, last_lsn FROM subtend.shard WHERE last_lsn > 0");
    assert_ne!(rows, "");
    for row in rows.lines() {
        let (shard, last) = row.split_once('|').unwrap();
        let (other, last) = (blocked.iter().find(|(_, name)| name == shard).unwrap().0, last.parse::<u64>().unwrap());
        cluster.wait_for(|_| watermark_lsn(&cluster, other, shard) >= last);
    }
    let works = "the watermark of the shard can be written again";
    cluster.wait_for(|_| logged(&cluster, other, &shard, works) > 0);
    assert_eq!([fails, works].map(|what| logged(&cluster, other, &shard, what)), [1, 1]);
    cluster.end();
}
