//! `subtend delete` under kills: a tree is whole or deleted, and can be deleted and erased afterwards.
#![expect(clippy::disallowed_methods, reason = "the command under test runs in real time, and so does the test")]

use std::time::Instant;

use super::call::*;

use super::session_verbs::holding;

const SECRET: &str = "the-launch-code-is-0451";
const MOMENTS: u32 = 8;
/// Maximum delay of a kill.
const LONG: Duration = Duration::from_secs(10);

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
        let to = to.join(entry.file_name());
        if kind.is_dir() {
            copy(&path, &to);
        } else if kind.is_file() {
            std::fs::copy(&path, &to).expect("a copy");
        }
    }
}

fn sessions(user: &User) -> Vec<Value> {
    let listed = user.json(&["sessions", "--all", "--json"]);
    listed.as_array().expect("rows").iter().map(|row| row["id"].clone()).collect()
}

/// Creates a tree of seven sessions whose prompts and answers all contain the secret; returns its root.
fn tree(user: &User) -> String {
    let task = json!({"tool": "task", "args": {"subagent_type": "explore", "prompt": SECRET}});
    let script = json!({"rules": [
        {"agent": "general", "steps": [{"calls": vec![task; 6]}, {"text": "{last}"}]},
        {"agent": "*", "steps": [{"text": "found {last}"}]},
    ]});
    let model = user.script(&script.to_string());
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, SECRET]).code, Some(0));
    user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a8_deletion_killed_at_any_moment_is_all_or_nothing() {
    let user = User::new();
    let id = tree(&user);
    let (all, kept) = (sessions(&user), user.data().with_file_name("kept"));
    assert_eq!(all.len(), 7);
    copy(&user.data(), &kept);
    let begun = Instant::now();
    assert_eq!(user.call(&["delete", &id, "--yes"]).code, Some(0));
    let whole = begun.elapsed();
    let (mut killed, mut tried) = (0, 0);
    for moment in 1..=MOMENTS {
        if begun.elapsed() > LONG && killed > 0 {
            break;
        }
        std::fs::remove_dir_all(user.data()).expect("removed");
        copy(&kept, &user.data());
        let delete = user.start(&["delete", &id, "--yes"]);
        std::thread::sleep(whole * moment / (MOMENTS + 1));
        delete.signal("KILL");
        let done = delete.done();
        (killed, tried) = (killed + u32::from(done.code.is_none()), tried + 1);
        let left = sessions(&user);
        assert!(left.is_empty() || left == all, "moment {moment}: {left:?}");
        assert!(
            left.is_empty() || !done.out.starts_with("deleted "),
            "moment {moment}: acknowledged, and gone: {done:?}"
        );
        assert_eq!(user.call(&["verify"]).code, Some(0), "moment {moment}");
        assert_eq!(user.call(&["export"]).out.contains(SECRET), !left.is_empty(), "moment {moment}");
        if !left.is_empty() {
            let again = user.call(&["delete", &id, "--yes"]);
            assert_eq!((again.code, &*again.err), (Some(0), ""), "moment {moment}");
        }
        assert_eq!(user.call(&["compact"]).code, Some(0), "moment {moment}");
        assert_eq!(holding(&user.data(), SECRET), Vec::<std::path::PathBuf>::new(), "moment {moment}");
        assert_eq!(user.call(&["verify"]).code, Some(0), "moment {moment}");
    }
    assert!(killed > 0, "{tried} deletions ended before their kill");
}
