//! Edge cases of the dialects: links, long lists, control characters, running branches, several dialects.

use super::*;

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn b7_link_does_not_evade_a_rule_for_context_files() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("secret")).expect("a directory");
    std::fs::write(dir.path().join("secret/key"), "the key itself").expect("a file");
    std::fs::write(dir.path().join("open"), "the open text").expect("a file");
    std::os::unix::fs::symlink("secret/key", dir.path().join("link")).expect("a link");
    let (journal, seen) = (journal(), Arc::new(Mutex::new(String::new())));
    let shown = Arc::clone(&seen);
    let answering = model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => {
                calls([("subagent", json!({"task": "a", "contextFiles": ["link", "secret/key", "open", "gone"]}))])
            }
            ("go", _) => text("done"),
            (first, _) => {
                first.clone_into(&mut shown.lock().unwrap());
                text("found")
            }
        };
        async move { Ok(answer) }
    });
    let deny = Rule { action: "fs.read".into(), resource: "secret/**".into(), verdict: Verdict::Deny };
    let runtime = started(
        offering(&journal, &[Dialect::Subagent])
            .workspace(Arc::new(Workspace::open(dir.path()).expect("a workspace")))
            .policy(RuleSet { default: Verdict::Allow, rules: vec![deny] })
            .model(answering),
    )
    .await;
    ask(&runtime, "go").await;
    let first = seen.lock().unwrap().clone();
    assert!(!first.contains("the key itself") && first.contains("the open text"), "{first}");
    assert_eq!(first.matches("(This file could not be read: ").count(), 3, "{first}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn s2_await_takes_full_ids_and_bounds_the_text_for_many() {
    let (journal, last, root) = (journal(), Last::default(), Arc::new(Mutex::new(None::<SessionId>)));
    let (seen, own, children) = (Arc::clone(&last), Arc::clone(&root), journal.clone());
    let answering = model(move |request| {
        let at = answers(&request);
        let is_root = prompt(&request) == "go";
        let answer = match (is_root, at) {
            (false, _) => text("a found"),
            (true, 0) => calls([("spawn", json!({"task": "a"}))]),
            (true, 1) => {
                let root = own.lock().unwrap().expect("a root");
                let id = children.children(root).expect("children")[0].to_string();
                calls([("spawn_await", json!({"job_ids": id}))])
            }
            (true, 2) => {
                let none: Vec<String> = (0..100_000).map(|at| format!("x{at}")).collect();
                let job = results(&request)[0].clone();
                calls([("spawn_await", json!({"job_ids": format!("{job},{job},{}", none.join(","))}))])
            }
            _ => text("done"),
        };
        if is_root {
            *seen.lock().unwrap() = Some(request);
        }
        async move { Ok(answer) }
    });
    let runtime = offering(&journal, &[Dialect::Spawn]).model(answering).start().await.expect("the runtime starts");
    let session = open(&runtime);
    *root.lock().unwrap() = Some(session.id());
    let receipt = session.send("go").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends");
    let last = last.lock().unwrap().take().expect("a model call");
    let received = results(&last);
    let block = format!("[{}: OK]\na found", received[0]);
    assert_eq!(received[1], block);
    assert!(received[2].starts_with(&format!("{block}\n\n[x0: NOT FOUND]\n\n[x1: NOT FOUND]")));
    assert!(received[2].len() < (128 << 10) + 200, "{}", received[2].len());
    assert!(received[2].ends_with("fewer at a time]"), "{}", received[2].lines().last().unwrap_or_default());
    assert_eq!(notices(&last), Vec::<String>::new());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn s7_result_of_a_job_is_all_text_it_sent() {
    let root = |_: &Request, at: usize| match at {
        0 => calls([("spawn", json!({"task": "x"}))]),
        1 => calls([("spawn_await", json!({"job_ids": "*"}))]),
        _ => text("done"),
    };
    let child = |_: &Request, at: usize| {
        let looking = calls([("lookup", json!({}))]);
        Ok(if at == 0 { Answer { text: Some("first".into()), ..looking } } else { text("then") })
    };
    let (_, runtime, _, last) = converse(&[Dialect::Spawn], root, child).await;
    let received = results(&last);
    assert_eq!(received[1], format!("[{}: OK]\nfirst\n\nthen", received[0]));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m5_response_of_control_characters_is_a_bounded_object() {
    let root = |_: &Request, at: usize| match at {
        0 => calls([("minion", json!({"message": "m", "enableWeb": false, "enabledTools": []}))]),
        _ => text("done"),
    };
    let child = |_: &Request, _: usize| Ok(text(&"\u{1}\"".repeat(20_000)));
    let (_, runtime, _, last) = converse(&[Dialect::Minion], root, child).await;
    let received = &results(&last)[0];
    assert!(received.len() < (32 << 10) + 300, "{}", received.len());
    assert_eq!(parsed(received)["truncatedFrom"], json!(40_000));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b9_running_branch_is_refused_in_the_shape_of_a_result() {
    let root = |request: &Request, at: usize| match at {
        0 => calls([("subagent", json!({"task": "a"}))]),
        1 => {
            let branch = parsed(&results(request)[0])["branchId"].clone();
            calls([
                ("subagent", json!({"continueBranchId": branch})),
                ("subagent", json!({"continueBranchId": branch})),
            ])
        }
        _ => text("done"),
    };
    let (_, runtime, _, last) = converse(&[Dialect::Subagent], root, found).await;
    let received = parsed(&results(&last)[2]);
    assert_eq!((&received["success"], &received["branchId"]), (&json!(false), &json!("")), "{received}");
    assert_eq!((&received["status"], &received["error"]), (&json!("error"), &json!("REFUSED")), "{received}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn s4_tool_list_of_a_session_binds_its_tasks() {
    let (grandchild, shown) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (below, child) = (Arc::clone(&grandchild), Arc::clone(&shown));
    let answering = model(move |request| {
        let answer = match (&*prompt(&request), answers(&request)) {
            ("go", 0) => calls([("spawn_task", json!({"type": "other", "prompt": "child", "description": "d"}))]),
            ("child", 0) => {
                *child.lock().unwrap() = offered(&request);
                calls([("task", json!({"subagent_type": "other", "prompt": "below"}))])
            }
            ("below", _) => {
                *below.lock().unwrap() = offered(&request);
                text("found")
            }
            _ => text("done"),
        };
        async move { Ok(answer) }
    });
    let mut catalog = Catalog::builtin();
    let listed = Some(["lookup", "task", "spawn_task"].map(Into::into).to_vec());
    catalog.insert(Manifest { tools: listed, ..Manifest::new("worker", AgentMode::All, "You are a worker.") });
    catalog.insert(Manifest::new("other", AgentMode::All, "You are another."));
    let runtime =
        started(offering(&journal(), &[Dialect::Task, Dialect::SpawnTask]).catalog(catalog).model(answering)).await;
    ask(&runtime, "go").await;
    assert!(!shown.lock().unwrap().iter().any(|tool| tool == "write"));
    let below = grandchild.lock().unwrap().clone();
    assert!(below.iter().any(|tool| tool == "lookup") && !below.iter().any(|tool| tool == "write"), "{below:?}");
    shut(runtime).await;
}

/// Returns a tree without ids and times: for each session its agent, depth, ceiling and outcome.
async fn normalised(journal: &Journal, session: &SessionHandle) -> Vec<(String, u32, Hash, Option<Outcome>)> {
    let mut nodes = Vec::new();
    let tree = session.tree().await.expect("a tree");
    tree.each(&mut |node| nodes.push((node.id, node.agent.to_string(), node.depth, node.outcome.clone())));
    let mut received = Vec::new();
    for (id, agent, depth, outcome) in nodes {
        let stored = records(journal, id).await;
        let Record::SessionCreated(created) = &stored[0] else { panic!("not a creation") };
        received.push((agent, depth, created.ceiling.hash, outcome));
    }
    received
}

#[tokio::test(start_paused = true)]
async fn same_task_gives_the_same_tree_in_each_dialect() {
    let mut trees = Vec::new();
    for dialect in Dialect::ALL {
        let root = move |request: &Request, at: usize| match (dialect, at) {
            (Dialect::Task, 0) => calls([("task", json!({"subagent_type": "worker", "prompt": "work"}))]),
            (Dialect::Minion, 0) => {
                calls([("minion", json!({"message": "work", "enableWeb": false, "enabledTools": []}))])
            }
            (Dialect::Spawn, 0) => calls([("spawn", json!({"task": "work"}))]),
            (Dialect::Spawn, 1) => calls([("spawn_await", json!({"job_ids": "*"}))]),
            (Dialect::SpawnTask, 0) => {
                calls([("spawn_task", json!({"type": "worker", "prompt": "work", "description": "d"}))])
            }
            (Dialect::SpawnTask, 1) => {
                calls([("check_task", json!({"taskId": parsed(&results(request)[0])["taskId"]}))])
            }
            (Dialect::Subagent, 0) => calls([("subagent", json!({"task": "work", "agent": "worker"}))]),
            _ => text("done"),
        };
        let child = |_: &Request, _: usize| Ok(text("the one answer"));
        let (journal, runtime, session, last) = converse(&[dialect], root, child).await;
        let shown: usize = results(&last)
            .iter()
            .chain(&notices(&last))
            .map(|received| received.matches("the one answer").count())
            .sum();
        assert_eq!(shown, 1, "{dialect:?}");
        trees.push((dialect, normalised(&journal, &session).await));
        shut(runtime).await;
    }
    for (dialect, tree) in &trees {
        assert_eq!(tree, &trees[0].1, "{dialect:?}");
        assert_eq!(tree.len(), 2, "{dialect:?}");
    }
}
