//! Model pools and rate limits under concurrent failures.

use crate::support::*;

type Nth = Arc<dyn Fn(usize) -> Result<Answer, ModelError> + Send + Sync>;

fn nth(
    name: &str,
    answer: impl Fn(usize) -> Result<Answer, ModelError> + Send + Sync + 'static,
) -> (Arc<dyn Model>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&count);
    let answer: Nth = Arc::new(answer);
    let model = fn_model(name, move |_, _| {
        let n = calls.fetch_add(1, Ordering::Relaxed) + 1;
        let answer = Arc::clone(&answer);
        async move { answer(n) }
    });
    (Arc::new(model.with_quotas([name])), count)
}

fn pooled(builder: Builder, a: Arc<dyn Model>, b: Arc<dyn Model>) -> Builder {
    builder.named_model("a", a).named_model("b", b).pool("smart", ["a", "b"]).default_model("pool:smart")
}

#[tokio::test(start_paused = true)]
async fn transient_error_does_not_return_to_the_model_without_key() {
    let (a, a_calls) = nth("a", |_| Err(ModelError::new(ModelFail::Auth, "no key")));
    let (b, _) = nth("b", |n| if n == 2 { Err(ModelError::new(ModelFail::Unavailable, "503")) } else { Ok(text("b")) });
    let runtime = pooled(builder(&journal()), a, b).start().await.expect("a runtime");
    let (_, first) = ask(&runtime, "go").await;
    assert_eq!(first.outcome, Outcome::Completed);
    let (_, second) = ask(&runtime, "go").await;
    assert_eq!(second.outcome, Outcome::Completed);
    assert_eq!(a_calls.load(Ordering::Relaxed), 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn pool_skips_a_member_for_its_retry_after() {
    let limited = ModelError { retry_after_ms: Some(3_600_000), ..ModelError::new(ModelFail::Rate, "slow down") };
    let (a, a_calls) = nth("a", move |n| if n == 1 { Err(limited.clone()) } else { Ok(text("a")) });
    let (b, _) = nth("b", |_| Ok(text("b")));
    let runtime = pooled(builder(&journal()), a, b).start().await.expect("a runtime");
    for _ in 0..11 {
        let begun = Instant::now();
        let (_, ended) = ask(&runtime, "go").await;
        assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("b")));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        seconds(320).await;
    }
    assert_eq!(a_calls.load(Ordering::Relaxed), 1);
    seconds(320).await;
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.text.as_deref(), Some("a"));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn queued_turn_fails_at_once_when_retry_after_is_too_long() {
    let limited = ModelError { retry_after_ms: Some(3_600_000), ..ModelError::new(ModelFail::Rate, "slow down") };
    let count = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&count);
    let a = fn_model("a", move |_, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        let limited = limited.clone();
        async move {
            seconds(5).await;
            Err::<Answer, _>(limited)
        }
    });
    let (b, _) = nth("b", |_| Ok(text("b")));
    let rates = Rates { concurrent: Some(1), ..Rates::default() };
    let builder = pooled(builder(&journal()), Arc::new(a.with_quotas(["a"])), b).rates(rates);
    let runtime = builder.start().await.expect("a runtime");
    let begun = Instant::now();
    let mut runs = Vec::new();
    for _ in 0..3 {
        let session = open(&runtime);
        let run = session.send("go").await.expect("accepted").run;
        runs.push((session, run));
    }
    for (session, run) in runs {
        let ended = session.run_ended(run).await.expect("ended");
        assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("b")));
    }
    assert_eq!((begun.elapsed().as_secs(), count.load(Ordering::Relaxed)), (5, 1));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn pool_skips_a_member_that_panics() {
    let (a, a_calls) = nth("a", |_| panic!("a bug"));
    let (b, _) = nth("b", |_| Ok(text("b")));
    let runtime = pooled(builder(&journal()), a, b).start().await.expect("a runtime");
    for _ in 0..2 {
        let (_, ended) = ask(&runtime, "go").await;
        assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("b")));
    }
    assert_eq!(a_calls.load(Ordering::Relaxed), 1);
    shut(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_waiting_for_a_permit_are_dropped_at_shutdown() {
    for drop_it in [false, true] {
        let begun = Arc::new(Mutex::new(0));
        let count = Arc::clone(&begun);
        let model = fn_model("p/m", move |_, _| {
            *count.lock().unwrap() += 1;
            std::future::pending::<Result<Answer, ModelError>>()
        });
        let rates = Rates { concurrent: Some(1), ..Rates::default() };
        let model = Arc::new(model.with_quotas(["p/m", "p"]));
        let held = Arc::clone(&model);
        let runtime = builder(&journal()).model(model).rates(rates).start().await.expect("a runtime");
        for _ in 0..20 {
            open(&runtime).send("go").await.expect("accepted");
        }
        while *begun.lock().unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        if drop_it {
            drop(runtime);
            // The model is held by the live parts of the runtime.
            while Arc::strong_count(&held) > 1 {
                tokio::task::yield_now().await;
            }
        } else {
            let report = runtime.shutdown(Duration::ZERO).await;
            assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
        }
        assert_eq!(*begun.lock().unwrap(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn call_with_an_unknown_cost_counts_as_estimated() {
    let (a, _) = nth("a", |_| Ok(text("a")));
    let rates = Rates { tokens_per_minute: Some(1_100), ..Rates::default() };
    let runtime = builder(&journal()).model(a).rates(rates).start().await.expect("a runtime");
    let begun = Instant::now();
    ask(&runtime, "go").await;
    ask(&runtime, "go").await;
    assert!(begun.elapsed() > Duration::from_secs(30), "{:?}", begun.elapsed());
    shut(runtime).await;
}
