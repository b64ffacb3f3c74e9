//! Rolled-back runs: the tests compare the next model request.

use std::sync::atomic::AtomicU32;

use crate::support::*;

type LastRequest = Arc<Mutex<Vec<String>>>;

fn texts(request: &Request) -> Vec<String> {
    let word = |message: &Message| match message {
        Message::User { text, .. } => text.to_string(),
        Message::Assistant { calls, .. } if !calls.is_empty() => "calls".to_owned(),
        Message::Assistant { text, .. } => text.as_deref().unwrap_or_default().to_owned(),
        Message::Result { content, .. } => content.to_string(),
        Message::Notice { .. } => "notice".to_owned(),
        Message::Prompt { .. } => "prompt".to_owned(),
    };
    request.messages.iter().map(word).collect()
}

/// Returns a model: `fail` uses the tool and then fails for a missing key; `wait` takes an hour; everything else is answered "fine".
fn answering(seen: &LastRequest) -> Arc<dyn Model> {
    let seen = Arc::clone(seen);
    model(move |request| {
        *seen.lock().unwrap() = texts(&request);
        async move {
            let texts = texts(&request);
            match texts.last().map(String::as_str) {
                Some("fail") => Ok(calls([("write", json!({}))])),
                Some("written") => Err(ModelError::new(ModelFail::Auth, "no key")),
                Some("wait") => {
                    seconds(3600).await;
                    Ok(text("late"))
                }
                _ => Ok(text(&format!("fine {}", answers(&request)))),
            }
        }
    })
}

/// Returns a tool that counts its calls: a rollback does not undo effects.
fn writing(done: &Arc<AtomicU32>) -> Registry {
    let done = Arc::clone(done);
    tools([tool("write", ToolEffect::SideEffect, move |_| {
        done.fetch_add(1, Ordering::SeqCst);
        async { Ok(ToolOutput::text("written")) }
    })])
}

fn host(journal: &Journal, seed: u64, seen: &LastRequest, done: &Arc<AtomicU32>) -> Builder {
    let options = Options { seed: Some(seed), ..Options::default() };
    builder(journal).options(options).model(answering(seen)).tools(writing(done))
}

async fn say(session: &SessionHandle, text: &str) -> OutcomeKind {
    let receipt = session.send(text).await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends").outcome.kind()
}

async fn rolled_back(journal: &Journal, session: &SessionHandle) -> Vec<Record> {
    let all = records(journal, session.id()).await;
    all.into_iter().filter(|record| matches!(record, Record::RolledBack { .. })).collect()
}

#[tokio::test(start_paused = true)]
async fn m10_failed_run_is_rolled_back_without_undoing_effects() {
    let (memory, seen, done) = (Memory::new(), LastRequest::default(), Arc::new(AtomicU32::new(0)));
    let journal = reopen(&memory);
    let runtime = host(&journal, 7, &seen, &done).start().await.expect("the runtime starts");
    let session = open(&runtime);
    assert_eq!(say(&session, "one").await, OutcomeKind::Completed);
    assert_eq!(say(&session, "fail").await, OutcomeKind::Failed);
    assert_eq!(*seen.lock().unwrap(), ["one", "fine 0", "fail", "calls", "written"]);
    assert_eq!(session.roll_back(None).await, Ok(RunNo(2)));
    assert_eq!(runtime.shutdown(Duration::from_secs(1)).await.actors, 0);

    let journal = reopen(&memory);
    let runtime = host(&journal, 8, &seen, &done).start().await.expect("the runtime starts");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    assert_eq!(session.roll_back(Some(RunNo(2))).await, Ok(RunNo(2)), "a repetition changed something");
    assert_eq!(say(&session, "two").await, OutcomeKind::Completed);
    assert_eq!(*seen.lock().unwrap(), ["one", "fine 0", "two"]);
    let branch = session.branch(BranchOptions::default()).await.expect("a branch");
    assert_eq!(say(&branch, "three").await, OutcomeKind::Completed);
    assert_eq!(*seen.lock().unwrap(), ["one", "fine 0", "two", "fine 1", "three"]);

    assert_eq!(rolled_back(&journal, &session).await, [Record::RolledBack { run: RunNo(2), by: Initiator::Person }]);
    let answers =
        records(&journal, session.id()).await.iter().filter(|it| matches!(it, Record::TurnAnswered(_))).count();
    assert_eq!((answers, done.load(Ordering::SeqCst)), (3, 1), "the rollback deleted a record or undid an effect");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m10_rollback_of_a_completed_run_is_refused() {
    let (memory, seen, done) = (Memory::new(), LastRequest::default(), Arc::new(AtomicU32::new(0)));
    let journal = reopen(&memory);
    let runtime = host(&journal, 7, &seen, &done).start().await.expect("the runtime starts");
    let session = open(&runtime);
    let refused = |why: &str| Err(ControlError::Refused(why.to_owned()));
    assert_eq!(session.roll_back(None).await, refused("the session has no run to roll back"));
    say(&session, "one").await;
    let completed = "run 1 completed: only a run that did not complete can be rolled back; branch off before it, or \
                     regenerate its answer";
    assert_eq!(session.roll_back(None).await, refused(completed));
    let missing = ControlError::NotFound("the session has no run 9: its runs are 1 to 1".to_owned());
    assert_eq!(session.roll_back(Some(RunNo(9))).await, Err(missing));
    session.send("wait").await.expect("accepted");
    let working = session.roll_back(Some(RunNo(1))).await;
    assert!(matches!(working, Err(ControlError::Working(_))), "{working:?}");
    session.cancel().await.expect("cancelled");
    session.run_ended(RunNo(2)).await.expect("the run ends");
    assert_eq!(session.roll_back(None).await, Ok(RunNo(2)));
    say(&session, "two").await;
    assert_eq!(*seen.lock().unwrap(), ["one", "fine 0", "two"]);
    assert_eq!(rolled_back(&journal, &session).await.len(), 1);
    shut(runtime).await;
}

/// The host rolls back a failed child's run; the child then continues without the messages of that run.
#[tokio::test(start_paused = true)]
async fn m10_child_continues_without_its_rolled_back_run() {
    let (memory, seen, done) = (Memory::new(), LastRequest::default(), Arc::new(AtomicU32::new(0)));
    let journal = reopen(&memory);
    let runtime = host(&journal, 7, &seen, &done).start().await.expect("the runtime starts");
    let parent = open(&runtime);
    say(&parent, "one").await;
    let fresh = BranchOptions { kind: subtend_session::place::BranchKind::Subagent, ..BranchOptions::default() };
    let child = parent.branch(fresh).await.expect("a child");
    assert_eq!(say(&child, "fail").await, OutcomeKind::Failed);
    assert_eq!(child.roll_back(None).await, Ok(RunNo(1)));
    assert_eq!(say(&child, "two").await, OutcomeKind::Completed);
    assert_eq!(*seen.lock().unwrap(), ["two"]);
    shut(runtime).await;
}
