//! Path tricks: rules apply to the resolved file in any spelling.

use super::scene::*;

fn read_and_write(path: &str) -> Vec<Value> {
    vec![
        read(path),
        write(path),
        call("edit", json!({"path": path, "old": SECRET, "new": "spoiled"})),
        call("search", json!({"path": path, "pattern": "hidden"})),
    ]
}

#[tokio::test(start_paused = true)]
async fn denied_file_is_refused_under_any_spelling() {
    let denied = [("fs.*", "secret/**", Verdict::Deny), ("fs.*", "**/.env", Verdict::Deny)];
    let mut scene = AttackScene::new().policy(Verdict::Allow, &denied);
    let whole = scene.at("secret/key").display().to_string();
    let attacks: [&str; 26] = [
        "secret/key",
        "./secret/key",
        "secret//key",
        "secret/./key",
        "secret/key/",
        "open/../secret/key",
        "open/../../x/secret/key",
        "/secret/key",
        &whole,
        "/proc/self/cwd/secret/key",
        "secret\\key",
        "open\\..\\secret\\key",
        "secret/key\0.txt",
        "secret/key.",
        "secret/key ",
        "secret./key",
        "SECRET/KEY",
        "Secret/key",
        "s\u{435}cret/key",
        "secret\u{2215}key",
        "secret/\u{200b}key",
        "secret%2fkey",
        "~/secret/key",
        "file://secret/key",
        "$PWD/secret/key",
        "",
    ];
    for path in attacks {
        let host = scene.host().await;
        // An attempt may create a file whose name only resembles the target, such as `SECRET/KEY` or `secret%2fkey`.
        let root = host.run_steps("worker", &read_and_write(path)).await;
        for (_, text) in host.results(root.id()) {
            assert!(!text.contains(SECRET), "{path:?} revealed it: {text}");
        }
        host.shut_down().await;
        assert_eq!(scene.content("secret/key"), SECRET, "{path:?} wrote it");
    }
    let names: Vec<_> = std::fs::read_dir(scene.at("secret")).expect("a directory").collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// A deny that names a directory without `/**` covers the files in it.
#[tokio::test(start_paused = true)]
async fn a1_file_in_a_denied_directory_is_out_of_reach() {
    for (pattern, is_refused) in [("secret", false), ("s*t", false), ("secre", true)] {
        let mut scene = AttackScene::new().policy(Verdict::Allow, &[("fs.*", pattern, Verdict::Deny)]);
        let host = scene.host().await;
        let root = host
            .run_steps("worker", &[read("secret/key"), call("search", json!({"path": "secret", "pattern": "hidden"}))])
            .await;
        // The last pattern is the control: it matches no path, and the file is read.
        let results = host.results(root.id());
        assert_eq!(results.iter().any(|(_, text)| text.contains(SECRET)), is_refused, "{pattern}: {results:#?}");
        host.shut_down().await;
    }
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn links_do_not_lead_to_denied_files_or_outside() {
    use std::os::unix::fs::symlink;
    let mut scene = AttackScene::new().policy(Verdict::Allow, &[("fs.*", "secret/**", Verdict::Deny)]);
    let outside = tempfile::tempdir().expect("a directory");
    std::fs::write(outside.path().join("key"), SECRET).expect("a file");
    for (target, link) in [
        ("secret/key".into(), "link"),
        ("../secret".into(), "open/dir"),
        ("link".into(), "again"),
        (outside.path().join("key"), "out"),
        (outside.path().into(), "away"),
        ("/".into(), "top"),
        ("../../../../../../..".into(), "up"),
    ] as [(std::path::PathBuf, &str); 7]
    {
        symlink(target, scene.at(link)).expect("a link");
    }
    let host = scene.host().await;
    let attacks: [&str; 9] =
        ["link", "again", "open/dir/key", "open/dir/new", "out", "away/key", "away/new", "top/etc/passwd", "up/x"];
    let steps: Vec<Value> = attacks.iter().flat_map(|path| read_and_write(path)).collect();
    let root = host.run_steps("worker", &steps).await;
    host.refused(root.id(), steps.len());
    assert_eq!(scene.content("secret/key"), SECRET);
    assert_eq!(std::fs::read_to_string(outside.path().join("key")).expect("a file"), SECRET);
    assert_eq!(std::fs::read_dir(outside.path()).expect("a directory").count(), 1);
    // The control: opening these names directly succeeds.
    for path in ["link", "again", "open/dir/key", "out", "away/key"] {
        assert_eq!(scene.content(path), SECRET, "{path}");
    }
    host.shut_down().await;
}

/// The control: without the rule, each spelling of the file's path reads it.
#[tokio::test(start_paused = true)]
async fn same_spellings_read_the_file_without_the_rule() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    for path in ["secret/key", "./secret/key", "secret//key", "secret/./key"] {
        let root = host.run_steps("worker", &[read(path), call("search", json!({"pattern": SECRET}))]).await;
        let results = host.results(root.id());
        assert!(results.iter().all(|(failed, text)| !failed && text.contains(SECRET)), "{path}: {results:#?}");
    }
    host.shut_down().await;
}

/// Listing and searching a parent directory reveal nothing about denied directories.
#[tokio::test(start_paused = true)]
async fn denied_paths_do_not_appear_in_results() {
    let mut scene = AttackScene::new()
        .policy(Verdict::Allow, &[("fs.read", "**/.env", Verdict::Deny), ("fs.read", "secret/**", Verdict::Deny)]);
    let host = scene.host().await;
    let attacks: [Value; 4] = [
        call("search", json!({"pattern": SECRET})),
        call("search", json!({"pattern": "hidden", "glob": "**/.env"})),
        call("list", json!({"path": "."})),
        call("list", json!({"path": "open"})),
    ];
    let root = host.run_steps("worker", &attacks).await;
    for (_, text) in host.results(root.id()) {
        assert!(!text.contains(".env") || text.contains("not permitted") || text.contains("glob"), "{text}");
        assert!(!text.contains(&format!("{SECRET}\n")) && !text.contains("secret/key"), "{text}");
    }
    host.shut_down().await;
}

/// No listing names a denied directory, at any depth; a directory that contains something permitted is named.
#[tokio::test(start_paused = true)]
async fn list_omits_denied_directories() {
    let listed = async |denied: &[(&str, &str, Verdict)]| {
        let mut scene = AttackScene::new().policy(Verdict::Allow, denied);
        for path in ["open/plans/x/a.txt", "open/mixed/hidden/a.txt", "open/mixed/seen/a.txt"] {
            std::fs::create_dir_all(scene.at(path).parent().expect("a folder")).expect("a folder");
            std::fs::write(scene.at(path), "plain").expect("a file");
        }
        let host = scene.host().await;
        let steps = [call("list", json!({"path": ".", "depth": 5})), call("list", json!({"path": "open", "depth": 5}))];
        let root = host.run_steps("worker", &steps).await;
        let texts: Vec<String> = host.results(root.id()).into_iter().map(|(_, text)| text).collect();
        host.shut_down().await;
        ["plans", "x/a.txt", "open/mixed/", "hidden", "open/mixed/seen"]
            .map(|name| texts.iter().filter(|text| text.contains(name)).count())
    };
    let rules = [
        ("fs.*", "**/plans", Verdict::Deny),
        ("fs.*", "open/mixed/**", Verdict::Deny),
        ("fs.*", "open/mixed/seen/**", Verdict::Allow),
    ];
    assert_eq!(listed(&rules).await, [0, 0, 2, 0, 2]);
    // The control: without the rules all of them are listed.
    assert_eq!(listed(&[]).await, [2; 5]);
}
