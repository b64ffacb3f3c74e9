//! Commands whose store is a shard of a database.

use std::process::{Command, Stdio};

use crate::cluster::this_version;
use crate::server::Server;

#[test]
fn d1_run_says_how_to_inspect_its_session_in_a_database() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let run = |args: &[&str]| {
        let mut command = Command::new(this_version());
        command.current_dir(dir.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", dir.path()).env("SUBTEND_STORE", server.address()).stdin(Stdio::null());
        let done = command.args(args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [_, notes] = run(&["run", "--model", "offline", "What is here?"]);
    let tree = notes.lines().find_map(|line| line.strip_prefix("inspect it: subtend "));
    let tree: Vec<&str> = tree.unwrap_or_else(|| panic!("{notes}")).split(' ').collect();
    let [shown, _] = run(&tree);
    assert!(shown.contains("general"), "{shown}");
}
