//! Shutdown, drops and failed starts: no task remains alive, and no caller waits forever.

use crate::support::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

struct Alive(Arc<AtomicUsize>);
impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn hanging(alive: &Arc<AtomicUsize>) -> Arc<dyn Model> {
    let alive = Arc::clone(alive);
    model(move |_| {
        alive.fetch_add(1, Ordering::Relaxed);
        let guard = Alive(Arc::clone(&alive));
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok(text("never"))
        }
    })
}

#[test]
fn runtime_dropped_outside_of_tokio_stops() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = tokio.block_on(async {
        let runtime = builder(&journal()).model(hanging(&alive)).start().await.expect("a runtime");
        open(&runtime).send("one").await.expect("accepted");
        runtime
    });
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    drop(runtime);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(alive.load(Ordering::Relaxed), 0, "the stream continued");
}

#[tokio::test(start_paused = true)]
async fn abandoned_shutdown_still_stops_all_actors() {
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = builder(&journal()).model(hanging(&alive)).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "one").await;
    let waits = tokio::spawn(async move { session.run_ended(receipt.run).await });
    let shutdown = tokio::time::timeout(Duration::from_secs(1), runtime.shutdown(Duration::from_secs(60))).await;
    assert!(shutdown.is_err());
    seconds(1).await;
    assert_eq!(alive.load(Ordering::Relaxed), 0, "the stream continued");
    assert!(tokio::time::timeout(TEST_TIMEOUT, waits).await.expect("received").unwrap().is_err());
}

#[tokio::test]
async fn dropped_runtime_releases_the_store() {
    let place = tempfile::tempdir().expect("a directory");
    let at = subtend_journal::store::StoreSpec::Redb(place.path().join("store"));
    let journal = subtend_journal::store::open_store(&at).expect("a store");
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = builder(&journal).model(hanging(&alive)).start().await.expect("a runtime");
    drop(journal);
    open(&runtime).send("one").await.expect("accepted");
    drop(runtime);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if subtend_journal::store::open_store(&at).is_ok() {
            return;
        }
    }
    panic!("the store is still locked");
}

#[tokio::test(start_paused = true)]
async fn tool_in_its_grace_does_not_delay_shutdown() {
    let journal = journal();
    let hang = tool("hang", ToolEffect::SideEffect, |_| async {
        std::future::pending::<()>().await;
        Ok(ToolOutput::text("never"))
    });
    let answer = |request: Request| async move {
        if answers(&request) == 0 { Ok(calls([("hang", json!({}))])) } else { Ok(text("done")) }
    };
    let limits = Limits { tool_ms: 1_000, ..Limits::default() };
    let runtime = started(builder(&journal).tools(tools([hang])).limits(limits).model(model(answer))).await;
    ask(&runtime, "one").await;
    let began = tokio::time::Instant::now();
    let report = runtime.shutdown(Duration::from_millis(100)).await;
    assert_eq!((report.actors, report.tasks), (0, 0));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn failed_start_leaves_nothing_behind() {
    let memory = Memory::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(hanging(&alive)).start().await.expect("a runtime");
    open(&runtime).send("one").await.expect("accepted");
    drop((runtime, journal));
    let (faulty, faults) = Faulty::new(Box::new(memory));
    faults.fail_write(1);
    let journal = on(Box::new(faulty));
    let hangs = hanging(&alive);
    let started = builder(&journal).model(Arc::clone(&hangs)).start().await;
    assert!(matches!(started, Err(StartError::Boot(_))), "{started:?}");
    for _ in 0..50 {
        if Arc::strong_count(&hangs) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the runtime is still alive");
}

struct DropRecorder(String, Arc<std::sync::Mutex<Vec<String>>>);

impl Drop for DropRecorder {
    fn drop(&mut self) {
        self.1.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(std::mem::take(&mut self.0));
    }
}

#[tokio::test(start_paused = true)]
async fn owned_runs_end_before_their_owners() {
    // Several trees, so that a wrong order cannot pass by chance.
    let dropped = Arc::new(std::sync::Mutex::new(Vec::new()));
    let order = Arc::clone(&dropped);
    let answer = move |request: Request| {
        let name = prompt(&request);
        let depth: u32 = name.rsplit(' ').next().and_then(|depth| depth.parse().ok()).unwrap_or(0);
        let first = answers(&request) == 0;
        let guard = (!first || depth == 0).then(|| DropRecorder(depth.to_string(), Arc::clone(&order)));
        async move {
            if first && depth > 0 {
                return Ok(calls([
                    task(&format!("at {}", depth - 1), true),
                    task(&format!("too {}", depth - 1), true),
                ]));
            }
            // Each level streams, and owns the streams below it.
            std::future::pending::<()>().await;
            drop(guard);
            Ok(text("never"))
        }
    };
    let limits = Limits { live_runs: 64, ..Limits::default() };
    let runtime = builder(&journal()).limits(limits).model(model(answer)).start().await.expect("a runtime");
    for _ in 0..3 {
        open(&runtime).send("at 4").await.expect("accepted");
    }
    seconds(1).await;
    assert_eq!(runtime.stats().actors, 3 * 31);
    let report = runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.drained, report.actors, report.tasks), (false, 0, 0));
    let dropped = std::mem::take(&mut *dropped.lock().unwrap());
    let mut levels = dropped.clone();
    levels.sort();
    assert_eq!((dropped.len(), &dropped), (3 * 31, &levels), "expected the deepest level first");
}

#[tokio::test(start_paused = true)]
async fn run_that_ends_within_the_grace_notifies_its_owner() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("parent", _) => Ok(text("heard")),
            _ => {
                seconds(5).await;
                Ok(text("done"))
            }
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    let refused = session.clone();
    let report = runtime.shutdown(Duration::from_secs(10)).await;
    assert_eq!((report.drained, report.actors, report.tasks), (true, 0, 0));
    assert!(refused.send("more").await.is_err(), "new work was accepted");
}
