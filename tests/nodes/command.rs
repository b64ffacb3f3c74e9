//! Commands whose store is a shard of a database, and nodes without a log.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::cluster::{STORE_FAILED, this_version};
use crate::server::Server;

fn command(home: &Path, server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(this_version());
    command.current_dir(home).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", home).env("SUBTEND_STORE", server.address()).stdin(Stdio::null()).args(args);
    command
}

fn texts(done: &Output) -> [String; 2] {
    [&*done.stdout, &*done.stderr].map(|text| String::from_utf8_lossy(text).into_owned())
}

#[test]
fn d1_run_says_how_to_inspect_its_session_in_a_database() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let run = |args: &[&str]| {
        let done = command(dir.path(), &server, args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        texts(&done)
    };
    let [_, notes] = run(&["run", "--model", "offline", "What is here?"]);
    let tree = notes.lines().find_map(|line| line.strip_prefix("inspect it: subtend "));
    let tree: Vec<&str> = tree.unwrap_or_else(|| panic!("{notes}")).split(' ').collect();
    let [shown, _] = run(&tree);
    assert!(shown.contains("general"), "{shown}");
    let doctor = || {
        let done = command(dir.path(), &server, &["doctor"]).output().unwrap();
        (done.status.code(), texts(&done)[0].clone())
    };
    let (code, found) = doctor();
    assert!(code == Some(0) && found.contains("durability: commit of PostgreSQL"), "{found}");
    server.sql("ALTER SYSTEM SET full_page_writes = off");
    server.reload();
    let give_up = std::time::Instant::now() + crate::cluster::PATIENCE;
    while server.sql("SHOW full_page_writes") == "on" {
        assert!(std::time::Instant::now() < give_up);
    }
    let (code, found) = doctor();
    assert!(code == Some(1) && found.contains("weak, and not accepted: full_page_writes is off"), "{found}");
}

/// Without `--log`, warnings are lines of text between the notes of the command.
#[test]
fn d2_node_says_that_it_waits_for_its_name() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let node = || command(dir.path(), &server, &["serve", "--node", "n1", "--lease", "4", "--listen", "127.0.0.1:0"]);
    let first = node().stderr(Stdio::piped()).spawn().unwrap();
    let give_up = std::time::Instant::now() + crate::cluster::PATIENCE;
    while server.sql("SELECT to_regclass('subtend.node')").is_empty()
        || server.sql("SELECT name FROM subtend.node").is_empty()
    {
        assert!(std::time::Instant::now() < give_up);
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
