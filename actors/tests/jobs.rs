//! Jobs that are read again, and lists without any name (features S2, S4, S7, R3).

use crate::support::*;
use subtend_session::call::ToolErrorKind;

/// Runs one conversation: `root` answers the person's session, `child` all others.
async fn converse<R, C>(limits: Limits, root: R, child: C) -> (Journal, Runtime, SessionHandle, Vec<String>)
where
    R: Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    C: Fn(&Request, usize) -> Answer + Send + Sync + 'static,
{
    let (journal, last) = (journal(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&last);
    let answering = model(move |request| {
        let at = answers(&request);
        let answer = if prompt(&request) == "go" {
            *seen.lock().unwrap() = results(&request);
            root(&request, at)
        } else {
            child(&request, at)
        };
        async move { Ok(answer) }
    });
    let offered = vec![Dialect::Spawn, Dialect::SpawnTask];
    let dialects = Dialects { offered, ..Dialects::default() };
    let noop = |name: &str| tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
    let builder = builder(&journal).dialects(dialects).tools(tools([noop("lookup"), noop("write")])).limits(limits);
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (session, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    let received = std::mem::take(&mut *last.lock().unwrap());
    (journal, runtime, session, received)
}

fn id(received: &str) -> Value {
    serde_json::from_str::<Value>(received).expect("an object")["taskId"].clone()
}

#[tokio::test(start_paused = true)]
async fn s4_list_without_known_tools_is_an_error() {
    let spawn = |tools: &str| ("spawn", json!({"task": "a", "tools": tools}));
    let root = move |_: &Request, at: usize| match at {
        0 => calls([spawn(","), spawn(" , ,"), spawn(" "), spawn("nonesuch")]),
        1 => calls([("spawn_await", json!({"job_ids": "*"}))]),
        _ => text("done"),
    };
    let child = |request: &Request, _: usize| text(&format!("has: {}", offered(request).join(" ")));
    let (journal, runtime, session, received) = converse(Limits::default(), root, child).await;
    let error = "tools is an empty list: name some, separated by commas, or omit it for all that the job can have";
    assert_eq!(received[..2], [error, error]);
    assert_eq!(received[3], "tools names tools that are not available: nonesuch. Valid: lookup, write.");
    assert_eq!(received[4], format!("[{}: OK]\nhas: lookup write", received[2]));
    let refused = |record: &Record| match record {
        Record::CallFinished(it) => {
            Some(it.end == CallEnd::ToolError { kind: ToolErrorKind::BadArgs, retryable: false })
        }
        _ => None,
    };
    let ends: Vec<bool> = records(&journal, session.id()).await.iter().filter_map(refused).take(2).collect();
    assert_eq!(ends, [true, true]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn s2_r3_dropped_results_are_read_from_their_sessions() {
    const JOBS: usize = 50;
    // Together the results exceed the text that a session keeps, yet each is returned whole.
    let limits = Limits { spawns: 200, live_runs: 200, calls_per_answer: 200, ..Limits::default() };
    let large = |of: &str| format!("{of} {}", "x".repeat(30_000));
    let started = |request: &Request| results(request)[..2 * JOBS].to_vec();
    let root = move |request: &Request, at: usize| match at {
        0 => calls((0..JOBS).map(|at| ("spawn", json!({"task": format!("job {at}")}))).chain((0..JOBS).map(|at| {
            let prompt = format!("task {at}");
            ("spawn_task", json!({"type": "worker", "prompt": prompt, "description": prompt}))
        }))),
        1 => calls([("spawn_await", json!({"job_ids": "*"}))]),
        2 => calls(started(request)[JOBS..].iter().map(|received| ("check_task", json!({"taskId": id(received)})))),
        3 => {
            let ids = started(request);
            calls([
                ("spawn_await", json!({"job_ids": format!("{}, {}", ids[0], ids[JOBS - 1])})),
                ("check_task", json!({"taskId": id(&ids[JOBS]), "wait": false})),
                ("check_task", json!({"taskId": id(&ids[2 * JOBS - 1]), "wait": false})),
            ])
        }
        _ => text("done"),
    };
    let child = move |request: &Request, _: usize| text(&large(&prompt(request)));
    let (journal, runtime, session, received) = converse(limits, root, child).await;
    let again = &received[2 * JOBS + 1 + JOBS..];
    let ok = |at: usize| format!("[{}: OK]\n{}", received[at], large(&format!("job {at}")));
    let expected = [format!("{}\n\n{}", ok(0), ok(JOBS - 1)), large("task 0"), large(&format!("task {}", JOBS - 1))];
    assert!(again == expected, "{:?}", again.iter().map(String::len).collect::<Vec<_>>());
    // The kept part of all results is bounded, even after a restart.
    let stored = records(&journal, session.id()).await;
    let state = State::fold(session.id(), &stored).expect("the records fold");
    let texts: usize = state.children.values().filter_map(|child| child.given.as_ref()).map(|it| it.prefix.len()).sum();
    assert!(state.kept.bytes() <= 1 << 20 && texts <= 1 << 20 && texts > 1 << 19, "{texts}");
    assert_eq!(state.children.values().filter(|child| child.given.is_some()).count(), 2 * JOBS);
    assert_eq!(state.kept.len(), texts / 30_000);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn s7_truncated_answer_is_one_text_with_its_continuation() {
    let root = |_: &Request, at: usize| match at {
        0 => calls([("spawn", json!({"task": "x"}))]),
        1 => calls([("spawn_await", json!({"job_ids": "*"}))]),
        _ => text("done"),
    };
    let child = |_: &Request, at: usize| match at {
        0 => Answer { text: Some("first".into()), ..calls([("lookup", json!({}))]) },
        1 => Answer { stop: Stop::Length, ..text("then it was trun") },
        _ => text("cated"),
    };
    let (_, runtime, _, received) = converse(Limits::default(), root, child).await;
    assert_eq!(received[1], format!("[{}: OK]\nfirst\n\nthen it was truncated", received[0]));
    shut(runtime).await;
}
