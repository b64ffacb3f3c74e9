//! Runs that resume after a restart of the host: `on_restart: resume` (X2).

use crate::support::*;

mod dormant;

fn workers(journal: &Journal, on_restart: impl Into<Option<OnRestart>>, seed: u64) -> Builder {
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { on_restart: on_restart.into(), ..worker });
    builder(journal).catalog(catalog).options(Options { seed: Some(seed), ..Options::default() })
}

async fn opened(runtime: &Runtime, on_restart: OnRestart, text: &str) -> SessionId {
    let options = OpenOptions { agent: "worker".into(), on_restart: Some(on_restart), ..OpenOptions::default() };
    let session = runtime.open(options).expect("a session");
    session.send(text).await.expect("accepted");
    seconds(5).await;
    session.id()
}

fn slow() -> Duration {
    Duration::from_secs(60)
}

async fn tree(request: Request) -> Result<Answer, ModelError> {
    if prompt(&request) == "parent" && answers(&request) == 0 {
        return Ok(calls([task("one", false), task("two", true)]));
    }
    tokio::time::sleep(slow()).await;
    Ok(text(&format!("{} is done", prompt(&request))))
}

/// Returns the title of each session and the outcomes of its runs, sorted by title.
async fn outcomes(journal: &Journal) -> Vec<(String, Vec<Outcome>)> {
    let mut found = Vec::new();
    for (id, head) in journal.heads().expect("heads") {
        let ends = records(journal, id).await.into_iter().filter_map(|record| match record {
            Record::RunEnded(ended) => Some(ended.outcome),
            _ => None,
        });
        found.push((head.title.to_string(), ends.collect()));
    }
    found.sort_by(|one: &(String, _), other| one.0.cmp(&other.0));
    found
}

async fn ended(runtime: &Runtime, session: SessionId) -> Outcome {
    let handle = runtime.session(session).expect("readable").expect("the session exists");
    let ended = tokio::time::timeout(Duration::from_secs(7200), handle.run_ended(RunNo(1))).await;
    ended.expect("the run ends").expect("the runtime is running").outcome
}

#[tokio::test(start_paused = true)]
async fn resuming_tree_continues_without_a_failure_notice() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 7).model(model(tree)).start().await.expect("a runtime");
    let parent = opened(&runtime, OnRestart::Resume, "parent").await;
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 8).model(model(tree)).start().await.expect("a runtime");
    assert_eq!((runtime.boot().swept, runtime.boot().resumed), (0, 3));
    assert_eq!(ended(&runtime, parent).await, Outcome::Completed);
    let done = |name: &str| (name.to_owned(), vec![Outcome::Completed]);
    assert_eq!(outcomes(&journal).await, [done("one"), done("parent"), done("two")]);
    let child = journal.children(parent).expect("children")[0];
    let attempts: Vec<_> = records(&journal, child)
        .await
        .iter()
        .filter_map(|record| match record {
            Record::TurnStarted { turn, attempt, .. } => Some((turn.0, attempt.0)),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [(1, 1), (1, 2)], "expected another attempt of the same turn");
    assert_eq!((journal.outbox().expect("outbox"), journal.inflight().expect("inflight")), (vec![], vec![]));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn start_reports_progress_while_it_resumes_runs() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 7).model(model(tree)).start().await.expect("a runtime");
    opened(&runtime, OnRestart::Resume, "parent").await;
    drop((runtime, journal));

    for (resumes, expected) in
        [(false, vec![(1, 3), (2, 3), (3, 3)]), (true, vec![(0, 3), (0, 3), (0, 3), (1, 3), (2, 3), (3, 3)])]
    {
        let journal = reopen(&memory);
        let received = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&received);
        let options = Options { resumes, seed: Some(8), ..Options::default() };
        let builder = workers(&journal, OnRestart::Resume, 8).options(options).model(model(tree));
        let builder = builder.on_boot(move |at| tell.lock().unwrap().push((at.done, at.total)));
        let runtime = builder.start().await.expect("a runtime");
        assert_eq!(*received.lock().unwrap(), expected, "resumes: {resumes}");
        runtime.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn child_that_does_not_resume_ends_lost_and_its_owner_resumes() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Fail, 7).model(model(tree)).start().await.expect("a runtime");
    let parent = opened(&runtime, OnRestart::Resume, "parent").await;
    drop((runtime, journal));

    let journal = reopen(&memory);
    let received = Arc::new(Mutex::new(Vec::new()));
    let answer = {
        let received = Arc::clone(&received);
        move |request: Request| {
            let failures = request.messages.iter().filter(|message| match message {
                Message::Result { content, .. } => content.contains("lost"),
                Message::Notice { text, .. } => text.contains("lost"),
                _ => false,
            });
            received.lock().unwrap().push(failures.count());
            async { Ok(text("I see")) }
        }
    };
    let runtime = workers(&journal, OnRestart::Fail, 8).model(model(answer)).start().await.expect("a runtime");
    assert_eq!((runtime.boot().swept, runtime.boot().resumed), (2, 1));
    assert_eq!(ended(&runtime, parent).await, Outcome::Completed);
    let lost = |name: &str| (name.to_owned(), vec![Outcome::Lost]);
    assert_eq!(outcomes(&journal).await, [lost("one"), ("parent".into(), vec![Outcome::Completed]), lost("two")]);
    assert_eq!(*received.lock().unwrap(), [2], "expected one notice of each child, in one turn");
    shut(runtime).await;
}

/// The root's option applies to its tree. Controls: a root with the other option, and a child whose agent chooses.
#[tokio::test(start_paused = true)]
async fn child_resumes_as_its_owner_unless_its_agent_chooses() {
    for (agent, opening, expected) in [
        (None, OnRestart::Resume, (0, 3)),
        (None, OnRestart::Fail, (3, 0)),
        (Some(OnRestart::Fail), OnRestart::Resume, (2, 1)),
    ] {
        let memory = Memory::new();
        let journal = reopen(&memory);
        let runtime = workers(&journal, agent, 7).model(model(tree)).start().await.expect("a runtime");
        let parent = opened(&runtime, opening, "parent").await;
        drop((runtime, journal));

        let journal = reopen(&memory);
        let runtime = workers(&journal, agent, 8).model(model(tree)).start().await.expect("a runtime");
        assert_eq!((runtime.boot().swept, runtime.boot().resumed), expected, "{agent:?}, {opening:?}");
        let outcome = if opening == OnRestart::Resume { Outcome::Completed } else { Outcome::Lost };
        assert_eq!(ended(&runtime, parent).await, outcome, "{agent:?}, {opening:?}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn owned_run_does_not_resume_without_its_owner() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 7).model(model(tree)).start().await.expect("a runtime");
    let parent = opened(&runtime, OnRestart::Fail, "parent").await;
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 8).model(model(tree)).start().await.expect("a runtime");
    assert_eq!((runtime.boot().swept, runtime.boot().resumed), (3, 0));
    assert_eq!(ended(&runtime, parent).await, Outcome::Lost);
    let lost = |name: &str| (name.to_owned(), vec![Outcome::Lost]);
    assert_eq!(outcomes(&journal).await, [lost("one"), lost("parent"), lost("two")]);
    shut(runtime).await;
}

/// E-1: read-only and idempotent calls are repeated under their key; effects of others are reported as unknown.
#[tokio::test(start_paused = true)]
async fn only_harmless_calls_are_repeated_after_a_restart() {
    let memory = Memory::new();
    let keys = Arc::new(Mutex::new(BTreeMap::<String, Vec<String>>::new()));
    let hangs = Arc::new(AtomicBool::new(true));
    let registry = || {
        let effects =
            [("reading", ToolEffect::ReadOnly), ("keyed", ToolEffect::Idempotent), ("acting", ToolEffect::SideEffect)];
        tools(effects.map(|(name, effect)| {
            let (keys, hangs) = (Arc::clone(&keys), Arc::clone(&hangs));
            tool(name, effect, move |call| {
                let key = format!("{} {} {}", call.key.session, call.key.run, call.key.call);
                keys.lock().unwrap().entry(name.to_owned()).or_default().push(key);
                let hangs = hangs.load(Ordering::Relaxed);
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    Ok(ToolOutput::text("fine"))
                }
            })
        }))
    };
    let none = || json!({});
    for acting in ["keyed", "acting"] {
        keys.lock().unwrap().clear();
        hangs.store(true, Ordering::Relaxed);
        let answer = move |request: Request| async move {
            if answers(&request) == 0 {
                return Ok(calls([("reading", none()), (acting, none())]));
            }
            Ok(text("done"))
        };
        let journal = reopen(&memory);
        let start = |journal: &Journal, seed| workers(journal, OnRestart::Resume, seed).tools(registry());
        let first = u64::from(acting == "keyed") * 2 + 1;
        let runtime = start(&journal, first).model(model(answer)).start().await.expect("a runtime");
        let session = opened(&runtime, OnRestart::Resume, "go").await;
        drop((runtime, journal));
        hangs.store(false, Ordering::Relaxed);
        let journal = reopen(&memory);
        let runtime = start(&journal, first + 1).model(model(answer)).start().await.expect("a runtime");
        assert_eq!(ended(&runtime, session).await, Outcome::Completed);
        let called = |name: &str| keys.lock().unwrap().get(name).cloned().unwrap_or_default();
        let (read, acted) = (called("reading"), called(acting));
        assert_eq!((read.len(), &read[0]), (2, &read[1]), "the repeated call has another key");
        let again = usize::from(acting == "keyed");
        assert_eq!(acted.len(), 1 + again, "{acting}");
        assert!(acted.iter().all(|key| *key == acted[0]), "the repeated call has another key: {acted:?}");
        let ends: Vec<_> = records(&journal, session)
            .await
            .into_iter()
            .filter_map(|record| match record {
                Record::CallFinished(finished) => Some((finished.call.ix, finished.end)),
                _ => None,
            })
            .collect();
        let acted = if again == 1 { CallEnd::Ok } else { CallEnd::UnknownEffects };
        assert!(ends.contains(&(0, CallEnd::Ok)) && ends.contains(&(1, acted)) && ends.len() == 2, "{ends:?}");
        shut(runtime).await;
    }
}

/// T-3: a resumed run gets its slot before a queued one, and can be cancelled.
#[tokio::test(start_paused = true)]
async fn resumed_run_keeps_its_slot_and_can_be_cancelled() {
    let memory = Memory::new();
    let limits = subtend_session::limits::Limits { live_runs: 1, ..Default::default() };
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("one", true), task("two", true)])),
            ("parent", _) => Ok(text("resting")),
            (_, _) => {
                tokio::time::sleep(slow()).await;
                Ok(text("done"))
            }
        }
    };
    let journal = reopen(&memory);
    let start = |journal: &Journal, seed| workers(journal, OnRestart::Resume, seed).limits(limits.clone());
    let runtime = start(&journal, 7).model(model(answer)).start().await.expect("a runtime");
    let parent = opened(&runtime, OnRestart::Resume, "parent").await;
    drop((runtime, journal));

    let journal = reopen(&memory);
    let runtime = start(&journal, 8).model(model(answer)).start().await.expect("a runtime");
    assert_eq!((runtime.boot().swept, runtime.boot().resumed, runtime.slots_in_use()), (0, 3, 1));
    tokio::time::sleep(slow() + Duration::from_secs(5)).await;
    let finished: usize = outcomes(&journal).await.iter().map(|(_, ends)| ends.len()).sum();
    assert_eq!((finished, runtime.slots_in_use()), (1, 1), "expected one run after the other");
    let handle = runtime.session(parent).expect("readable").expect("the session exists");
    handle.cancel().await.expect("received");
    assert_eq!(ended(&runtime, parent).await, Outcome::Cancelled { by: Initiator::Person });
    let by_owner = Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::Cancelled } };
    let ends: Vec<Outcome> = outcomes(&journal).await.into_iter().flat_map(|(_, ends)| ends).collect();
    assert!(ends.contains(&Outcome::Completed) && ends.contains(&by_owner), "{ends:?}");
    assert_eq!(runtime.slots_in_use(), 0);
    shut(runtime).await;
}

/// A process that only reads leaves dormant runs to a host that runs agents.
#[tokio::test(start_paused = true)]
async fn start_without_recovery_does_not_resume_runs() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 7).model(model(tree)).start().await.expect("a runtime");
    let parent = opened(&runtime, OnRestart::Resume, "parent").await;
    drop((runtime, journal));

    let journal = reopen(&memory);
    let before = records(&journal, parent).await;
    let looks = Options { seed: Some(8), resumes: false, ..Options::default() };
    let runtime = workers(&journal, OnRestart::Resume, 8).options(looks).model(model(tree)).start().await;
    let runtime = runtime.expect("a runtime");
    tokio::time::sleep(slow() * 2).await;
    assert_eq!(records(&journal, parent).await, before);
    runtime.shutdown(Duration::from_secs(1)).await;
    drop(journal);

    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 9).model(model(tree)).start().await.expect("a runtime");
    assert_eq!(ended(&runtime, parent).await, Outcome::Completed);
    shut(runtime).await;
}

/// If nothing resumes, inputs behind lost runs stay queued until the next input of their session.
#[tokio::test(start_paused = true)]
async fn queued_inputs_remain_if_nothing_resumes() {
    let memory = Memory::new();
    let start = |journal: &Journal, seed, resumes| {
        let options = Options { seed: Some(seed), resumes, ..Options::default() };
        workers(journal, OnRestart::Fail, seed).options(options).model(model(tree))
    };
    let journal = reopen(&memory);
    let runtime = start(&journal, 7, true).start().await.expect("a runtime");
    let continues = opened(&runtime, OnRestart::Resume, "alone").await;
    let fails = opened(&runtime, OnRestart::Fail, "alone").await;
    runtime.session(fails).expect("readable").expect("the session exists").send("later").await.expect("accepted");
    let other = opened(&runtime, OnRestart::Fail, "alone").await;
    let other_handle = runtime.session(other).expect("readable").expect("the session exists");
    other_handle.send("later").await.expect("accepted");
    let branch = other_handle.branch(subtend_actors::BranchOptions::default()).await.expect("a branch");
    branch.send("alone").await.expect("accepted");
    seconds(5).await;
    branch.send("later").await.expect("accepted");
    let branch = branch.id();
    drop((other_handle, runtime, journal));

    let journal = reopen(&memory);
    let before = records(&journal, continues).await;
    let runtime = start(&journal, 8, false).start().await.expect("a runtime");
    let boot = runtime.boot();
    assert_eq!((boot.swept, boot.resumed, boot.dormant, boot.inputs), (3, 0, 1, 3));
    tokio::time::sleep(slow() * 2).await;
    assert_eq!(records(&journal, continues).await, before, "a dormant run was changed");
    for left in [fails, other, branch] {
        let left = runtime.session(left).expect("readable").expect("the session exists");
        assert_eq!(left.queue().await.expect("listed").len(), 1, "a queued input is missing");
    }
    runtime.shutdown(Duration::from_secs(1)).await;
    drop(journal);

    let journal = reopen(&memory);
    let runtime = start(&journal, 9, true).start().await.expect("a runtime");
    assert_eq!((runtime.boot().resumed, runtime.boot().dormant), (1, 0));
    assert_eq!(ended(&runtime, continues).await, Outcome::Completed);
    shut(runtime).await;
}

/// V-3 across hosts: the first action of a run may crash the host. A queued run has done nothing, so its starts are not counted.
#[tokio::test(start_paused = true)]
async fn running_run_fails_after_three_crashes_but_queued_not() {
    let memory = Memory::new();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("child", 0) => Ok(calls([("reading", json!({}))])),
            (_, _) => Ok(text("done")),
        }
    };
    let hangs = || {
        tools([tool("reading", ToolEffect::ReadOnly, |_| async {
            std::future::pending::<()>().await;
            Ok(ToolOutput::text("never"))
        })])
    };
    let start = |journal: &Journal, seed| workers(journal, OnRestart::Resume, seed).tools(hangs()).model(model(answer));
    let journal = reopen(&memory);
    let runtime = start(&journal, 1).start().await.expect("a runtime");
    let parent = opened(&runtime, OnRestart::Resume, "parent").await;
    drop((runtime, journal));
    for host in 2..=3 {
        let journal = reopen(&memory);
        let runtime = start(&journal, host).start().await.expect("a runtime");
        assert_eq!((runtime.boot().swept, runtime.boot().resumed), (0, 2), "host {host}");
        seconds(5).await;
        drop((runtime, journal));
    }
    let journal = reopen(&memory);
    let runtime = start(&journal, 4).start().await.expect("a runtime");
    assert_eq!(ended(&runtime, parent).await, Outcome::Completed);
    let given_up = Outcome::RestartsExhausted { command: None };
    let ends = [("child".into(), vec![given_up]), ("parent".into(), vec![Outcome::Completed])];
    assert_eq!(outcomes(&journal).await, ends);
    shut(runtime).await;
}

/// Shuts the host down in order, with a run in flight.
async fn leave(runtime: Runtime) {
    let journal = runtime.journal().clone();
    let report = runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.drained, report.actors, report.tasks), (false, 0, 0), "{report:?}");
    assert!(journal.poisoned().is_none());
}

/// V-3 counts crashes: an orderly shutdown during a long call does not count.
#[tokio::test(start_paused = true)]
async fn running_run_survives_any_number_of_orderly_shutdowns() {
    let memory = Memory::new();
    let answering = || {
        model(|request| async move {
            Ok(if answers(&request) == 0 { calls([("reading", json!({}))]) } else { text("done") })
        })
    };
    // Each host repeats the call, which leaves no record.
    let reading = |hangs: bool| {
        tools([tool("reading", ToolEffect::ReadOnly, move |_| async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(ToolOutput::text("read"))
        })])
    };
    let start = |journal: &Journal, seed| {
        workers(journal, OnRestart::Resume, seed).tools(reading(seed < 7)).model(answering()).start()
    };
    let journal = reopen(&memory);
    let runtime = start(&journal, 1).await.expect("a runtime");
    let session = opened(&runtime, OnRestart::Resume, "go").await;
    leave(runtime).await;
    for host in 2..7 {
        let journal = reopen(&memory);
        let runtime = start(&journal, host).await.expect("a runtime");
        assert_eq!((runtime.boot().swept, runtime.boot().resumed), (0, 1), "host {host}");
        seconds(5).await;
        leave(runtime).await;
    }
    let journal = reopen(&memory);
    let runtime = start(&journal, 7).await.expect("a runtime");
    assert_eq!(ended(&runtime, session).await, Outcome::Completed);
    shut(runtime).await;
}

/// A dropped runtime, as after a panic that unwinds, counts as a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dropped_host_counts_against_the_run() {
    let memory = Memory::new();
    let answering = || {
        model(|request| async move {
            Ok(if answers(&request) == 0 { calls([("reading", json!({}))]) } else { text("done") })
        })
    };
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let hangs = |alive: &Arc<()>| {
        let (begin, alive) = (begin.clone(), Arc::clone(alive));
        tools([tool("reading", ToolEffect::ReadOnly, move |_| {
            let _of_this_host = &alive;
            begin.send(()).expect("a receiver waits");
            std::future::pending()
        })])
    };
    let start = |journal: &Journal, host, alive: &Arc<()>| {
        workers(journal, OnRestart::Resume, host).tools(hangs(alive)).model(answering()).start()
    };
    let (mut left, mut starts) = (None, Vec::new());
    for host in 1..=3 {
        let (journal, alive) = (reopen(&memory), Arc::new(()));
        let runtime = start(&journal, host, &alive).await.expect("a runtime");
        if left.is_none() {
            let on_restart = Some(OnRestart::Resume);
            let options = OpenOptions { agent: "worker".into(), on_restart, ..OpenOptions::default() };
            let session = runtime.open(options).expect("a session");
            session.send("go").await.expect("accepted");
            left = Some(session.id());
        }
        begun.recv().await.expect("started");
        drop(runtime);
        // Its actors end after the drop, on other threads.
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
        journal.settled().await.expect("the journal is open");
        let row = journal.inflight_of(left.expect("opened")).expect("readable").expect("in flight");
        starts.push(row.starts);
    }
    assert_eq!(starts, [0, 1, 2]);
    let (journal, alive) = (reopen(&memory), Arc::new(()));
    let runtime = start(&journal, 4, &alive).await.expect("a runtime");
    let given_up = Outcome::RestartsExhausted { command: None };
    assert_eq!(ended(&runtime, left.expect("opened")).await, given_up);
    shut(runtime).await;
}
