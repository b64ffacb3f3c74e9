//! Views of subagents at every depth, and the texts that their parents' models receive (B15, G18).

use crate::support::talk::offering;
use crate::support::*;
use subtend_actors::Tree;

fn turns(tree: &Tree) -> u32 {
    tree.turns + tree.children.iter().map(turns).sum::<u32>()
}

#[tokio::test(start_paused = true)]
async fn b15_progress_cost_errors_and_limits_are_known_at_depth() {
    let answer = |request: Request| async move {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("root", 0) => calls([task("child", true)]),
            ("child", 0) => calls(["works", "fails", "hangs"].map(|prompt| task(prompt, true))),
            ("works", 0) => calls([("lookup", json!({}))]),
            ("fails", _) => return Err(ModelError::new(ModelFail::InvalidRequest, "no such thing")),
            ("hangs", _) => std::future::pending().await,
            _ => text("done"),
        };
        Ok(Answer { usage: Usage { input: 10, output: 1, cost_micro: Some(7), ..Usage::default() }, ..answer })
    };
    let lookup = tool("lookup", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("found")) });
    let limits = Limits { run_ms: Some(60_000), ..Limits::default() };
    let builder = builder(&journal()).tools(tools([lookup])).limits(limits);
    let runtime = builder.model(model(answer)).start().await.expect("the runtime starts");
    let session = open(&runtime);
    let mut events = session.watch();
    let run = session.send("root").await.expect("accepted").run;
    assert_eq!(session.run_ended(run).await.expect("the run ends").outcome, Outcome::Completed);

    let tasks = runtime.tasks(TaskFilter::default()).await.expect("a list");
    let causes: BTreeMap<&str, Option<Outcome>> = tasks.iter().map(|task| (&*task.title, task.cause.clone())).collect();
    let no = ModelFail::InvalidRequest;
    let failed = Outcome::Failed { kind: FailKind::Model { error: no, message: "no such thing".into() } };
    let expected = [
        ("child", Outcome::Completed),
        ("fails", failed),
        ("hangs", Outcome::TimedOut { what: TimeLimit::Run }),
        ("works", Outcome::Completed),
    ];
    assert_eq!(causes, expected.map(|(title, cause)| (title, Some(cause))).into());

    let works = tasks.iter().find(|task| &*task.title == "works").expect("listed").session;
    let own = runtime.session(works).expect("readable").expect("the session exists").usage().await.expect("a view").own;
    assert_eq!((own.input, own.output, own.cost_micro), (20, 2, Some(14)));
    let tree = session.usage().await.expect("a view").tree;
    let answered = u64::from(turns(&session.tree().await.expect("a tree")));
    assert_eq!((tree.input, tree.cost_micro), (10 * answered, Some(7 * answered)), "expected the usage of every depth");

    let mut progress = Vec::new();
    while let Ok(Some(Next::Event(event))) = tokio::time::timeout(Duration::from_secs(1), events.next()).await {
        let EventKind::Record { record, .. } = event.what else { continue };
        if event.session == works {
            progress.push(record.kind());
        }
    }
    let steps = ["turn_started", "turn_answered", "call_started", "call_finished", "run_ended"];
    let missing: Vec<_> = steps.iter().filter(|step| !progress.contains(step)).collect();
    assert!(missing.is_empty(), "{missing:?} of {progress:?}");
    shut(runtime).await;
}

/// The sessions of a random tree by name, each with the dialect that started it. A name is the path from the root.
type Names = BTreeMap<String, Dialect>;

/// Returns the calls by which the session `name` starts its children, in a tree drawn from `seed`.
fn children(seed: u64, name: &str, by: Option<Dialect>) -> Vec<(String, Dialect, (&'static str, Value))> {
    // Children of the other dialects start none.
    if name.len() > 6 || !matches!(by, None | Some(Dialect::Task | Dialect::SpawnTask)) {
        return Vec::new();
    }
    let drawn = Hash::of(format!("{seed} {name}").as_bytes()).0;
    let all = [Dialect::Task, Dialect::SpawnTask, Dialect::Spawn, Dialect::Subagent, Dialect::Minion, Dialect::Task];
    (0..usize::from(drawn[0] % 4))
        .map(|at| {
            let (child, dialect) = (format!("{name}.{at}"), all[usize::from(drawn[at + 1]) % all.len()]);
            let call = match dialect {
                Dialect::Task => task(&child, drawn[at + 9].is_multiple_of(2)),
                Dialect::SpawnTask => {
                    ("spawn_task", json!({"type": "worker", "prompt": child, "description": "a part"}))
                }
                Dialect::Spawn => ("spawn", json!({"task": child})),
                Dialect::Subagent => ("subagent", json!({"task": child})),
                Dialect::Minion => {
                    ("minion", json!({"message": child, "enableWeb": false, "enabledTools": ["lookup"]}))
                }
            };
            (child, dialect, call)
        })
        .collect()
}

/// Runs one random tree; returns its sessions, and every model request with the name of its session.
async fn random_tree(seed: u64) -> (Names, Vec<(String, Request)>) {
    let (names, requests) = (Arc::new(Mutex::new(Names::new())), Arc::new(Mutex::new(Vec::new())));
    let (created, seen) = (Arc::clone(&names), Arc::clone(&requests));
    let answering = model(move |request| {
        let name = prompt(&request);
        seen.lock().unwrap().push((name.clone(), request.clone()));
        let lookup = ("lookup", json!({"of": format!("<{name}>")}));
        let mut answer = match answers(&request) {
            0 => {
                let by = created.lock().unwrap().get(&name).copied();
                let children = children(seed, &name, by);
                created.lock().unwrap().extend(children.iter().map(|(child, dialect, _)| (child.clone(), *dialect)));
                calls(children.into_iter().map(|(.., call)| call).chain([lookup]))
            }
            1 => calls([lookup]),
            _ => text(&format!("final <{name}>")),
        };
        if answers(&request) < 2 {
            answer.text = Some(format!("inner <{name}>").into());
        }
        async move { Ok(answer) }
    });
    let lookup = tool("lookup", ToolEffect::ReadOnly, |call| async move {
        Ok(ToolOutput::text(format!("inspected {}", call.args["of"].as_str().unwrap_or_default())))
    });
    let all = [Dialect::Task, Dialect::SpawnTask, Dialect::Spawn, Dialect::Subagent, Dialect::Minion];
    let runtime = started(offering(&journal(), &all).tools(tools([lookup])).model(answering)).await;
    let (_, ended) = ask(&runtime, "n").await;
    assert_eq!((ended.run, ended.outcome), (RunNo(1), Outcome::Completed), "seed {seed}");
    shut(runtime).await;
    let (names, requests) = (names.lock().unwrap().clone(), requests.lock().unwrap().clone());
    (names, requests)
}

/// Returns texts of other sessions in a model's input, in tool results and in texts before the last.
fn leaks(names: &Names, requests: &[(String, Request)]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (own, request) in requests {
        let given = format!("{:?}", request.messages);
        for (other, dialect) in names.iter().filter(|(other, _)| *other != own) {
            // The result of a job of `spawn` joins all texts that it wrote.
            let joined = *dialect == Dialect::Spawn && other.rsplit_once('.').is_some_and(|(above, _)| above == own);
            let inner = [format!("inspected <{other}>"), format!("inner <{other}>")];
            found.extend(inner.into_iter().take(if joined { 1 } else { 2 }).filter(|inner| given.contains(inner)));
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn g18_contexts_exclude_inner_messages_of_children() {
    let (mut sessions, mut dialects) = (0, BTreeSet::new());
    let mut last = None;
    for seed in 0..60 {
        let (names, requests) = random_tree(seed).await;
        assert_eq!(leaks(&names, &requests), BTreeSet::new(), "seed {seed}");
        // The ends did arrive: each completed child is in its parent's last request.
        let own: BTreeMap<_, _> = requests.iter().map(|(name, request)| (name, request)).collect();
        for child in names.keys() {
            let (above, _) = child.rsplit_once('.').expect("a way");
            let given = format!("{:?}", own[&above.to_owned()].messages);
            assert!(given.contains(&format!("final <{child}>")), "seed {seed}: {child} in {above}");
        }
        sessions += names.len();
        dialects.extend(names.values().map(|dialect| format!("{dialect:?}")));
        if names.len() > 4 {
            last = Some((names, requests));
        }
    }
    assert!(sessions > 100 && dialects.len() == 5, "{sessions} sessions of {dialects:?}");
    // The control: the test detects a parent that receives a message of its child.
    let (names, mut requests) = last.expect("a larger tree");
    let (child, request) = requests.iter().rfind(|(name, _)| name.len() > 1).cloned().expect("a child");
    requests.push(("n".to_owned(), request));
    assert!(leaks(&names, &requests).contains(&format!("inspected <{child}>")));
}
