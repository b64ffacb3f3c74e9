//! Background processes: children that run one command each. These tests use real time, since the commands are real (R9).

use crate::support::*;
use subtend_actors::TaskStatus;

fn shell(command: &str) -> (&'static str, Value) {
    ("shell", json!({"command": command, "background": true}))
}

fn process(action: &str, id: &str) -> (&'static str, Value) {
    ("process", json!({"action": action, "session_id": id}))
}

fn output(id: &str) -> (&'static str, Value) {
    ("process", json!({"action": "output", "session_id": id, "wait_ms": 2_000}))
}

/// Returns the handle in the `no`th result.
fn handle(request: &Request, no: usize) -> String {
    let started: Value = serde_json::from_str(&results(request)[no]).expect("a started process");
    assert_eq!(started["status"], "started", "{started}");
    started["session_id"].as_str().expect("an id").to_owned()
}

fn last_result(request: &Request) -> String {
    results(request).last().cloned().unwrap_or_default()
}

fn notices(request: &Request) -> Vec<String> {
    let notice =
        |message: &Message| if let Message::Notice { text, .. } = message { Some(text.to_string()) } else { None };
    request.messages.iter().filter_map(notice).collect()
}

async fn host(journal: &Journal, answer: impl Fn(Request) -> Answer + Send + Sync + 'static) -> Runtime {
    with(builder(journal), answer).start().await.expect("a runtime")
}

fn with(builder: Builder, answer: impl Fn(Request) -> Answer + Send + Sync + 'static) -> Builder {
    let tools = Registry::builder().tools(Registry::workspace_tools(None)).expect("names differ").build();
    builder.tools(tools).model(model(move |request| std::future::ready(Ok(answer(request)))))
}

async fn ended(session: &SessionHandle) -> Ended {
    let ended = tokio::time::timeout(Duration::from_secs(60), session.run_ended(RunNo(1))).await;
    ended.expect("the run ends").expect("the runtime is running")
}

fn created(records: &[Record]) -> Vec<subtend_session::ids::SessionId> {
    records
        .iter()
        .filter_map(|it| if let Record::ChildSpawned(created) = it { Some(created.child) } else { None })
        .collect()
}

/// Returns whether a process that has `mark` as an argument is alive.
#[cfg(target_os = "linux")]
fn alive(mark: &str) -> bool {
    std::fs::read_dir("/proc").expect("processes").filter_map(Result::ok).any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    })
}

#[cfg(target_os = "linux")]
async fn until_alive(mark: &str, wanted: bool) {
    for _ in 0..1_000 {
        if alive(mark) == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{mark}: alive is not {wanted}");
}

#[tokio::test]
async fn r9_background_shell_returns_at_once_and_ends_once() {
    let journal = journal();
    let runtime = host(&journal, |request| match answers(&request) {
        0 => calls([shell("echo built; exit 3")]),
        1 => text("I wait."),
        _ => text(&notices(&request).join("\n")),
    });
    let runtime = runtime.await;
    let (session, _) = sent(&runtime, "go").await;
    let ended = ended(&session).await;
    let answer = ended.text.expect("an answer");
    assert_eq!(ended.outcome, Outcome::Completed);
    assert!(
        answer.contains("(shell.background)") && answer.contains("built\n[exit code 3; output 0 to 6 of 6 bytes]"),
        "{answer}"
    );
    let all = records(&journal, session.id()).await;
    let taken = all.iter().filter(|record| matches!(record, Record::NoticeTaken(_))).count();
    assert_eq!((created(&all).len(), taken), (1, 1));
    let [task] = &runtime.tasks(TaskFilter::default()).await.expect("a list")[..] else { panic!("one task") };
    assert_eq!(
        (&*task.agent, &*task.title, task.status),
        ("shell.background", "echo built; exit 3", TaskStatus::Completed)
    );
    shut(runtime).await;
}

#[tokio::test]
async fn r9_process_is_read_typed_into_and_stopped_by_its_handle() {
    let journal = journal();
    let runtime = host(&journal, |request| {
        let (shown, id) = (results(&request).join("|"), || handle(&request, 0));
        let last = last_result(&request);
        if shown.is_empty() {
            calls([shell("echo ready; read line; echo got $line; sleep 3010.5")])
        } else if last.contains("cancelling") {
            text("stopped")
        } else if shown.contains("got me") && !last.contains("got me") {
            calls([process("stop", &id())])
        } else if shown.contains("typed") || !shown.contains("ready") || last.contains("got me") {
            calls([output(&id())])
        } else {
            calls([("process", json!({"action": "input", "session_id": id(), "text": "me"}))])
        }
    })
    .await;
    let (session, _) = sent(&runtime, "go").await;
    assert_eq!(ended(&session).await.outcome, Outcome::Completed);
    let child = created(&records(&journal, session.id()).await)[0];
    let end = records(&journal, child).await.into_iter().find_map(|record| match record {
        Record::RunEnded(ended) => Some(ended),
        _ => None,
    });
    let end = end.expect("the run ended");
    assert!(matches!(end.outcome, Outcome::Cancelled { by: Initiator::Model { .. } }), "{:?}", end.outcome);
    assert!(end.text.is_some_and(|text| text.contains("ready")), "the owner did not receive its output so far");
    #[cfg(target_os = "linux")]
    until_alive("3010.5", false).await;
    shut(runtime).await;
}

/// The approval shows the command as for `shell`, and a denied command starts nothing.
#[tokio::test]
async fn r9_starting_and_typing_need_the_approval_of_shell() {
    let journal = journal();
    let rule = |resource: &str, verdict| Rule { action: "shell.run".into(), resource: resource.into(), verdict };
    let policy =
        RuleSet { default: Verdict::Allow, rules: vec![rule("*", Verdict::Ask), rule("denied *", Verdict::Deny)] };
    let runtime = with(builder(&journal).policy(policy), |request| {
        let (shown, last) = (results(&request).join("|"), last_result(&request));
        if shown.is_empty() {
            calls([shell("denied thing"), shell("read line; echo got $line")])
        } else if !notices(&request).is_empty() {
            text(&notices(&request).join("|"))
        } else if last.contains("started") || last.contains("is not running here") {
            calls([("process", json!({"action": "input", "session_id": handle(&request, 1), "text": "typed in"}))])
        } else {
            text("I wait.")
        }
    });
    let runtime = runtime.start().await.expect("a runtime");
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let mut accesses = Vec::new();
    for _ in 0..20 {
        let next = tokio::time::timeout(Duration::from_secs(3), approver.next()).await;
        let Ok(question) = next else { break };
        accesses.push((question.tool.to_string(), question.action.to_string(), question.resource.to_string()));
        approver.answer(&question, AskVerdict::Allow).await.expect("answered");
    }
    let entry = |tool: &str, resource: &str| (tool.to_owned(), "shell.run".to_owned(), resource.to_owned());
    assert!(accesses.contains(&entry("shell", "read line; echo got $line")), "{accesses:?}");
    assert!(accesses.contains(&entry("process", "typed in")), "{accesses:?}");
    assert!(!accesses.iter().any(|(_, _, resource)| resource.starts_with("denied")), "{accesses:?}");
    let all = records(&journal, session.id()).await;
    assert_eq!(created(&all).len(), 1, "the denied command has a session");
    let answer = ended(&session).await.text.expect("an answer");
    assert!(answer.contains("got typed in"), "{answer}");
    shut(runtime).await;
}

/// A permanent approval of a command does not cover its text where it is typed into a process. The control: the command
/// runs again without a question.
#[tokio::test]
async fn r9_always_approval_of_a_command_is_not_for_typed_text() {
    let journal = journal();
    let rule = Rule { action: "shell.run".into(), resource: "*".into(), verdict: Verdict::Ask };
    let policy = RuleSet { default: Verdict::Allow, rules: vec![rule] };
    let runtime = with(builder(&journal).policy(policy), |request| {
        let (command, last) = (("shell", json!({"command": "true"})), last_result(&request));
        match answers(&request) {
            0 => calls([command]),
            1 => calls([command, shell("read line; echo got $line")]),
            _ if !notices(&request).is_empty() => text(&notices(&request).join("|")),
            _ if last.contains("started") || last.contains("is not running here") => {
                calls([("process", json!({"action": "input", "session_id": handle(&request, 2), "text": "true"}))])
            }
            _ => text("I wait."),
        }
    });
    let runtime = runtime.start().await.expect("a runtime");
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let mut asked = Vec::new();
    let answer = loop {
        let question = tokio::select! {
            question = approver.next() => question,
            ended = ended(&session) => break ended.text.expect("an answer"),
        };
        let verdict = if &*question.tool == "shell" { AskVerdict::Always } else { AskVerdict::Allow };
        asked.push((question.tool.to_string(), question.resource.to_string()));
        approver.answer(&question, verdict).await.expect("answered");
    };
    let entry = |tool: &str, resource: &str| (tool.to_owned(), resource.to_owned());
    assert_eq!(asked[..2], [entry("shell", "true"), entry("shell", "read line; echo got $line")]);
    assert!(asked.len() > 2 && asked[2..].iter().all(|typed| *typed == entry("process", "true")), "{asked:?}");
    assert!(answer.contains("got true"), "{answer}");
    shut(runtime).await;
}

#[tokio::test]
async fn r9_processes_of_relatives_are_out_of_reach() {
    let journal = journal();
    let runtime = host(&journal, |request| match (&*prompt(&request), answers(&request)) {
        ("root", 0) => calls([shell("read line; echo got $line")]),
        ("root", 1) => calls([task(&format!("child {}", handle(&request, 0)), false)]),
        ("root", 2) => calls([process("stop", &handle(&request, 0))]),
        ("root", _) => text(&results(&request)[1]),
        (child, 0) => {
            let id = child.strip_prefix("child ").expect("the id").to_owned();
            let typed = ("process", json!({"action": "input", "session_id": id, "text": "from below"}));
            calls([typed, process("stop", &id), output(&id), process("output", "")])
        }
        _ => text(&results(&request).join("\n")),
    });
    let runtime = runtime.await;
    let (session, _) = sent(&runtime, "root").await;
    let answer = ended(&session).await.text.expect("an answer");
    assert_eq!(answer.matches("Unknown task").count(), 4, "{answer}");
    let child = created(&records(&journal, session.id()).await)[0];
    let all = format!("{:?}", records(&journal, child).await);
    assert!(!all.contains("from below"), "{all}");
    shut(runtime).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn r9_cancel_and_shutdown_leave_no_process_behind() {
    for (mark, cancels) in [("3011.5", true), ("3012.5", false)] {
        let command = format!("sleep {mark} & sleep {mark}");
        let runtime = with(builder(&journal()), move |request| match answers(&request) {
            0 => calls([shell(&command)]),
            _ => text("I wait."),
        });
        let runtime = runtime.start().await.expect("a runtime");
        let (session, _) = sent(&runtime, "go").await;
        until_alive(mark, true).await;
        if cancels {
            session.cancel().await.expect("cancelled");
            assert!(matches!(ended(&session).await.outcome, Outcome::Cancelled { .. }));
            shut(runtime).await;
        } else {
            let soon = Duration::from_secs(5);
            let report = tokio::time::timeout(soon, runtime.shutdown(Duration::from_secs(60))).await;
            let report = report.expect("a process delayed the shutdown");
            assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
        }
        until_alive(mark, false).await;
    }
}

/// A host is dropped, as by a kill. The next one reports the end once, with the output so far.
#[tokio::test]
async fn r9_lost_process_is_reported_with_output_after_restart() {
    let journal = journal();
    let answer = |request: Request| match (notices(&request).join("|"), answers(&request)) {
        (earlier, _) if !earlier.is_empty() => text(&earlier),
        (_, 0) => calls([shell("echo served; sleep 3013.5")]),
        _ => text("I wait."),
    };
    let runtime = host(&journal, answer).await;
    let (session, _) = sent(&runtime, "go").await;
    let child = loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let Some(child) = created(&records(&journal, session.id()).await).first().copied() else { continue };
        let answered = records(&journal, child).await;
        if answered.iter().filter(|record| matches!(record, Record::TurnAnswered(_))).count() == 2 {
            break child;
        }
    };
    drop(runtime);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let runtime = host(&journal, answer).await;
    let all = records(&journal, child).await;
    let ended = all.iter().filter_map(|record| if let Record::RunEnded(ended) = record { Some(ended) } else { None });
    let [ended] = &ended.collect::<Vec<_>>()[..] else { panic!("one end") };
    assert_eq!((&ended.outcome, ended.text.as_deref()), (&Outcome::Lost, Some("served")));
    let session = runtime.session(session.id()).expect("a journal").expect("a session");
    let receipt = session.send("and now?").await.expect("accepted");
    let message = session.run_ended(receipt.run).await.expect("the runtime is running").text.expect("an answer");
    assert!(message.contains("was lost: the host restarted") && message.contains("served"), "{message}");
    shut(runtime).await;
}

#[tokio::test]
async fn r9_processes_are_bounded_in_number_and_time() {
    let journal = journal();
    let limits = Limits { live_runs: 3, detached_ms: 2_500, ..Limits::default() };
    let runtime = with(builder(&journal).limits(limits), |request| match answers(&request) {
        0 => calls([shell("sleep 3014.5"), shell("sleep 3014.5"), shell("sleep 3014.5")]),
        1 => text("I wait."),
        _ => text(&[results(&request), notices(&request)].concat().join("|")),
    });
    let runtime = runtime.start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    let answer = ended(&session).await.text.expect("an answer");
    assert!(answer.contains("not started: 2 background processes of this tree run already"), "{answer}");
    let children = created(&records(&journal, session.id()).await);
    assert_eq!(children.len(), 2);
    for child in children {
        let ended = runtime.session(child).expect("a journal").expect("a session").run_ended(RunNo(1)).await;
        assert_eq!(ended.expect("the run ends").outcome, Outcome::TimedOut { what: TimeLimit::Run });
    }
    shut(runtime).await;
}

/// Neither a person nor another model can change the command of a process. The control: the original command ran.
#[tokio::test]
async fn r9_message_to_a_process_does_not_run() {
    let journal = journal();
    let runtime = host(&journal, |request| match answers(&request) {
        0 => calls([shell("echo once")]),
        1 => text("I wait."),
        _ => text("done"),
    });
    let runtime = runtime.await;
    let (session, _) = sent(&runtime, "go").await;
    ended(&session).await;
    let child = created(&records(&journal, session.id()).await)[0];
    let child = runtime.session(child).expect("a journal").expect("a session");
    let receipt = child.send("echo twice > twice").await.expect("accepted");
    let answer = child.run_ended(receipt.run).await.expect("the runtime is running").text.expect("an answer");
    assert!(answer.contains("does not take messages"), "{answer}");
    let started = |record: &&Record| matches!(record, Record::CallStarted { .. });
    let starts = records(&journal, child.id()).await.iter().filter(started).count();
    assert_eq!(starts, 1);
    shut(runtime).await;
}

/// Without the tool `process` in the list of an agent, or without both tools, nothing runs in the background.
#[tokio::test(start_paused = true)]
async fn r9_process_does_not_start_without_its_tool() {
    use subtend_agents::catalog::Catalog;
    use subtend_agents::manifest::{AgentMode, Manifest};

    let journal = journal();
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { tools: Some(vec!["shell".into()]), ..worker });
    let runtime = with(builder(&journal).catalog(catalog), |request| match answers(&request) {
        0 => calls([shell("true"), ("shell", json!({"command": "true", "background": true, "timeout_ms": 1}))]),
        _ => text(&results(&request).join("|")),
    });
    let runtime = runtime.start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "go").await;
    let answer = ended(&session).await.text.expect("an answer");
    assert!(
        answer.contains("`background` needs the tool `process`")
            && answer.contains("timeout_ms is for foreground commands"),
        "{answer}"
    );
    assert_eq!(created(&records(&journal, session.id()).await).len(), 0);
    shut(runtime).await;
}
