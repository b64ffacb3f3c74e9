//! Runs of an earlier host: how a new host handles them, even if the sweep itself fails.

use crate::support::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn panic_in_the_sweep_does_not_resume_the_run() {
    let journal = journal();
    let answer = |_| async {
        seconds(100).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime).id();
    runtime.session(session).unwrap().unwrap().send("one").await.expect("accepted");
    drop(runtime);
    seconds(1).await;
    let struck = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&struck);
    let faults = Faults::new(move |at, what| {
        let strikes = at == Point::Handler && what == "lost";
        assert!(!strikes || count.fetch_add(1, Ordering::Relaxed) > 0, "injected fault");
    });
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    assert_eq!(struck.load(Ordering::Relaxed), 2);
    let all = records(&journal, session).await;
    assert!(
        matches!(all.last(), Some(Record::RunEnded(ended)) if ended.outcome == Outcome::Lost),
        "{:?}",
        all.iter().map(Record::kind).collect::<Vec<_>>()
    );
    shut(runtime).await;
}

/// The actor dies at every message: its run does not end, and the report does not count it as swept.
#[tokio::test(start_paused = true)]
async fn run_without_a_live_actor_is_reported_and_not_counted() {
    let journal = journal();
    let answer = |_| async {
        seconds(100).await;
        Ok(text("hello"))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime).id();
    runtime.session(session).unwrap().unwrap().send("one").await.expect("accepted");
    drop(runtime);
    seconds(1).await;
    let dies = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&dies);
    let faults =
        Faults::new(move |at, _| assert!(at != Point::Handler || !still.load(Ordering::Relaxed), "injected fault"));
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let boot = runtime.boot();
    let received: Vec<_> = boot.failures.iter().map(|failure| (failure.session, &*failure.why)).collect();
    let why = "its actor crashed at each start; see the log";
    assert_eq!((boot.swept, received), (0, vec![(Some(session), why)]));
    // The actor is retried with a delay: when the fault is gone, the run ends.
    dies.store(false, Ordering::Relaxed);
    tokio::time::sleep(TEST_TIMEOUT).await;
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn queued_run_that_survives_the_host_is_started() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("quick", false), task("other", false)])),
            ("parent", 1) => Ok(calls([task("hang", true)])),
            ("parent", _) => Ok(text("resting")),
            ("other", 0) => Ok(text("other")),
            ("hang" | "other", _) => {
                std::future::pending::<()>().await;
                Ok(text("never"))
            }
            (_, 1) if request.messages.len() < 4 => Ok(calls([task("below", false)])),
            (_, _) => Ok(text("quick")),
        }
    };
    let limits = Limits { live_runs: 1, live_person_runs: 1, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits.clone()).start().await.expect("a runtime");
    let (parent, _) = sent(&runtime, "parent").await;
    seconds(1).await;
    let heads = journal.heads().expect("heads");
    let named = |name: &str| heads.iter().find(|(_, head)| &*head.title == name).expect("a child").0;
    let (quick, other) = (named("quick"), named("other"));
    // A person's run has the only slot of people's runs.
    runtime.session(other).unwrap().unwrap().send("for long").await.expect("accepted");
    let again = runtime.session(quick).unwrap().unwrap().send("again").await.expect("accepted");
    assert_eq!(again.run, RunNo(2), "{:?}", kinds(&journal, quick).await);
    drop(parent);
    drop(runtime);
    seconds(1).await;
    // Another seed, since the first host has used these ids.
    let options = Options { seed: Some(8), ..Options::default() };
    let runtime = started(builder(&journal).model(model(answer)).limits(limits).options(options)).await;
    let ended = tokio::time::timeout(TEST_TIMEOUT, runtime.session(quick).unwrap().unwrap().run_ended(RunNo(2))).await;
    let all = kinds(&journal, quick).await;
    assert_eq!(
        ended.unwrap_or_else(|_| panic!("never ends: {all:?}")).expect("the runtime is running").outcome,
        Outcome::Completed
    );
    let below = journal.children(quick).expect("children")[0];
    let all = records(&journal, below).await;
    assert!(matches!(all.last(), Some(Record::RunEnded(ended)) if ended.outcome == Outcome::Completed), "{all:#?}");
    shut(runtime).await;
}

/// One child's actor panics at its sweep, the other's after its end is in the log. The owner ends after both (T-7).
#[tokio::test(start_paused = true)]
async fn owner_waits_in_the_sweep_for_a_restarted_child() {
    for panicking in [1, 2] {
        let journal = journal();
        let answer = |request: Request| async move {
            match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => Ok(calls([task("one", true), task("two", true)])),
                (_, _) => {
                    std::future::pending::<()>().await;
                    Ok(text("never"))
                }
            }
        };
        let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
        let parent = open(&runtime).id();
        runtime.session(parent).unwrap().unwrap().send("parent").await.expect("accepted");
        seconds(1).await;
        drop(runtime);
        seconds(1).await;
        let (lost, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let faults = Faults::new(move |at, what| {
            let nth = |count: &AtomicUsize| count.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(
                !(at == Point::Handler && what == "lost" && nth(&lost) == panicking),
                "injected fault before the end"
            );
            assert!(
                !(at == Point::AfterAppend && what == "run_ended" && nth(&ended) == 1),
                "injected fault after the end"
            );
        });
        let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
        let all = records(&journal, parent).await;
        let outcomes: Vec<_> = all
            .iter()
            .take_while(|record| !matches!(record, Record::RunEnded(_)))
            .filter_map(|record| if let Record::NoticeTaken(taken) = record { Some(&taken.items) } else { None })
            .flatten()
            .map(|notice| notice.outcome.clone())
            .collect();
        assert_eq!(outcomes, [Outcome::Lost, Outcome::Lost], "{:?}", all.iter().map(Record::kind).collect::<Vec<_>>());
        shut(runtime).await;
    }
}
