//! The runbook (`docs/operations.md`): its commands are read from the document and run on a server with nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::absent::watermark_lsn;
use crate::cluster::{Cluster, STORE_FAILED, owned, shares};
use crate::server::{PASSWORD, Server, as_user, port, programs};

const RUNBOOK: &str = include_str!("../../docs/operations.md");

const SHARDS: u16 = 4;

/// Directory of the primary's data, within that of its server.
const DATA: &str = "data";
const STANDBY: &str = "standby";

/// Returns the first code block after a text of the runbook.
fn block(text: &str) -> String {
    let (_, rest) = RUNBOOK.split_once(text).unwrap_or_else(|| panic!("the runbook does not say {text:?}"));
    let lines = rest.lines().map(str::trim_start).skip_while(|line| !line.starts_with("```")).skip(1);
    lines.take_while(|line| *line != "```").collect::<Vec<_>>().join("\n")
}

/// Runs a script as the user of the server, with PostgreSQL's variables. Directories of the runbook are within that of the server.
fn run(server: &Server, data: &str, script: &str, env: &[(&str, &str)]) -> String {
    let dir = server.dir();
    let script = script.replace("/var/lib", &dir.display().to_string());
    let mut shell = as_user("sh");
    shell.args(["-e", "-c", &script]).current_dir(dir).stdin(Stdio::null());
    shell.env("PATH", format!("{}:/usr/bin:/bin", programs().display()));
    shell.env("PGHOST", dir).env("PGPORT", server.port().to_string()).env("PGUSER", "subtend");
    shell.env("PGDATABASE", "agents").env("PGPASSWORD", "s3cret@word").env("PGDATA", dir.join(data));
    let done = shell.envs(env.iter().copied()).output().unwrap();
    let text = [&*done.stdout, &*done.stderr].map(String::from_utf8_lossy).concat();
    assert!(done.status.success(), "{script}\n{text}\n{}", server.log());
    text
}

fn run_sql(server: &Server, sql: &str, database: &str) -> String {
    run(server, DATA, &format!("psql -X -q -A -t -v ON_ERROR_STOP=1 <<'END'\n{sql}\nEND"), &[("PGDATABASE", database)])
}

fn last_lsns(server: &Server) -> BTreeMap<String, u64> {
    let rows = server.sql("SELECT name, last_lsn FROM subtend.shard");
    let pairs = rows.lines().map(|row| row.split_once('|').unwrap());
    pairs.map(|(name, last)| (name.to_owned(), last.parse().unwrap())).collect()
}

fn wait_for_both(cluster: &mut Cluster, shards: u16) {
    cluster.wait_with_restarts(shards, |members| owned(members) == usize::from(shards) && shares(members).len() == 2);
}

/// Stops each node in order, and starts it with `args`.
fn restart(cluster: &mut Cluster, args: &[&'static str], shards: u16) {
    cluster.end();
    for node in [0, 1] {
        cluster.nodes[node].args = args.to_vec();
        cluster.start_node(node, shards);
    }
    wait_for_both(cluster, shards);
}

/// Opens sessions until a shard that is empty before has one. Returns the last session.
fn fill_an_empty_shard(cluster: &Cluster, before: &BTreeMap<String, u64>) -> String {
    for at in 0..200 {
        let session = cluster.open(at % 2, "quick");
        assert_eq!(cluster.outcome(at % 2, &session), "completed");
        if last_lsns(&cluster.server).iter().any(|(name, last)| *last > 0 && before[name] == 0) {
            return session;
        }
    }
    panic!("no session was opened in an empty shard: {before:?}");
}

/// Returns whether each node has stored the last LSN of each shard that the other one owns.
fn is_remembered(cluster: &Cluster, members: &Value, lsns: &BTreeMap<String, u64>) -> bool {
    members["shards"].as_array().into_iter().flatten().all(|shard| {
        let name = shard["name"].as_str().unwrap();
        let other = usize::from(shard["node"] == cluster.nodes[0].name);
        watermark_lsn(cluster, other, name) >= lsns[name]
    })
}

/// The base backup is older than the moment, the shards continued after it. A shard was empty at the moment: its loss has to be accepted by
/// the node that does not open it, too.
#[test]
fn d8_runbook_restores_a_backup_to_a_moment() {
    let mut cluster = Cluster::start(2, SHARDS);
    run(&cluster.server, DATA, "mkdir archive", &[]);
    run_sql(&cluster.server, &block("once; then restart the server"), "agents");
    cluster.server.crash();
    cluster.server.up();
    run(&cluster.server, DATA, &block("each time into an empty directory"), &[]);
    wait_for_both(&mut cluster, SHARDS);
    let kept = cluster.open(0, "quick");
    assert_eq!(cluster.outcome(0, &kept), "completed");
    let at_moment = last_lsns(&cluster.server);
    let moment = cluster.server.sql("SELECT clock_timestamp()");
    let lost = fill_an_empty_shard(&cluster, &at_moment);
    let at_end = last_lsns(&cluster.server);
    cluster.wait_for(|members| is_remembered(&cluster, members, &at_end));

    // The steps of the runbook.
    cluster.end();
    run(&cluster.server, DATA, &block("### Restore"), &[("MOMENT", &moment)]);
    let restored = last_lsns(&cluster.server);
    let again: Vec<u64> = at_moment.iter().filter(|(_, last)| **last == 0).map(|(shard, _)| restored[shard]).collect();
    assert_eq!(again, vec![0; again.len()], "a shard is not as it was at the moment: {restored:?}");
    assert_ne!(restored, at_end);
    for node in [0, 1] {
        cluster.start_node(node, SHARDS);
        assert_eq!(cluster.ended(node), Some(STORE_FAILED), "{}", cluster.log(node));
        let log = cluster.log(node);
        let end = log.lines().last().unwrap();
        assert!(end.contains(" is refused: the store ends at lsn ") && end.contains(" was acknowledged"), "{log}");
        cluster.nodes[node].args = vec!["--accept-loss"];
    }
    for node in [0, 1] {
        cluster.start_node(node, SHARDS);
    }
    wait_for_both(&mut cluster, SHARDS);
    for (shard, last) in &last_lsns(&cluster.server) {
        let marks = [0, 1].map(|node| watermark_lsn(&cluster, node, shard));
        assert!(marks.iter().all(|mark| mark <= last), "{shard} ends at {last}, and nodes know {marks:?}");
    }
    restart(&mut cluster, &[], SHARDS);
    assert_eq!(cluster.outcome(0, &kept), "completed");
    assert_eq!(cluster.ask(0, &format!("GET /v1/sessions/{lost}"), "", &Value::Null).0, 404);
    cluster.kill(0);
    cluster.wait_for(|members| shares(members) == [("b".to_owned(), usize::from(SHARDS))]);

    let (_, scrape) = cluster.ask(1, "GET /metrics", "", &Value::Null);
    let alerts = RUNBOOK.lines().filter_map(|line| line.strip_prefix("| `subtend_")?.split_once('`'));
    let alerts: Vec<&str> = alerts.map(|(name, _)| name).collect();
    assert_eq!(alerts, ["node_lease", "shards_without_owner", "nodes_alive"]);
    for name in alerts {
        assert!(
            scrape.as_str().unwrap().contains(&format!("\nsubtend_{name} ")),
            "{name} is not in the scrape: {scrape}"
        );
    }
    check_dump(&cluster.server);
    cluster.end();
}

fn check_dump(server: &Server) {
    run(server, DATA, &block("A dump is one snapshot"), &[]);
    let read = |database: &str, sql: &str| run_sql(server, sql, database);
    let lsns = "SELECT name, last_lsn FROM subtend.shard ORDER BY id";
    assert_eq!(read("agents", lsns), read("copy", lsns));
    let secret = "SELECT value FROM subtend.secret";
    assert_eq!(read("agents", secret), read("copy", secret));
    run_sql(server, &block("give it another secret"), "copy");
    let [ours, theirs] = ["agents", "copy"].map(|database| read(database, secret));
    assert_eq!((ours == theirs, ours.len()), (false, theirs.len()));
}

/// Stops a standby, whose directory is removed with that of the primary.
struct StopsStandby(PathBuf);

impl Drop for StopsStandby {
    fn drop(&mut self) {
        let mut stop = as_user(programs().join("pg_ctl"));
        drop(stop.arg("-D").arg(&self.0).args(["-s", "-m", "immediate", "-w", "stop"]).status());
    }
}

#[test]
fn d8_runbook_promotes_a_standby_below_nodes() {
    let mut cluster = Cluster::start(2, 2);
    let other = port();
    run(&cluster.server, STANDBY, &block("On the standby's machine:"), &[]);
    let own_port = format!("echo 'port = {other}' >> \"$PGDATA/postgresql.auto.conf\"");
    run(&cluster.server, STANDBY, &own_port, &[]);
    let _stops = StopsStandby(cluster.server.dir().join(STANDBY));
    run(&cluster.server, STANDBY, &block("and start it:"), &[]);
    run_sql(&cluster.server, &block("`sync` is what the last query shows"), "agents");
    cluster.wait_for(|_| {
        cluster.server.sql("SELECT application_name, sync_state FROM pg_stat_replication") == "standby|sync"
    });
    let both = format!(
        "postgres://subtend:{PASSWORD}@127.0.0.1:{},127.0.0.1:{other}/agents?connect_timeout=5&reply_timeout=2",
        cluster.server.port()
    );
    restart(&mut cluster, &["--store", both.leak()], 2);
    let before = cluster.open(0, "quick");
    assert_eq!(cluster.outcome(0, &before), "completed");
    cluster.server.crash();
    run(&cluster.server, STANDBY, &block("and promote `db2`:"), &[]);
    let after = cluster.open(1, "quick");
    for session in [&before, &after] {
        assert_eq!(cluster.outcome(1, session), "completed");
    }
    wait_for_both(&mut cluster, 2);
    cluster.end();
}
