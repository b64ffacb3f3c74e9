use std::sync::{Arc, Mutex};

use serde_json::json;
use subtend_session::call::ToolErrorKind;

use super::ToolFixture;
use crate::tool::{Progress, ToolError};

fn project() -> ToolFixture {
    ToolFixture::new(&[
        ("a.rs", "let x = foo(1);\nbar\nfoo.bar\n"),
        ("src/b.rs", "nothing\r\n  foo(2)\r\n"),
        ("src/c.txt", "foo(3)"),
        ("data.bin", "foo(4)\n\0\0"),
        (".gitignore", "skip\n"),
        ("skip/d.rs", "foo(5)"),
    ])
}

#[tokio::test]
async fn literal_match_names_its_line() {
    assert_eq!(
        project().text("search", json!({"pattern": "foo("})).await,
        "a.rs:1: let x = foo(1);\n\
         src/b.rs:2:   foo(2)\n\
         src/c.txt:1: foo(3)\n\
         [3 matching lines in 3 files of 4 files; 1 binary file skipped]"
            .replace("of 4", "of 5")
    );
}

#[tokio::test]
async fn path_and_glob_narrow_the_search() {
    let fixture = project();
    assert_eq!(
        fixture.text("search", json!({"pattern": "foo", "path": "src", "glob": "*.rs"})).await,
        "src/b.rs:2:   foo(2)\n[1 matching line in 1 file of 1 file]"
    );
    assert_eq!(
        fixture.text("search", json!({"pattern": "foo", "path": "a.rs"})).await,
        "a.rs:1: let x = foo(1);\na.rs:3: foo.bar\n[2 matching lines in 1 file of 1 file]"
    );
    assert_eq!(fixture.text("search", json!({"pattern": "zzz", "path": "src"})).await, "[no matches in 2 files]");
}

#[tokio::test]
async fn pattern_is_a_regex_only_on_request() {
    let fixture = project();
    assert_eq!(
        fixture.text("search", json!({"pattern": r"^FOO\.|\(3\)$", "regex": true})).await,
        "src/c.txt:1: foo(3)\n[1 matching line in 1 file of 5 files; 1 binary file skipped]"
    );
    let (kind, message) = fixture.error("search", json!({"pattern": "foo(", "regex": true})).await;
    assert_eq!(kind, ToolErrorKind::BadArgs);
    assert!(message.starts_with("the regular expression cannot be used: regex parse error"), "{message}");
    assert!(message.contains("unclosed group") && message.ends_with("for literal text leave out `regex`"), "{message}");
}

#[tokio::test]
async fn bad_pattern_error_names_the_cause() {
    let fixture = project();
    assert_eq!(
        fixture.error("search", json!({"pattern": "a\nb"})).await.1,
        "the pattern contains a line break, but a match lies within one line: search for one line"
    );
    assert_eq!(
        fixture.error("search", json!({"pattern": "x".repeat(10_001)})).await.1,
        "the pattern has 10001 bytes; it must have 1 to 10000"
    );
    assert_eq!(fixture.error("search", json!({"pattern": "a\\nb", "regex": true})).await.0, ToolErrorKind::BadArgs);
    assert_eq!(fixture.error("search", json!({"pattern": "x", "glob": "[z-a]"})).await.0, ToolErrorKind::BadArgs);
}

#[tokio::test]
async fn all_matches_are_counted_even_if_few_are_shown() {
    let fixture = ToolFixture::new(&[
        ("a", &"hit\n".repeat(500)),
        ("b", "hit\n"),
        ("long", &format!("hit{}\n", "y".repeat(1000))),
    ]);
    assert_eq!(
        fixture.text("search", json!({"pattern": "hit", "max_matches": 2})).await,
        "a:1: hit\na:2: hit\n[502 matching lines in 3 files of 3 files; 2 shown: narrow the pattern, path or glob]"
    );
    assert_eq!(
        fixture.text("search", json!({"pattern": "hity"})).await,
        format!("long:1: hit{}… (603 more bytes)\n[1 matching line in 1 file of 3 files]", "y".repeat(397))
    );
}

#[tokio::test]
async fn search_result_is_bounded() {
    let mut fixture = ToolFixture::new(&[("a", &"hit\n".repeat(100))]);
    fixture.max_bytes = 300;
    let found = fixture.call("search", json!({"pattern": "hit"})).await.unwrap();
    assert!(found.content.len() <= 300 && found.truncated_from.is_some(), "{found:?}");
    assert!(found.content.contains("truncated to fit the result"), "{found:?}");
}

#[tokio::test]
async fn long_search_reports_progress_and_stops_on_cancel() {
    let mut fixture = ToolFixture::new(&[]);
    for n in 0..2100 {
        std::fs::write(fixture.at(&format!("{n:04}")), "hit\n").unwrap();
    }
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (seen, cancel) = (Arc::clone(&lines), fixture.cancel.clone());
    fixture.progress = Progress::to(move |line| {
        let mut seen = seen.lock().unwrap();
        seen.push(line.to_string());
        if seen.len() == 2 {
            cancel.cancel();
        }
    });
    assert_eq!(fixture.call("search", json!({"pattern": "hit"})).await, Err(ToolError::cancelled()));
    let lines = lines.lock().unwrap().clone();
    assert_eq!(lines, ["searched 1000 files, 999 matching lines", "searched 2000 files, 1999 matching lines"]);
}

#[tokio::test]
async fn dropping_the_call_stops_its_thread() {
    let mut fixture = ToolFixture::new(&[]);
    for n in 0..1001 {
        std::fs::write(fixture.at(&format!("{n:04}")), "hit\n").unwrap();
    }
    let (entered, was_entered) = std::sync::mpsc::channel();
    let (resume, resumed) = std::sync::mpsc::channel::<()>();
    let resumed = Mutex::new(resumed);
    let alive = Arc::new(());
    let ended = Arc::downgrade(&alive);
    fixture.progress = Progress::to(move |_| {
        let _held = &alive;
        entered.send(()).unwrap();
        resumed.lock().unwrap().recv().unwrap();
    });
    let call = tokio::spawn(async move { fixture.call("search", json!({"pattern": "hit"})).await });
    tokio::task::spawn_blocking(move || was_entered.recv().unwrap()).await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    resume.send(()).unwrap();
    // The thread drops the last handle to the sink when it stops.
    while ended.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn search_counts_unreadable_files() {
    use std::os::unix::fs::PermissionsExt as _;
    if super::is_root() {
        return;
    }
    let fixture = ToolFixture::new(&[("a", "hit"), ("b", "hit")]);
    std::fs::set_permissions(fixture.at("b"), std::fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(
        fixture.text("search", json!({"pattern": "hit"})).await,
        "a:1: hit\n[1 matching line in 1 file of 1 file; 1 file unreadable]"
    );
}

#[tokio::test]
async fn files_are_ranked_by_path_then_by_matches() {
    let fixture = ToolFixture::new(&[
        ("a/plain.rs", "no\n"),
        ("a/once.rs", "an actor\n"),
        ("b/actor.rs", "nothing\n"),
        ("b/often.rs", "actor\nactor actor\n"),
        ("c/actor/x.rs", "actor\n"),
        ("c/actor.bin", "actor\0\n"),
    ]);
    let files = |max: u64| json!({"pattern": r"\bactor", "regex": true, "files": true, "max_matches": max});
    assert_eq!(
        fixture.text("search", files(10)).await,
        "c/actor/x.rs  1 matching line\nb/actor.rs  0 matching lines\nc/actor.bin  0 matching lines\n\
         b/often.rs  2 matching lines\na/once.rs  1 matching line\n\
         [4 matching lines in 3 files of 6 files; 3 paths match; 1 binary file skipped]"
    );
    let cut = fixture.text("search", files(1)).await;
    assert!(cut.ends_with("; 1 shown: narrow the pattern, path or glob; 1 binary file skipped]"), "{cut}");
    let none = fixture.text("search", json!({"pattern": "gone", "files": true})).await;
    assert_eq!(none, "[no matches in 6 files; 1 binary file skipped]");
}

#[tokio::test]
async fn heavy_pattern_finds_lines_like_a_light_one() {
    let text = format!("{}\nhit\n{}\n", "ab".repeat(200_000), "ba".repeat(10));
    let fixture = ToolFixture::new(&[("a", &text)]);
    let search = |pattern: &str| json!({"pattern": pattern, "regex": true});
    let expected = "a:2: hit\n[1 matching line in 1 file of 1 file]";
    for pattern in ["a[ab]{20000}[^ab]|hit", "^(a[ab]{20000}[^ab]|hit)$", "hit"] {
        assert_eq!(fixture.text("search", search(pattern)).await, expected, "{pattern}");
    }
}

/// A byte that is not UTF-8 is shown by three, and the line may have 16 MiB.
#[tokio::test]
async fn invalid_bytes_of_a_long_line_are_shown_truncated() {
    let fixture = ToolFixture::new(&[]);
    std::fs::write(fixture.at("f"), vec![0xff; 1 << 20]).unwrap();
    assert_eq!(
        fixture.text("search", json!({"pattern": r"(?-u:\xff)", "regex": true})).await,
        format!("f:1: {}… (1048985 more bytes)\n[1 matching line in 1 file of 1 file]", "\u{fffd}".repeat(133))
    );
}

#[tokio::test]
async fn paths_that_a_search_for_files_keeps_are_bounded() {
    let dir = "d".repeat(200);
    let deep = [dir.as_str(); 15].join("/");
    let names: Vec<String> = (0..1_000).map(|n| format!("{deep}/{n:04}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "hit\n")).collect();
    let mut fixture = ToolFixture::new(&files);
    fixture.max_bytes = 8 << 20;
    let shown = fixture.text("search", json!({"pattern": "hit", "files": true, "max_matches": 10_000})).await;
    assert!(shown.len() < 3 << 20, "{}", shown.len());
    let footer = shown.lines().last().unwrap();
    assert!(
        footer.starts_with("[1000 matching lines in 1000 files of 1000 files; ") && footer.contains(" shown"),
        "{footer}"
    );
}
