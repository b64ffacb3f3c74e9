//! Sessions continue on another node when theirs is killed, paused or disconnected.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, LEASE, STORE_FAILED, owned, shares, this_version};
use crate::history;
use crate::proxy::Network;

fn shut_down_and_check(cluster: &mut Cluster) {
    cluster.end();
    history::check(&cluster.server);
    history::journals(&cluster.server);
}

#[test]
fn d3_running_session_continues_when_its_node_is_killed() {
    let mut cluster = Cluster::start(2, 2);
    let session = cluster.open(0, "count to ten");
    let owner = cluster.owner_of(&session);
    cluster.kill(owner);
    let killed = Instant::now();
    let other = 1 - owner;
    assert_eq!(cluster.outcome(other, &session), "completed", "{}", cluster.log(other));
    assert_eq!(cluster.owner_of(&session), other);
    // The rest of the lease and a start; generous, because test machines are busy.
    assert!(killed.elapsed() < Duration::from_secs(LEASE + 30), "{:?}", killed.elapsed());
    assert!(cluster.effects().len() <= 1, "its command ran twice");
    cluster.start_node(owner, 2);
    cluster.wait_for(|members| shares(members).len() == 2 && owned(members) == 2);
    shut_down_and_check(&mut cluster);
}

/// The paused node resumes with work in memory. It must write nothing, start nothing, and join again.
#[test]
fn d2_paused_node_does_nothing_when_it_wakes() {
    let mut cluster = Cluster::start(2, 2);
    let sessions: Vec<String> = (0..4).map(|n| cluster.open(0, &format!("session {n}"))).collect();
    let owner = cluster.owner_of(&sessions[0]);
    cluster.signal(owner, "STOP");
    let other = 1 - owner;
    for session in &sessions {
        assert_eq!(cluster.outcome(other, session), "completed", "{}", cluster.log(other));
    }
    let before = cluster.effects();
    cluster.signal(owner, "CONT");
    cluster.wait_for(|members| shares(members).iter().filter(|(name, _)| name != "none").count() == 2);
    assert_eq!(cluster.effects(), before, "a command ran again");
    for session in &sessions {
        assert_eq!(cluster.outcome(owner, session), "completed");
    }
    shut_down_and_check(&mut cluster);
}

/// A node cannot distinguish a network failure from a slow server. It stops before others take over.
#[test]
fn d2_node_without_its_database_stops() {
    for network in [Network::AllBlocked, Network::RepliesBlocked] {
        let mut cluster = Cluster::start(2, 2);
        let session = cluster.open(0, "work on");
        let owner = cluster.owner_of(&session);
        cluster.nodes[owner].proxy.set(network);
        let other = 1 - owner;
        assert_eq!(cluster.outcome(other, &session), "completed", "{network:?}\n{}", cluster.log(other));
        assert!(cluster.effects().len() <= 1);
        // The node does not return rows that are older than a lease.
        cluster.wait_for(|_| owned(&cluster.members(owner)) == 0);
        cluster.nodes[owner].proxy.set(Network::Healthy);
        cluster.wait_for(|members| shares(members).len() == 2 && owned(members) == 2);
        assert_eq!(cluster.outcome(owner, &session), "completed");
        shut_down_and_check(&mut cluster);
    }
}

/// The database executed the last renewal, and its reply was lost. Because its work has stopped, the node takes a new
/// lease before the old one expires in the database.
#[test]
fn d2_lost_lease_is_replaced_when_its_work_has_stopped() {
    let mut cluster = Cluster::with_lease(2, 2, 30);
    let session = cluster.open(0, "work on");
    let owner = cluster.owner_of(&session);
    let (name, sql) = (cluster.nodes[owner].name.clone(), |sql: &str| cluster.server.sql(sql));
    let lease = sql(&format!("SELECT lease FROM subtend.node WHERE name = '{name}'"));
    let expires = || sql(&format!("SELECT expires FROM subtend.node WHERE lease = '{lease}'"));
    let joined = expires();
    // The first renewal also prepares its statement, with a reply of its own; a later one can take effect without any.
    cluster.wait_for(|_| expires() != joined);
    let before = expires();
    cluster.nodes[owner].proxy.set(Network::RepliesBlocked);
    cluster.wait_for(|_| cluster.ask(owner, "GET /readyz", "", &Value::Null).0 == 503);
    let last = expires();
    assert_eq!(sql(&format!("SELECT timestamptz '{last}' > timestamptz '{before}'")), "t", "no renewal lost its reply");
    cluster.nodes[owner].proxy.set(Network::Healthy);
    let is_earlier =
        format!("SELECT joined < timestamptz '{last}' FROM subtend.node WHERE name = '{name}' AND lease <> '{lease}'");
    cluster.wait_for(|_| !sql(&is_earlier).is_empty());
    assert_eq!(sql(&is_earlier), "t", "{}", cluster.log(owner));
    cluster.wait_for(|members| shares(members).len() == 2 && owned(members) == 2);
    assert_eq!(cluster.outcome(owner, &session), "completed");
    shut_down_and_check(&mut cluster);
}

#[test]
fn d3_crash_of_the_database_loses_no_session() {
    let mut cluster = Cluster::start(2, 2);
    let sessions: Vec<String> = (0..4).map(|n| cluster.open(n % 2, &format!("session {n}"))).collect();
    cluster.server.crash();
    std::thread::sleep(Duration::from_millis(500));
    cluster.server.up();
    for session in &sessions {
        assert_eq!(cluster.outcome(0, session), "completed", "{}", cluster.log(0));
    }
    let mut effects = cluster.effects();
    effects.sort();
    effects.dedup();
    assert_eq!(cluster.effects().len(), effects.len(), "a command ran twice");
    shut_down_and_check(&mut cluster);
}

/// A request that waits for the end of a run ends when its node leaves; the node does not wait for it.
#[test]
fn d7_waiting_client_does_not_delay_a_leaving_node() {
    let mut cluster = Cluster::steady(2, 2);
    let session = cluster.open(0, "slow");
    let owner = cluster.owner_of(&session);
    let (client, port) = (cluster.client.clone(), cluster.nodes[owner].port);
    let path = format!("GET /v1/sessions/{session}/runs/1?wait=true&timeout=600000");
    let waiting = std::thread::spawn(move || client.ask(port, &path, "", ""));
    std::thread::sleep(Duration::from_millis(500));
    let leaving = Instant::now();
    cluster.signal(owner, "TERM");
    assert_eq!(cluster.ended(owner), Some(0), "{}", cluster.log(owner));
    assert!(leaving.elapsed() < Duration::from_secs(30), "{:?}", leaving.elapsed());
    let answer = waiting.join().unwrap();
    assert!(answer.is_ok_and(|(_, run)| run["outcome"].is_null()), "the run must be in flight");
    assert_eq!(cluster.outcome(1 - owner, &session), "completed");
    cluster.start_node(owner, 2);
    cluster.wait_for(|members| shares(members).len() == 2 && owned(members) == 2);
    shut_down_and_check(&mut cluster);
}

/// While sessions run, every node is replaced by this version. No run is lost.
///
/// The nodes start with the version of `SUBTEND_OTHER`, if set.
#[test]
fn d7_rolling_change_loses_no_run() {
    let mut cluster = Cluster::of_another_version(2, 4);
    let mut sessions = Vec::new();
    for node in [0, 1] {
        sessions.extend((0..4).map(|n| cluster.open(n % 2, &format!("before {node} {n}"))));
        cluster.signal(node, "TERM");
        // Clients use the node that is not being replaced.
        sessions.extend((0..4).map(|n| cluster.open(1 - node, &format!("during {node} {n}"))));
        assert_eq!(cluster.ended(node), Some(0), "{}", cluster.log(node));
        cluster.nodes[node].program = this_version();
        cluster.start_node(node, 4);
        cluster.wait_for(|members| shares(members).len() == 2 && owned(members) == 4);
    }
    for session in &sessions {
        assert_eq!(cluster.outcome(0, session), "completed", "{session}\n{}", cluster.log(0));
    }
    let (effects, mut once) = (cluster.effects(), cluster.effects());
    once.sort();
    once.dedup();
    // A command that was about to start when its node left ends with unknown effects, and is not repeated.
    assert_eq!(effects.len(), once.len(), "a command ran twice");
    let (_, list) = cluster.ask(1, "GET /v1/sessions?limit=100", "", &Value::Null);
    assert_eq!(list["items"].as_array().unwrap().len(), sessions.len());
    shut_down_and_check(&mut cluster);
}

/// A newer version migrates the schema under load: older nodes end with the reason, and newer ones resume their runs.
///
/// A row of the migrations represents the newer version. It is removed where nodes of that version would start.
#[test]
fn d7_nodes_of_an_older_schema_end_and_lose_no_run() {
    let mut cluster = Cluster::steady(2, 2);
    let sessions: Vec<String> = (0..8).map(|n| cluster.open(n % 2, &format!("migrated {n}"))).collect();
    cluster.server.sql("INSERT INTO subtend.migration (version, by) VALUES (99, 'a later one')");
    for node in [0, 1] {
        assert_eq!(cluster.ended(node), Some(STORE_FAILED), "{}", cluster.log(node));
        assert!(cluster.log(node).contains("the store has format 99, and this version knows"), "{}", cluster.log(node));
    }
    cluster.server.sql("DELETE FROM subtend.migration WHERE version = 99");
    [0, 1].into_iter().for_each(|node| cluster.start_node(node, 2));
    cluster.wait_for(|members| shares(members).len() == 2 && owned(members) == 2);
    for session in &sessions {
        assert_eq!(cluster.outcome(0, session), "completed", "{session}\n{}", cluster.log(0));
    }
    let (effects, mut once) = (cluster.effects(), cluster.effects());
    once.sort();
    once.dedup();
    assert_eq!(effects.len(), once.len(), "a command ran twice");
    shut_down_and_check(&mut cluster);
}
