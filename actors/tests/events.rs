use crate::support::*;

#[tokio::test(start_paused = true)]
async fn subscriber_of_all_trees_sees_new_roots() {
    let runtime = builder(&journal()).model(model(|_| async { Ok(text("hello")) })).start().await.expect("a runtime");
    let mut events = runtime.subscribe(None);
    ask(&runtime, "one").await;
    seconds(1).await;
    let mut seqs = Vec::new();
    while let Some(Next::Event(event)) = events.try_next() {
        if let EventKind::Record { seq, .. } = event.what {
            seqs.push(seq.0);
        }
    }
    assert_eq!(seqs, (1..=8).collect::<Vec<_>>());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn slow_subscriber_learns_how_many_events_it_missed() {
    let options = Options { events: 4, seed: Some(7), ..Options::default() };
    let builder = builder(&journal()).options(options).model(model(|_| async { Ok(text("hello")) }));
    let runtime = builder.start().await.expect("a runtime");
    let mut slow = runtime.subscribe(None);
    for _ in 0..5 {
        ask(&runtime, "one").await;
    }
    seconds(1).await;
    let Some(Next::Missed(missed)) = slow.try_next() else { panic!("a full buffer did not report missed events") };
    let mut seen = 0;
    while let Some(Next::Event(_)) = slow.try_next() {
        seen += 1;
    }
    assert_eq!((missed, seen), (5 * 8 - 4, 4), "missed and seen events do not add up");
    shut(runtime).await;
}
