//! Foreign ids: a task id resolves to the caller's own tasks only.

use serde_json::{Value, json};
use subtend_session::ids::SessionId;

use super::scene::{AttackScene, call, say, script, spawn};

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
