use serde_json::json;
use subtend_session::call::ToolErrorKind;

use super::ToolFixture;

fn names(fixture: &ToolFixture, dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(fixture.at(dir)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn new_file_is_created_with_its_directories() {
    let fixture = ToolFixture::new(&[]);
    assert_eq!(
        fixture.text("write", json!({"path": "./a/b/c.txt", "content": "one\ntwo\n"})).await,
        "created `a/b/c.txt`: 8 bytes, 2 lines"
    );
    assert_eq!((fixture.content("a/b/c.txt"), names(&fixture, "a/b")), ("one\ntwo\n".into(), vec!["c.txt".into()]));
}

#[cfg(unix)]
#[tokio::test]
async fn replaced_file_keeps_its_permissions() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let fixture = ToolFixture::new(&[("run.sh", "old and longer")]);
    std::fs::set_permissions(fixture.at("run.sh"), std::fs::Permissions::from_mode(0o751)).unwrap();
    let before = std::fs::metadata(fixture.at("run.sh")).unwrap();
    assert_eq!(
        fixture.text("write", json!({"path": "run.sh", "content": "new"})).await,
        "replaced `run.sh`: 3 bytes, 1 line"
    );
    let after = std::fs::metadata(fixture.at("run.sh")).unwrap();
    assert_eq!((fixture.content("run.sh"), after.mode() & 0o777), ("new".into(), 0o751));
    assert_ne!(before.ino(), after.ino(), "the file was written in place, so a reader may see a part");
}

#[tokio::test]
async fn temporary_file_of_a_crash_is_replaced() {
    let left = ".subtend-01890a5d-ac96-774b-bcce-b302099a8057-1-2.3.tmp";
    let fixture = ToolFixture::new(&[(left, "half")]);
    fixture.text("write", json!({"path": "a", "content": ""})).await;
    assert_eq!(names(&fixture, "."), ["a"]);
}

#[tokio::test]
async fn write_replaces_regular_files_only() {
    let fixture = ToolFixture::new(&[("dir/x", "x")]);
    for (path, expected) in [
        (".", "the path names the workspace itself: name a file in it"),
        ("dir", "`dir` is a directory: name a file in it"),
        ("dir/", "`dir/` ends with `/`: name a file, not a directory"),
        ("new/", "`new/` ends with `/`: name a file, not a directory"),
    ] {
        let error = fixture.error("write", json!({"path": path, "content": "y"})).await;
        assert_eq!(error, (ToolErrorKind::BadArgs, expected.into()));
    }
    let through_file = fixture.error("write", json!({"path": "dir/x/y", "content": ""})).await;
    assert_eq!(
        through_file,
        (ToolErrorKind::NotFound, "cannot write `dir/x/y`: a part of the path is a file, not a directory".into())
    );
    assert_eq!(
        (names(&fixture, "."), names(&fixture, "dir"), fixture.content("dir/x")),
        (vec!["dir".into()], vec!["x".into()], "x".into())
    );
}

#[cfg(unix)]
#[tokio::test]
async fn write_through_a_dangling_link_is_refused() {
    let fixture = ToolFixture::new(&[]);
    fixture.link("nowhere", "link");
    let (kind, message) = fixture.error("write", json!({"path": "link", "content": "y"})).await;
    assert_eq!(kind, ToolErrorKind::NotFound, "{message}");
    assert_eq!(names(&fixture, "."), ["link"]);
    assert!(fixture.call("write", json!({"path": "link/x", "content": "y"})).await.is_err());
    assert_eq!(names(&fixture, "."), ["link"]);
}
