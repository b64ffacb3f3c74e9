//! Ended sessions continue: as another owned run of their owner's model, or for a person.

use crate::support::*;
use subtend_session::call::ToolErrorKind;

fn more(short: &str, prompt: &str, background: bool) -> (&'static str, Value) {
    ("task", json!({"session_id": short, "prompt": prompt, "background": background}))
}

fn texts(request: &Request) -> Vec<String> {
    let user = |message: &Message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    };
    request.messages.iter().filter_map(user).collect()
}

/// The owner starts a task in the background, continues it after its end, and then answers with the last result.
async fn once_more(request: Request, background: bool) -> Result<Answer, ModelError> {
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([task("child", true)])),
        ("parent", 1) => Ok(text("waiting")),
        ("parent", 2) => Ok(calls([more(&short(&request), "and then?", background)])),
        ("parent", _) => Ok(text(results(&request).last().map_or("", String::as_str))),
        _ => Ok(text(&texts(&request).join(" | "))),
    }
}

fn the_child(runtime: &Runtime, session: &SessionHandle) -> SessionHandle {
    let children = runtime.journal().children(session.id()).expect("children");
    runtime.session(children[0]).expect("readable").expect("the session exists")
}

async fn runs(runtime: &Runtime, session: SessionId) -> Vec<(Owner, Option<Outcome>)> {
    let mut runs = Vec::new();
    for record in records(runtime.journal(), session).await {
        match record {
            Record::RunOpened(opened) => runs.push((opened.owner.clone(), None)),
            Record::RunEnded(ended) => {
                let no = usize::try_from(ended.run.0).unwrap();
                runs[no - 1].1 = Some(ended.outcome);
            }
            _ => {}
        }
    }
    runs
}

async fn failures(runtime: &Runtime, session: SessionId) -> Vec<(ToolErrorKind, String)> {
    let failed = |record| match record {
        Record::CallFinished(finished) => match finished.end {
            CallEnd::ToolError { kind, .. } => Some((kind, finished.content.to_string())),
            _ => None,
        },
        _ => None,
    };
    records(runtime.journal(), session).await.into_iter().filter_map(failed).collect()
}

#[tokio::test(start_paused = true)]
async fn ended_task_continues_as_another_owned_run() {
    for background in [false, true] {
        let journal = journal();
        let runtime = builder(&journal)
            .model(model(move |request| once_more(request, background)))
            .start()
            .await
            .expect("a runtime");
        let (session, ended) = ask(&runtime, "parent").await;
        assert_eq!(ended.outcome, Outcome::Completed, "{background}");
        if !background {
            assert_eq!(ended.text.as_deref(), Some("child | and then?"));
        }
        let child = the_child(&runtime, &session);
        let runs = runs(&runtime, child.id()).await;
        assert_eq!(runs.len(), 2, "{background}");
        for (owner, outcome) in runs {
            assert_eq!(owner.run().map(|run| run.session), Some(session.id()));
            assert_eq!(outcome, Some(Outcome::Completed));
        }
        assert_eq!(end_of(&child, 2).await.text.as_deref(), Some("child | and then?"));
        assert_eq!(journal.outbox().expect("outbox"), []);
        assert_eq!(runtime.slots_in_use(), 0);
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn task_continues_after_any_outcome() {
    let failed = ModelError::new(ModelFail::InvalidRequest, "no");
    for how in ["cancelled", "failed", "out of turns"] {
        let failed = failed.clone();
        let answer = move |request: Request| {
            let failed = failed.clone();
            async move {
                match (prompt(&request).as_str(), texts(&request).len(), how) {
                    ("parent", ..) => once_more(request, false).await,
                    (_, 2, _) => Ok(text(&texts(&request).join(" | "))),
                    (_, _, "cancelled") => {
                        seconds(60).await;
                        Ok(text("never"))
                    }
                    (_, _, "failed") => Err(failed),
                    (..) => Ok(calls([("lookup", json!({}))])),
                }
            }
        };
        let lookup = tool("lookup", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("seen")) });
        let limits = Limits { turns: 6, ..Limits::default() };
        let runtime = started(builder(&journal()).limits(limits).tools(tools([lookup])).model(model(answer))).await;
        let (session, _) = sent(&runtime, "parent").await;
        if how == "cancelled" {
            seconds(5).await;
            the_child(&runtime, &session).cancel().await.expect("cancelled");
            // A person's cancel does not wake the owner: the owner's run ends, and its next input carries the notice.
            end_of(&session, 1).await;
            session.send("continue").await.expect("accepted");
        }
        let ended = end_of(&session, if how == "cancelled" { 2 } else { 1 }).await;
        assert_eq!(ended.outcome, Outcome::Completed, "{how}");
        assert_eq!(ended.text.as_deref(), Some("child | and then?"), "{how}");
        let child = the_child(&runtime, &session);
        let outcomes: Vec<Option<Outcome>> =
            runs(&runtime, child.id()).await.into_iter().map(|(_, outcome)| outcome).collect();
        let first = match how {
            "cancelled" => Outcome::Cancelled { by: Initiator::Person },
            "failed" => {
                let kind = FailKind::Model { error: ModelFail::InvalidRequest, message: "no".into() };
                Outcome::Failed { kind }
            }
            _ => Outcome::OutOfTurns,
        };
        assert_eq!(outcomes, [Some(first), Some(Outcome::Completed)], "{how}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn person_continues_a_cancelled_session_with_turns() {
    let journal = journal();
    let answer = |request: Request| async move {
        if texts(&request).len() == 1 {
            seconds(60).await;
        }
        if texts(&request).len() == 3 {
            return Ok(calls([("none", json!({}))]));
        }
        Ok(text(&texts(&request).join(" | ")))
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "lookup").await;
    seconds(5).await;
    session.cancel().await.expect("cancelled");
    end_of(&session, 1).await;
    let receipt = session.continue_with(None).await.expect("accepted");
    let ended = end_of(&session, receipt.run.0).await;
    assert_eq!(ended.text.as_deref(), Some("lookup | Continue your previous work."));
    let receipt = session.input("once more").turns(2).send().await.expect("accepted");
    let ended = end_of(&session, receipt.run.0).await;
    assert_eq!((ended.outcome, ended.turns), (Outcome::OutOfTurns, 2));
    let refused = session.input("never").turns(0).send().await;
    assert!(refused.is_err_and(|error| error.to_string().contains("0 turns")));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn refused_continue_is_a_tool_error_and_the_run_continues() {
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", true)])),
            ("parent", 1) => Ok(text("waiting")),
            ("parent", 2) => {
                seconds(60).await;
                let mut wrong = more(&short(&request), "more", false);
                wrong.1["subagent_type"] = json!("general");
                Ok(calls([more("zzzzzz", "more", false), wrong, more(&short(&request), "more", false)]))
            }
            ("parent", _) => Ok(text("so be it")),
            _ => Ok(text("done")),
        }
    };
    for deleted in [false, true] {
        let journal = journal();
        let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
        let (session, _) = sent(&runtime, "parent").await;
        seconds(5).await;
        let child = the_child(&runtime, &session);
        let children = journal.head(child.id()).expect("readable").expect("the session exists").short;
        if deleted {
            assert_eq!(child.delete(false).await, Ok(1));
        } else {
            child.close().await.expect("closed");
        }
        assert_eq!(end_of(&session, 1).await.text.as_deref(), Some("so be it"));
        let gone = if deleted { "deleted" } else { "closed" };
        assert_eq!(
            failures(&runtime, session.id()).await,
            [
                (ToolErrorKind::NotFound, format!("Unknown task `zzzzzz`. Yours: {children} (worker).")),
                (
                    ToolErrorKind::BadArgs,
                    format!("The task {children} is worked on by worker, not by general: leave subagent_type out.")
                ),
                (ToolErrorKind::Refused, format!("The task {children} is {gone}: start a new one.")),
            ]
        );
        assert_eq!(runs(&runtime, child.id()).await.len(), 1);
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn task_of_another_session_cannot_be_named() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("middle", true)])),
            ("middle", 0) => Ok(calls([task("leaf", true)])),
            (name, 0) if name.starts_with("stranger") => {
                let named = name.trim_start_matches("stranger ").to_owned();
                let cancel = ("cancel_task", json!({"taskId": named}));
                let check = ("check_task", json!({"taskId": named}));
                Ok(calls([more(&named, "mine now", false), check, cancel]))
            }
            _ => Ok(text("done")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (owner, _) = ask(&runtime, "parent").await;
    let child = the_child(&runtime, &owner);
    let named = journal.head(child.id()).expect("readable").expect("the session exists").short;
    for named in [named.to_string(), child.id().to_string()] {
        let (session, _) = ask(&runtime, &format!("stranger {named}")).await;
        let received = format!("Unknown task `{named}`: no earlier answer of yours started one.");
        assert_eq!(
            failures(&runtime, session.id()).await,
            [
                (ToolErrorKind::BadArgs, received.clone()),
                (ToolErrorKind::BadArgs, received.clone()),
                (ToolErrorKind::NotFound, received),
            ]
        );
    }
    assert_eq!(runs(&runtime, child.id()).await.len(), 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn persons_branch_is_not_a_task_of_the_model() {
    let journal = journal();
    let named = Arc::new(Mutex::new(String::new()));
    let name = Arc::clone(&named);
    let answer = move |request: Request| {
        let name = Arc::clone(&name);
        async move {
            if answers(&request) > 0 {
                return Ok(text("done"));
            }
            seconds(10).await;
            let branch = name.lock().unwrap().clone();
            Ok(calls([more(&branch, "mine now", false), ("cancel_task", json!({"taskId": branch}))]))
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    let branch = session.branch(BranchOptions::default()).await.expect("branched");
    let short = journal.head(branch.id()).expect("readable").expect("the session exists").short.to_string();
    *named.lock().unwrap() = short.clone();
    end_of(&session, 1).await;
    let received = format!("Unknown task `{short}`: no earlier answer of yours started one.");
    let expected = [(ToolErrorKind::BadArgs, received.clone()), (ToolErrorKind::NotFound, received)];
    assert_eq!(failures(&runtime, session.id()).await, expected);
    assert_eq!(runs(&runtime, branch.id()).await, []);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn late_results_of_a_run_do_not_affect_the_next() {
    let journal = journal();
    let finished = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&finished);
    // The call continues for a while after its cancel, so its result arrives while the next run is in flight.
    let slow = tool("slow", ToolEffect::SideEffect, move |_| {
        let count = Arc::clone(&count);
        async move {
            seconds(4).await;
            count.fetch_add(1, Ordering::Relaxed);
            Ok(ToolOutput::text("late"))
        }
    });
    let answer = |request: Request| async move {
        match (texts(&request).len(), answers(&request)) {
            (1, 0) => Ok(calls([("slow", json!({}))])),
            (1, _) => Ok(text("first")),
            _ => {
                seconds(30).await;
                Ok(text("second"))
            }
        }
    };
    let limits = Limits { tool_ms: 1_000, ..Limits::default() };
    let runtime = started(builder(&journal).limits(limits).tools(tools([slow])).model(model(answer))).await;
    let (session, _) = sent(&runtime, "one").await;
    assert_eq!(end_of(&session, 1).await.text.as_deref(), Some("first"));
    session.send("two").await.expect("accepted");
    let ended = end_of(&session, 2).await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("second")));
    assert_eq!(finished.load(Ordering::Relaxed), 1, "the late call did not finish");
    let all = records(&journal, session.id()).await;
    let results = all.iter().filter(|record| matches!(record, Record::CallFinished(_))).count();
    assert_eq!(results, 1, "{all:#?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn continue_is_refused_while_a_person_runs_the_task() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 2) => {
                seconds(10).await;
                once_more(request, false).await
            }
            ("parent", _) => once_more(request, false).await,
            _ => {
                if texts(&request).len() > 1 {
                    seconds(60).await;
                }
                Ok(text("done"))
            }
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let child = the_child(&runtime, &session);
    child.send("for me").await.expect("accepted");
    let ended = end_of(&session, 1).await;
    let message = ended.text.expect("an answer");
    assert!(message.contains("did not continue: it is already running"), "{message}");
    assert_eq!(end_of(&child, 2).await.outcome, Outcome::Completed, "the person's run was affected");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn owner_cancel_ends_a_continued_run_and_its_subtree() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), texts(&request).len(), answers(&request)) {
            ("parent", ..) => once_more(request, true).await,
            ("child", 2, 1) => Ok(calls([task("below", false)])),
            ("below", ..) => {
                seconds(600).await;
                Ok(text("never"))
            }
            _ => Ok(text("done")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    session.cancel().await.expect("cancelled");
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Cancelled { by: Initiator::Person });
    assert_eq!(journal.inflight().expect("inflight"), []);
    assert_eq!(journal.heads().expect("heads").len(), 3);
    shut(runtime).await;
}
