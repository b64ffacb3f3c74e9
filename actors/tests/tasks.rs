//! The task list, and the names of sessions (R1, R2).

use crate::support::*;
use subtend_actors::{FindError, PromptError, Task, TaskStatus};
use subtend_session::authority::Authority;

/// Starts a runtime whose session starts `completes`, `fails`, `hangs` and `waits` in turn, in the background, with three slots.
async fn busy() -> (Runtime, SessionHandle) {
    let answering = model(|request| async move {
        match (&*prompt(&request), answers(&request)) {
            ("go", at @ 0..4) => {
                seconds(1).await;
                Ok(calls([task(["hangs", "completes", "fails", "waits"][at], true)]))
            }
            // `completes` completes once; when continued, it hangs.
            ("hangs", _) | ("completes", 1) => std::future::pending().await,
            ("fails", _) => Err(ModelError::new(ModelFail::InvalidRequest, "no")),
            _ => Ok(text("done")),
        }
    });
    let limits = Limits { live_runs: 3, run_ms: Some(100_000), ..Limits::default() };
    let runtime = builder(&journal()).limits(limits).model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    seconds(20).await;
    (runtime, session)
}

async fn listed(runtime: &Runtime, filter: TaskFilter) -> Vec<(String, TaskStatus, Option<OutcomeKind>)> {
    let tasks = runtime.tasks(filter).await.expect("a list");
    tasks.into_iter().map(|task| (task.title.to_string(), task.status, task.outcome)).collect()
}

#[tokio::test(start_paused = true)]
async fn tasks_are_listed_newest_first_with_their_status_and_outcome() {
    let (runtime, session) = busy().await;
    let row = |title: &str, status, outcome| (title.to_owned(), status, outcome);
    let completed = |title| row(title, TaskStatus::Completed, Some(OutcomeKind::Completed));
    let failed = row("fails", TaskStatus::Failed, Some(OutcomeKind::Failed));
    let all = vec![completed("waits"), failed.clone(), completed("completes"), row("hangs", TaskStatus::Running, None)];
    assert_eq!(listed(&runtime, TaskFilter::default()).await, all);
    let two = TaskFilter { limit: Some(2), ..TaskFilter::default() };
    assert_eq!(listed(&runtime, two).await, all[..2]);
    let failing = TaskFilter { status: Some(TaskStatus::Failed), ..TaskFilter::default() };
    assert_eq!(listed(&runtime, failing).await, [failed]);

    // Persons' branches and roots are not tasks. A person's subagent is one, pending until its first message.
    let other = open(&runtime);
    let fresh = BranchOptions { kind: subtend_session::place::BranchKind::Subagent, ..BranchOptions::default() };
    let branch = other.branch(fresh).await.expect("a branch");
    session.branch(BranchOptions::default()).await.expect("a branch");
    let of_other = TaskFilter { parent: Some(other.id()), ..TaskFilter::default() };
    assert_eq!(listed(&runtime, of_other).await, [row("", TaskStatus::Pending, None)]);
    assert_eq!(listed(&runtime, TaskFilter::default()).await.len(), 5);
    branch.send("completes").await.expect("accepted").answer().await.expect("an answer");
    branch.run_ended(RunNo(1)).await.expect("the run ends");
    assert_eq!(listed(&runtime, of_other).await, [completed("completes")]);

    // A continued task has no outcome until its new run ends.
    branch.send("continue").await.expect("accepted");
    seconds(1).await;
    assert_eq!(listed(&runtime, of_other).await, [row("completes", TaskStatus::Running, None)]);
    let again = runtime.tasks(of_other).await.expect("a list").remove(0);
    assert_eq!((again.cause, again.result, again.ended_ms), (None, None, None));
    branch.cancel().await.expect("cancelled");
    branch.run_ended(RunNo(2)).await.expect("the run ends");

    session.cancel().await.expect("cancelled");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    let of_session = TaskFilter { parent: Some(session.id()), ..TaskFilter::default() };
    let cancelled = TaskFilter { status: Some(TaskStatus::Cancelled), ..of_session };
    let hung = row("hangs", TaskStatus::Cancelled, Some(OutcomeKind::Cancelled));
    assert_eq!(listed(&runtime, cancelled).await, [hung]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn task_has_its_prompt_result_cause_and_times() {
    let answering = model(|request| async move {
        let long = "é".repeat(30_000);
        match (&*prompt(&request), answers(&request)) {
            ("go", 0) => Ok(calls([task("answers", true), task("fails", true), task(&long, true)])),
            ("fails", _) => Err(ModelError::new(ModelFail::InvalidRequest, "no")),
            ("answers", _) => Ok(text("the answer")),
            _ => Ok(text(&long)),
        }
    });
    let journal = journal();
    let runtime = builder(&journal).model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    session.run_ended(RunNo(1)).await.expect("the run ends");
    let all = runtime.tasks(TaskFilter::default()).await.expect("a list");
    assert_eq!(Task::list(&journal, TaskFilter::default()).expect("a list"), all, "the list without a runtime differs");
    let of = |prompt: &str| all.iter().find(|task| task.prompt.as_deref() == Some(prompt)).expect(prompt);
    let answered = of("answers");
    assert_eq!((answered.result.as_deref(), &answered.cause), (Some("the answer"), &Some(Outcome::Completed)));
    assert!(answered.ended_ms.is_some_and(|at| (answered.created_ms..=answered.updated_ms).contains(&at)));
    let kind = FailKind::Model { error: ModelFail::InvalidRequest, message: "no".into() };
    let failed = of("fails");
    assert_eq!((&failed.result, &failed.cause), (&None, &Some(Outcome::Failed { kind })));
    // The text is longer than what an owner receives.
    let long = "é".repeat(30_000);
    assert_eq!(of(&long).result.as_deref(), Some(&*long));

    // The end is found even if other records follow it.
    let quiet = runtime.session(answered.session).expect("a store").expect("a session");
    for _ in 0..40 {
        quiet.branch(BranchOptions::default()).await.expect("a branch");
    }
    let later = runtime.tasks(TaskFilter::default()).await.expect("a list");
    let later = later.iter().find(|task| task.session == answered.session).expect("it is listed");
    assert_eq!((&later.result, later.ended_ms), (&answered.result, answered.ended_ms));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn task_waiting_for_its_slot_is_pending() {
    let answering = model(|request| async move {
        match (&*prompt(&request), answers(&request)) {
            ("go", 0) => Ok(calls([task("first", true), task("second", true)])),
            ("go", _) => Ok(text("done")),
            _ => {
                seconds(10).await;
                Ok(text("done"))
            }
        }
    });
    let limits = Limits { live_runs: 1, ..Limits::default() };
    let runtime = builder(&journal()).limits(limits).model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    seconds(1).await;
    let row = |title: &str, status| (title.to_owned(), status, None);
    let mut both = listed(&runtime, TaskFilter::default()).await;
    // Both were created at the same time, so neither is newer.
    both.sort();
    assert_eq!(both, [row("first", TaskStatus::Running), row("second", TaskStatus::Pending)]);
    session.run_ended(RunNo(1)).await.expect("the run ends");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn sessions_are_found_by_id_part_short_name_and_path() {
    let (runtime, session) = busy().await;
    let task = runtime.tasks(TaskFilter::default()).await.expect("a list").remove(0);
    let id = task.session.to_string();
    let names = [
        id.clone(),
        id.replace('-', "")[..31].to_owned(),
        task.short.0.to_string(),
        format!("root/{}", task.short.0),
        format!(" {}/{} ", session.id().short().0, task.short.0),
    ];
    for name in names {
        let found = runtime.find(&name).await.expect("a store").unwrap_or_else(|| panic!("{name}"));
        assert_eq!(found.id(), task.session, "{name}");
    }
    assert_eq!(runtime.find("root").await.expect("a store").expect("the only root").id(), session.id());
    let middle = &id.replace('-', "")[12..];
    for unknown in ["", "root/nobody", "zzz", "01234567-89ab-7def-8123-456789abcdef", middle] {
        assert!(runtime.find(unknown).await.expect("a store").is_none(), "{unknown}");
    }
    let other = open(&runtime);
    let Err(FindError::Ambiguous { among, .. }) = runtime.find("root").await else {
        panic!("expected an ambiguous name")
    };
    assert_eq!(among, [session.id(), other.id()]);
    session.cancel().await.expect("cancelled");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    shut(runtime).await;
}

/// R1, K26: a person's run in a task's session is not part of the task.
#[tokio::test(start_paused = true)]
async fn r1_persons_run_does_not_change_the_task() {
    let long = "é".repeat(30_000);
    let answering = model(move |request| {
        let long = long.clone();
        async move {
            match &*prompt(&request) {
                "go" if answers(&request) == 0 => Ok(calls([task("work", true)])),
                "work" if answers(&request) == 0 => Ok(text(&long)),
                "work" => std::future::pending().await,
                _ => Ok(text("done")),
            }
        }
    });
    let runtime = builder(&journal()).model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    session.run_ended(RunNo(1)).await.expect("the run ends");
    let facts = |task: Task| (task.status, task.outcome, task.cause, task.result, task.ended_ms);
    let the_task = async || facts(runtime.tasks(TaskFilter::default()).await.expect("a list").remove(0));
    let before = the_task().await;
    assert_eq!((before.0, before.3.as_ref().map(|result| result.len())), (TaskStatus::Completed, Some(60_000)));

    let id = runtime.tasks(TaskFilter::default()).await.expect("a list").remove(0).session;
    let child = runtime.session(id).expect("a store").expect("a session");
    child.send("and what else?").await.expect("accepted");
    seconds(1).await;
    assert_eq!(the_task().await, before, "the task changed while a person's run was in flight");
    child.cancel().await.expect("cancelled");
    child.run_ended(RunNo(2)).await.expect("the run ends");
    assert_eq!(the_task().await, before);
    let count_of = async |status| {
        let filter = TaskFilter { status: Some(status), limit: Some(1), ..TaskFilter::default() };
        runtime.tasks(filter).await.expect("a list").len()
    };
    assert_eq!((count_of(TaskStatus::Cancelled).await, count_of(TaskStatus::Completed).await), (0, 1));
    shut(runtime).await;
}

/// R1: a task may have no parent. It waits for a slot and has the time limit of every task.
#[tokio::test(start_paused = true)]
async fn r1_host_starts_a_task_without_a_parent() {
    let answering = model(|request| async move {
        if &*prompt(&request) == "hang" {
            std::future::pending::<()>().await;
        }
        seconds(10).await;
        Ok(text("found"))
    });
    let limits = Limits { live_runs: 1, run_ms: Some(60_000), ..Limits::default() };
    let options = subtend_actors::Options { slots: 1, ..subtend_actors::Options::default() };
    let runtime = started(builder(&journal()).options(options).limits(limits).model(answering)).await;
    let options = || OpenOptions {
        title: Some("licences".into()),
        metadata: Some(r#"{"ticket":7}"#.into()),
        ..OpenOptions::agent("explore")
    };
    let first = runtime.spawn_task(options(), "lookup").await.expect("started");
    let second = runtime.spawn_task("worker", "hang").await.expect("started");
    seconds(1).await;
    let row = |title: &str, status, outcome| (title.to_owned(), status, outcome);
    let mut both = listed(&runtime, TaskFilter::default()).await;
    both.sort();
    assert_eq!(both, [row("hang", TaskStatus::Pending, None), row("licences", TaskStatus::Running, None)]);
    assert_eq!(&*first.answer().await.expect("an answer").text, "found");

    seconds(100).await;
    let mut tasks = runtime.tasks(TaskFilter::default()).await.expect("a list");
    tasks.sort_by(|a, b| b.title.cmp(&a.title));
    let facts =
        |task: &Task| (task.parent, task.agent.to_string(), task.outcome, task.result.as_deref().map(str::to_owned));
    let found = (None, "explore".to_owned(), Some(OutcomeKind::Completed), Some("found".to_owned()));
    assert_eq!(facts(&tasks[0]), found);
    assert_eq!((tasks[0].prompt.as_deref(), tasks[0].metadata.as_deref()), (Some("lookup"), Some(r#"{"ticket":7}"#)));
    assert_eq!(facts(&tasks[1]), (None, "worker".to_owned(), Some(OutcomeKind::TimedOut), None));
    drop(second);

    for id in [None, Some(SessionId(uuid::Uuid::from_u128(7)))] {
        let refused = runtime.spawn_task(OpenOptions { id, ..OpenOptions::agent("worker") }, " ").await;
        assert!(matches!(refused, Err(PromptError::Send(_))), "{refused:?}");
    }
    assert!(matches!(runtime.spawn_task("nobody", "lookup").await, Err(PromptError::Open(_))));
    assert!(runtime.open("explore").is_err(), "a session was opened with an agent that only agents start");
    assert_eq!(runtime.tasks(TaskFilter::default()).await.expect("a list").len(), 2, "a refused task is listed");
    shut(runtime).await;
}

/// A repeated task starts only once, even after its end. Controls: a refused prompt, and ids that are taken.
#[tokio::test(start_paused = true)]
async fn r1_repeated_task_of_the_host_starts_once() {
    let answering = model(|request| async move { Ok(text(&format!("found {}", prompt(&request)))) });
    let runtime = builder(&journal()).model(answering).start().await.expect("the runtime starts");
    let id = SessionId(uuid::Uuid::from_u128(7));
    let options = |id| OpenOptions { id: Some(id), ..OpenOptions::agent("explore") };
    let mut receipts = Vec::new();
    for is_repeated in [false, true, true] {
        let receipt = runtime.spawn_task(options(id), "lookup").await.expect("started");
        assert_eq!((receipt.duplicate, receipt.session().id()), (is_repeated, id));
        assert_eq!(&*receipt.answer().await.expect("an answer").text, "found lookup");
        receipts.push(receipt.input);
    }
    assert_eq!(receipts, [receipts[0]; 3]);
    let records = runtime.journal().records(id).expect("readable");
    assert_eq!(records.iter().filter(|stored| matches!(stored.record, Record::RunOpened(_))).count(), 1);

    let refused = SessionId(uuid::Uuid::from_u128(8));
    let empty = runtime.spawn_task(options(refused), " ").await;
    assert!(matches!(empty, Err(PromptError::Send(_))), "{empty:?}");
    let again = runtime.spawn_task(options(refused), " ").await;
    assert!(matches!(again, Err(PromptError::Open(OpenSessionError::Deleted(id))) if id == refused), "{again:?}");
    let session = runtime.open("worker").expect("a session");
    let below = BranchOptions { agent: Some("explore".into()), ..BranchOptions::default() };
    let below = session.spawn_task(below, "lookup").await.expect("started");
    below.answer().await.expect("an answer");
    for taken in [session.id(), below.session().id()] {
        let refused = runtime.spawn_task(options(taken), "lookup").await.expect_err("taken").to_string();
        assert_eq!(refused, format!("session {taken} exists and is not a task of the host: choose another id"));
    }
    assert_eq!(runtime.tasks(TaskFilter::default()).await.expect("a list").len(), 2);
    shut(runtime).await;
}

/// A task has at most the session's permissions and startable agents. Control: a task that meets both.
#[tokio::test(start_paused = true)]
async fn r1_task_below_a_session_keeps_its_authority() {
    let answering = model(|_| async { Ok(text("found")) });
    let runtime = builder(&journal()).model(answering).start().await.expect("the runtime starts");
    let rule = Rule { action: "task:plan".into(), resource: "*".into(), verdict: Verdict::Deny };
    let policy = Authority::of(RuleSet { default: Verdict::Allow, rules: vec![rule] });
    let options = OpenOptions { policy: Some(policy.clone()), ..OpenOptions::agent("worker") };
    let session = runtime.open(options).expect("a session");
    let of = |agent: &str| BranchOptions { agent: Some(agent.into()), ..BranchOptions::default() };
    let task = session.spawn_task(of("explore"), "lookup\nthis").await.expect("started");
    assert_eq!(&*task.answer().await.expect("an answer").text, "found");
    let filter = || TaskFilter { parent: Some(session.id()), ..TaskFilter::default() };
    let rows = runtime.tasks(filter()).await.expect("a list");
    let facts = |row: &Task| (row.session, row.root, row.agent.to_string(), row.title.to_string(), row.outcome);
    let expected = (
        task.session().id(),
        session.id(),
        "explore".to_owned(),
        "lookup this".to_owned(),
        Some(OutcomeKind::Completed),
    );
    assert_eq!(rows.iter().map(facts).collect::<Vec<_>>(), [expected]);
    let records = runtime.journal().records(task.session().id()).expect("readable");
    let Some(Record::SessionCreated(created)) = records.first().map(|stored| &stored.record) else {
        panic!("no creation record")
    };
    assert!(created.ceiling.body.as_deref().is_some_and(|ceiling| ceiling.within(&policy)), "{created:?}");
    for (parent, agent, denied) in [(&session, "plan", "plan"), (task.session(), "explore", "explore")] {
        let refused = parent.spawn_task(of(agent), "more").await.expect_err("refused");
        let short = parent.id().short();
        let why = format!(
            "session {short} may not start the agent `{agent}`: its permissions deny task:{denied}. Name another parent, or none"
        );
        assert_eq!((matches!(refused, PromptError::Control(_)), refused.to_string()), (true, why));
    }
    let unknown = session.spawn_task(of("unknown"), "more").await;
    assert!(matches!(unknown, Err(PromptError::Open(OpenSessionError::UnknownAgent { .. }))), "{unknown:?}");
    let own = SessionId(uuid::Uuid::from_u128(session.id().0.as_u128() ^ 2));
    for id in [None, Some(own)] {
        let refused = session.spawn_task(BranchOptions { id, ..of("explore") }, " ").await;
        assert!(matches!(refused, Err(PromptError::Send(_))), "{refused:?}");
    }
    let repeated = session.spawn_task(BranchOptions { id: Some(own), ..of("explore") }, " ").await;
    assert!(matches!(repeated, Err(PromptError::Open(OpenSessionError::Deleted(id))) if id == own), "{repeated:?}");
    assert_eq!(runtime.tasks(filter()).await.expect("a list").len(), 1, "a refused task is listed");
    let again = |id| session.spawn_task(BranchOptions { id: Some(id), ..of("explore") }, "repeated");
    let other = SessionId(uuid::Uuid::from_u128(session.id().0.as_u128() ^ 1));
    let (first, second) = (again(other).await.expect("started"), again(other).await.expect("the same"));
    assert_eq!((first.input, second.duplicate, second.session().id()), (second.input, true, other));
    let taken = again(session.id()).await.expect_err("it is not a task").to_string();
    let [id, short] = [session.id().to_string(), session.id().short().to_string()];
    assert_eq!(taken, format!("session {id} exists and is not a task of session {short}: choose another id"));
    session.close().await.expect("closed");
    let closed = session.spawn_task(of("explore"), "more").await.expect_err("closed").to_string();
    assert_eq!(closed, format!("session {short} is closed: name another parent, or none"));
    shut(runtime).await;
}
