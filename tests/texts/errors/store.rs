//! Stores that cannot be opened or read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::super::page::{Page, only_these_variables};
use crate::cli::call::no_forks;

const ECHO: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "heard: {prompt}", "repeat": true } ] } ] }"#;

fn file(page: &Page) -> PathBuf {
    page.user.data().join("redb/redb-4/journal.redb")
}

/// Flips a bit wherever the store contains these bytes.
fn damage(page: &Page, needle: &[u8]) {
    let mut bytes = std::fs::read(file(page)).expect("the store");
    let found: Vec<usize> = (0..bytes.len() - needle.len()).filter(|at| bytes[*at..].starts_with(needle)).collect();
    assert!(!found.is_empty(), "the store has these bytes");
    found.iter().for_each(|at| bytes[at + 3] ^= 1);
    std::fs::write(file(page), bytes).expect("damage the file");
}

#[test]
fn errors_of_stores_match_their_snapshot() {
    let mut page = Page::new();
    let model = page.user.script(ECHO);
    page.quiet("config set --user sessions.titles false", "");
    page.heading("Names of stores");
    for store in ["tape:0", "redb:", "fjall:old", "memory:x", "redb"] {
        page.call(&format!("sessions --store '{store}'"));
    }
    page.heading("Other engines");
    page.quiet(&format!("run --quiet --model {model} --store sled:other one"), "");
    page.call("sessions --store redb:other");
    std::fs::create_dir_all(page.user.workspace().join("old/fjall")).expect("a folder");
    page.call("sessions --data old");
    page.call("queue --data old a list --store redb:other");
    page.user.file("text/redb", "a file");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(page.user.workspace().join("text"), open).expect("open to other users");
    page.call("sessions --data text");
    page.call(&format!("run --quiet --model {model} --data text hi"));
    page.call(&format!("run --quiet --model {model} --data text/redb/below hi"));

    page.heading("A lost end");
    page.quiet(&format!("run --quiet --model {model} one"), "");
    let old = std::fs::read(file(&page)).expect("the store");
    page.quiet(&format!("run --quiet --model {model} two"), "");
    let new = std::fs::read(file(&page)).expect("the store");
    std::fs::write(file(&page), old).expect("an older copy");
    for verb in ["sessions", "verify", "recover"] {
        page.call(verb);
    }
    std::fs::write(file(&page), &new).expect("the store");
    let mark = page.user.data().join("redb/WATERMARK");
    let bytes = std::fs::read(&mark).expect("the mark");
    page.heading("A damaged watermark");
    std::fs::write(&mark, vec![0x5a; bytes.len()]).expect("damage the file");
    page.call("sessions");
    std::fs::remove_file(&mark).expect("remove the file");
    page.call("sessions");
    std::fs::write(&mark, bytes).expect("the mark");
    page.heading("A link in a store");
    let blobs = page.user.data().join("redb/blobs");
    std::os::unix::fs::symlink(page.user.workspace(), &blobs).expect("a link");
    page.call("sessions");
    std::fs::remove_file(&blobs).expect("remove the link");
    page.heading("Served by another process");
    let host = page.user.start(&["serve", "--json", "--listen", "none", "--model", &model]);
    host.line().expect("the line of the addresses");
    for line in ["recover", "compact", "serve --listen none --json"] {
        page.call(line);
    }
    host.stops();
    page.check("errors_stores");
}

#[test]
fn errors_of_damaged_stores_match_their_snapshot() {
    let mut page = Page::new();
    let model = page.user.script(ECHO);
    page.quiet("config set --user sessions.titles false", "");
    page.quiet(&format!("run --quiet --model {model} one"), "");
    page.quiet(&format!("run --quiet --model {model} two"), "");
    page.name_sessions();
    let listed = page.user.json(&["sessions", "--json"]);
    let (bad, good) =
        (listed[1]["id"].as_str().expect("an id").to_owned(), listed[0]["id"].as_str().expect("an id").to_owned());
    page.heading("An answer is damaged");
    damage(&page, b"heard: one");
    for line in [
        format!("show {bad}"),
        format!("tree {bad}"),
        format!("usage {bad}"),
        format!("metadata {bad}"),
        format!("queue {bad}"),
        format!("send {bad} hi --model {model}"),
        format!("send {good} hi --quiet --model {model}"),
        format!("branch {bad}"),
        format!("close {bad}"),
        format!("cancel {bad}"),
        "sessions".to_owned(),
        "tasks".to_owned(),
        "approvals".to_owned(),
        "verify".to_owned(),
        "recover".to_owned(),
        "export --out all.jsonl".to_owned(),
        "export --skip-damaged --out some.jsonl".to_owned(),
        format!("delete {bad} --yes"),
        "compact".to_owned(),
    ] {
        page.call(&line);
    }
    page.heading("A row of the index is damaged");
    damage(&page, br#""title":"two""#);
    page.name(&good.replace('-', ""), "<id-2 in hex>");
    page.call(&format!("close {good}"));
    page.heading("The whole file is damaged");
    let size = std::fs::read(file(&page)).expect("the store").len();
    std::fs::write(file(&page), vec![0x5a; size]).expect("damage the file");
    for verb in ["sessions", "verify", "recover"] {
        page.call(verb);
    }
    page.call(&format!("run --quiet --model {model} hi"));
    page.check("errors_damaged_stores");
}

/// Writes to `/dev/full` fail like on a full disk.
#[test]
fn errors_of_a_full_output_match_their_snapshot() {
    let mut page = Page::new();
    for args in [&["completions", "bash"][..], &["agents"], &["sessions", "--json"], &["config", "schema", "config"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
        let mut command = page.user.command(args);
        only_these_variables(&mut command);
        let forking = no_forks();
        let done = command.stdout(full).output().expect("the command runs");
        drop(forking);
        let code = done.status.code().map_or(-1, |code| code);
        page.note(
            &format!("{} > /dev/full", args.join(" ")),
            &format!("exit {code}"),
            &String::from_utf8_lossy(&done.stderr),
        );
    }
    page.check("errors_full_output");
}
