//! B-2: a cancel is handled within one handler's time, even if the data lane is full.

use std::sync::Condvar;

use crate::support::*;
use futures_util::future::join_all;

#[derive(Clone, Default)]
struct ThreadGate(Arc<(Mutex<bool>, Condvar)>);

impl ThreadGate {
    fn wait(&self) {
        let mut open = self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while !*open {
            open = self.0.1.wait(open).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// The root's handler is blocked until 10,000 ends and a full inbox are queued; the cancel sent last is decided first.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn cancel_is_decided_before_a_full_inbox() {
    const CHILDREN: usize = 10_000;
    let journal = journal();
    let (gate, ended) = (ThreadGate::default(), Arc::new(AtomicUsize::new(0)));
    let (held, ends) = (gate.clone(), Arc::clone(&ended));
    let faults = Faults::new(move |point, detail| match (point, detail) {
        // This blocks only the root, since its children do not exist yet.
        (Point::Handler, "background") => held.wait(),
        (Point::AfterAppend, "run_ended") => drop(ends.fetch_add(1, Ordering::Relaxed)),
        _ => {}
    });
    let start = tokio_util::sync::CancellationToken::new();
    let go = start.clone();
    let answer = move |request: Request| {
        let go = go.clone();
        async move {
            match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => Ok(calls((0..CHILDREN).map(|_| task("child", true)))),
                ("parent", _) if last_user(&request) == "parent" => {
                    std::future::pending::<()>().await;
                    Ok(text("never"))
                }
                ("parent", _) => Ok(text("done")),
                _ => {
                    go.cancelled().await;
                    Ok(text("found"))
                }
            }
        }
    };
    let many = u32::try_from(CHILDREN).unwrap();
    let limits = Limits { live_runs: 100, spawns: many, calls_per_answer: many, ..Limits::default() };
    let options = Options { slots: 100, inbox: 64, seed: Some(7), ..Options::default() };
    let runtime = started(builder(&journal).limits(limits).options(options).model(model(answer)).faults(faults)).await;
    let (session, _) = sent(&runtime, "parent").await;
    let all_created = || journal.children(session.id()).expect("children").len() == CHILDREN;
    until(all_created).await;
    let nothing = CallId { turn: TurnNo(99), ix: 0 };
    let holds = tokio::spawn({
        let session = session.clone();
        async move { session.background(nothing).await }
    });
    start.cancel();
    until(|| ended.load(Ordering::Relaxed) == CHILDREN).await;
    let (full, request_count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let sends = tokio::spawn({
        let session = session.clone();
        let full = Arc::clone(&full);
        async move {
            let send = async |n: usize| {
                let sent = session.send(n.to_string()).await;
                full.fetch_add(usize::from(sent.is_err()), Ordering::Relaxed);
                sent
            };
            join_all((0..65).map(send)).await
        }
    });
    let cancels = tokio::spawn({
        let session = session.clone();
        let (request_count, full) = (Arc::clone(&request_count), Arc::clone(&full));
        async move {
            until(|| full.load(Ordering::Relaxed) == 1).await;
            let mut cancel = std::pin::pin!(session.cancel());
            // After one poll the cancel is in the inbox.
            let first = futures_util::poll!(cancel.as_mut());
            request_count.store(1, Ordering::Relaxed);
            match first {
                std::task::Poll::Ready(answer) => answer,
                std::task::Poll::Pending => cancel.await,
            }
        }
    });
    // Once the last send is refused, all others are in the inbox.
    until(|| full.load(Ordering::Relaxed) == 1).await;
    until(|| request_count.load(Ordering::Relaxed) == 1).await;
    gate.open();
    assert_eq!(cancels.await.expect("joined"), Ok(Control::Done(RunNo(1))));
    drop(holds.await.expect("joined"));
    let sent = sends.await.expect("joined");
    let busy = sent.iter().filter(|sent| matches!(sent, Err(SendError::Busy { what: "the inbox", limit: 64 }))).count();
    assert_eq!(busy, 1, "expected the inbox to take 64");
    let kinds: Vec<&str> = records(&journal, session.id()).await.iter().map(Record::kind).collect();
    let at = |kind| kinds.iter().position(|found| *found == kind);
    let closing = at("run_held").or(at("run_ended")).expect("cancelled");
    let noticed = at("notice_taken").expect("noticed");
    let input = kinds.iter().rposition(|kind| *kind == "input_accepted").expect("accepted");
    assert!(closing < input, "an earlier input was decided before the cancel");
    assert!(noticed.abs_diff(closing) <= 64, "the ends were decided long before the cancel");
    until(|| journal.inflight().expect("inflight").is_empty()).await;
    shut(runtime).await;
}

async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition never became true");
}
