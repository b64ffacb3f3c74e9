//! The content of model requests: one message a turn, completions after it, no person's runs in a child, and each end once.

use crate::support::*;

type SessionRequests = Arc<Mutex<Vec<(SessionId, Vec<String>)>>>;

fn texts(request: &Request) -> Vec<String> {
    let short = |message: &Message| match message {
        Message::User { text, .. } => text.to_string(),
        Message::Assistant { text, .. } => format!("[{}]", text.as_deref().unwrap_or("calls")),
        Message::Result { content, .. } => format!("result: {content}"),
        Message::Notice { text, .. } => format!("completion: {text}"),
        Message::Prompt { .. } => "prompt".to_owned(),
    };
    request.messages.iter().map(short).collect()
}

/// Returns a runtime whose model answers after the seconds that `answer` returns, and the requests that the model gets.
async fn recorded_requests<F>(building: Builder, answer: F) -> (Runtime, SessionRequests)
where
    F: Fn(&Request) -> (u64, Answer) + Send + Sync + 'static,
{
    let requests = SessionRequests::default();
    let seen = Arc::clone(&requests);
    let answering = model(move |request| {
        seen.lock().unwrap().push((request.session, texts(&request)));
        let (after, answer) = answer(&request);
        async move {
            seconds(after).await;
            Ok(answer)
        }
    });
    (building.model(answering).start().await.expect("a runtime"), requests)
}

fn requests(recorded: &SessionRequests, session: &SessionHandle) -> Vec<Vec<String>> {
    let recorded = recorded.lock().unwrap();
    recorded.iter().filter(|(of, _)| *of == session.id()).map(|(_, texts)| texts.clone()).collect()
}

fn last(recorded: &SessionRequests, session: &SessionHandle) -> Vec<String> {
    requests(recorded, session).pop().expect("a request")
}

async fn say(session: &SessionHandle, text: &str) -> Ended {
    let receipt = session.send(text).await.expect("accepted");
    end_of(session, receipt.run.0).await
}

async fn child_of(runtime: &Runtime, session: &SessionHandle) -> SessionHandle {
    let tree = session.tree().await.expect("a tree");
    runtime.session(tree.children[0].id).expect("readable").expect("the child")
}

async fn stored(journal: &Journal, session: &SessionHandle) -> usize {
    let notices = |record: &Record| match record {
        Record::NoticeTaken(taken) => taken.items.iter().filter(|item| item.key.is_none()).count(),
        _ => 0,
    };
    records(journal, session.id()).await.iter().map(notices).sum()
}

#[tokio::test(start_paused = true)]
async fn k26_answer_of_a_branch_stays_out_of_the_main_context() {
    let journal = journal();
    let (runtime, requests) =
        recorded_requests(builder(&journal), |request| (1, text(&format!("to {}", last_user(request))))).await;
    let main = open(&runtime);
    say(&main, "one").await;
    let branch = main.branch(BranchOptions::default()).await.expect("a branch");
    say(&branch, "aside").await;
    seconds(1).await;
    say(&main, "two").await;
    assert_eq!(last(&requests, &main), ["one", "[to one]", "two"]);
    assert_eq!(last(&requests, &branch), ["one", "[to one]", "aside"]);
    assert_eq!(stored(&journal, &main).await, 1, "the branch's answer was not stored for views");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k26_message_to_an_owned_child_leaves_its_result_alone() {
    let journal = journal();
    let (runtime, requests) =
        recorded_requests(builder(&journal), |request| match (&*prompt(request), answers(request)) {
            ("parent", 0) => (1, calls([task("lookup", false)])),
            ("lookup", 0) => (20, text("the result")),
            _ => (5, text(&format!("to {}", last_user(request)))),
        })
        .await;
    let (parent, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let child = child_of(&runtime, &parent).await;
    let receipt = child.send("and this?").await.expect("accepted");
    assert_eq!(child.queue().await.expect("listed").len(), 1);
    assert_eq!(end_of(&parent, 1).await.text.as_deref(), Some("to parent"));
    assert_eq!(last(&requests, &parent), ["parent", "[calls]", "result: the result"]);
    assert_eq!(end_of(&child, 1).await.text.as_deref(), Some("the result"));
    assert_eq!(receipt.answer().await.expect("an answer").text.as_ref(), "to and this?");
    end_of(&child, 2).await;
    let owners: Vec<bool> = records(&journal, child.id())
        .await
        .iter()
        .filter_map(|record| match record {
            Record::RunOpened(opened) => Some(opened.owner == Owner::Person),
            _ => None,
        })
        .collect();
    assert_eq!(owners, [false, true], "the message did not open a run of the person");
    say(&parent, "again").await;
    assert_eq!(
        last(&requests, &parent)[3..],
        ["[to parent]", "again"],
        "the parent's model sees the answer to a person"
    );
    assert_eq!(stored(&journal, &parent).await, 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k26_receipt_names_the_run_that_takes_the_message() {
    let (runtime, _) = recorded_requests(builder(&journal()), |request| match (&*prompt(request), answers(request)) {
        ("parent", 0) => (1, calls([task("lookup", false)])),
        ("lookup", 0) => (20, text("the result")),
        _ => (5, text(&format!("to {}", last_user(request)))),
    })
    .await;
    let (parent, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let child = child_of(&runtime, &parent).await;
    let receipt = child.input("and this?").key("one").send().await.expect("accepted");
    let same = child.input("and this?").key("one").send().await.expect("accepted");
    let found = child.receipt(receipt.input).await.expect("a receipt");
    let steered = child.steer("faster").await.expect("accepted");
    let runs = [&receipt, &same, &found, &steered].map(|receipt| receipt.run);
    assert_eq!(runs, [RunNo(2), RunNo(2), RunNo(2), RunNo(1)]);
    let ended = child.run_ended(receipt.run).await.expect("the run ends");
    assert_eq!(ended.text.as_deref(), Some("to and this?"));
    assert_eq!(child.receipt(receipt.input).await.expect("a receipt").run, RunNo(2));
    // A withdrawn message does not open a run.
    let (parent, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let child = child_of(&runtime, &parent).await;
    let receipt = child.send("never").await.expect("accepted");
    child.queue_clear().await.expect("cleared");
    let none = child.run_ended(receipt.run).await.expect_err("no such run");
    assert_eq!(none, WaitError::NoSuchRun { session: child.id(), run: RunNo(2) });
    end_of(&parent, 1).await;
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k26_steer_enters_an_owned_child_at_the_boundary() {
    let lookup = tool("lookup", ToolEffect::ReadOnly, |_| async {
        seconds(10).await;
        Ok(ToolOutput::text("seen"))
    });
    let (runtime, requests) =
        recorded_requests(builder(&journal()).tools(tools([lookup])), |request| match &*prompt(request) {
            "parent" if answers(request) == 0 => (1, calls([task("lookup", false)])),
            "lookup" if answers(request) == 0 => (1, calls([("lookup", json!({}))])),
            _ => (1, text(&format!("to {}", last_user(request)))),
        })
        .await;
    let (parent, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let child = child_of(&runtime, &parent).await;
    child.steer("left").await.expect("accepted");
    end_of(&parent, 1).await;
    assert_eq!(last(&requests, &child), ["lookup", "[calls]", "result: seen", "left"]);
    assert_eq!(last(&requests, &parent)[2], "result: to left");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn k26_restart_stores_a_persons_end_without_showing_it() {
    use subtend_journal::memory::Memory;
    let memory = Memory::new();
    let journal = reopen(&memory);
    let answer = |request: &Request| (10, text(&format!("to {}", last_user(request))));
    let (runtime, _) = recorded_requests(builder(&journal), answer).await;
    let main = open(&runtime);
    say(&main, "one").await;
    let branch = main.branch(BranchOptions::default()).await.expect("a branch");
    branch.send("aside").await.expect("accepted");
    seconds(1).await;
    drop((runtime, journal));
    let journal = reopen(&memory);
    let (runtime, requests) = recorded_requests(builder(&journal), answer).await;
    let main = runtime.session(main.id()).expect("readable").expect("the session exists");
    let branch = runtime.session(branch.id()).expect("readable").expect("the session exists");
    assert_eq!(end_of(&branch, 1).await.outcome, Outcome::Lost);
    say(&main, "two").await;
    assert_eq!(last(&requests, &main), ["one", "[to one]", "two"]);
    assert_eq!(stored(&journal, &main).await, 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b11_requests_put_messages_first_and_completions_last() {
    let (runtime, received_requests) =
        recorded_requests(builder(&journal()), |request| match (&*prompt(request), answers(request)) {
            ("parent", 0) => (1, calls([task("child", true)])),
            ("child", _) => (1, text("found")),
            _ => (10, text(&format!("to {}", last_user(request)))),
        })
        .await;
    let (parent, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    parent.send("A").await.expect("accepted");
    parent.send("B").await.expect("accepted");
    end_of(&parent, 1).await;
    let newest: Vec<String> =
        requests(&received_requests, &parent).into_iter().map(|mut request| request.pop().unwrap()).collect();
    assert_eq!(newest.len(), 5);
    assert_eq!((&*newest[2], &*newest[3]), ("A", "B"), "expected one message a turn");
    assert!(newest[4].starts_with("completion: ") && newest[4].contains("found"), "{newest:?}");
    let last = last(&received_requests, &parent);
    assert_eq!(last.iter().filter(|word| word.starts_with("completion")).count(), 1);
    shut(runtime).await;
}

/// Returns the kinds of the messages with the child's answer in the last request of the root.
async fn given(dialect: Dialect, fetches: bool) -> Vec<String> {
    let dialects = Dialects { offered: vec![dialect], ..Dialects::default() };
    let lookup = tool("lookup", ToolEffect::ReadOnly, |_| async {
        seconds(10).await;
        Ok(ToolOutput::text("seen"))
    });
    let building = builder(&journal()).dialects(dialects).tools(tools([lookup]));
    let (runtime, requests) =
        recorded_requests(building, move |request| match (&*prompt(request), answers(request), dialect) {
            ("parent", 0, Dialect::Spawn) => (1, calls([("spawn", json!({"task": "child"}))])),
            ("parent", 0, _) => {
                let args = json!({"type": "explore", "prompt": "child", "description": "a child"});
                (1, calls([("spawn_task", args)]))
            }
            ("parent", 1, _) => (1, calls([("lookup", json!({}))])),
            ("parent", 2, Dialect::Spawn) if fetches => {
                (1, calls([("spawn_await", json!({"job_ids": results(request)[0]}))]))
            }
            ("parent", 2, _) if fetches => {
                let received: Value = serde_json::from_str(&results(request)[0]).expect("an object");
                (1, calls([("check_task", json!({"taskId": received["taskId"]}))]))
            }
            ("parent", ..) => (1, text("done")),
            _ => (1, text("found it")),
        })
        .await;
    let parent = open(&runtime);
    assert_eq!(say(&parent, "parent").await.outcome, Outcome::Completed);
    let last = last(&requests, &parent);
    shut(runtime).await;
    let kind = |word: &String| word.split(':').next().unwrap_or_default().to_owned();
    last.iter().filter(|word| word.contains("found it")).map(kind).collect()
}

#[tokio::test(start_paused = true)]
async fn k2_end_of_a_job_reaches_the_model_once() {
    for dialect in [Dialect::Spawn, Dialect::SpawnTask] {
        assert_eq!(given(dialect, true).await, ["result"], "{dialect:?}: a fetched end was injected too");
        assert_eq!(
            given(dialect, false).await,
            ["completion"],
            "{dialect:?}: the end was not injected at the rest point"
        );
    }
}

/// Starts a child, lets a person talk to it, and lets the parent await, check or continue it. Returns the messages that the parent's model reads
/// after that, and those that the child's model reads last.
async fn seen_again(dialect: Dialect, busy: bool) -> (Vec<String>, Vec<String>) {
    let dialects = Dialects { offered: vec![dialect], ..Dialects::default() };
    let (runtime, received_requests) = recorded_requests(builder(&journal()).dialects(dialects), move |request| {
        let id = |name: &str| serde_json::from_str::<Value>(&results(request)[0]).expect("an object")[name].clone();
        let starts = || match dialect {
            Dialect::Spawn => ("spawn", json!({"task": "child"})),
            Dialect::SpawnTask => {
                ("spawn_task", json!({"type": "explore", "prompt": "child", "description": "a child"}))
            }
            Dialect::Minion => ("minion", json!({"message": "child", "enableWeb": false, "enabledTools": []})),
            Dialect::Subagent => ("subagent", json!({"task": "child"})),
            Dialect::Task => ("task", json!({"subagent_type": "worker", "prompt": "child", "background": true})),
        };
        let again = || match dialect {
            Dialect::Spawn => ("spawn_await", json!({"job_ids": results(request)[0]})),
            Dialect::SpawnTask => ("check_task", json!({"taskId": id("taskId")})),
            Dialect::Minion => (
                "minion",
                json!({"message": "more", "minionChatId": id("minionChatId"), "enableWeb": false, "enabledTools": []}),
            ),
            Dialect::Subagent => ("subagent", json!({"task": "more", "continueBranchId": id("branchId")})),
            Dialect::Task => ("check_task", json!({"task_id": id("session_id")})),
        };
        let is_root = &*prompt(request) == "parent";
        let after = if last_user(request).ends_with("aside") { 60 } else { 1 };
        match request.messages.last() {
            Some(Message::User { text, .. }) if is_root && &**text == "parent" => (1, calls([starts()])),
            Some(Message::User { text, .. }) if is_root && &**text == "again" => (1, calls([again()])),
            Some(Message::User { .. }) => (after, text(&format!("to {}", last_user(request)))),
            _ => (1, text("done")),
        }
    })
    .await;
    let parent = open(&runtime);
    say(&parent, "parent").await;
    let child = child_of(&runtime, &parent).await;
    let receipt = child.send("aside").await.expect("accepted");
    if busy {
        seconds(2).await;
    } else {
        end_of(&child, receipt.run.0).await;
    }
    say(&parent, "again").await;
    end_of(&child, receipt.run.0).await;
    let of_parent = requests(&received_requests, &parent).concat();
    assert!(!of_parent.iter().any(|message| message.contains("aside")), "{dialect:?}: {of_parent:#?}");
    let seen = last(&received_requests, &parent);
    let from = seen.iter().position(|message| message == "again").expect("the second message");
    let of_child = last(&received_requests, &child);
    shut(runtime).await;
    (seen[from + 1..].to_vec(), of_child)
}

/// A check or an await returns the end of the owned run, even while a person's run is in flight.
#[tokio::test(start_paused = true)]
async fn k26_check_repeats_the_owned_end_after_a_persons_run() {
    for dialect in [Dialect::Spawn, Dialect::SpawnTask, Dialect::Task] {
        for busy in [false, true] {
            let (seen, _) = seen_again(dialect, busy).await;
            assert_eq!(seen.len(), 2, "{dialect:?}, {busy}: {seen:#?}");
            // `task` injects each end, so its check does not repeat the text.
            let gives = if dialect == Dialect::Task { "ended; its result was given before" } else { "to child" };
            assert!(seen[1].starts_with("result: ") && seen[1].contains(gives), "{dialect:?}, {busy}: {seen:#?}");
        }
    }
}

/// A continued child sees the messages of the person; its parent gets only the answer to its own message.
#[tokio::test(start_paused = true)]
async fn k26_continue_shows_the_child_again_after_a_persons_run() {
    for dialect in [Dialect::Minion, Dialect::Subagent] {
        let (seen, of_child) = seen_again(dialect, false).await;
        let ends: Vec<&String> = seen.iter().filter(|message| message.contains("to more")).collect();
        assert_eq!(ends.len(), 1, "{dialect:?}: {seen:#?}");
        assert!(of_child.iter().any(|message| message == "aside"), "{dialect:?}: {of_child:#?}");
        assert!(of_child.last().is_some_and(|message| message.contains("more")), "{dialect:?}: {of_child:#?}");
    }
}

/// An unchecked end of a task that arrived when its owner had no turn left enters the next turn once (R9).
#[tokio::test(start_paused = true)]
async fn r9_unchecked_result_enters_the_next_turn_once() {
    let dialects = Dialects { offered: vec![Dialect::SpawnTask], ..Dialects::default() };
    let (runtime, received_requests) =
        recorded_requests(builder(&journal()).dialects(dialects), |request| match &*last_user(request) {
            "go" if answers(request) == 0 => {
                let args = json!({"type": "worker", "prompt": "child", "description": "count"});
                (1, calls([("spawn_task", args)]))
            }
            "go" => (1_000, text("late")),
            "child" => (20, text("found it")),
            _ => (1, text("noted")),
        })
        .await;
    let (session, _) = sent(&runtime, "go").await;
    seconds(5).await;
    session.interrupt().await.expect("interrupted");
    seconds(60).await;
    let before = requests(&received_requests, &session).len();
    assert_eq!(before, 2, "the end of the task opened a turn after an interrupt");
    say(&session, "and?").await;
    let next = requests(&received_requests, &session)[before].clone();
    let completions: Vec<&String> = next.iter().filter(|message| message.contains("found it")).collect();
    assert_eq!(completions.len(), 1, "{next:#?}");
    assert!(completions[0].starts_with("completion: ") && completions[0].contains("(count): completed]"), "{next:#?}");
    say(&session, "again").await;
    let later = last(&received_requests, &session);
    assert_eq!(later.iter().filter(|message| message.contains("found it")).count(), 1, "{later:#?}");
    shut(runtime).await;
}
