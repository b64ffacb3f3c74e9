//! The arguments of a call are parsed once per activation, and the parsed call is passed to every later step.

use crate::support::*;
use subtend_actors::faults::InternalEvent;

use crate::support::talk::{offering, parsed};

type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

/// Returns faults that panic if `strikes` returns true, and that count how often each text is parsed.
fn counted(strikes: impl Fn(Point, &str) + Send + Sync + 'static) -> (Faults, Counts) {
    let counts = Counts::default();
    let counting = Arc::clone(&counts);
    let faults = Faults::new(strikes).with_observer(move |sight| {
        if let InternalEvent::Parsed(args) = sight {
            *counting.lock().unwrap().entry(args.to_owned()).or_default() += 1;
        }
    });
    (faults, counts)
}

fn make() -> FnTool {
    let made = tool("make", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("made")) });
    made.access(|_| vec![Access { action: "make.thing".into(), resource: "a".into() }])
}

fn policy() -> RuleSet {
    let rule = Rule { action: "make.*".into(), resource: "*".into(), verdict: Verdict::Ask };
    RuleSet { default: Verdict::Allow, rules: vec![rule] }
}

async fn ended(session: &SessionHandle) {
    let ended =
        tokio::time::timeout(Duration::from_secs(7200), session.run_ended(subtend_session::ids::RunNo(1))).await;
    ended.expect("the run ends").expect("the runtime is running");
}

fn each(requests: &Mutex<Vec<Value>>, times: usize) -> BTreeMap<String, usize> {
    requests.lock().unwrap().iter().map(|args| (args.to_string(), times)).collect()
}

#[tokio::test(start_paused = true)]
async fn arguments_are_parsed_once_for_every_kind_of_call() {
    let (journal, requests) = (journal(), Arc::new(Mutex::new(Vec::new())));
    let (faults, counts) = counted(|_, _| ());
    let asking = Arc::clone(&requests);
    let root = move |request: &_, at| {
        let task = |n: usize| parsed(&results(request)[n])["session_id"].clone();
        let of_turn: Vec<(&'static str, Value)> = match at {
            0 => vec![
                ("task", json!({"subagent_type": "worker", "prompt": "slow a", "background": true})),
                ("task", json!({"subagent_type": "worker", "prompt": "b", "background": true})),
                ("spawn", json!({"task": "c"})),
                ("make", json!({"what": 1})),
            ],
            1 => vec![
                ("check_task", json!({"taskId": task(0), "timeoutMs": 2_000})),
                ("spawn_await", json!({"job_ids": "*"})),
                // Covered by the approval of the first call.
                ("make", json!({"what": 1, "again": true})),
            ],
            2 => vec![
                ("cancel_task", json!({"taskId": task(0)})),
                ("task", json!({"session_id": task(1), "prompt": "again"})),
            ],
            _ => return text("done"),
        };
        asking.lock().unwrap().extend(of_turn.iter().map(|(_, args)| args.clone()));
        calls(of_turn)
    };
    let answering = model(move |request| {
        let answer = if prompt(&request) == "go" { root(&request, answers(&request)) } else { text("found") };
        let slow = prompt(&request).starts_with("slow");
        async move {
            seconds(if slow { 60 } else { 0 }).await;
            Ok(answer)
        }
    });
    let builder = offering(&journal, &[Dialect::Task, Dialect::Spawn]).tools(tools([make()])).policy(policy());
    let runtime = builder.faults(faults).model(answering).start().await.expect("the runtime starts");
    let mut approver = runtime.approver();
    let (session, _) = sent(&runtime, "go").await;
    let question = approver.next().await;
    approver.answer(&question, AskVerdict::Always).await.expect("approved");
    ended(&session).await;
    assert_eq!(requests.lock().unwrap().len(), 9);
    assert_eq!(*counts.lock().unwrap(), each(&requests, 1));
    drop(approver);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn arguments_are_parsed_once_more_after_a_crash() {
    let (journal, requests) = (journal(), Arc::new(Mutex::new(Vec::new())));
    let armed = std::sync::atomic::AtomicBool::new(true);
    // The activation dies when the call is appended; the next one asks for its approval and starts it.
    let (faults, counts) = counted(move |point, detail| {
        let hit = point == Point::AfterAppend && detail == "ask_opened";
        assert!(!(hit && armed.swap(false, std::sync::atomic::Ordering::SeqCst)), "injected fault");
    });
    let asking = Arc::clone(&requests);
    let answering = model(move |request| {
        let args = json!({"what": 1});
        let answer = if answers(&request) == 0 {
            *asking.lock().unwrap() = vec![args.clone()];
            calls([("make", args)])
        } else {
            text("done")
        };
        async move { Ok(answer) }
    });
    let builder = builder(&journal).tools(tools([make()])).policy(policy()).faults(faults).model(answering);
    let (runtime, mut approver) = builder.start_attended().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    let question = approver.next().await;
    approver.answer(&question, AskVerdict::Allow).await.expect("approved");
    ended(&session).await;
    assert_eq!(*counts.lock().unwrap(), each(&requests, 2));
    drop(approver);
    shut(runtime).await;
}
