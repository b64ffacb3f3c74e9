//! Slots of runs that people open: never queued behind owned runs, and released at every end (T-3).

use std::task::{Context, Waker};

use crate::support::*;

/// Plays a parent with one quick child and many that hang; people are answered after a second.
async fn answer(request: Request) -> Result<Answer, ModelError> {
    match (prompt(&request).as_str(), last_user(&request).as_str(), answers(&request)) {
        ("parent", _, 0) => {
            let parked = (0..3).map(|_| task("parked", true));
            Ok(calls(std::iter::once(task("quick", true)).chain(parked)))
        }
        ("parked", "parked", _) | (_, "forever", _) => std::future::pending().await,
        (_, "a moment", _) => {
            seconds(1).await;
            Ok(text("here"))
        }
        ("parent", _, _) => Ok(text("waiting")),
        (_, _, _) => Ok(text("done")),
    }
}

/// Returns the idle child of a parent whose three slots are all taken by runs that it owns.
async fn full(runtime: &Runtime) -> (SessionHandle, Vec<SessionHandle>) {
    let session = open(runtime);
    session.send("parent").await.expect("accepted");
    seconds(5).await;
    let tree = session.tree().await.expect("a tree");
    let (quiet, working): (Vec<_>, Vec<_>) = tree.children.iter().partition(|child| child.phase == Phase::Quiet);
    assert_eq!((quiet.len(), working.len(), runtime.slots_in_use()), (1, 3, 3));
    let handle = |id: SessionId| runtime.session(id).expect("readable").expect("the session exists");
    let children = quiet.into_iter().chain(working).map(|child| handle(child.id)).collect();
    (session, children)
}

#[tokio::test(start_paused = true)]
async fn persons_message_to_an_idle_child_skips_owned_runs() {
    let options = Options { slots: 3, seed: Some(7), ..Options::default() };
    let runtime = builder(&journal()).model(model(answer)).options(options).start().await.expect("a runtime");
    let (session, children) = full(&runtime).await;
    let begun = Instant::now();
    let receipt = children[0].send("a moment").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(runtime.slots_in_use(), 4, "expected separate limits for both kinds of runs");
    let ended = children[0].run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.outcome, begun.elapsed()), (Outcome::Completed, Duration::from_secs(1)));
    assert_eq!(runtime.slots_in_use(), 3);
    session.cancel().await.expect("cancelled");
    seconds(10).await;
    assert_eq!((runtime.slots_in_use(), runtime.stats().queued), (0, 0));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn owned_run_still_queues_behind_owned_runs() {
    let limits = Limits { live_runs: 2, ..Limits::default() };
    let runtime = builder(&journal()).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let stats = runtime.stats();
    assert_eq!((stats.slots, stats.queued), (2, 1), "expected one queued run");
    session.cancel().await.expect("cancelled");
    seconds(10).await;
    assert_eq!((runtime.slots_in_use(), runtime.stats().queued), (0, 0));
    shut(runtime).await;
}

/// Opens a person's run in each of two idle children, with one slot for people; returns when the second run starts.
#[tokio::test(start_paused = true)]
async fn persons_runs_have_their_own_slot_limit() {
    let journal = journal();
    let limits = Limits { live_person_runs: 1, live_runs: 2, ..Limits::default() };
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("one", false), task("two", false)])),
            _ => answer(request).await,
        }
    };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, _) = crate::support::ask(&runtime, "parent").await;
    let kids = journal.children(session.id()).expect("children");
    let kids: Vec<_> =
        kids.into_iter().map(|kid| runtime.session(kid).expect("readable").expect("the session exists")).collect();
    let begun = Instant::now();
    let first = kids[0].send("a moment").await.expect("accepted");
    let second = kids[1].send("a moment").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let stats = runtime.stats();
    assert_eq!((stats.slots, stats.queued), (1, 1));
    kids[0].run_ended(first.run).await.expect("ended");
    let ended = kids[1].run_ended(second.run).await.expect("ended");
    assert_eq!((ended.outcome, begun.elapsed()), (Outcome::Completed, Duration::from_secs(2)));
    assert_eq!(runtime.slots_in_use(), 0);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn persons_slot_is_released_on_cancel_interrupt_or_withdrawal() {
    let limits = Limits { live_person_runs: 1, ..Limits::default() };
    let runtime = builder(&journal()).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (_, children) = full(&runtime).await;
    let quiet = &children[0];
    for end in ["cancel", "interrupt"] {
        let receipt = quiet.send("forever").await.expect("accepted");
        seconds(1).await;
        assert_eq!(runtime.slots_in_use(), 4);
        let done = if end == "cancel" { quiet.cancel().await } else { quiet.interrupt().await };
        assert_eq!(done, Ok(Control::Done(receipt.run)));
        quiet.run_ended(receipt.run).await.expect("ended");
        assert_eq!(runtime.slots_in_use(), 3, "{end}");
    }
    // A queued run is withdrawn, and does not get a slot later.
    let held = quiet.send("forever").await.expect("accepted");
    children[1].cancel().await.expect("cancelled");
    seconds(1).await;
    let waits = children[1].send("forever").await.expect("accepted");
    seconds(1).await;
    assert_eq!(runtime.stats().queued, 1);
    assert_eq!(children[1].cancel().await, Ok(Control::Done(waits.run)));
    let ended = children[1].run_ended(waits.run).await.expect("ended");
    assert_eq!((ended.outcome, ended.turns), (Outcome::Cancelled { by: Initiator::Person }, 0));
    assert_eq!(quiet.cancel().await, Ok(Control::Done(held.run)));
    quiet.run_ended(held.run).await.expect("ended");
    let stats = runtime.stats();
    assert_eq!((stats.slots, stats.queued), (2, 0), "expected the parked runs without the cancelled one");
    let report = runtime.shutdown(Duration::ZERO).await;
    assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn persons_slot_survives_a_panic_and_is_released_once() {
    let (armed, struck) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0)));
    let (arm, count) = (Arc::clone(&armed), Arc::clone(&struck));
    let faults = Faults::new(move |point, detail| {
        if point == Point::Handler && detail == "model_answered" && armed.swap(false, Ordering::SeqCst) {
            *struck.lock().unwrap() += 1;
            panic!("injected fault");
        }
    });
    let runtime = builder(&journal()).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let (session, children) = full(&runtime).await;
    arm.store(true, Ordering::SeqCst);
    let receipt = children[0].send("a moment").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!((*count.lock().unwrap(), runtime.slots_in_use()), (1, 4), "the run lost its slot");
    let ended = children[0].run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.outcome, runtime.slots_in_use()), (Outcome::Completed, 3));
    session.cancel().await.expect("cancelled");
    seconds(10).await;
    assert_eq!(runtime.slots_in_use(), 0);
    shut(runtime).await;
}

/// Polls a request once immediately, and the rest in its own task.
fn at_once(asking: impl Future<Output = ()> + Send + 'static) {
    let mut asking = Box::pin(asking);
    if asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        tokio::spawn(asking);
    }
}

/// In one batch, a queued run that resumes is interrupted, resumes by another input, and is granted its slot. The release for the interrupt must not
/// release that slot, or the next queued run would run as well.
#[tokio::test(start_paused = true)]
async fn slot_granted_with_an_interrupt_is_kept() {
    let (journal, held) = (journal(), Arc::new(Mutex::new(None::<SessionHandle>)));
    let strikes = Arc::clone(&held);
    let faults = Faults::new(move |point, detail| {
        // The slot of the run that ends here is released next. The input arrives first in the inbox of the run that gets the slot.
        if (point, detail) == (Point::AfterAppend, "run_ended")
            && let Some(held) = strikes.lock().unwrap().take()
        {
            let session = held.clone();
            at_once(async move { drop(session.interrupt().await) });
            at_once(async move { drop(held.send("forever").await) });
        }
    });
    let limits = Limits { live_person_runs: 1, ..Limits::default() };
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), last_user(&request).as_str(), answers(&request)) {
            ("parent", _, 0) => Ok(calls(["one", "two", "three"].map(|part| task(part, false)))),
            (_, "start", 1) => Ok(calls([task("parked", true)])),
            _ => answer(request).await,
        }
    };
    let runtime = started(builder(&journal).model(model(answer)).limits(limits).faults(faults)).await;
    let (session, _) = crate::support::ask(&runtime, "parent").await;
    let kids = journal.children(session.id()).expect("children").into_iter();
    let kids: Vec<_> = kids.map(|kid| runtime.session(kid).expect("readable").expect("the session exists")).collect();
    let [waits, first, next] = &kids[..] else { panic!("three") };
    let run = waits.send("start").await.expect("accepted").run;
    seconds(1).await;
    assert_eq!(waits.interrupt().await, Ok(Control::Done(run)));
    first.send("a moment").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(500)).await;
    waits.send("continue").await.expect("accepted");
    next.send("forever").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(runtime.stats().queued, 2, "expected two runs waiting for the slot");
    *held.lock().unwrap() = Some(waits.clone());
    seconds(5).await;
    let phase = async |session: &SessionHandle| session.tree().await.expect("a tree").phase;
    let (there, stats) = (held.lock().unwrap().is_none(), runtime.stats());
    let seen = (there, phase(waits).await, phase(next).await, stats.slots, stats.queued);
    assert_eq!(
        seen,
        (true, Phase::Working, Phase::Queued, 2, 1),
        "expected the slots of one person's run and of the parked one"
    );
    session.cancel_tree().await.expect("cancelled");
    seconds(10).await;
    assert_eq!((runtime.slots_in_use(), runtime.stats().queued), (0, 0));
    shut(runtime).await;
}
