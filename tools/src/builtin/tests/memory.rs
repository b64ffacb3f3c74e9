use std::sync::{Arc, Barrier};

use serde_json::json;

use super::ToolFixture;
use crate::builtin::file_tool::{Builtin as _, FILES, WALKS};
use crate::builtin::search::SearchTool;
use crate::tool::{Progress, ToolError};
#[cfg(target_os = "linux")]
use crate::workspace::names::SEARCHES;

/// A host has a registry for each workspace. The control: no other test holds as much.
#[tokio::test]
async fn registries_share_the_memory_of_walks() {
    let both_inside = Arc::new(Barrier::new(2));
    let searches = (0..2).map(|_| {
        let mut fixture = ToolFixture::new(&[]);
        (0..1001).for_each(|n| std::fs::write(fixture.at(&format!("{n:04}")), "").unwrap());
        let (both_inside, (send, reserved)) = (Arc::clone(&both_inside), std::sync::mpsc::channel());
        fixture.progress = Progress::to(move |_| {
            both_inside.wait();
            send.send(WALKS.reserved()).unwrap();
            both_inside.wait();
        });
        async move {
            fixture.text("search", json!({"pattern": "x"})).await;
            reserved.recv().unwrap()
        }
    });
    for reserved in futures_util::future::join_all(searches).await {
        assert!(reserved >= 2 * SearchTool::WALK_BYTES, "{reserved}");
    }
}

/// An edit waits for what it makes of the file, not only for its arguments. The controls: edits for which enough is free.
#[tokio::test]
async fn write_waits_for_the_memory_of_others() {
    let edit = |old: &str, new: &str| json!({"path": "a", "old": old, "new": new, "replace_all": true});
    let text = "a".repeat(16_000);
    for (tool, args, held, waits) in [
        ("edit", edit("aaa", "b"), usize::MAX, true),
        ("write", json!({"path": "a", "content": "new"}), usize::MAX, true),
        ("edit", edit("a", &"b".repeat(1_000)), 79 << 20, true),
        ("edit", edit(&text, &"b".repeat(1_000)), 79 << 20, false),
        ("edit", edit("a", "bb"), 79 << 20, false),
    ] {
        let fixture = ToolFixture::new(&[("a", &text)]);
        let (path, cancel) = (fixture.at("a"), fixture.cancel.clone());
        let is_unchanged = || std::fs::read_to_string(&path).unwrap() == text;
        let others = FILES.reserve(held).await;
        let call = tokio::spawn(async move { (fixture.call(tool, args).await, fixture) });
        if waits {
            // Long enough for a call that does not wait.
            for _ in 0..100_000 {
                tokio::task::yield_now().await;
                assert!(is_unchanged(), "{tool}");
            }
            cancel.cancel();
        }
        let (done, fixture) = call.await.unwrap();
        assert_eq!((done == Err(ToolError::cancelled()), is_unchanged()), (waits, waits), "{tool}");
        drop((others, fixture));
    }
}

/// The file grows while its edit waits for the memory that it had needed before.
#[tokio::test]
async fn edit_of_a_file_that_grew_meanwhile_is_refused() {
    let fixture = ToolFixture::new(&[("a", "old")]);
    let path = fixture.at("a");
    let all = FILES.reserve(usize::MAX).await;
    let args = json!({"path": "a", "old": "old", "new": "new"});
    let call = tokio::spawn(async move { (fixture.error("edit", args).await, fixture) });
    // Long enough for a call that does not wait.
    for _ in 0..100_000 {
        tokio::task::yield_now().await;
    }
    std::fs::write(&path, "old and more").unwrap();
    drop(all);
    let ((_, message), fixture) = call.await.unwrap();
    assert_eq!(message, "`a` was just changed by another program: read it again, then edit");
    assert_eq!(fixture.content("a"), "old and more");
}

/// Attack: a command that uses up the threads of the system. The control: the pool of the runtime gets none.
#[cfg(target_os = "linux")]
#[test]
fn file_tools_run_although_the_system_refuses_threads() {
    // More than the addresses of a process.
    let runtime = tokio::runtime::Builder::new_current_thread().thread_stack_size(1 << 60).build().unwrap();
    runtime.block_on(async {
        assert!(std::panic::catch_unwind(|| drop(tokio::task::spawn_blocking(|| ()))).is_err());
        let fixture = ToolFixture::new(&[("a", "old"), ("large", &"x\n".repeat(16 << 10))]);
        assert_eq!(
            [
                fixture.text("write", json!({"path": "b", "content": "new"})).await,
                fixture.text("edit", json!({"path": "a", "old": "old", "new": "new"})).await,
                fixture.text("read", json!({"path": "large", "lines": 1})).await,
                fixture.text("search", json!({"pattern": "new", "files": true})).await,
            ],
            [
                "created `b`: 3 bytes, 1 line",
                "replaced 1 occurrence in `a`, the first at line 1",
                "     1\tx\n[lines 1-1 of 16384, 32768 bytes; continue with from_line=2]",
                "a  1 matching line\nb  1 matching line\n[2 matching lines in 2 files of 3 files]",
            ]
        );
    });
}

/// Each search of a workspace for other names takes a thread, memory and descriptors of the host. A waiting call can be cancelled.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn reads_of_linked_files_wait_for_each_other() {
    let fixture = ToolFixture::new(&[("a", "text"), ("secret", "")]);
    let fixture = fixture.with_rules(&[("fs.read", "secret", subtend_session::authority::Verdict::Deny)]);
    std::fs::hard_link(fixture.at("a"), fixture.at("b")).unwrap();
    let all = SEARCHES.acquire_many(2).await.unwrap();
    let cancel = fixture.cancel.clone();
    let call = tokio::spawn(async move { fixture.call("read", json!({"path": "a"})).await });
    // Long enough for a call that does not wait.
    for _ in 0..100_000 {
        tokio::task::yield_now().await;
        assert!(!call.is_finished());
    }
    cancel.cancel();
    assert_eq!(call.await.unwrap(), Err(ToolError::cancelled()));
    drop(all);
}
