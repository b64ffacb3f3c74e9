use serde_json::json;
use subtend_session::authority::Verdict;
use subtend_session::call::ToolErrorKind;

use super::ToolFixture;

fn project() -> ToolFixture {
    ToolFixture::new(&[
        ("README.md", "one\ntwo"),
        ("src/main.rs", "fn main() {}\n"),
        ("src/deep/er/x.rs", ""),
        ("docs/a.bin", "\0\0"),
        (".git/HEAD", "ref"),
        ("target/out", "x"),
        (".gitignore", "target/\n"),
    ])
}

#[tokio::test]
async fn list_is_breadth_first_with_directories_first() {
    assert_eq!(
        project().text("list", json!({})).await,
        "docs/  1 entry\n\
         src/  2 entries\n\
         .gitignore  8 bytes, 1 line\n\
         README.md  7 bytes, 2 lines\n\
         docs/a.bin  2 bytes\n\
         src/deep/  1 entry\n\
         src/main.rs  13 bytes, 1 line\n\
         [3 directories; 4 files; 2 ignored entries left out; 1 directory has more below depth 2]"
    );
}

#[tokio::test]
async fn listed_paths_are_relative_to_the_workspace() {
    let fixture = project();
    assert_eq!(
        fixture.text("list", json!({"path": "./src/", "depth": 1})).await,
        "src/deep/  1 entry\nsrc/main.rs  13 bytes, 1 line\n[1 directory; 1 file; 1 directory has more below depth 1]"
    );
    assert_eq!(
        fixture.text("list", json!({"path": "README.md"})).await,
        "README.md  7 bytes, 2 lines\n[0 directories; 1 file]"
    );
}

#[tokio::test]
async fn ignored_files_are_listed_when_named() {
    assert_eq!(
        project().text("list", json!({"path": "target"})).await,
        "target/out  1 byte, 1 line\n[0 directories; 1 file]"
    );
}

#[tokio::test]
async fn glob_lists_files_only() {
    assert_eq!(
        project().text("list", json!({"glob": "*.rs", "depth": 10})).await,
        "src/main.rs  13 bytes, 1 line\nsrc/deep/er/x.rs  0 bytes, 0 lines\n[2 files; 2 ignored entries left out]"
    );
}

#[tokio::test]
async fn nested_ignore_files_apply_below_them() {
    let fixture = ToolFixture::new(&[
        (".gitignore", "*.log\n"),
        ("a/.gitignore", "!keep.log\n/only\n"),
        ("a/keep.log", ""),
        ("a/drop.log", ""),
        ("a/only", ""),
        ("a/b/only", ""),
        ("top.log", ""),
    ]);
    let expected = "a/b/only  0 bytes, 0 lines";
    let listed = fixture.text("list", json!({"depth": 3})).await;
    assert!(listed.contains(expected) && listed.contains("a/keep.log") && !listed.contains("drop.log"), "{listed}");
    assert!(!listed.contains("a/only") && !listed.contains("top.log"), "{listed}");
    assert_eq!(
        fixture.text("list", json!({"path": "a/b"})).await,
        "a/b/only  0 bytes, 0 lines\n[0 directories; 1 file]"
    );
}

#[tokio::test]
async fn long_listing_is_truncated_with_a_note() {
    let mut fixture = ToolFixture::new(&[]);
    for n in 0..200 {
        std::fs::write(fixture.at(&format!("file-{n:03}")), "").unwrap();
    }
    fixture.max_bytes = 1000;
    let listed = fixture.call("list", json!({})).await.unwrap();
    assert!(listed.content.len() <= 1000 && listed.truncated_from.is_some_and(|from| from > 3900), "{listed:?}");
    assert!(listed.content.ends_with("more not shown: list a part, or fewer levels; 0 directories; 200 files]"));
}

#[tokio::test]
async fn list_reports_missing_and_forbidden_paths() {
    let fixture =
        project().with_rules(&[("fs.read", "src/main.rs", Verdict::Deny), ("fs.read", "docs", Verdict::Deny)]);
    assert_eq!(
        fixture.error("list", json!({"path": "none"})).await,
        (ToolErrorKind::NotFound, "cannot open `none`: no such file or directory; check with list".into())
    );
    let denied = fixture.call("list", json!({"path": "docs"})).await.unwrap_err();
    assert_eq!(
        (denied.denied, &*denied.message),
        (
            true,
            "denied: list needs fs.read of `docs`, which is not allowed in this session; do without it, or say what you \
             would have done"
        )
    );
    assert_eq!(
        fixture.text("list", json!({"path": "src"})).await,
        "src/deep/  1 entry\nsrc/deep/er/  1 entry\n[2 directories; 0 files; 1 entry not permitted; 1 directory has more \
         below depth 2]"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_listed_but_not_followed() {
    let fixture = ToolFixture::new(&[("a/x", "")]);
    fixture.link("..", "a/up");
    fixture.link("/etc", "etc");
    assert_eq!(
        fixture.text("list", json!({"depth": 10})).await,
        "a/  2 entries\netc  link to /etc\na/up  link to ..\na/x  0 bytes, 0 lines\n[1 directory; 1 file; 2 others]"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn non_utf8_names_are_listed_with_replacement_characters() {
    use std::os::unix::ffi::OsStrExt as _;
    let fixture = ToolFixture::new(&[]);
    let dir = fixture.dir.path().join(std::ffi::OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join(std::ffi::OsStr::from_bytes(b"f\xfe")), "needle").unwrap();
    assert_eq!(
        fixture.text("list", json!({})).await,
        "d\u{fffd}/  1 entry\nd\u{fffd}/f\u{fffd}  6 bytes, 1 line, the name is not UTF-8\n[1 directory; 1 file]"
    );
    assert_eq!(
        fixture.text("search", json!({"pattern": "needle"})).await,
        "d\u{fffd}/f\u{fffd}:1: needle\n[1 matching line in 1 file of 1 file]"
    );
}

/// Compiled rules take thousands of times the size of a file of one byte. The control: a walk that holds the rules of one
/// directory at a time uses all files.
#[tokio::test]
async fn ignore_rules_held_by_a_walk_are_limited_in_total() {
    let names: Vec<String> = (0..2_700).map(|n| format!("d{n:04}/.gitignore")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let fixture = ToolFixture::new(&files);
    let footer = |text: String| text.lines().last().map(str::to_owned);
    assert_eq!(
        footer(fixture.text("list", json!({"glob": "no"})).await).as_deref(),
        Some("[0 files; 2203 ignore files (or lines in them) skipped: too large]")
    );
    assert_eq!(
        footer(fixture.text("search", json!({"pattern": "no"})).await).as_deref(),
        Some("[no matches in 2700 files]")
    );
}
