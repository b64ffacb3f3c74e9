//! Limits of a tree: what is counted, and what is not.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod support;

use subtend_models::model::Request;
use subtend_session::limits::Limits;
use support::{answers, ask, builder, calls, journal, model, prompt, shut, task, text};

#[tokio::test(start_paused = true)]
async fn a_refused_spawn_uses_up_nothing() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("parent", 1) => Ok(calls([task("second", false)])),
            ("child", 0) => Ok(calls([task("too deep", false)])),
            (_, _) => Ok(text("done")),
        }
    };
    let limits = Limits { max_depth: 1, spawns: 2, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "parent").await;
    assert_eq!(journal.kids(session.id()).expect("kids").len(), 2);
    shut(runtime).await;
}
