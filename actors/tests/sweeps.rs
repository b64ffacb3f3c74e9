//! A sweep has few large sessions in memory together, and reads them off the threads of the runtime.

use crate::support::*;
use subtend_actors::faults::InternalEvent;

const MIB: usize = 1 << 20;

/// Makes the store of a host that died: sessions whose runs are in flight, with `inputs` further inputs of `bytes` each.
async fn left_behind(sessions: usize, inputs: usize, bytes: usize) -> Memory {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(waits)).start().await.expect("a runtime");
    for _ in 0..sessions {
        let (session, _) = sent(&runtime, "go").await;
        for _ in 0..inputs {
            session.send("x".repeat(bytes)).await.expect("accepted");
        }
    }
    journal.settled().await.expect("the journal is open");
    assert_eq!(journal.inflight().expect("rows").len(), sessions);
    memory
}

async fn waits(_: Request) -> Result<Answer, ModelError> {
    std::future::pending().await
}

/// Attack: an import of large sessions whose runs are in flight. Queued inputs open a run that keeps its session in memory,
/// for which the other sessions must not wait. The control: small sessions are activated together.
#[tokio::test(start_paused = true)]
async fn sweep_activates_one_large_session_at_a_time() {
    for (bytes, together) in [(MIB, 1), (10, 3)] {
        let journal = reopen(&left_behind(3, 5, bytes).await);
        let (open, most) = (Mutex::new(BTreeSet::new()), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let faults = Faults::new(|_, _| ()).with_observer(move |event| {
            let mut open = open.lock().unwrap();
            match event {
                InternalEvent::Activated(session) => _ = open.insert(session),
                InternalEvent::Committed(state) => _ = open.remove(&state.id),
                _ => {}
            }
            seen.fetch_max(open.len(), Ordering::Relaxed);
        });
        let start = builder(&journal).faults(faults).model(model(waits)).start();
        let started = tokio::time::timeout(Duration::from_secs(600), start).await;
        let runtime = started.expect("no session waits for another").expect("a runtime");
        assert_eq!((runtime.boot().swept, runtime.boot().failures.len()), (3, 0));
        assert_eq!(most.load(Ordering::Relaxed), together, "inputs of {bytes} bytes");
        assert_eq!(runtime.stats().loaded, 3, "the queued inputs keep the sessions in memory");
        runtime.shutdown(Duration::from_secs(1)).await;
    }
}

/// Attack: a large session occupies the threads of the runtime, and other clients wait. The control: a small session needs no thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sweep_reads_large_sessions_on_other_threads() {
    for (inputs, on_other_threads) in [(20, true), (0, false)] {
        let (faulty, reads) = Faulty::new(Box::new(left_behind(2, inputs, 20_000).await));
        let runtime = builder(&on(Box::new(faulty))).model(model(waits)).start().await.expect("a runtime");
        assert_eq!((runtime.boot().swept, runtime.boot().failures.len()), (2, 0));
        let readers = reads.readers();
        let large: BTreeSet<&str> =
            readers.iter().filter(|(bytes, _)| *bytes > 100_000).map(|(_, name)| &**name).collect();
        let off_runtime = readers.iter().any(|(_, name)| name == "subtend-memory");
        assert_eq!(off_runtime, on_other_threads, "{readers:?}");
        assert_eq!(large, on_other_threads.then_some("subtend-memory").into_iter().collect(), "{readers:?}");
        runtime.shutdown(Duration::from_secs(1)).await;
    }
}
