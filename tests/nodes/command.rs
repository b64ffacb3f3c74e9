//! Commands whose store is a shard of a database, and nodes without a log.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{STORE_FAILED, this_version};
use crate::server::Server;

/// Returns a command that works on a store, in a directory.
fn command(dir: &Path, store: &str, args: &[&str]) -> Command {
    let mut command = Command::new(this_version());
    command.current_dir(dir).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", dir).env("SUBTEND_STORE", store).stdin(Stdio::null()).args(args);
    command
}

fn texts(done: &Output) -> [String; 2] {
    [&*done.stdout, &*done.stderr].map(|text| String::from_utf8_lossy(text).into_owned())
}

/// Runs a command. Returns its exit code and what it printed.
fn outcome(dir: &Path, store: &str, args: &[&str]) -> (Option<i32>, [String; 2]) {
    let done = command(dir, store, args).output().unwrap();
    (done.status.code(), texts(&done))
}

/// The reasons and remedies that commands name are those of databases, not of directories.
#[test]
fn d8_doctor_and_sessions_advise_on_databases() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let doctor = |store: &str| {
        let (code, [found, _]) = outcome(dir.path(), store, &["doctor"]);
        assert!(found.contains("engines: ") && found.contains("postgres, memory"), "{found}");
        (code, found)
    };
    let (_, found) = doctor(&server.address());
    assert!(found.contains("nodes (`serve --node`) have others"), "{found}");
    let (code, [_, notes]) = outcome(dir.path(), &server.address(), &["sessions"]);
    assert!(code == Some(0) && notes.contains("those of nodes are in other shards"), "{notes}");
    let (code, found) = doctor(&server.address().replace(&server.port().to_string(), "1"));
    assert!(code == Some(1) && found.contains("pg_hba.conf") && !found.contains("--data"), "{found}");
}

/// A check whether a shard is free takes a second, so the command also limits the time of its checks.
#[test]
fn d2_command_waits_seconds_for_a_shard_in_use() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let spec = subtend_journal::StoreSpec::parse(&server.address()).unwrap();
    let held = subtend_journal::open_store(&spec).unwrap();
    let begun = Instant::now();
    let (code, [_, notes]) = outcome(dir.path(), &server.address(), &["run", "--model", "offline", "What is here?"]);
    assert!(code == Some(STORE_FAILED) && notes.contains("is in use by process"), "{code:?} {notes}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    drop(held);
}

#[test]
fn d2_node_refuses_the_address_of_one_shard() {
    let dir = tempfile::tempdir().unwrap();
    let (code, [_, notes]) = outcome(dir.path(), "postgres://db/agents?shard=x", &["serve", "--node", "a"]);
    assert!(code == Some(2) && notes.contains("leave `shard=` out"), "{code:?} {notes}");
}

#[test]
fn d1_run_says_how_to_inspect_its_session_in_a_database() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let run = |args: &[&str]| {
        let (code, printed) = outcome(dir.path(), &server.address(), args);
        assert_eq!(code, Some(0), "{printed:?}");
        printed
    };
    let [_, notes] = run(&["run", "--model", "offline", "What is here?"]);
    let tree = notes.lines().find_map(|line| line.strip_prefix("inspect it: subtend "));
    let tree: Vec<&str> = tree.unwrap_or_else(|| panic!("{notes}")).split(' ').collect();
    let [shown, _] = run(&tree);
    assert!(shown.contains("general"), "{shown}");
    let doctor = || outcome(dir.path(), &server.address(), &["doctor"]);
    let (code, [found, _]) = doctor();
    assert!(code == Some(0) && found.contains("durability: commit of PostgreSQL"), "{found}");
    server.sql("ALTER SYSTEM SET full_page_writes = off");
    server.reload();
    let give_up = Instant::now() + crate::cluster::PATIENCE;
    while server.sql("SHOW full_page_writes") == "on" {
        assert!(Instant::now() < give_up);
    }
    let (code, [found, _]) = doctor();
    assert!(code == Some(1) && found.contains("weak, and not accepted: full_page_writes is off"), "{found}");
}

/// Without `--log`, warnings are lines of text between the notes of the command.
#[test]
fn d2_node_says_that_it_waits_for_its_name() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let args = ["serve", "--node", "n1", "--lease", "4", "--listen", "127.0.0.1:0"];
    let node = || command(dir.path(), &server.address(), &args);
    let first = node().stderr(Stdio::piped()).spawn().unwrap();
    let give_up = Instant::now() + crate::cluster::PATIENCE;
    while server.sql("SELECT to_regclass('subtend.node')").is_empty()
        || server.sql("SELECT name FROM subtend.node").is_empty()
    {
        assert!(Instant::now() < give_up);
    }
    let second = node().output().unwrap();
    assert!(Command::new("kill").arg(first.id().to_string()).status().unwrap().success());
    let first = first.wait_with_output().unwrap();
    let [[_, waiting], [_, served]] = [&second, &first].map(texts);
    let waits =
        waiting.lines().any(|line| line.contains(" WARN ") && line.contains("an earlier lease of this node runs"));
    let last = waiting.lines().last().unwrap();
    assert!(waits && last.starts_with("error: a node named `n1` is alive at "), "{waiting}");
    assert!(served.contains("the node is shutting down: "), "{served}");
    assert_eq!([second.status.code(), first.status.code()], [Some(STORE_FAILED), Some(0)]);
}
