//! Minions that continue, and detached minions (features M4, M5).

use crate::support::talk::parsed;
use crate::support::*;
use subtend_actors::transcript::{CallOutcome, Entry, Transcript, TranscriptReading};
use subtend_agents::dialect::MinionOptions;
use subtend_agents::template::MinionTemplate;

fn minion(chat: Option<&Value>, names: &[&str]) -> (&'static str, Value) {
    let mut arguments = json!({"message": "m", "enableWeb": false, "enabledTools": names});
    if let (Some(chat), Some(fields)) = (chat, arguments.as_object_mut()) {
        fields.insert("minionChatId".into(), chat.clone());
    }
    ("minion", arguments)
}

#[tokio::test(start_paused = true)]
async fn m5_continued_minion_has_the_tools_of_this_call() {
    let (journal, received) = (journal(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&received);
    let answering = model(move |request| {
        let answer = if prompt(&request) == "go" {
            let results = results(&request);
            let chat = results.first().map(|first| parsed(first)["minionChatId"].clone());
            let next = match answers(&request) {
                0 => calls([minion(None, &["lookup"])]),
                // Fewer tools, other tools, more tools.
                1 => calls([minion(chat.as_ref(), &[])]),
                2 => calls([minion(chat.as_ref(), &["write", "minion", "return"])]),
                3 => calls([minion(chat.as_ref(), &["write", "lookup"])]),
                _ => text("done"),
            };
            *seen.lock().unwrap() = results;
            next
        } else {
            text(&offered(&request).join(" "))
        };
        async move { Ok(answer) }
    });
    let mut catalog = Catalog::builtin();
    let listed = ["lookup", "write", "minion"].map(Into::into).to_vec();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { tools: Some(listed), ..worker });
    let noop = |name: &str| tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
    let dialects = Dialects { offered: vec![Dialect::Minion], ..Dialects::default() };
    let builder = builder(&journal).catalog(catalog).dialects(dialects);
    let builder = builder.tools(tools([noop("lookup"), noop("write"), noop("secret")]));
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let received: Vec<Value> = received.lock().unwrap().iter().map(|received| parsed(received)).collect();
    let had: Vec<&str> = received.iter().map(|received| received["minionResponse"].as_str().expect("a text")).collect();
    assert_eq!(had, ["lookup return", "return", "write return", "lookup write return"]);
    // The tools are recorded at the spawn and in the child, so that a later activation offers the same.
    let child = session.tree().await.expect("a tree").children[0].id;
    let stored = records(&journal, child).await;
    let state = State::fold(child, &stored).expect("the records fold");
    let names = |names: &[&str]| Some(names.iter().map(|name| Arc::from(*name)).collect::<Vec<_>>());
    assert_eq!((&state.created.tools, &state.tools), (&names(&["lookup"]), &names(&["write", "lookup"])));
    let tool_lists: Vec<_> = records(&journal, session.id())
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::ContinueAsked(continue_request) => Some(continue_request.tools),
            _ => None,
        })
        .collect();
    assert_eq!(tool_lists, [names(&[]), names(&["write"]), names(&["write", "lookup"])]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m5_detached_minion_is_answered_in_its_dialect() {
    let (journal, received) = (journal(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&received);
    let answering = model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([minion(None, &[])]),
            ("go", _) => {
                *seen.lock().unwrap() = results(&request);
                text("done")
            }
            _ => text("on its own"),
        };
        async move { Ok(answer) }
    });
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest { detached: true, ..Manifest::new("worker", AgentMode::All, "You are a worker.") });
    let dialects = Dialects { offered: vec![Dialect::Minion], ..Dialects::default() };
    let builder = builder(&journal).catalog(catalog).dialects(dialects).model(answering);
    let runtime = builder.start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let short = session.tree().await.expect("a tree").children[0].short.to_string();
    let expected = json!({
        "minionChatId": short,
        "minionResponse": "",
        "minionUsedReturnTool": false,
        "activity": {"turns": 0},
        "status": "started",
        "message": "This minion is detached: no call waits for it, and you are notified when it ends.",
    });
    assert_eq!(parsed(&received.lock().unwrap()[0]), expected);
    shut(runtime).await;
}

/// Returns the requests to a minion that continues after a failed run, and its records.
async fn continue_after_a_failure(rollback_on_error: bool) -> (Vec<String>, Vec<Record>) {
    let (journal, received) = (journal(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&received);
    let chat = |results: &[String]| {
        let chat = results.first().and_then(|first| first.strip_prefix("Minion error: minion chat "));
        json!(chat.and_then(|rest| rest.split(' ').next()).expect("the failure names its chat"))
    };
    let answering = model(move |request| {
        let seen = Arc::clone(&seen);
        async move {
            if prompt(&request) == "go" {
                return Ok(match answers(&request) {
                    0 => calls([minion(None, &[])]),
                    1 => calls([minion(Some(&chat(&results(&request))), &[])]),
                    _ => text("done"),
                });
            }
            let mut seen = seen.lock().unwrap();
            seen.push(format!("{} messages", request.messages.len()));
            if seen.len() == 1 { Err(ModelError::new(ModelFail::Auth, "no key")) } else { Ok(text("well")) }
        }
    });
    let minion = MinionOptions { rollback_on_error, ..MinionOptions::default() };
    let dialects = Dialects { offered: vec![Dialect::Minion], minion, ..Dialects::default() };
    let runtime = builder(&journal).dialects(dialects).model(answering).start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let child = session.tree().await.expect("a tree").children[0].id;
    let ends = records(&journal, child).await.into_iter();
    let ends = ends.filter(|record| matches!(record, Record::RolledBack { .. })).collect();
    shut(runtime).await;
    let received = received.lock().unwrap().clone();
    (received, ends)
}

#[tokio::test(start_paused = true)]
async fn m10_rollback_on_error_hides_a_minions_failed_run() {
    let hidden = Record::RolledBack { run: RunNo(1), by: Initiator::Host };
    let messages = |all: [&str; 2]| all.map(str::to_owned).to_vec();
    assert_eq!(continue_after_a_failure(true).await, (messages(["1 messages", "1 messages"]), vec![hidden]));
    // The control: without the option the minion sees the failed run.
    assert_eq!(continue_after_a_failure(false).await, (messages(["1 messages", "2 messages"]), Vec::new()));
}

fn templates() -> BTreeMap<Arc<str>, MinionTemplate> {
    let reviewer = MinionTemplate {
        description: "Reviews one file.".into(),
        message: Some("Review {path}. {message}".into()),
        system_prompt: Some("You judge {what}.".into()),
        model: Some("large".into()),
        enabled_tools: Some(vec!["lookup".into()]),
        enable_web: Some(false),
        rollback_on_error: Some(true),
    };
    [("plain".into(), MinionTemplate::default()), ("reviewer".into(), reviewer)].into()
}

/// Calls `minion` with each of `arguments`. Returns the requests of the minions, the results, and for each minion whether failed runs are rolled
/// back.
async fn by_template(arguments: Vec<Value>) -> (Vec<Request>, Vec<String>, Vec<bool>) {
    let (journal, seen) = (journal(), Arc::new(Mutex::new((Vec::new(), Vec::new()))));
    let kept = Arc::clone(&seen);
    let answering = model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls(arguments.iter().map(|args| ("minion", args.clone()))),
            ("go", _) => {
                kept.lock().unwrap().1 = results(&request);
                text("done")
            }
            _ => {
                kept.lock().unwrap().0.push(request);
                text("seen")
            }
        };
        async move { Ok(answer) }
    });
    let minion =
        MinionOptions { system_prompt: "Be brief.".into(), model: Some("small".into()), rollback_on_error: false };
    let dialects = Dialects { offered: vec![Dialect::Minion], minion, templates: templates(), ..Dialects::default() };
    let noop = |name: &str| tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
    let builder = builder(&journal).dialects(dialects).tools(tools([noop("lookup"), noop("find")]));
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let mut rolls_back = Vec::new();
    for child in session.tree().await.expect("a tree").children {
        let stored = records(&journal, child.id).await;
        rolls_back.push(State::fold(child.id, &stored).expect("the records fold").created.rolls_back);
    }
    shut(runtime).await;
    let (requests, results) = std::mem::take(&mut *seen.lock().unwrap());
    (requests, results, rolls_back)
}

#[tokio::test(start_paused = true)]
async fn m10_templates_fill_in_missing_arguments() {
    let values = json!({"path": "a.rs", "what": "style"});
    let (requests, results, rolls_back) = by_template(vec![
        json!({"message": "Be quick.", "template": "reviewer", "values": values}),
        json!({"message": "m", "template": "reviewer", "values": values, "enabledTools": ["find"], "enableWeb": false}),
        json!({"message": "n", "template": "plain", "enabledTools": [], "enableWeb": false}),
    ])
    .await;
    assert_eq!(results.iter().filter(|result| parsed(result)["minionResponse"] == "seen").count(), 3, "{results:?}");
    let mut sent: Vec<_> = requests
        .iter()
        .map(|request| {
            [prompt(request), request.system.to_string(), request.model.to_string(), offered(request).join(" ")]
        })
        .collect();
    sent.sort();
    let expected = [
        ["Review a.rs. Be quick.", "You judge style.", "large", "lookup return"],
        ["Review a.rs. m", "You judge style.", "large", "find return"],
        ["n", "Be brief.", "small", "return"],
    ];
    assert_eq!(sent, expected.map(|row| row.map(str::to_owned)));
    assert_eq!(rolls_back, [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn m10_calls_with_invalid_templates_are_minion_errors() {
    let (requests, results, _) = by_template(vec![
        json!({"message": "m", "template": "reviewr"}),
        json!({"message": "m", "template": "reviewer", "values": {"path": "a.rs"}}),
        json!({"message": "m", "template": "plain"}),
        json!({"message": "m", "values": {"path": "a.rs"}, "enabledTools": [], "enableWeb": false}),
        json!({"message": "m", "template": "plain", "minionChatId": "abc", "enabledTools": [], "enableWeb": false}),
    ])
    .await;
    let takes = "it takes message, minionChatId, enableWeb, enabledTools, template and values";
    let expected = [
        "no template `reviewr`; valid: plain, reviewer".to_owned(),
        "missing values of the template `reviewer`: what; it takes path, what".to_owned(),
        format!("the arguments of minion do not fit: missing field `enableWeb`; {takes}"),
        "values are for a template: name one, or leave them out".to_owned(),
        "a minion that continues keeps its prompt and model: leave `template` or `minionChatId` out".to_owned(),
    ];
    assert_eq!(results, expected.map(|why| format!("Minion error: {why}")));
    assert!(requests.is_empty(), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn m8_failed_minions_name_their_chat_and_the_cause() {
    let (journal, received) = (journal(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&received);
    let minion_call = |message: &str| ("minion", json!({"message": message, "enableWeb": false, "enabledTools": []}));
    let answering = model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => Ok(calls(["no key", "no credit", "no model", "silent", "no turns"].map(minion_call))),
            ("go", _) => {
                *seen.lock().unwrap() = results(&request);
                Ok(text("done"))
            }
            ("no key", _) => Err(ModelError::new(ModelFail::Auth, "there is no key for this provider")),
            ("no credit", _) => Err(ModelError::new(ModelFail::Credit, "pay first")),
            ("no model", _) => Err(ModelError::new(ModelFail::InvalidRequest, "no such model")),
            ("silent", _) => Err(ModelError::new(ModelFail::Unavailable, "no server answers")),
            _ => Ok(calls([("return", json!({}))])),
        };
        async move { answer }
    });
    let dialects = Dialects { offered: vec![Dialect::Minion], ..Dialects::default() };
    let builder = builder(&journal).dialects(dialects).model(answering);
    let runtime = builder.start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let chats: Vec<String> =
        session.tree().await.expect("a tree").children.iter().map(|child| child.short.to_string()).collect();
    let received = received.lock().unwrap().clone();
    let causes: Vec<&str> = received
        .iter()
        .zip(&chats)
        .map(|(result, chat)| {
            let head = format!("Minion error: minion chat {chat} ");
            result.strip_prefix(&*head).unwrap_or_else(|| panic!("{result} does not begin with {head}"))
        })
        .collect();
    let expected = [
        "failed: the model's key is missing or refused (\"there is no key for this provider\"), before its first turn was answered.",
        "failed: the account of the model's provider is out of credit (\"pay first\"), before its first turn was answered.",
        "failed: the model refused the request as invalid (\"no such model\"), before its first turn was answered.",
        "failed: the model was not available (\"no server answers\"), before its first turn was answered.",
        "used up its turns before a final answer, after 50 answered turns.",
    ];
    assert_eq!(causes, expected);
    shut(runtime).await;
}

/// A call that asks for the web is refused if there is no tool for it; with a web tool the minion gets that one.
#[tokio::test(start_paused = true)]
async fn r13_web_minion_without_a_web_tool_is_refused() {
    let arguments = json!({"message": "m", "enableWeb": true, "enabledTools": []});
    let says = |web: &'static [&'static str], arguments: Value| async move {
        let (journal, seen) = (journal(), Arc::new(Mutex::new((Vec::new(), Vec::new()))));
        let kept = Arc::clone(&seen);
        let answering = model(move |request| {
            let answer = match (&*prompt(&request), answers(&request)) {
                ("go", 0) => calls([("minion", arguments.clone())]),
                ("go", _) => {
                    kept.lock().unwrap().0 = results(&request);
                    text("done")
                }
                _ => {
                    kept.lock().unwrap().1 = offered(&request);
                    text("seen")
                }
            };
            async move { Ok(answer) }
        });
        let noop = |name: &str| tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
        let dialects = Dialects { offered: vec![Dialect::Minion], ..Dialects::default() };
        let builder = builder(&journal).dialects(dialects).tools(tools(web.iter().map(|name| noop(name))));
        let runtime = builder.model(answering).start().await.expect("the runtime starts");
        ask(&runtime, "go").await;
        shut(runtime).await;
        std::mem::take(&mut *seen.lock().unwrap())
    };
    let (received, _) = says(&["lookup"], arguments.clone()).await;
    let why = "Minion error: enableWeb is true, but you have no web tools. Call minion with enableWeb false, and say in the \
               message what the minion should do without";
    assert_eq!(received, [why]);
    let (_, tools) = says(&["fetch", "lookup"], arguments).await;
    assert_eq!(tools, ["fetch", "return"]);
}

/// A transcript reads a child once, however many of the parent's calls continue it.
#[tokio::test(start_paused = true)]
async fn transcript_reads_a_continued_minion_once() {
    let reads = |runs: usize| async move {
        let (faulty, faults) = Faulty::new(Box::new(Memory::new()));
        let journal = on(Box::new(faulty));
        let answering = model(move |request| {
            let chat = results(&request).first().map(|first| parsed(first)["minionChatId"].clone());
            let answer = match (prompt(&request) == "go", answers(&request)) {
                (true, at) if at < runs => calls([minion(chat.as_ref(), &[])]),
                (true, _) => text("done"),
                (false, at) => text(&format!("answer {at}")),
            };
            async move { Ok(answer) }
        });
        let dialects = Dialects { offered: vec![Dialect::Minion], ..Dialects::default() };
        let runtime = builder(&journal).dialects(dialects).model(answering).start().await.expect("the runtime starts");
        let (session, _) = ask(&runtime, "go").await;
        seconds(60).await;
        let read = |newest| {
            let before = faults.ranges();
            let reading = TranscriptReading { nests: Some(1), newest, ..TranscriptReading::default() };
            let transcript = Transcript::read(&journal, session.id(), reading).expect("read");
            (transcript, faults.ranges() - before)
        };
        let (_, own) = read(Some(0));
        assert_eq!(own, 1, "no child is read for entries that are not shown");
        let (transcript, reads) = read(None);
        let called = transcript.entries.into_iter().flat_map(|shown| match shown.entry {
            Entry::Answer { calls, .. } => calls,
            _ => Vec::new(),
        });
        let texts: Vec<_> = called
            .map(|call| {
                let end = match call.result {
                    Some(CallOutcome::Ends(ends)) => ends.into_iter().map(|end| end.text).collect(),
                    _ => Vec::new(),
                };
                (end, call.minion.expect("a minion").minion_response.expect("a response"))
            })
            .collect();
        let answered = |at: usize| Text::from(format!("answer {at}"));
        let expected: Vec<_> = (0..runs).map(|at| (vec![answered(at)], answered(at))).collect();
        assert_eq!(texts, expected);
        shut(runtime).await;
        reads
    };
    // The control: one call.
    assert_eq!(reads(8).await, reads(1).await);
}
