//! Attacks by the author of a store that the person displays, for example to help with it.

use std::os::unix::fs::symlink;

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
