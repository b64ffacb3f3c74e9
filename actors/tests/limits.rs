//! Runs that are parked at limits of providers until the reset (X13).

use crate::support::*;
use subtend_session::limits::Parking;
use subtend_session::record::Park;

const HOUR: Duration = Duration::from_secs(3_600);

fn limited() -> ModelError {
    ModelError { retry_after_ms: Some(3_600_000), ..ModelError::new(ModelFail::Rate, "the weekly limit is reached") }
}

/// Returns a model that refuses calls for the first `hours`, and the hour of each call. Answers take a second.
fn provider(hours: u64) -> (Arc<dyn Model>, Arc<Mutex<Vec<u64>>>) {
    let (begun, made) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let count = Arc::clone(&made);
    let answer = move |_, _| {
        let hour = begun.elapsed().as_secs() / HOUR.as_secs();
        count.lock().unwrap().push(hour);
        async move {
            seconds(1).await;
            if hour < hours { Err(limited()) } else { Ok(text("done")) }
        }
    };
    (Arc::new(fn_model("a", answer).with_quotas(["a"])), made)
}

async fn started(runtime: &Runtime, text: &str) -> SessionHandle {
    let session = open(runtime);
    session.send(text).await.expect("accepted");
    seconds(5).await;
    session
}

async fn outcome(session: &SessionHandle) -> Outcome {
    let ended = tokio::time::timeout(10 * HOUR, session.run_ended(RunNo(1))).await;
    ended.expect("the run ends").expect("the runtime is running").outcome
}

async fn resumed(journal: &Journal, session: &SessionHandle) -> usize {
    let resumes = |record: &Record| matches!(record, Record::RunResumed { why: Park::Limit { .. }, .. });
    records(journal, session.id()).await.iter().filter(|record| resumes(record)).count()
}

#[tokio::test(start_paused = true)]
async fn parked_run_resumes_by_itself_at_the_reset() {
    let journal = journal();
    let (model, made) = provider(1);
    let runtime = builder(&journal).model(model).start().await.expect("a runtime");
    let begun = Instant::now();
    let session = started(&runtime, "go").await;
    let tree = session.tree().await.expect("a tree");
    assert_eq!((tree.phase, tree.outcome), (Phase::WaitingMidTurn, None));
    assert_eq!(outcome(&session).await, Outcome::Completed);
    // Each answer takes a second.
    assert_eq!((begun.elapsed().as_secs(), made.lock().unwrap().clone()), (3_602, vec![0, 1]));
    assert_eq!(resumed(&journal, &session).await, 1);
    assert_eq!(session.tree().await.expect("a tree").worked_ms, 2_000, "working time includes the wait");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn run_with_parking_off_fails_at_once() {
    let (model, made) = provider(1);
    let limits = Limits { park: Parking::Off, ..Limits::default() };
    let runtime = builder(&journal()).model(model).limits(limits).start().await.expect("a runtime");
    for _ in 0..2 {
        let (_, ended) = ask(&runtime, "go").await;
        let Outcome::Failed { kind: FailKind::Model { error: ModelFail::Rate, .. } } = ended.outcome else {
            panic!("{ended:?}")
        };
    }
    assert_eq!(*made.lock().unwrap(), [0], "the second run made a call");
    shut(runtime).await;
}

/// Refuses each child's first call for an hour, but not the parent's.
async fn children(request: Request) -> Result<Answer, ModelError> {
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([task("one", false), task("two", true), task("three", false)])),
        ("parent", _) => Ok(text("all done")),
        _ if request.attempt.0 == 1 => Err(limited()),
        _ => Ok(text("done")),
    }
}

#[tokio::test(start_paused = true)]
async fn parked_children_release_their_slots() {
    let limits = Limits { live_runs: 1, ..Limits::default() };
    let runtime = builder(&journal()).model(model(children)).limits(limits).start().await.expect("a runtime");
    let begun = Instant::now();
    let parent = started(&runtime, "parent").await;
    let parked = parent.tree().await.expect("a tree").children;
    assert_eq!(parked.iter().map(|child| child.phase).collect::<Vec<_>>(), [Phase::WaitingMidTurn; 3]);
    assert_eq!(outcome(&parent).await, Outcome::Completed);
    // The runs that follow the probe take one or two seconds more.
    assert!((3_600..=3_605).contains(&begun.elapsed().as_secs()), "the three waits were not concurrent");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn one_parked_run_probes_and_the_others_follow() {
    let (model, made) = provider(2);
    let runtime = builder(&journal()).model(model).start().await.expect("a runtime");
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(started(&runtime, "go").await);
    }
    for session in &sessions {
        assert_eq!(outcome(session).await, Outcome::Completed);
    }
    // Expected: the first call, one probe in each hour, and the four that follow the answered probe.
    assert_eq!(*made.lock().unwrap(), [0, 1, 2, 2, 2, 2, 2]);
    shut(runtime).await;
}

/// All resets are at one instant, and the sessions have left memory.
#[tokio::test(start_paused = true)]
async fn x13_one_run_probes_for_sessions_out_of_memory() {
    let (begun, calls) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&calls);
    let answer = move |_, _| {
        let is_limited = begun.elapsed() < HOUR;
        if !is_limited {
            noted.lock().unwrap().push(begun.elapsed().as_millis());
        }
        async move {
            seconds(1).await;
            if is_limited { Err(limited()) } else { Ok(text("done")) }
        }
    };
    let options = Options { seed: Some(7), idle: Duration::from_millis(10), ..Options::default() };
    let model = Arc::new(fn_model("a", answer).with_quotas(["a"]));
    let runtime = builder(&journal()).options(options).model(model).start().await.expect("a runtime");
    let sessions = [(); 5].map(|()| open(&runtime));
    for session in &sessions {
        session.send("go").await.expect("accepted");
    }
    for session in &sessions {
        assert_eq!(outcome(session).await, Outcome::Completed);
    }
    let calls = calls.lock().unwrap().clone();
    assert!(calls.len() == 5 && calls[1..].iter().all(|at| *at >= calls[0] + 1_000), "{calls:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn probe_that_is_cancelled_hands_over_to_the_next() {
    let journal = journal();
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let answer = move |_, _| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match nth {
                0 => Err(limited()),
                1 => std::future::pending().await,
                _ => Ok(text("done")),
            }
        }
    };
    let model = Arc::new(fn_model("a", answer).with_quotas(["a"]));
    let runtime = builder(&journal).model(model).start().await.expect("a runtime");
    let (first, second) = (started(&runtime, "go").await, started(&runtime, "go").await);
    tokio::time::sleep(HOUR).await;
    assert_eq!(made.load(Ordering::Relaxed), 2, "expected one probe");
    let probes = |session: &SessionHandle| {
        let row = journal.inflight_of(session.id()).expect("readable");
        row.is_some_and(|row| row.limited_until.is_none())
    };
    let (probe, other) = if probes(&first) { (first, second) } else { (second, first) };
    probe.cancel().await.expect("cancelled");
    assert_eq!(outcome(&other).await, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn controls_end_a_parked_run_at_once() {
    let (model, made) = provider(1);
    let limits = Limits { wall_ms: Some(1_800_000), ..Limits::default() };
    let runtime = builder(&journal()).model(model).limits(limits).start().await.expect("a runtime");
    let (cancelled, interrupted) = (started(&runtime, "go").await, started(&runtime, "go").await);
    let capped = started(&runtime, "go").await;
    let begun = Instant::now();
    cancelled.cancel().await.expect("cancelled");
    interrupted.interrupt().await.expect("interrupted");
    assert!(matches!(outcome(&cancelled).await, Outcome::Cancelled { .. }));
    assert!(matches!(outcome(&interrupted).await, Outcome::Interrupted { .. }));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(outcome(&capped).await, Outcome::TimedOut { what: TimeLimit::WallCap }, "the wall cap did not end it");
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!(*made.lock().unwrap(), [0], "a timer remained");
    shut(runtime).await;
}

/// A parked run resumes although no agent here has `on_restart: resume`, since no call of it was in flight.
#[tokio::test(start_paused = true)]
async fn parked_tree_survives_a_restart_and_resumes_once() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(children)).start().await.expect("a runtime");
    let parent = started(&runtime, "parent").await.id();
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(children)).start().await.expect("a runtime");
    assert_eq!((runtime.boot().swept, runtime.boot().resumed), (0, 4));
    let begun = Instant::now();
    let parent = runtime.session(parent).expect("readable").expect("the session exists");
    assert_eq!(outcome(&parent).await, Outcome::Completed);
    assert!((3_595..=3_605).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    for child in journal.children(parent.id()).expect("children") {
        let records = records(&journal, child).await;
        let turns = records.iter().filter(|record| matches!(record, Record::TurnStarted { .. })).count();
        assert_eq!(turns, 2, "expected one call before the reset and one after it");
    }
    shut(runtime).await;
}

/// The control: a run whose owner was working is lost with it.
#[tokio::test(start_paused = true)]
async fn parked_child_of_a_working_owner_is_lost_with_it() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("one", true)])),
            ("parent", _) => std::future::pending().await,
            _ => Err(limited()),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let parent = started(&runtime, "parent").await.id();
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    assert_eq!((runtime.boot().swept, runtime.boot().resumed), (2, 0));
    let parent = runtime.session(parent).expect("readable").expect("the session exists");
    assert_eq!(outcome(&parent).await, Outcome::Lost);
    shut(runtime).await;
}

/// A steering input does not wake a parked run: it is taken at the boundary after the repeated call.
#[tokio::test(start_paused = true)]
async fn steer_waits_for_the_boundary_after_the_call() {
    let (model, made) = provider(1);
    let runtime = builder(&journal()).model(model).start().await.expect("a runtime");
    let session = started(&runtime, "go").await;
    session.steer("left").await.expect("accepted");
    assert_eq!(outcome(&session).await, Outcome::Completed);
    assert_eq!(*made.lock().unwrap(), [0, 1, 1]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn limit_of_one_session_turns_parking_off() {
    let (model, _) = provider(1);
    let runtime = builder(&journal()).model(model).start().await.expect("a runtime");
    let limits = Limits { park: Parking::Off, ..Limits::default() };
    let options = OpenOptions { agent: "worker".into(), limits: Some(limits), ..OpenOptions::default() };
    let session = runtime.open(options).expect("a session");
    session.send("go").await.expect("accepted");
    assert!(matches!(outcome(&session).await, Outcome::Failed { .. }));
    shut(runtime).await;
}

/// Returns a model that refuses calls until `until`, by `error`, and the number of its calls.
fn member(name: &str, error: ModelFail, until: Duration) -> (Arc<dyn Model>, Arc<AtomicUsize>) {
    let (begun, made) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let (count, own) = (Arc::clone(&made), name.to_owned());
    let answer = move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let left = until.saturating_sub(begun.elapsed());
        let retry_after_ms = (error == ModelFail::Rate).then(|| u64::try_from(left.as_millis()).unwrap());
        let refused = ModelError { retry_after_ms, ..ModelError::new(error, "refused") };
        let own = own.clone();
        async move { if left.is_zero() { Ok(text(&own)) } else { Err(refused) } }
    };
    (Arc::new(fn_model(name, answer).with_quotas([name])), made)
}

async fn pool(journal: &Journal, members: [Arc<dyn Model>; 2]) -> Runtime {
    let [a, b] = members;
    let builder = builder(journal).named_model("a", a).named_model("b", b).pool("smart", ["a", "b"]);
    builder.default_model("pool:smart").start().await.expect("a runtime")
}

/// A pool parks at the member that resets first, whatever their order, and that member answers.
#[tokio::test(start_paused = true)]
async fn x13_pool_parks_at_the_member_that_resets_first() {
    for (a, b, first) in [(2, 1, "b"), (1, 2, "a")] {
        let journal = journal();
        let (a, a_calls) = member("a", ModelFail::Rate, a * HOUR);
        let (b, b_calls) = member("b", ModelFail::Rate, b * HOUR);
        let runtime = pool(&journal, [a, b]).await;
        let begun = Instant::now();
        let (first_run, second_run) = (started(&runtime, "go").await, started(&runtime, "go").await);
        for session in [&first_run, &second_run] {
            assert_eq!(outcome(session).await, Outcome::Completed, "{first}");
            assert_eq!(resumed(&journal, session).await, 1, "{first}");
            let ended = session.run_ended(RunNo(1)).await.expect("ended");
            assert_eq!(ended.text.as_deref(), Some(first));
        }
        assert!((3_600..=3_605).contains(&begun.elapsed().as_secs()), "{first}: {:?}", begun.elapsed());
        // One refused call of each member, and one answer for each run.
        let calls = [a_calls, b_calls].map(|calls| calls.load(Ordering::Relaxed));
        assert_eq!(calls, if first == "a" { [3, 1] } else { [1, 3] });
        shut(runtime).await;
    }
}

/// The run waits within the turn for a member that resets in time; the last member alone would make it park.
#[tokio::test(start_paused = true)]
async fn x13_reset_within_the_turn_does_not_park_the_pool() {
    let journal = journal();
    let (a, a_calls) = member("a", ModelFail::Rate, Duration::from_secs(30));
    let (b, b_calls) = member("b", ModelFail::Rate, HOUR);
    let runtime = pool(&journal, [a, b]).await;
    let begun = Instant::now();
    let session = started(&runtime, "go").await;
    assert_eq!(outcome(&session).await, Outcome::Completed);
    assert!((30..=33).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    let parks = |record: &Record| matches!(record, Record::RunParked { why: Park::Limit { .. }, .. });
    assert!(!records(&journal, session.id()).await.iter().any(parks), "the run parked");
    assert_eq!([a_calls, b_calls].map(|calls| calls.load(Ordering::Relaxed)), [2, 1]);
    shut(runtime).await;
}

/// A run that waits for one member does not pause another, whose key was refused and is correct now.
#[tokio::test(start_paused = true)]
async fn x13_parked_pool_pauses_only_the_member_it_waits_for() {
    let journal = journal();
    let (a, _) = member("a", ModelFail::Auth, Duration::from_secs(60));
    let (b, b_calls) = member("b", ModelFail::Rate, HOUR);
    let runtime = pool(&journal, [a, b]).await;
    let begun = Instant::now();
    // The second run calls the refused member first, because that member recovers first.
    let (first, second) = (started(&runtime, "go").await, started(&runtime, "go").await);
    seconds(60).await;
    let options = OpenOptions { agent: "worker".into(), model: Some("a".into()), ..OpenOptions::default() };
    let named = runtime.open(options).expect("a session");
    named.send("go").await.expect("accepted");
    assert_eq!(outcome(&named).await, Outcome::Completed);
    assert!(begun.elapsed() < Duration::from_secs(75), "the call waited: {:?}", begun.elapsed());
    for session in [first, second] {
        assert_eq!(outcome(&session).await, Outcome::Completed);
        assert_eq!(resumed(&journal, &session).await, 1);
    }
    assert!((3_600..=3_605).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(b_calls.load(Ordering::Relaxed), 1);
    shut(runtime).await;
}

/// The record names the member that a run waits for. A restart pauses that member, not the one that failed last.
#[tokio::test(start_paused = true)]
async fn x13_restart_pauses_the_member_of_the_record() {
    let memory = Memory::new();
    let (a, a_calls) = member("a", ModelFail::Rate, HOUR);
    let (b, _) = member("b", ModelFail::Auth, Duration::from_secs(60));
    let journal = reopen(&memory);
    let runtime = pool(&journal, [Arc::clone(&a), Arc::clone(&b)]).await;
    let parked = started(&runtime, "go").await.id();
    drop((runtime, journal));
    seconds(60).await;

    let journal = reopen(&memory);
    let runtime = pool(&journal, [a, b]).await;
    // The reset is timed by the system clock, which did not advance.
    let begun = Instant::now();
    let named =
        |model: &str| OpenOptions { agent: "worker".into(), model: Some(model.into()), ..OpenOptions::default() };
    seconds(1).await;
    let [paused, free] = ["a", "b"].map(|model| runtime.open(named(model)).expect("a session"));
    paused.send("go").await.expect("accepted");
    free.send("go").await.expect("accepted");
    assert_eq!(outcome(&free).await, Outcome::Completed);
    assert!(begun.elapsed() < Duration::from_secs(60), "the call waited: {:?}", begun.elapsed());
    assert_eq!(a_calls.load(Ordering::Relaxed), 1, "the paused member was called");
    let parked = runtime.session(parked).expect("readable").expect("the session exists");
    for session in [&parked, &paused] {
        assert_eq!(outcome(session).await, Outcome::Completed);
    }
    assert!((3_595..=3_605).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(resumed(&journal, &parked).await, 1);
    shut(runtime).await;
}

/// After the restart the model of the parked run is not configured, so that another one answers in its place.
#[tokio::test(start_paused = true)]
async fn x13_park_of_a_removed_model_pauses_no_other() {
    let memory = Memory::new();
    let ((a, _), (b, _)) = (member("a", ModelFail::Rate, HOUR), member("b", ModelFail::Rate, Duration::ZERO));
    let journal = reopen(&memory);
    let models = builder(&journal).named_model("a", a).named_model("b", Arc::clone(&b)).default_model("b");
    let runtime = models.start().await.expect("a runtime");
    let options = OpenOptions { agent: "worker".into(), model: Some("a".into()), ..OpenOptions::default() };
    let parked = runtime.open(options).expect("a session");
    parked.send("go").await.expect("accepted");
    seconds(5).await;
    let parked = parked.id();
    drop((runtime, journal));

    let runtime = builder(&reopen(&memory)).named_model("b", b).default_model("b").start().await.expect("a runtime");
    let begun = Instant::now();
    seconds(1).await;
    let free = started(&runtime, "go").await;
    assert_eq!(outcome(&free).await, Outcome::Completed);
    assert!(begun.elapsed() < Duration::from_secs(60), "the call waited: {:?}", begun.elapsed());
    // The control: the run itself waits for its reset.
    let parked = runtime.session(parked).expect("readable").expect("the session exists");
    assert_eq!(outcome(&parked).await, Outcome::Completed);
    assert!((3_590..=3_605).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    shut(runtime).await;
}

/// The provider of the compaction agent refuses calls for an hour: the run waits for it, and is compacted after the reset.
#[tokio::test(start_paused = true)]
async fn x13_compaction_at_a_limit_parks_its_run() {
    for (park, parks) in [(Parking::On, 1), (Parking::Off, 0)] {
        let journal = journal();
        let begun = Instant::now();
        let answer = move |request: Request, _| async move {
            let is_compacted = format!("{:?}", request.messages).contains("was compacted to save space");
            match &*request.agent {
                "compaction" if begun.elapsed() < HOUR => Err(limited()),
                "compaction" => Ok(text("Three messages were answered.")),
                _ if answers(&request) < 3 || is_compacted => Ok(text(&"word ".repeat(1_000))),
                _ => Err(ModelError::new(ModelFail::ContextOverflow, "the prompt is too long")),
            }
        };
        let model = Arc::new(fn_model("a", answer).with_quotas(["a"]));
        let limits = Limits { park, ..Limits::default() };
        let runtime = builder(&journal).model(model).limits(limits).start().await.expect("a runtime");
        let session = open(&runtime);
        let mut ends = Vec::new();
        for run in 1..=4 {
            session.send("please ".repeat(1_000)).await.expect("accepted");
            let ended = tokio::time::timeout(10 * HOUR, session.run_ended(RunNo(run))).await.expect("it ends");
            ends.push(ended.expect("the runtime is running").outcome);
        }
        let kinds: Vec<&str> = records(&journal, session.id()).await.iter().map(Record::kind).collect();
        let count = |kind: &str| kinds.iter().filter(|found| **found == kind).count();
        assert_eq!((resumed(&journal, &session).await, count("compacted")), (parks, parks), "{kinds:?}");
        let last = ends.pop().expect("an end");
        assert_eq!(ends, [(); 3].map(|()| Outcome::Completed));
        match park {
            Parking::On => assert_eq!(last, Outcome::Completed),
            // Control: with parking off, the run fails.
            Parking::Off => assert!(matches!(last, Outcome::Failed { .. }), "{last:?}"),
        }
        shut(runtime).await;
    }
}
