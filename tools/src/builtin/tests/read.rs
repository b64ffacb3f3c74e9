use std::path::Path;

use futures_util::FutureExt as _;
use serde_json::json;
use subtend_session::authority::Verdict;
use subtend_session::call::ToolErrorKind;

use super::ToolFixture;
use crate::workspace::names::READ;

fn number_lines(n: usize) -> String {
    (1..=n).map(|line| format!("line {line}\n")).collect()
}

#[tokio::test]
async fn read_returns_numbered_lines() {
    let fixture = ToolFixture::new(&[("a.txt", "eins\r\nzwei\n\nvier")]);
    assert_eq!(
        fixture.text("read", json!({"path": "a.txt"})).await,
        "     1\teins\n     2\tzwei\n     3\t\n     4\tvier\n[lines 1-4 of 4, 16 bytes]"
    );
}

#[tokio::test]
async fn page_names_the_next_line() {
    let fixture = ToolFixture::new(&[("a.txt", &number_lines(1000))]);
    assert_eq!(
        fixture.text("read", json!({"path": "a.txt", "from_line": 10, "lines": 2})).await,
        "    10\tline 10\n    11\tline 11\n[lines 10-11 of 1000, 8893 bytes; continue with from_line=12]"
    );
    let first = fixture.text("read", json!({"path": "a.txt"})).await;
    assert!(first.ends_with("   400\tline 400\n[lines 1-400 of 1000, 8893 bytes; continue with from_line=401]"));
    let last = fixture.text("read", json!({"path": "a.txt", "from_line": 1000})).await;
    assert_eq!(last, "  1000\tline 1000\n[lines 1000-1000 of 1000, 8893 bytes]");
}

#[tokio::test]
async fn page_past_the_end_error_names_the_end() {
    let fixture = ToolFixture::new(&[("a.txt", "x\n"), ("empty", "")]);
    assert_eq!(
        fixture.error("read", json!({"path": "a.txt", "from_line": 2})).await,
        (ToolErrorKind::BadArgs, "`a.txt` has 1 line: from_line 2 is past its end".into())
    );
    assert_eq!(fixture.text("read", json!({"path": "empty"})).await, "[`empty` is empty]");
    assert_eq!(
        fixture.error("read", json!({"path": "empty", "from_line": u64::MAX, "lines": 1})).await.1,
        format!("`empty` has 0 lines: from_line {} is past its end", u64::MAX)
    );
}

#[tokio::test]
async fn read_names_the_type_of_a_file_it_cannot_show() {
    let fixture = ToolFixture::new(&[("a.bin", "x\0y"), ("dir/x", "")]);
    assert_eq!(
        fixture.error("read", json!({"path": "a.bin"})).await,
        (ToolErrorKind::Refused, "`a.bin` is binary (3 bytes), not text: it cannot be shown".into())
    );
    assert_eq!(
        fixture.error("read", json!({"path": "dir"})).await,
        (ToolErrorKind::BadArgs, "`dir` is a directory: list it, and read a file in it".into())
    );
    assert_eq!(
        fixture.error("read", json!({"path": "none"})).await,
        (ToolErrorKind::NotFound, "cannot open `none`: no such file or directory; check with list".into())
    );
    assert_eq!(fixture.error("read", json!({"path": "a.bin/x"})).await.0, ToolErrorKind::NotFound);
}

#[cfg(unix)]
#[tokio::test]
async fn unreadable_file_is_an_error() {
    use std::os::unix::fs::PermissionsExt as _;
    if super::is_root() {
        return;
    }
    let fixture = ToolFixture::new(&[("a.txt", "x")]);
    std::fs::set_permissions(fixture.at("a.txt"), std::fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(
        fixture.error("read", json!({"path": "a.txt"})).await,
        (ToolErrorKind::Failed, "cannot read `a.txt`: the system denies permission".into())
    );
}

#[tokio::test]
async fn non_utf8_bytes_are_marked() {
    let fixture = ToolFixture::new(&[]);
    std::fs::write(fixture.at("latin"), b"caf\xe9\n").unwrap();
    assert_eq!(
        fixture.text("read", json!({"path": "latin"})).await,
        "     1\tcaf\u{fffd}\n[lines 1-1 of 1, 5 bytes; invalid UTF-8 is shown as \u{fffd}]"
    );
}

#[tokio::test]
async fn read_result_is_bounded_with_the_next_line() {
    let mut fixture = ToolFixture::new(&[("a.txt", &number_lines(1000))]);
    fixture.max_bytes = 400;
    let page = fixture.call("read", json!({"path": "a.txt", "lines": 900})).await.unwrap();
    assert!(page.content.len() <= 400 && page.truncated_from.is_some_and(|from| from > 10_000), "{page:?}");
    assert!(
        page.content.ends_with(
            "    16\tline 16\n[lines 1-16 of 1000, 8893 bytes; truncated to fit the result; continue with from_line=17]"
        ),
        "{}",
        page.content
    );
}

#[tokio::test]
async fn huge_line_is_read_in_bounded_memory() {
    let fixture = ToolFixture::new(&[]);
    let mut block = vec![b'x'; 1 << 20];
    let mut file = std::fs::File::create(fixture.at("big")).unwrap();
    for _ in 0..100 {
        std::io::Write::write_all(&mut file, &block).unwrap();
    }
    block.truncate(2000);
    let line = String::from_utf8(block).unwrap();
    assert_eq!(
        fixture.text("read", json!({"path": "big"})).await,
        format!("     1\t{line}… (104855600 more bytes)\n[lines 1-1 of 1, 104857600 bytes]")
    );
}

/// Waking a thread takes more time than such a read, which yields to the runtime once. The controls: a large file, and rules for which a
/// read may search the workspace.
#[cfg(target_os = "linux")]
#[test]
fn small_file_in_memory_is_read_without_a_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let _entered = runtime.enter();
    // Until the sender is dropped, the only thread is in use.
    let (in_use, end) = std::sync::mpsc::channel::<()>();
    let held = runtime.spawn_blocking(move || end.recv());
    let large = "x".repeat((16 << 10) + 1);
    let fixture = ToolFixture::new(&[("small", "text"), ("large", &large)]);
    let limited = ToolFixture::new(&[("small", "text")]).with_rules(&[(READ, "secret", Verdict::Deny)]);
    let is_immediate = |fixture: &ToolFixture, path: &str| {
        let mut call = std::pin::pin!(fixture.call("read", json!({"path": path})));
        assert!(call.as_mut().now_or_never().is_none(), "calls in a row keep the runtime from its connections");
        call.now_or_never().is_some_and(|result| result.is_ok())
    };
    // The system knows that a name is missing after it has searched for it.
    assert!(!fixture.at("SMALL").exists());
    let is_cached = fixture.workspace.read_cached(Path::new("small")).is_some();
    assert_eq!(is_immediate(&fixture, "small"), is_cached);
    assert_eq!([is_immediate(&fixture, "large"), is_immediate(&limited, "small")], [false; 2]);
    drop((in_use, held));
}
