use super::*;

/// Listing or changing a queue and creating a branch do not wake a dormant run. A cancel ends it and keeps its queued inputs.
#[tokio::test(start_paused = true)]
async fn dormant_run_is_resumed_only_by_its_own_inputs() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 7).model(model(tree)).start().await.expect("a runtime");
    let id = opened(&runtime, OnRestart::Resume, "alone").await;
    let session = runtime.session(id).expect("readable").expect("the session exists");
    session.send("later").await.expect("accepted");
    let gone = session.send("gone").await.expect("accepted");
    drop((session, runtime, journal));

    let journal = reopen(&memory);
    let before = records(&journal, id).await;
    let options = Options { seed: Some(8), resumes: false, ..Options::default() };
    let runtime = workers(&journal, OnRestart::Resume, 8).options(options.clone()).model(model(tree)).start().await;
    let runtime = runtime.expect("a runtime");
    assert_eq!(runtime.boot().dormant, 1);
    let session = runtime.session(id).expect("readable").expect("the session exists");
    assert_eq!(session.queue().await.expect("listed").len(), 2);
    assert_eq!(session.queue_remove(gone.input).await, Ok(true));
    session.branch(subtend_actors::BranchOptions::default()).await.expect("a branch");
    assert!(session.close().await.is_err(), "a dormant run was closed");
    tokio::time::sleep(slow() * 2).await;
    let after: Vec<&str> = records(&journal, id).await[before.len()..].iter().map(Record::kind).collect();
    assert_eq!(after, ["queue_changed", "branch_created"]);
    let row = journal.inflight_of(id).expect("readable").expect("in flight");
    assert_eq!((row.run, row.starts), (RunNo(1), 0));
    leave_quiet(runtime).await;

    let journal = reopen(&memory);
    let runtime = workers(&journal, OnRestart::Resume, 9).options(options).model(model(tree)).start().await;
    let runtime = runtime.expect("a runtime");
    let session = runtime.session(id).expect("readable").expect("the session exists");
    session.cancel().await.expect("answered");
    assert_eq!(
        session.run_ended(RunNo(1)).await.expect("the run ends").outcome,
        Outcome::Cancelled { by: Initiator::Person }
    );
    tokio::time::sleep(slow() * 2).await;
    assert_eq!(session.queue().await.expect("listed").len(), 1, "a queued input is missing");
    assert_eq!(journal.inflight().expect("readable"), []);
    shut(runtime).await;
}

/// Shuts an idle host down in order.
async fn leave_quiet(runtime: Runtime) {
    let report = runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.drained, report.actors, report.tasks), (true, 0, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn inputs_behind_a_dormant_run_are_not_in_the_report() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let limits = Limits { live_person_runs: 1, ..Limits::default() };
    let start = |journal: &Journal, seed, resumes| {
        let options = Options { seed: Some(seed), resumes, ..Options::default() };
        workers(journal, OnRestart::Fail, seed).options(options).limits(limits.clone()).model(model(tree)).start()
    };
    let runtime = start(&journal, 7, true).await.expect("a runtime");
    let root = opened(&runtime, OnRestart::Fail, "alone").await;
    let root = runtime.session(root).expect("readable").expect("the session exists");
    let one = root.branch(subtend_actors::BranchOptions::default()).await.expect("a branch");
    let two = root.branch(subtend_actors::BranchOptions::default()).await.expect("a branch");
    one.send("alone").await.expect("accepted");
    two.send("first").await.expect("accepted");
    two.send("second").await.expect("accepted");
    drop((root, one, two, runtime, journal));

    let journal = reopen(&memory);
    let runtime = start(&journal, 8, false).await.expect("a runtime");
    let boot = runtime.boot();
    assert_eq!((boot.swept, boot.waiting, boot.inputs), (2, 1, 0));
    runtime.shutdown(Duration::from_secs(1)).await;
}
