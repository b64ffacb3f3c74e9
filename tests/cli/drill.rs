use super::call::*;

#[test]
fn invalid_drill_options_are_usage_errors_with_a_remedy() {
    let user = User::new();
    user.file("mine.txt", "must not be changed");
    let cases: [(&[&str], &[&str]); 11] = [
        (&["--kills", "9"], &["9", "--kills"]),
        (&["--kills", "many"], &["many", "--kills"]),
        (&["--seed", "-1"], &["-1"]),
        (&["--sabotage", "rust"], &["rust", "ack-before-commit, no-outbox, no-dedup, no-epoch, no-intent"]),
        (&["--clients", "0"], &["0", "--clients"]),
        (&["--sabotage", "no-key"], &["no-key", "add `--clients N`"]),
        (&["--clients", "2", "--sabotage", "no-outbox"], &["no-outbox", "leave out `--clients N`"]),
        (&["--store", "memory"], &["memory", "--store ENGINE"]),
        (&["--store", "tape"], &["tape", "redb:PATH"]),
        (&["--store", "redb:"], &["redb:", "the directory is missing"]),
        (&["--store", "redb:."], &["is not an empty directory", "it needs a new directory"]),
    ];
    for (args, expected) in cases {
        let done = user.call(&[&["drill"], args].concat());
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}: {done:?}");
        for word in expected {
            assert!(done.err.contains(word), "{args:?}: {word} is not in {}", done.err);
        }
    }
    assert!(user.workspace().join("mine.txt").exists());
}

#[test]
fn stopped_drill_reports_its_progress() {
    let user = User::new();
    let under = user.start(&["drill", "--kills", "1000", "--json", "--store", "redb:drilled"]);
    // The drill handles signals once the store exists.
    while !user.workspace().join("drilled/1/store").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    under.signal("INT");
    let done = under.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).expect("one JSON object");
    assert_eq!((&report["verdict"], &report["violations"]), (&"stopped".into(), &0.into()), "{report:#}");
    assert!(!user.workspace().join("drilled").exists());
}
