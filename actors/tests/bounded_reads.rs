//! The calls of one answer read journals a bounded number of times, and a bounded number of bytes.

use crate::support::talk::parsed;
use crate::support::*;
use subtend_tools::message;

/// Number of bytes, and how often frames and lists of children were read, up to a request of the model.
type Reads = [u64; 3];

/// Runs one conversation in which `root` answers the person's session and `child` all others. Returns the reads up to each
/// request of the person's session, and the results that its last request has.
async fn converse<R, C>(dialects: Vec<Dialect>, root: R, child: C) -> (Vec<Reads>, Vec<String>)
where
    R: Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    C: Fn(&Request, usize) -> Answer + Send + Sync + 'static,
{
    let (faulty, faults) = Faulty::new(Box::new(Memory::new()));
    let (journal, seen) = (on(Box::new(faulty)), Arc::new(Mutex::new((Vec::new(), Vec::new()))));
    let of_model = Arc::clone(&seen);
    let answering = model(move |request| {
        let at = answers(&request);
        let answer = if prompt(&request) == "go" {
            let mut seen = of_model.lock().unwrap();
            seen.0.push([faults.read_bytes(), faults.ranges(), faults.child_lists()]);
            seen.1 = results(&request);
            root(&request, at)
        } else {
            child(&request, at)
        };
        async move { Ok(answer) }
    });
    let limits = Limits { spawns: 200, live_runs: 200, ..Limits::default() };
    let dialects = Dialects { offered: dialects, ..Dialects::default() };
    let builder = builder(&journal).dialects(dialects).limits(limits);
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    ask(&runtime, "go").await;
    shut(runtime).await;
    let mut seen = seen.lock().unwrap();
    (std::mem::take(&mut seen.0), std::mem::take(&mut seen.1))
}

fn between(reads: &[Reads], first: usize) -> Reads {
    [0, 1, 2].map(|of| reads[first + 1][of] - reads[first][of])
}

fn task_id(received: &str) -> Value {
    parsed(received)["taskId"].clone()
}

/// The control: one check, which reads the dropped result, of a child whose earlier records are large.
#[tokio::test(start_paused = true)]
async fn dropped_results_are_read_once_and_in_part() {
    const VICTIMS: usize = 12;
    const FILLERS: usize = 50;
    let start = |prompt: String| ("spawn_task", json!({"type": "worker", "prompt": prompt, "description": "d"}));
    let check = |received: &String| ("check_task", json!({"taskId": task_id(received), "wait": false}));
    let wait = |received: &String| ("check_task", json!({"taskId": task_id(received)}));
    let root = move |request: &Request, at: usize| {
        let received = results(request);
        match at {
            0 => calls((0..VICTIMS).map(|at| start(format!("victim {at}")))),
            1 => calls(received[..VICTIMS].iter().map(wait)),
            2 => calls((0..FILLERS).map(|at| start(format!("filler {at}")))),
            3 => calls(received[2 * VICTIMS..].iter().map(wait)),
            4 => calls(received[..1].iter().map(check)),
            5 => calls([&received[0]; 64].map(check)),
            6 => calls(received[..VICTIMS].iter().map(check)),
            _ => text("done"),
        }
    };
    let child = |request: &Request, _: usize| match prompt(request) {
        victim if victim.starts_with("victim") => {
            Answer { reasoning: Some("r".repeat(1 << 20).into()), ..text(&victim) }
        }
        _ => text(&"x".repeat(30_000)),
    };
    let (reads, received) = converse(vec![Dialect::SpawnTask], root, child).await;
    let again = &received[2 * (VICTIMS + FILLERS)..];
    assert!(again[..65].iter().all(|received| received == "victim 0"), "{:?}", &again[..2]);
    let ([_, once, _], [_, often, _]) = (between(&reads, 4), between(&reads, 5));
    assert!(once > 0 && often <= once + 2, "{once} reads, then {often}");
    let [bytes, ..] = between(&reads, 6);
    assert!((2 << 20..10 << 20).contains(&bytes), "{bytes} bytes");
    let shown = again[65..].iter().filter(|received| received.starts_with("victim")).count();
    assert!((5..VICTIMS).contains(&shown), "{shown}");
    let unread = "[not shown: 9 bytes; check fewer tasks at a time to read them]";
    assert_eq!(again[65 + VICTIMS - 1].replace("10 bytes", "9 bytes"), unread);
}

/// The control: one call, which names no task.
#[tokio::test(start_paused = true)]
async fn unknown_tasks_are_searched_once_for_an_answer() {
    let start = |prompt: &str| ("task", json!({"subagent_type": "worker", "prompt": prompt, "description": "d"}));
    let cancel = || ("cancel_task", json!({"taskId": "zzzzzz"}));
    let root = move |_: &Request, at: usize| match at {
        0 => calls([start("middle")]),
        1 => calls([cancel()]),
        2 => calls((0..64).map(|_| cancel())),
        _ => text("done"),
    };
    let child = move |request: &Request, at: usize| match (&*prompt(request), at) {
        ("middle", 0) => calls((0..20).map(|_| start("leaf"))),
        _ => text("done"),
    };
    let (reads, received) = converse(vec![Dialect::Task], root, child).await;
    assert!(received[1].starts_with("Unknown task `zzzzzz`. Yours: "), "{}", received[1]);
    assert!(received[1..].iter().all(|result| *result == received[1]));
    let ([_, _, once], [_, _, often]) = (between(&reads, 1), between(&reads, 2));
    assert!(once >= 21 && often <= once + 2, "{once} lists, then {often}");
}

/// Messages to a sibling compare tools, which are in the records of the sender. The control: one message.
#[tokio::test(start_paused = true)]
async fn tools_of_a_sender_are_read_once() {
    const ROUNDS: usize = 5;
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (faulty, faults) = Faulty::new(Box::new(Memory::new()));
    let (journal, of_model) = (on(Box::new(faulty)), Arc::clone(&seen));
    let minion = |message: &str, tools: &[&str]| {
        ("minion", json!({"message": message, "enableWeb": false, "enabledTools": tools}))
    };
    let answering = model(move |request| {
        let tell = |to: &str| ("message", json!({"to": to, "text": "hello"}));
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([minion("receiver", &["lookup"])]),
            ("go", 1) => {
                let id = parsed(&results(&request)[0])["minionChatId"].clone();
                calls([minion(&format!("sender {}", id.as_str().unwrap()), &["message", "lookup"])])
            }
            (sender, at) if sender.starts_with("sender ") => {
                of_model.lock().unwrap().push(faults.read_bytes());
                let to = &sender["sender ".len()..];
                match at {
                    0..ROUNDS => {
                        Answer { reasoning: Some("r".repeat(1 << 20).into()), ..calls([("lookup", json!({}))]) }
                    }
                    ROUNDS => calls([tell(to)]),
                    6 => calls((0..32).map(|_| tell(to))),
                    _ => text(results(&request).last().unwrap()),
                }
            }
            _ => text("done"),
        };
        async move { Ok(answer) }
    });
    let noop = tool("lookup", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
    let registry = Registry::builder().tool(Arc::new(noop)).and_then(|tools| tools.tool(message::tool()));
    let dialects = Dialects { offered: vec![Dialect::Minion], ..Dialects::default() };
    let builder = builder(&journal).dialects(dialects).tools(registry.expect("names differ").build());
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    shut(runtime).await;
    let seen = seen.lock().unwrap();
    let of_answer = |at: usize| seen[at + 1] - seen[at];
    let (once, often) = (of_answer(ROUNDS), of_answer(ROUNDS + 1));
    assert!(once >= 5 << 20 && often <= 1 << 20, "{once} bytes, then {often}");
}

/// A message to one of many relatives reads few heads. The control: an unknown id, for whose error all are read.
#[tokio::test(start_paused = true)]
async fn message_reads_few_heads_of_a_large_tree() {
    const CHILDREN: usize = 40;
    let seen: Arc<Mutex<(Vec<u64>, Option<SessionId>)>> = Arc::default();
    let (faulty, faults) = Faulty::new(Box::new(Memory::new()));
    let (journal, of_model) = (on(Box::new(faulty)), Arc::clone(&seen));
    let of_tree = journal.clone();
    let answering = model(move |request| {
        let tell = |to: &str| calls([("message", json!({"to": to, "text": "hello"}))]);
        let mut seen = of_model.lock().unwrap();
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls((0..CHILDREN).map(|at| task(&format!("idle {at}"), false))),
            ("go", 1) => {
                let heads = of_tree.heads().expect("heads");
                seen.1 = heads.iter().find(|(_, head)| head.parent.is_some()).map(|(id, _)| *id);
                calls([task("sender", false)])
            }
            ("go", _) => text(results(&request).last().unwrap()),
            ("sender", at) => {
                seen.0.push(faults.heads());
                let idle = seen.1.expect("a child");
                match at {
                    0 => tell(message::PARENT),
                    1 => tell(&idle.to_string()),
                    2 => tell(&idle.short().0),
                    3 => tell("zzzzzz"),
                    _ => text(&results(&request).join("; ")),
                }
            }
            _ => text("done"),
        };
        async move { Ok(answer) }
    });
    let limits = Limits { spawns: 200, live_runs: 200, ..Limits::default() };
    let registry = Registry::builder().tool(message::tool()).expect("one tool").build();
    let builder = builder(&journal).limits(limits).tools(registry);
    let runtime = builder.model(answering).start().await.expect("the runtime starts");
    let (_, ended) = ask(&runtime, "go").await;
    shut(runtime).await;
    let (seen, sent) = (seen.lock().unwrap(), ended.text.expect("an answer"));
    let unknown: Vec<bool> = sent.split("; ").map(|sent| sent.contains("unknown receiver")).collect();
    assert_eq!(unknown.iter().filter(|unknown| **unknown).count(), 1, "{sent}");
    let reads: Vec<u64> = seen.0.windows(2).map(|of| of[1] - of[0]).collect();
    let [parent, by_id, by_short, unknown] = *reads else { panic!("{reads:?}") };
    assert!(parent.max(by_id).max(by_short) < 20 && unknown > CHILDREN as u64, "{reads:?}");
}

/// Attack: a session with large records waits for an approval, and more large inputs arrive meanwhile. The control: the
/// calls are read whole.
#[tokio::test(start_paused = true)]
async fn approvals_read_the_end_of_a_large_session() {
    const LARGE: usize = 900_000;
    let (faulty, faults) = Faulty::new(Box::new(Memory::new()));
    let journal = on(Box::new(faulty));
    let answering = model(|request| async move {
        Ok(match &*last_user(&request) {
            "fill" => text(&"x".repeat(LARGE)),
            "make" if results(&request).is_empty() => calls([("make", json!({"what": "a"}))]),
            _ => text("done"),
        })
    });
    let make = tool("make", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("made")) });
    let make = make.access(|_| vec![Access { action: "make".into(), resource: "a".into() }]);
    let ask = Rule { action: "make".into(), resource: "*".into(), verdict: Verdict::Ask };
    let policy = RuleSet { default: Verdict::Allow, rules: vec![ask] };
    let builder = builder(&journal).policy(policy).tools(tools([make])).model(answering);
    let runtime = builder.start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let session = open(&runtime);
    for _ in 0..20 {
        session.send("fill").await.expect("accepted").answer().await.expect("an answer");
    }
    session.send("make").await.expect("accepted");
    let shown = tokio::time::timeout(Duration::from_secs(60), approver.next()).await;
    let shown = [shown.expect("an ask")];
    let read = async || {
        let (before, waiting) = (faults.read_bytes(), runtime.waiting_calls().await.expect("calls"));
        (runtime.read_approvals(&waiting, |approval| approval), faults.read_bytes() - before)
    };
    let (approvals, bytes) = read().await;
    assert_eq!(approvals, shown);
    assert!(bytes < 2 * LARGE as u64, "{bytes} bytes");
    for _ in 0..8 {
        session.send("y".repeat(LARGE)).await.expect("accepted");
    }
    let (approvals, bytes) = read().await;
    assert_eq!(approvals, shown);
    assert!((8..12).contains(&(bytes / LARGE as u64)), "{bytes} bytes");
    session.cancel().await.expect("cancelled");
    drop(approver);
    shut(runtime).await;
}

/// Attack: the result of a task is truncated in the record of its end. The control: the whole result is listed.
#[tokio::test(start_paused = true)]
async fn whole_result_is_read_from_its_answer() {
    const LARGE: usize = 1 << 20;
    let (faulty, faults) = Faulty::new(Box::new(Memory::new()));
    let journal = on(Box::new(faulty));
    let answering = model(|request| async move {
        Ok(match answers(&request) {
            0..4 => Answer { reasoning: Some("r".repeat(LARGE).into()), ..calls([("lookup", json!({}))]) },
            _ => text(&"x".repeat(LARGE)),
        })
    });
    let lookup = tool("lookup", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("looked")) });
    let builder = builder(&journal).tools(tools([lookup])).model(answering);
    let runtime = builder.start().await.expect("the runtime starts");
    let task = runtime.spawn_task(OpenOptions::agent("worker"), "go").await.expect("a task");
    task.answer().await.expect("an answer");
    let session = task.session().id();
    let whole = journal.bytes_from(session, Seq(1), u64::MAX).expect("bytes");
    let read_by = |before| faults.read_bytes() - before;
    let before = faults.read_bytes();
    let listed = runtime.tasks(TaskFilter::default()).await.expect("a list").remove(0);
    let text = Some("x".repeat(LARGE));
    assert_eq!(listed.result.as_deref(), text.as_deref());
    let once = read_by(before);
    assert!(once < 3 * whole / 2, "{once} bytes of {whole}");
    let before = faults.read_bytes();
    assert_eq!(end_of(task.session(), 1).await.text.as_deref(), text.as_deref());
    assert!(read_by(before) < 3 * whole / 2, "{} bytes of {whole}", read_by(before));
    shut(runtime).await;
}
