//! Attacks by the author of a store that the person displays or serves, for example to help with it.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::call::User;

const ECHO: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "heard: {prompt}", "repeat": true } ] } ] }"#;
/// A file of the person that has the name of a blob.
const FILE: &str = "ab/abababababababababababababababab";

/// A killed compaction is completed at the next opening, which removes blobs without rows. The control: a directory in place of the link.
#[test]
fn displayed_store_deletes_no_files_outside() {
    for is_link in [true, false] {
        let user = User::new();
        user.succeeds(&["run", "--quiet", "--model", &user.script(ECHO), "hi"]);
        let id = &user.json(&["sessions", "--json"])[0]["id"];
        let (store, outside) = (user.data().join("redb"), user.workspace().join("outside"));
        std::fs::create_dir(store.join("redb-4.compacted")).expect("a directory");
        std::fs::copy(store.join("redb-4/journal.redb"), store.join("redb-4.compacted/journal.redb")).expect("a copy");
        user.file(&format!("outside/{FILE}"), "of the person");
        if is_link {
            symlink(&outside, store.join("blobs")).expect("a link");
        } else {
            std::fs::rename(&outside, store.join("blobs")).expect("moved");
        }
        let done = user.call(&["show", id.as_str().expect("an id")]);
        assert_eq!(done.code == Some(0), !is_link, "{done:?}");
        let text = format!("{} is a link, but a store has only", store.join("blobs").display());
        assert_eq!(done.err.contains(&text), is_link, "{}", done.err);
        assert_eq!(store.join("blobs").join(FILE).exists(), is_link, "{}", done.err);
        // Other commands refuse it too, and nothing is deleted before that.
        for verb in ["sessions", "verify", "compact", "doctor"] {
            let done = user.call(&[verb]);
            assert_eq!(done.out.contains(&text) || done.err.contains(&text), is_link, "{verb}: {done:?}");
        }
        assert_eq!(outside.join(FILE).exists(), is_link);
    }
}

/// A link in place of the socket would lead commands to the person's own host: they would list, export and delete its sessions. The control:
/// the same directory without the link.
#[test]
fn link_in_place_of_a_socket_leads_to_no_other_host() {
    let user = User::new();
    user.succeeds(&["run", "--quiet", "--model", &user.script(ECHO), "own session"]);
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    let line: Value = serde_json::from_str(&host.line().expect("a line")).expect("JSON");
    let given = user.data().with_file_name("given");
    std::fs::create_dir(&given).expect("a directory");
    let sessions = ["sessions", "--data", &*given.to_string_lossy()];
    let script = user.script(ECHO);
    user.succeeds(&["run", "--quiet", "--data", sessions[2], "--model", &script, "given session"]);
    assert!(user.succeeds(&sessions).out.contains("given session"));
    let socket = given.join("host/host.sock");
    std::fs::create_dir_all(given.join("host")).expect("a directory");
    if socket.symlink_metadata().is_ok() {
        std::fs::remove_file(&socket).expect("removed");
    }
    symlink(Path::new(line["socket"].as_str().expect("a path")), &socket).expect("a link");
    let own = user.json(&["sessions", "--json"]);
    let id = own[0]["id"].as_str().expect("an id");
    let attacks: [&[&str]; 3] = [&["sessions"], &["export", id], &["delete", "--yes", id]];
    for attack in attacks {
        let refused = user.call(&[attack, &sessions[1..]].concat());
        assert_eq!((refused.code, refused.out.contains("own session")), (Some(3), false), "{attack:?}: {refused:?}");
        assert!(
            refused.err.contains("it is a link, and could lead to the host of another store: remove it"),
            "{refused:?}"
        );
    }
    assert_eq!(user.json(&["sessions", "--json"]), own);
    host.stops();
}

/// Tokens that came with a directory give their author rights in the host, so a start lists them. The control: a directory without tokens.
#[test]
fn start_of_a_host_lists_the_tokens_of_its_directory() {
    let user = User::new();
    let start = || {
        let host = user.start(&["serve", "--json", "--listen", "127.0.0.1:0"]);
        let line = host.line();
        host.stops();
        serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON")["tokens"].take()
    };
    assert_eq!(start(), json!([]));
    user.succeeds(&["token", "create", "of its author", "--scope", "admin"]);
    assert_eq!(start(), json!(["of its author (admin)"]));
}
