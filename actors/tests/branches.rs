//! Branches that people create, and regenerated answers: the tests compare the next model request.

use crate::support::*;
use subtend_actors::{Alternative, BranchInfo, Switched};
use subtend_session::command::SwitchTo;
use subtend_session::ids::{Interned, MsgRef};
use subtend_session::record::SessionCreated;

mod unknown_agents;

mod objects;

type RequestTexts = Arc<Mutex<Vec<(SessionId, Vec<String>)>>>;

fn texts(request: &Request) -> Vec<String> {
    let short = |message: &Message| match message {
        Message::User { text, .. } => format!("user: {text}"),
        Message::Assistant { text, calls, .. } => match text {
            Some(text) => format!("answer: {text}"),
            None => format!("calls: {}", calls.len()),
        },
        Message::Result { content, .. } => format!("result: {}", content.split(':').next().unwrap_or_default()),
        Message::Notice { .. } => "notice".to_owned(),
        Message::Prompt { .. } => "prompt".to_owned(),
    };
    request.messages.iter().map(short).collect()
}

/// Answers the Nth request with `N: WORD`, where `WORD` is the request's last input.
fn echo(seen: &RequestTexts) -> Arc<dyn Model> {
    let seen = Arc::clone(seen);
    model(move |request| {
        let last = last_user(&request);
        let mut seen = seen.lock().unwrap();
        seen.push((request.session, texts(&request)));
        let answer = text(&format!("{}: {}", seen.len(), last));
        async move { Ok(answer) }
    })
}

fn last(seen: &RequestTexts) -> (SessionId, Vec<String>) {
    seen.lock().unwrap().last().cloned().expect("a request")
}

async fn say(session: &SessionHandle, text: &str) -> String {
    let receipt = session.send(text).await.expect("accepted");
    let answer = receipt.answer().await.expect("an answer");
    session.run_ended(answer_run(session).await).await.expect("the run ends");
    answer.text.to_string()
}

async fn answer_run(session: &SessionHandle) -> RunNo {
    let state = session.tree().await.expect("a tree");
    state.run
}

async fn answered(journal: &Journal, session: &SessionHandle) -> Vec<Seq> {
    journal.settled().await.expect("the journal is open");
    let stored = journal.records(session.id()).expect("records");
    let answers = stored.into_iter().filter(|stored| matches!(stored.record, Record::TurnAnswered(_)));
    answers.map(|stored| stored.seq).collect()
}

async fn points(journal: &Journal, session: &SessionHandle) -> Vec<Seq> {
    journal.settled().await.expect("the journal is open");
    let stored = journal.records(session.id()).expect("records");
    let taken = stored.into_iter().filter(|stored| matches!(stored.record, Record::InputsTaken { .. }));
    taken.map(|stored| stored.seq).collect()
}

#[tokio::test(start_paused = true)]
async fn human_branch_has_earlier_messages_and_wakes_no_parent() {
    let (journal, seen) = (journal(), RequestTexts::default());
    let runtime = builder(&journal).model(echo(&seen)).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one").await;
    say(&session, "two").await;
    let first = answered(&journal, &session).await[0];
    let options = BranchOptions { title: Some("another way".into()), ..BranchOptions::at(first) };
    let branch = session.branch(options).await.expect("a branch");
    assert_eq!(kinds(&journal, branch.id()).await, ["session_created"]);
    assert_eq!(say(&branch, "three").await, "3: three");
    assert_eq!(last(&seen), (branch.id(), vec!["user: one".into(), "answer: 1: one".into(), "user: three".into()]));
    seconds(1).await;
    assert_eq!(seen.lock().unwrap().len(), 3, "the end of the branch started a model call of its owner");
    let taken = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::NoticeTaken(taken) => Some((taken.items[0].child, taken.items[0].run, taken.items[0].waking)),
        _ => None,
    });
    assert_eq!(taken, Some((branch.id(), Some(RunNo(1)), false)));
    // A branch of a branch, at its last message.
    let deeper = branch.branch(BranchOptions::default()).await.expect("a branch");
    say(&deeper, "four").await;
    let context = ["user: one", "answer: 1: one", "user: three", "answer: 3: three", "user: four"];
    assert_eq!(last(&seen), (deeper.id(), context.map(str::to_owned).to_vec()));
    let listed = session.branches().await.expect("a list");
    let listed: Vec<_> =
        listed.iter().map(|at| (at.id, at.kind, at.at, &*at.title, at.inspectable, at.phase, at.outcome)).collect();
    let expected =
        (branch.id(), BranchKind::Human, Some(first), "another way", true, Phase::Quiet, Some(OutcomeKind::Completed));
    assert_eq!(listed, [expected]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn branch_made_during_open_calls_sees_them_as_pending() {
    let (journal, seen) = (journal(), RequestTexts::default());
    let received = Arc::clone(&seen);
    let answering = model(move |request| {
        received.lock().unwrap().push((request.session, texts(&request)));
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([("slow", json!({})), ("quick", json!({}))]),
            _ => text("done"),
        };
        async move { Ok(answer) }
    });
    let slow = tool("slow", ToolEffect::ReadOnly, |_| async {
        seconds(60).await;
        Ok(ToolOutput::text("slow: done"))
    });
    let quick = tool("quick", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("quick: done")) });
    let runtime = started(builder(&journal).tools(tools([slow, quick])).model(answering)).await;
    let (session, _) = sent(&runtime, "go").await;
    seconds(1).await;
    let branch = session.branch(BranchOptions::default()).await.expect("a branch of a running session");
    say(&branch, "and now?").await;
    let context = ["user: go", "calls: 2", "result: Pending elsewhere", "result: quick", "user: and now?"];
    assert_eq!(last(&seen), (branch.id(), context.map(str::to_owned).to_vec()));
    let ended = session.run_ended(RunNo(1)).await.expect("the run ends");
    assert_eq!(ended.outcome, Outcome::Completed);
    let own = seen.lock().unwrap().iter().rev().find(|(id, _)| *id == session.id()).cloned().expect("a request").1;
    assert_eq!(
        own[2..4],
        ["result: slow".to_owned(), "result: quick".to_owned()],
        "the session did not get its own results"
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn persons_subagent_starts_empty_one_level_down() {
    let (journal, seen) = (journal(), RequestTexts::default());
    let runtime = builder(&journal).model(echo(&seen)).start().await.expect("the runtime starts");
    let session = open(&runtime);
    let fresh =
        || BranchOptions { kind: BranchKind::Subagent, agent: Some("explore".into()), ..BranchOptions::default() };
    say(&session, "one").await;
    let branch = session.branch(fresh()).await.expect("a branch");
    say(&branch, "two").await;
    assert_eq!(last(&seen), (branch.id(), vec!["user: two".to_owned()]));
    let head = journal.head(branch.id()).expect("a store").expect("a head");
    assert_eq!((&*head.agent, head.depth, head.kind), ("explore", 1, Some(BranchKind::Subagent)));
    let unknown = BranchOptions { agent: Some("nobody".into()), ..BranchOptions::default() };
    let Err(ControlError::Refused(why)) = session.branch(unknown).await else { panic!("the agent is unknown") };
    assert!(why.contains("nobody") && why.contains("worker"), "{why}");
    let nowhere = session.branch(BranchOptions::at(Seq(1))).await;
    assert!(matches!(nowhere, Err(ControlError::NotFound(_))), "{nowhere:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn regenerated_answer_is_active_until_it_is_switched_back() {
    let (journal, seen) = (journal(), RequestTexts::default());
    let runtime = builder(&journal).model(echo(&seen)).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one").await;
    say(&session, "two").await;
    let of = answered(&journal, &session).await[1];
    let (branch, run) = session.regenerate(None).await.expect("an alternative");
    branch.run_ended(run).await.expect("the run ends");
    // The answer is regenerated from the messages before it.
    assert_eq!(last(&seen), (branch.id(), vec!["user: one".into(), "answer: 1: one".into(), "user: two".into()]));
    let original = Alternative { session: None, text: Some("2: two".into()) };
    let second = Alternative { session: Some(branch.id()), text: Some("3: two".into()) };
    let listed = session.alternatives().await.expect("a list");
    assert_eq!((listed.len(), listed[0].of, listed[0].active), (1, of, 1));
    assert_eq!(listed[0].choices, [original, second]);

    say(&session, "three").await;
    let with = |answer: &str, more: &[&str]| {
        let begun = ["user: one", "answer: 1: one", "user: two", answer];
        begun.iter().chain(more).map(|&word| word.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(last(&seen), (session.id(), with("answer: 3: two", &["user: three"])));
    assert_eq!(session.switch(None, SwitchTo::Previous).await, Ok(Switched { of, to: 0 }));
    assert_eq!(
        session.switch(Some(of), SwitchTo::Previous).await,
        Ok(Switched { of, to: 0 }),
        "expected no previous alternative"
    );
    say(&session, "four").await;
    assert_eq!(last(&seen), (session.id(), with("answer: 2: two", &["user: three", "answer: 4: three", "user: four"])));
    assert_eq!(session.switch(Some(of), SwitchTo::Index(1)).await, Ok(Switched { of, to: 1 }));
    let none = session.switch(Some(of), SwitchTo::Index(2)).await;
    assert!(matches!(none, Err(ControlError::Refused(_))), "{none:?}");
    assert_eq!(session.alternatives().await.expect("a list")[0].active, 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn late_alternative_is_inactive_until_it_is_switched_to() {
    let (journal, seen) = (journal(), RequestTexts::default());
    let runtime = builder(&journal).model(echo(&seen)).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one").await;
    say(&session, "two").await;
    let of = answered(&journal, &session).await[0];
    let (branch, run) = session.regenerate(Some(of)).await.expect("an alternative");
    branch.run_ended(run).await.expect("the run ends");
    seconds(1).await;
    assert_eq!(session.alternatives().await.expect("a list")[0].active, 0);
    assert_eq!(session.switch(Some(of), SwitchTo::Next).await, Ok(Switched { of, to: 1 }));
    say(&session, "three").await;
    let context = ["user: one", "answer: 3: one", "user: two", "answer: 2: two", "user: three"];
    assert_eq!(last(&seen), (session.id(), context.map(str::to_owned).to_vec()));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_or_aborted_alternative_leaves_the_original() {
    for aborted in [false, true] {
        let journal = journal();
        let first = Arc::new(AtomicBool::new(true));
        let answering = model(move |_| {
            let first = first.swap(false, Ordering::Relaxed);
            async move {
                if first {
                    return Ok(text("the original"));
                }
                if aborted {
                    std::future::pending::<()>().await;
                }
                Err(ModelError::new(ModelFail::InvalidRequest, "no"))
            }
        });
        let runtime = builder(&journal).model(answering).start().await.expect("the runtime starts");
        let session = open(&runtime);
        say(&session, "one").await;
        let of = answered(&journal, &session).await[0];
        let (branch, run) = session.regenerate(None).await.expect("an alternative");
        if aborted {
            seconds(1).await;
            branch.cancel().await.expect("cancelled");
        }
        let ended = branch.run_ended(run).await.expect("the run ends");
        assert_ne!(ended.outcome, Outcome::Completed);
        seconds(1).await;
        let listed = session.alternatives().await.expect("a list");
        assert_eq!(listed[0].active, 0);
        assert_eq!(listed[0].choices[0].text.as_deref(), Some("the original"));
        assert_eq!(listed[0].choices[1], Alternative { session: Some(branch.id()), text: None });
        let none = session.switch(Some(of), SwitchTo::Index(1)).await;
        assert!(matches!(none, Err(ControlError::Refused(_))), "{none:?}");
        assert_eq!(session.switch(Some(of), SwitchTo::Next).await, Ok(Switched { of, to: 0 }));
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn running_session_refuses_to_regenerate_and_switch() {
    let answering = model(|request| async move {
        if prompt(&request) == "one" && answers(&request) > 0 {
            seconds(60).await;
        }
        Ok(text("fine"))
    });
    let runtime = builder(&journal()).model(answering).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one").await;
    session.send("two").await.expect("accepted");
    let regenerated = session.regenerate(None).await;
    assert!(matches!(regenerated, Err(ControlError::Working(_))), "{regenerated:?}");
    let switched = session.switch(None, SwitchTo::Next).await;
    assert!(matches!(switched, Err(ControlError::Working(_))), "{switched:?}");
    session.run_ended(RunNo(2)).await.expect("the run ends");
    assert_eq!(session.branches().await.expect("a list"), []);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn persons_runs_in_branches_do_not_queue_behind_owned_ones() {
    let answering = model(|request| async move {
        match (&*prompt(&request), answers(&request)) {
            ("go", 0) => Ok(calls([task("slow", true)])),
            ("slow", 0) => {
                seconds(60).await;
                Ok(text("late"))
            }
            _ => Ok(text("fine")),
        }
    });
    let limits = Limits { live_runs: 1, ..Limits::default() };
    let runtime = builder(&journal()).limits(limits).model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    seconds(1).await;
    let begun = tokio::time::Instant::now();
    let fresh = BranchOptions { kind: BranchKind::Subagent, ..BranchOptions::default() };
    let branch = session.branch(fresh).await.expect("a branch");
    say(&branch, "hello").await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let listed = session.branches().await.expect("a list");
    let seen: Vec<_> = listed.iter().map(|at| (at.kind, at.at.is_some(), at.phase, at.outcome)).collect();
    let (child, own) = ((BranchKind::Subagent, true, Phase::Working, None), Some(OutcomeKind::Completed));
    assert_eq!(seen, [child, (BranchKind::Subagent, true, Phase::Quiet, own)]);
    session.run_ended(RunNo(1)).await.expect("the run ends");
    shut(runtime).await;
}

fn workers_and(other: Manifest) -> Catalog {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    catalog.insert(other);
    catalog
}

async fn allowances(journal: &Journal, session: SessionId) -> Vec<u32> {
    let opened = |record| match record {
        Record::RunOpened(opened) => Some(opened.max_turns),
        _ => None,
    };
    records(journal, session).await.into_iter().filter_map(opened).collect()
}

#[tokio::test(start_paused = true)]
async fn manifest_allowance_binds_branches_and_detached_runs() {
    let journal = journal();
    let catalog = workers_and(Manifest { turns: Some(3), ..Manifest::new("brief", AgentMode::All, "You are brief.") });
    let start = json!({"subagent_type": "brief", "prompt": "lookup"});
    let answering = model(move |request| {
        let spawns = prompt(&request) == "one" && answers(&request) == 0;
        let answer = if spawns { calls([("task", start.clone())]) } else { text("fine") };
        async move { Ok(answer) }
    });
    let limits = Limits { turns: 9, ..Limits::default() };
    let runtime = started(builder(&journal).catalog(catalog).limits(limits).model(answering)).await;
    let session = open(&runtime);
    say(&session, "one").await;
    let brief = |kind| BranchOptions { kind, agent: Some("brief".into()), ..BranchOptions::default() };
    for kind in [BranchKind::Human, BranchKind::Subagent] {
        let branch = session.branch(brief(kind)).await.expect("a branch");
        say(&branch, "two").await;
        say(&branch, "three").await;
        assert_eq!(allowances(&journal, branch.id()).await, [3, 3], "{kind:?}");
    }
    for (agent, allowed) in [("brief", 3), ("worker", 9)] {
        let detached = session.detach(agent, "watch").await.expect("started");
        detached.run_ended(RunNo(1)).await.expect("the run ends");
        assert_eq!(allowances(&journal, detached.id()).await, [allowed], "{agent}");
    }
    // A branch has the turn limit of its session, from limits or from a manifest.
    let child = session.branches().await.expect("a list")[0].id;
    let child = runtime.session(child).expect("readable").expect("the session exists");
    for (session, allowed) in [(&session, 9), (&child, 3)] {
        let branch = session.branch(BranchOptions::default()).await.expect("a branch");
        say(&branch, "four").await;
        let (regenerated, run) = session.regenerate(None).await.expect("an alternative");
        regenerated.run_ended(run).await.expect("the run ends");
        say(&regenerated, "five").await;
        assert_eq!(allowances(&journal, branch.id()).await, [allowed]);
        assert_eq!(allowances(&journal, regenerated.id()).await, [allowed, allowed]);
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn branch_list_has_creation_times_and_metadata() {
    let (journal, seen) = (journal(), RequestTexts::default());
    let runtime = builder(&journal).model(echo(&seen)).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one").await;
    let at = answered(&journal, &session).await[0];
    let attached = BranchOptions { metadata: Some(r#"{"view":"left"}"#.into()), ..BranchOptions::at(at) };
    let first = session.branch(attached).await.expect("a branch");
    say(&first, "two").await;
    let second = session.branch(BranchOptions::default()).await.expect("a branch");
    let listed = session.branches().await.expect("a list");
    let user = MsgRef { session: session.id(), seq: points(&journal, &session).await[0] };
    let info = |branch: &SessionHandle, outcome, task: Option<&str>, metadata: Option<&str>| {
        let head = journal.head(branch.id()).expect("a store").expect("a head");
        assert!(head.created_ms > 0 && head.created_ms <= head.updated_ms, "{head:?}");
        BranchInfo {
            id: branch.id(),
            short: head.short,
            parent: session.id(),
            kind: BranchKind::Human,
            inherits_context: true,
            at: Some(at),
            parent_message: user,
            assistant_message: Some(MsgRef { session: session.id(), seq: at }),
            call: None,
            agent: "worker".into(),
            title: if task.is_some() { "two" } else { "one" }.into(),
            task: task.map(Into::into),
            inspectable: true,
            phase: Phase::Quiet,
            outcome,
            iterations: u32::from(outcome.is_some()),
            created_ms: head.created_ms,
            updated_ms: head.updated_ms,
            metadata: metadata.map(Into::into),
            shortened: false,
        }
    };
    let worked = info(&first, Some(OutcomeKind::Completed), Some("two"), Some(r#"{"view":"left"}"#));
    assert_eq!(listed, [worked, info(&second, None, None, None)]);
    shut(runtime).await;
}
