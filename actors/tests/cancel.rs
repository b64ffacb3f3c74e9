//! Cancels stop all runs below them, and nothing starts below a cancelled run.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn no_model_is_called_below_a_cancelled_run() {
    let journal = journal();
    let cancelled = Arc::new(AtomicUsize::new(0));
    let after = Arc::new(AtomicUsize::new(0));
    let (off, late) = (Arc::clone(&cancelled), Arc::clone(&after));
    let answer = move |request: Request| {
        if off.load(Ordering::Relaxed) == 1 {
            late.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            let depth: u32 = prompt(&request).parse().unwrap_or(0);
            match (depth, answers(&request)) {
                (0, 0) => Ok(calls([("hang", json!({}))])),
                (_, 0) => Ok(calls([task(&(depth - 1).to_string(), false)])),
                (_, _) => Ok(text("done")),
            }
        }
    };
    let hang = tool("hang", ToolEffect::ReadOnly, |_| async {
        std::future::pending::<()>().await;
        Ok(ToolOutput::text("never"))
    });
    let runtime = builder(&journal).tools(tools([hang])).model(model(answer)).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "5").await;
    seconds(1).await;
    cancelled.store(1, Ordering::Relaxed);
    drop(session.cancel().await.expect("cancelled"));
    tokio::time::timeout(Duration::from_secs(30), session.run_ended(receipt.run))
        .await
        .expect("the run ends")
        .expect("the runtime is running");
    assert_eq!(after.load(Ordering::Relaxed), 0, "models called after the cancel");
    for (id, _) in journal.heads().expect("heads") {
        let all = records(&journal, id).await;
        assert!(
            matches!(all.last(), Some(Record::RunEnded(ended)) if matches!(ended.outcome, Outcome::Cancelled { .. })),
            "{:?}",
            all.last()
        );
    }
    shut(runtime).await;
}
