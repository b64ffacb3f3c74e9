use std::sync::{Arc, Barrier};

use serde_json::json;

use super::ToolFixture;
use crate::builtin::file_tool::Builtin as _;
use crate::builtin::process_memory::{FILES, WALKS};
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

#[tokio::test]
async fn write_waits_for_the_memory_of_others() {
    for (tool, args) in
        [("edit", json!({"path": "a", "old": "old", "new": "new"})), ("write", json!({"path": "a", "content": "new"}))]
    {
        let fixture = ToolFixture::new(&[("a", "old")]);
        let (path, cancel) = (fixture.at("a"), fixture.cancel.clone());
        let read = || std::fs::read_to_string(&path).unwrap();
        let all = FILES.reserve(usize::MAX, &cancel).await.unwrap();
        let call = tokio::spawn(async move { (fixture.call(tool, args).await, fixture) });
        // Long enough for a call that does not wait.
        for _ in 0..100_000 {
            tokio::task::yield_now().await;
            assert_eq!(read(), "old", "{tool}");
        }
        cancel.cancel();
        let (done, fixture) = call.await.unwrap();
        assert_eq!((done, read()), (Err(ToolError::cancelled()), "old".into()), "{tool}");
        drop((all, fixture));
    }
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
