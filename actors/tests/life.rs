//! The normal course of a session: inputs, calls, children, notices, ends.

use std::sync::{OnceLock, Weak};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn answer_completes_the_run() {
    let journal = journal();
    let runtime = builder(&journal).model(model(|_| async { Ok(text("hello")) })).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "hi").await;
    assert_eq!((ended.outcome, ended.text.as_deref(), ended.turns), (Outcome::Completed, Some("hello"), 1));
    assert_eq!(
        kinds(&journal, session.id()).await,
        [
            "session_created",
            "input_accepted",
            "run_opened",
            "run_started",
            "inputs_taken",
            "turn_started",
            "turn_answered",
            "run_ended"
        ]
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_title_is_refused_for_branches_and_sessions() {
    let journal = journal();
    let runtime = builder(&journal).model(model(|_| async { Ok(text("done")) })).start().await.expect("a runtime");
    // A title derived from the first message is truncated instead of refused.
    let (session, _) = ask(&runtime, "one\nand more").await;
    let long = "é".repeat(201);
    for (title, why) in [
        ("", "the title is empty: describe the session"),
        (" \t", "the title is empty: describe the session"),
        (long.as_str(), "the title has 201 characters, the limit is 200"),
        ("two\nlines", "the title is more than one line, or has control characters"),
    ] {
        let options = BranchOptions { title: Some(title.into()), ..BranchOptions::default() };
        let refused = session.branch(options).await.map(|branch| branch.id());
        assert_eq!(refused, Err(ControlError::Refused(why.into())), "{title:?}");
        let options = OpenOptions { title: Some(title.into()), ..OpenOptions::agent("worker") };
        let refused = runtime.open(options).map(|session| session.id()).map_err(|error| error.to_string());
        assert_eq!(refused, Err(why.into()), "{title:?}");
    }
    assert_eq!(session.branches().await.expect("a list"), []);
    let most = "é".repeat(200);
    let options = BranchOptions { title: Some(most.as_str().into()), ..BranchOptions::default() };
    let (named, plain) = (session.branch(options).await, session.branch(BranchOptions::default()).await);
    let title = |id| journal.head(id).expect("readable").expect("the session exists").title.to_string();
    assert_eq!(title(named.expect("a branch").id()), most);
    assert_eq!(title(plain.expect("a branch").id()), title(session.id()));
    let detached = session.detach("worker", "read\nthis").await.expect("detached");
    assert_eq!(title(detached.id()), "read this", "expected the start of its prompt");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn tool_results_reach_the_model_in_call_order() {
    let journal = journal();
    let slow = tool("slow", ToolEffect::ReadOnly, |_| async {
        seconds(5).await;
        Ok(ToolOutput::text("slow result"))
    });
    let fast = tool("fast", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("fast result")) });
    let answer = |request: Request| async move {
        if answers(&request) == 0 {
            return Ok(calls([("slow", json!({})), ("fast", json!({}))]));
        }
        Ok(text(&results(&request).join(", ")))
    };
    let runtime = builder(&journal).tools(tools([slow, fast])).model(model(answer)).start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.text.as_deref(), Some("slow result, fast result"));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn blocking_child_answers_its_call() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("parent", _) => Ok(text("got it")),
            (_, _) => Ok(text("from the child")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "parent").await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("got it")));
    let children = journal.children(session.id()).expect("children");
    assert_eq!(children.len(), 1);
    let all = records(&journal, session.id()).await;
    let noticed = all.iter().filter(|record| matches!(record, Record::NoticeTaken(_))).count();
    assert_eq!(noticed, 1, "{all:#?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn background_children_wake_the_owner_at_rest() {
    let journal = journal();
    let answer = |request: Request| async move {
        let notices = request.messages.iter().filter(|message| matches!(message, Message::Notice { .. })).count();
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("quick", true), task("slow", true)])),
            ("parent", _) if notices == 0 => Ok(text("waiting")),
            ("parent", _) => Ok(text(&format!("{notices} messages"))),
            ("slow", _) => {
                seconds(30).await;
                Ok(text("slow"))
            }
            (_, _) => {
                seconds(1).await;
                Ok(text("quick"))
            }
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "parent").await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("2 messages")));
    let all = records(&journal, session.id()).await;
    let keys: usize = all
        .iter()
        .map(|record| match record {
            Record::NoticeTaken(taken) => taken.items.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(keys, 2, "{all:#?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_tree_of_depth_five_needs_only_one_live_run() {
    let journal = journal();
    let answer = |request: Request| async move {
        let depth: u32 = prompt(&request).parse().unwrap_or(0);
        if depth > 0 && answers(&request) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            return Ok(calls([task(&(depth - 1).to_string(), false)]));
        }
        Ok(text(&format!("level {depth}")))
    };
    let limits = Limits { live_runs: 1, ..Limits::default() };
    let options = Options { slots: 1, seed: Some(7), ..Options::default() };
    let runtime = started(builder(&journal).model(model(answer)).limits(limits).options(options)).await;
    let (_, ended) = ask(&runtime, "5").await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("level 5")));
    assert_eq!(journal.heads().expect("heads").len(), 6);
    assert_eq!(runtime.slots_in_use(), 0);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn depth_limit_is_a_tool_error_and_the_run_continues() {
    let journal = journal();
    let answer = |request: Request| async move {
        if answers(&request) == 0 {
            return Ok(calls([task("deeper", false)]));
        }
        let result = request.messages.iter().find_map(|message| match message {
            Message::Result { content, error, .. } => Some((*error, content.to_string())),
            _ => None,
        });
        Ok(text(&format!("{result:?}")))
    };
    let limits = Limits { max_depth: 1, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "parent").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    assert_eq!(journal.heads().expect("heads").len(), 2);
    let child = journal.children(session.id()).expect("children");
    let output = records(&journal, child[0]).await.into_iter().find_map(|record| match record {
        Record::CallFinished(finished) => Some(finished.content.to_string()),
        _ => None,
    });
    assert!(output.as_deref().is_some_and(|output| output.contains("limit of 1 level")), "{output:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_the_whole_owned_subtree_once() {
    let journal = journal();
    let answer = |request: Request| async move {
        let depth: u32 = prompt(&request).parse().unwrap_or(0);
        if depth > 0 && answers(&request) == 0 {
            return Ok(calls([task(&(depth - 1).to_string(), true), task(&(depth - 1).to_string(), false)]));
        }
        std::future::pending::<()>().await;
        Ok(text("never"))
    };
    let limits = Limits { live_runs: 64, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "3").await;
    seconds(1).await;
    assert_eq!(session.cancel().await, Ok(Control::Done(receipt.run)));
    let ended = tokio::time::timeout(Duration::from_secs(5), session.run_ended(receipt.run)).await;
    assert_eq!(
        ended.expect("the cancel took longer than one grace").expect("ended").outcome,
        Outcome::Cancelled { by: Initiator::Person }
    );
    let heads = journal.heads().expect("heads");
    assert_eq!(heads.len(), 15);
    for (id, _) in heads {
        let all = records(&journal, id).await;
        let ends: Vec<_> = all.iter().filter(|record| matches!(record, Record::RunEnded(_))).collect();
        assert_eq!(ends.len(), 1, "{id}: {all:#?}");
    }
    assert_eq!(journal.inflight().expect("inflight"), []);
    assert_eq!(journal.outbox().expect("outbox"), []);
    assert_eq!(runtime.slots_in_use(), 0);
    assert!(matches!(
        session.cancel().await,
        Ok(Control::AlreadyEnded(_, Outcome::Cancelled { by: Initiator::Person }))
    ));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_model_fails_with_its_true_cause() {
    let runtime = builder(&journal())
        .model(model(|_| async {
            std::future::pending::<()>().await;
            Ok(text("never"))
        }))
        .start()
        .await
        .expect("a runtime");
    let (_, ended) = ask(&runtime, "hi").await;
    let (error, message) = (ModelFail::Unavailable, "the model did not begin to answer within 120000 ms".into());
    assert_eq!(ended.outcome, Outcome::Failed { kind: FailKind::Model { error, message } });
    shut(runtime).await;
}

/// A queue is counted once, while its session is out of memory and after. Controls: before the input, after the end.
#[tokio::test(start_paused = true)]
async fn h8_queues_of_unloaded_sessions_are_counted() {
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("child", _) => {
                seconds(50).await;
                Ok(text("late"))
            }
            (_, _) => Ok(text("back")),
        }
    };
    let options = Options { idle: Duration::from_secs(2), ..Options::default() };
    let runtime = builder(&journal()).model(model(answer)).options(options).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    assert_eq!((runtime.loaded_sessions(), runtime.queued_inputs()), (1, 0));
    let next = session.send("next").await.expect("accepted");
    assert_eq!((runtime.loaded_sessions(), runtime.queued_inputs()), (2, 1));
    seconds(10).await;
    assert_eq!((runtime.loaded_sessions(), runtime.queued_inputs()), (1, 1));
    assert_eq!(session.run_ended(next.run).await.expect("ended").outcome, Outcome::Completed);
    seconds(10).await;
    assert_eq!((runtime.loaded_sessions(), runtime.queued_inputs()), (0, 0));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn idle_and_waiting_sessions_are_passivated_and_return() {
    let journal = journal();
    let calls_made = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&calls_made);
    let answer = move |request: Request| {
        made.fetch_add(1, Ordering::Relaxed);
        async move {
            match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => Ok(calls([task("child", false)])),
                ("parent", _) => Ok(text("back")),
                (_, _) => {
                    seconds(50).await;
                    Ok(text("late"))
                }
            }
        }
    };
    let options = Options { idle: Duration::from_secs(2), seed: Some(7), ..Options::default() };
    let runtime = builder(&journal).model(model(answer)).options(options).start().await.expect("a runtime");
    let (session, receipt) = sent(&runtime, "parent").await;
    seconds(10).await;
    assert_eq!(runtime.loaded_sessions(), 1, "expected only the working child in memory");
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("back")));
    seconds(10).await;
    assert_eq!(runtime.loaded_sessions(), 0);
    let again = session.send("parent").await.expect("accepted");
    let ended = session.run_ended(again.run).await.expect("ended");
    assert_eq!((ended.run.0, ended.outcome), (2, Outcome::Completed));
    let all = kinds(&journal, session.id()).await;
    assert_eq!(calls_made.load(Ordering::Relaxed), 4, "{all:?}");
    shut(runtime).await;
}

/// Returns the number of actors while each of the four sessions of a chain calls its model for the first time.
async fn actors_in_a_chain(resident_text: u64) -> Vec<usize> {
    let journal = journal();
    let (seen, shared) = (Arc::new(Mutex::new(Vec::new())), Arc::new(OnceLock::<Weak<Runtime>>::new()));
    let (noted, found) = (Arc::clone(&seen), Arc::clone(&shared));
    let answer = move |request: subtend_models::model::Request| {
        let (noted, found) = (Arc::clone(&noted), Arc::clone(&found));
        async move {
            let (own, first) = (prompt(&request), answers(&request) == 0);
            if first {
                // Virtual time passes only when nothing else can run: each owner waits or has left.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let runtime = found.get().and_then(Weak::upgrade).expect("a runtime");
                noted.lock().expect("not poisoned").push(runtime.stats().actors);
            }
            Ok(match own.len() {
                4 => text("the end"),
                _ if first => calls([task(&format!("{own}."), false)]),
                _ => text("from below"),
            })
        }
    };
    let options = Options { resident_text, ..Options::default() };
    let runtime = Arc::new(builder(&journal).options(options).model(model(answer)).start().await.expect("a runtime"));
    assert!(shared.set(Arc::downgrade(&runtime)).is_ok());
    let (_, ended) = ask(&runtime, ".").await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("from below")));
    shut(Arc::into_inner(runtime).expect("no call holds it")).await;
    seen.lock().expect("not poisoned").clone()
}

/// Control: below the limit, sessions stay in memory.
#[tokio::test(start_paused = true)]
async fn waiting_sessions_leave_memory_at_once_above_the_bound() {
    assert_eq!(actors_in_a_chain(1 << 20).await, [1, 2, 3, 4]);
    assert_eq!(actors_in_a_chain(0).await, [1, 1, 1, 1]);
}

/// Returns the number of the last activation of a session whose children end 1 ms apart, the last after a second.
async fn activations_of_an_owner(prompt_bytes: usize) -> u32 {
    let journal = journal();
    let answer = |request: Request| async move {
        match prompt(&request).parse() {
            Ok(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(text("done"))
            }
            Err(_) if answers(&request) > 0 => Ok(text("back")),
            Err(_) => {
                // The caller waits for the end before the first call of a task.
                seconds(1).await;
                Ok(calls((1..9).chain([1_000]).map(|ms| task(&ms.to_string(), false))))
            }
        }
    };
    let options = Options { resident_text: 0, ..Options::default() };
    let runtime = builder(&journal).options(options).model(model(answer)).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, &"x".repeat(prompt_bytes)).await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("back")));
    let head = journal.head(session.id()).expect("readable").expect("a session");
    shut(runtime).await;
    head.epoch.0
}

/// The creation and the input activate it. Control: a session with little text leaves memory each time.
#[tokio::test(start_paused = true)]
async fn owner_with_much_text_is_not_folded_for_each_end() {
    assert_eq!([activations_of_an_owner(1 << 20).await, activations_of_an_owner(1).await], [3, 11]);
}
