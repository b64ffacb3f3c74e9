use std::time::Duration;

use super::call::User;

#[test]
fn what_cannot_be_drilled_is_a_usage_error_that_says_what_to_do() {
    let user = User::new();
    user.file("mine.txt", "not to be touched");
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--kills", "9"], &["9", "--kills"]),
        (&["--kills", "many"], &["many", "--kills"]),
        (&["--seed", "-1"], &["-1"]),
        (&["--sabotage", "rust"], &["rust", "ack-before-commit, no-outbox, no-dedup, no-epoch, no-intent"]),
        (&["--store", "memory"], &["memory", "--store ENGINE"]),
        (&["--store", "tape"], &["tape", "redb:PATH"]),
        (&["--store", "redb:"], &["redb:", "the directory is missing"]),
        (&["--store", "redb:."], &["is not an empty directory", "it makes its own"]),
    ];
    for (args, words) in cases {
        let done = user.call(&[&["drill"], args].concat());
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}: {done:?}");
        for word in words {
            assert!(done.err.contains(word), "{args:?}: {word} is not in {}", done.err);
        }
    }
    assert!(user.workspace().join("mine.txt").exists());
}

#[test]
fn a_drill_that_is_asked_to_stop_says_how_far_it_came() {
    let user = User::new();
    let under = user.start(&["drill", "--kills", "1000", "--json", "--store", "redb:drilled"]);
    // It is at work when there is a store: by then it listens to signals too.
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
