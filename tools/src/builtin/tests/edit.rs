use serde_json::json;
use subtend_session::authority::Verdict;
use subtend_session::call::ToolErrorKind;

use super::ToolFixture;

#[tokio::test]
async fn edit_replaces_one_occurrence() {
    let fixture = ToolFixture::new(&[("a.rs", "one\ntwo\nthree\n")]);
    assert_eq!(
        fixture.text("edit", json!({"path": "a.rs", "old": "two\n", "new": "2\n2\n"})).await,
        "replaced 1 occurrence in `a.rs`, the first at line 2"
    );
    assert_eq!(fixture.content("a.rs"), "one\n2\n2\nthree\n");
}

#[tokio::test]
async fn several_occurrences_need_replace_all() {
    let fixture = ToolFixture::new(&[("a.rs", "x\ny\nx\n")]);
    assert_eq!(
        fixture.error("edit", json!({"path": "a.rs", "old": "x", "new": "z"})).await,
        (
            ToolErrorKind::BadArgs,
            "`old` is found 2 times in `a.rs` (lines 1, 3): give more of the text around it, or set replace_all".into()
        )
    );
    assert_eq!(fixture.content("a.rs"), "x\ny\nx\n");
    assert_eq!(
        fixture.text("edit", json!({"path": "a.rs", "old": "x", "new": "", "replace_all": true})).await,
        "replaced 2 occurrences in `a.rs`, the first at line 1"
    );
    assert_eq!(fixture.content("a.rs"), "\ny\n\n");
}

#[tokio::test]
async fn missing_text_error_shows_the_nearest_lines() {
    let fixture = ToolFixture::new(&[("a.rs", "fn a() {\n    b();\n}\n"), ("win", "a\r\nb\r\n")]);
    let missing = async |path: &str, old: &str| {
        let (kind, message) = fixture.error("edit", json!({"path": path, "old": old, "new": "n"})).await;
        assert_eq!(kind, ToolErrorKind::NotFound);
        message
    };
    let end = ": read the file and give the text exactly as the file has it";
    assert_eq!(missing("a.rs", "zzz").await, format!("`old` is not in `a.rs`{end}"));
    assert_eq!(
        missing("a.rs", "\tb();\n").await,
        format!("`old` is not in `a.rs`; line 2 differs only in leading or trailing spaces{end}")
    );
    assert_eq!(
        missing("win", "a\nb").await,
        format!("`old` is not in `win`; the file ends its lines with \\r\\n{end}")
    );
    assert_eq!(missing("none", "a").await, "cannot open `none`: no such file or directory; check with list");
}

#[tokio::test]
async fn invalid_edits_are_refused() {
    let fixture = ToolFixture::new(&[("a", "x"), ("bin", "x\0"), ("dir/x", "")]);
    std::fs::write(fixture.at("latin"), b"caf\xe9").unwrap();
    std::fs::File::create(fixture.at("big")).unwrap().set_len(100 << 20).unwrap();
    let error =
        async |path: &str, old: &str| fixture.error("edit", json!({"path": path, "old": old, "new": "x"})).await;
    assert_eq!(
        error("a", "x").await,
        (ToolErrorKind::BadArgs, "`old` and `new` are the same: nothing would change".into())
    );
    assert_eq!(
        error("bin", "y").await,
        (ToolErrorKind::Refused, "`bin` is binary (2 bytes), not text: it cannot be edited".into())
    );
    assert_eq!(
        error("latin", "caf").await,
        (ToolErrorKind::Refused, "`latin` is not UTF-8 text: editing would damage the other bytes".into())
    );
    assert_eq!(
        error("big", "y").await,
        (ToolErrorKind::Limit, "`big` has 104857600 bytes; the limit of edit is 16777216".into())
    );
    assert_eq!(error("dir", "y").await.0, ToolErrorKind::BadArgs);
}

#[tokio::test]
async fn edit_needs_read_and_write_permission() {
    for action in ["fs.read", "fs.write"] {
        let fixture = ToolFixture::new(&[("a", "x")]).with_rules(&[(action, "a", Verdict::Deny)]);
        let error = fixture.call("edit", json!({"path": "a", "old": "x", "new": "y"})).await.unwrap_err();
        assert!(error.denied && error.message.contains(action), "{error:?}");
        assert_eq!(fixture.content("a"), "x");
    }
}
