//! Foreign ids: a task id resolves to the caller's own tasks only.

use super::scene::*;

fn calls_with_id(id: &str) -> [Value; 4] {
    [
        call("task", json!({"session_id": id, "prompt": script(&[say("mine now")])})),
        call("task", json!({"session_id": id, "prompt": "go", "subagent_type": "worker", "background": true})),
        call("check_task", json!({"taskId": id, "wait": false})),
        call("cancel_task", json!({"taskId": id})),
    ]
}

#[tokio::test(start_paused = true)]
async fn task_id_of_another_tree_parent_or_sibling_is_refused() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    let other = host.run_steps("worker", &[spawn("worker", &[say("secret plans")])]).await;
    let others = host.descendant(other.id(), 1);
    // A root with two children; the second gets the ids of its sibling, parent and another tree.
    let root = host.run_steps("worker", &[spawn("worker", &[say("first")])]).await;
    let first = host.descendant(root.id(), 1);
    let names = |id: SessionId| [id.to_string(), id.short().0.to_string()];
    let foreign: Vec<String> = [others, other.id(), first, root.id()].into_iter().flat_map(names).collect();
    let paths = [format!("{}/{}", other.id().short(), others.short()), "root".into(), "..".into(), "*".into()];
    let tries: Vec<Value> = foreign.iter().chain(&paths).flat_map(|id| calls_with_id(id)).collect();
    host.continue_with(&root, &[spawn("worker", &tries)]).await;
    let second = *host.children(root.id()).last().expect("a second child");
    assert_ne!(second, first);
    let errors = host.refused(second, tries.len());
    assert!(errors.iter().all(|error| !error.contains("secret plans") && !error.contains("first")), "{errors:#?}");
    for (id, runs) in [(others, 1), (first, 1), (other.id(), 1)] {
        let opened = host.records(id).await.iter().filter(|record| record.kind() == "run_opened").count();
        assert_eq!(opened, runs, "{id} was touched");
    }
    host.shut_down().await;
}

/// A grandchild belongs to its parent: the grandparent can cancel or continue it only through that parent.
#[tokio::test(start_paused = true)]
async fn grandchild_task_is_refused_to_the_grandparent() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    let root = host.run_steps("worker", &[spawn("worker", &[spawn("worker", &[say("deep")])])]).await;
    let deep = host.descendant(root.id(), 2);
    host.continue_with(&root, &calls_with_id(&deep.to_string())).await;
    host.refused(root.id(), 4);
    host.shut_down().await;
}

/// The control: with the id of its own child, the same calls succeed.
#[tokio::test(start_paused = true)]
async fn own_task_continues_by_its_id() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    let root = host.run_steps("worker", &[spawn("worker", &[say("first")])]).await;
    let own = host.descendant(root.id(), 1);
    host.continue_with(&root, &calls_with_id(&own.to_string())[..1]).await;
    let results = host.results(root.id());
    assert!(!results[0].0 && results[0].1.contains("mine now"), "{results:#?}");
    host.shut_down().await;
}

/// A session of another tree that knows the id of a task gets the same error as for any other text, in each dialect.
/// The control: the session that started the task can use the id.
#[tokio::test(start_paused = true)]
async fn task_id_is_refused_in_other_dialects() {
    let prompt = || script(&[say("secret plans")]);
    let minion = json!({"message": prompt(), "enableWeb": false, "enabledTools": ["write"]});
    let labelled = json!({"type": "worker", "prompt": prompt(), "description": "look"});
    let attacks: [(Dialect, Value, &str, Value); 5] = [
        (
            Dialect::Subagent,
            json!({"task": prompt(), "agent": "worker"}),
            "continueBranchId",
            json!({"task": prompt()}),
        ),
        (Dialect::Minion, minion.clone(), "minionChatId", minion),
        (Dialect::Spawn, json!({"task": prompt()}), "job_ids", json!({"tool": "spawn_await"})),
        (Dialect::SpawnTask, labelled.clone(), "taskId", json!({"tool": "check_task"})),
        (Dialect::SpawnTask, labelled, "taskId", json!({"tool": "cancel_task"})),
    ];
    for (dialect, starts, key, more) in attacks {
        let used = more["tool"].as_str().unwrap_or(dialect.name()).to_owned();
        let mut scene = AttackScene::new().dialect(dialect);
        let host = scene.host().await;
        let owner = host.run_steps("worker", &[call(dialect.name(), starts)]).await;
        let task = host.descendant(owner.id(), 1);
        let uses = |id: &str| {
            let mut args = more.clone();
            args.as_object_mut().expect("arguments").remove("tool");
            args[key] = id.into();
            call(&used, args)
        };
        let ids = [task.to_string(), task.short().0.to_string(), format!("task_{task}")];
        let before = host.records(task).await.len();
        let stranger = host.run_steps("worker", &ids.clone().map(|id| uses(&id))).await;
        let is_unknown = |text: &str| text.contains("Unknown ") || text.contains("NOT FOUND");
        let results = host.results(stranger.id());
        assert_eq!(results.len(), ids.len(), "{used}: {results:#?}");
        assert!(results.iter().all(|(_, text)| is_unknown(text) && !text.contains("secret")), "{used}: {results:#?}");
        assert_eq!(host.records(task).await.len(), before, "{used}: the task was touched");
        let own = if dialect == Dialect::SpawnTask { &ids[2] } else { &ids[1] };
        host.continue_with(&owner, &[uses(own)]).await;
        let results = host.results(owner.id());
        assert!(results.iter().any(|(_, text)| !is_unknown(text)), "{used}: {results:#?}");
        host.shut_down().await;
    }
}
