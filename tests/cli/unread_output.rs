//! Output that is not read, as when a pager shows its first page.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use super::call::{User, no_forks};

/// Returns a full stream: the first write to it waits for a reader.
fn full_stream() -> (UnixStream, OwnedFd) {
    let (reader, writer) = UnixStream::pair().expect("a pair of sockets");
    writer.set_nonblocking(true).expect("a mode");
    while (&writer).write(&[b'.'; 4_096]).is_ok() {}
    writer.set_nonblocking(false).expect("a mode");
    (reader, writer.into())
}

/// Starts a command whose output is not read. Returns when the command has opened the store.
fn start_unread(user: &User, args: &[&str]) -> (Child, UnixStream) {
    let (reader, stdout) = full_stream();
    let mut command = user.command(args);
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
    let forking = no_forks();
    let child = command.spawn().expect("the command starts");
    drop((forking, command));
    let (lock, pid) = (user.data().join("redb/LOCK"), child.id().to_string());
    let names_it = |text: String| text.lines().any(|line| line.strip_prefix("pid=") == Some(&pid));
    while !std::fs::read_to_string(&lock).is_ok_and(names_it) {
        std::thread::yield_now();
    }
    (child, reader)
}

/// While a command waits for a reader of its output, another changes the store. The control: the output arrives.
#[test]
fn unread_output_does_not_hold_the_store() {
    let user = User::new();
    let done = user.call(&["run", "--json", "--model", &user.script_named("hello", "Hello."), "Good morning"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let id = &*id;
    let verbs: [&[&str]; 12] = [
        &["show", id],
        &["show", id, "--json"],
        &["tree", id],
        &["tree", id, "--json"],
        &["sessions"],
        &["sessions", "--json"],
        &["tasks", "--json"],
        &["usage", id],
        &["queue", id, "--json"],
        &["approvals", "--json"],
        &["metadata", id],
        &["verify"],
    ];
    for verb in verbs {
        let (mut child, mut reader) = start_unread(&user, verb);
        let changed = user.call(&["metadata", id, "ticket=7"]);
        assert_eq!(changed.code, Some(0), "{verb:?}: {changed:?}");
        assert!(child.try_wait().expect("its state").is_none(), "{verb:?} printed to a stream without room");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("its output");
        assert_eq!(child.wait().expect("its end").code(), Some(0), "{verb:?}");
        // Compare only the beginning, because later numbers and times differ.
        let start = |text: &str| text.trim_start_matches('.').chars().take(7).collect::<String>();
        assert_eq!(start(&text), start(&user.call(verb).out), "{verb:?}");
    }
}
