//! What subscribers see.

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

use std::time::Duration;

use subtend_actors::{Next, What};
use support::{ask, builder, journal, model, shut, text};

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_all_sees_roots_being_opened() {
    let journal = journal();
    let runtime = builder(&journal).model(model(|_| async { Ok(text("hello")) })).start().await.expect("a runtime");
    let mut events = runtime.subscribe(None);
    ask(&runtime, "one").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut seqs = Vec::new();
    while let Some(Next::Event(event)) = events.try_next() {
        if let What::Record { seq, .. } = event.what {
            seqs.push(seq.0);
        }
    }
    assert_eq!(seqs, (1..=8).collect::<Vec<_>>());
    shut(runtime).await;
}
