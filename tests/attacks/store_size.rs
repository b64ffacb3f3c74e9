//! Attacks on the store's size: models that write a lot in one call, in many calls, or in many turns.

use super::scene::*;
use subtend_session::outcome::{Budget, FailKind, ModelFail};

fn limits(argument_bytes: u64) -> Limits {
    Limits { argument_bytes, ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn arguments_of_40_mb_are_not_recorded() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    let root = host.run_steps("worker", &[fill("big.txt", 41_943_040)]).await;
    let errors = host.refused(root.id(), 1);
    let size = "41943082 bytes, and all calls of one answer may have 2097152 (argument_bytes)";
    assert!(errors[0].contains(size), "{errors:?}");
    let answered = host.records(root.id()).await.into_iter().find_map(|record| match record {
        Record::TurnAnswered(answered) => Some(answered.calls[0].args.to_string()),
        _ => None,
    });
    let note = json!({"not_recorded": "41943082 bytes, above the argument_bytes limit of 2097152"}).to_string();
    assert_eq!((answered, scene.content("big.txt")), (Some(note), String::new()));
    let size = host.size(root.id()).await;
    assert!(size < 64_000, "{size}");
    host.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn arguments_of_many_calls_are_bounded_together() {
    let mut scene = AttackScene::new().limits(limits(100_000));
    let host = scene.host().await;
    let turn: Vec<Value> = (0..8).map(|ix| fill(&format!("f{ix}.txt"), 30_000)).collect();
    let root = host.run_steps("worker", &[in_one_turn(&turn)]).await;
    let failed: Vec<bool> = host.results(root.id()).iter().map(|(failed, _)| *failed).collect();
    assert_eq!(failed, [false, false, false, true, true, true, true, true]);
    assert_eq!(["f2.txt", "f3.txt"].map(|path| scene.content(path).len()), [30_000, 0]);
    host.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn names_and_ids_of_calls_are_bounded_like_arguments() {
    let long = "n".repeat(50_000);
    let id = json!([{"tool": "read", "args": {}, "id": long}]);
    // A name of 50,000 bytes is within the last limit, but no import takes it.
    for (attack, limit) in [(call(&long, json!({})), 1_000), (id, 1_000), (call(&long, json!({})), 1_000_000)] {
        let mut scene = AttackScene::new().limits(limits(limit));
        let host = scene.host().await;
        let root = host.run_steps("worker", &[attack]).await;
        host.refused(root.id(), 1);
        let call_bytes = host.records(root.id()).await.into_iter().find_map(|record| match record {
            Record::TurnAnswered(answered) => Some((answered.calls[0].tool.len(), answered.calls[0].provider_id.len())),
            _ => None,
        });
        assert!(call_bytes.is_some_and(|(tool, id)| tool <= 64 && id <= 64), "{call_bytes:?}");
        host.shut_down().await;
    }
}

/// The control: without the limit, the bytes are in the record and in the workspace.
#[tokio::test(start_paused = true)]
async fn arguments_are_recorded_without_the_limit() {
    let mut scene = AttackScene::new().limits(limits(u64::MAX));
    let host = scene.host().await;
    let root = host.run_steps("worker", &[fill("big.txt", 4_194_304)]).await;
    let answered = host.records(root.id()).await.into_iter().find_map(|record| match record {
        Record::TurnAnswered(answered) => Some(answered.calls[0].args.len()),
        _ => None,
    });
    assert!(answered.is_some_and(|args| args > 4_194_304), "{answered:?}");
    assert_eq!(scene.content("big.txt").len(), 4_194_304);
    host.shut_down().await;
}

/// Returns a scene and steps that read a file of 100 kB many times.
fn repeated_reads() -> (AttackScene, Vec<Value>) {
    let scene = AttackScene::new();
    let lines = format!("{}\n", "y".repeat(99)).repeat(1_000);
    std::fs::write(scene.at("much.txt"), lines).expect("a file");
    (scene, vec![read("much.txt"); 30])
}

#[tokio::test(start_paused = true)]
async fn run_ends_when_it_has_recorded_too_much() {
    let (scene, steps) = repeated_reads();
    let limits = Limits { recorded_bytes: Some(500_000), ..Limits::default() };
    let mut scene = scene.limits(limits);
    let host = scene.host().await;
    let (root, outcome) = host.try_steps("worker", &steps).await;
    assert_eq!(outcome, Outcome::OutOfBudget { which: Budget::Recorded });
    let recorded: u64 = host.records(root.id()).await.iter().map(Record::recorded_bytes).sum();
    assert!((500_000..600_000).contains(&recorded), "{recorded}");
    // The session can continue, because the limit applies to one run.
    host.continue_with(&root, &[read("top.txt")]).await;
    host.shut_down().await;
}

/// The control: without the limit, the run records everything that it reads.
#[tokio::test(start_paused = true)]
async fn run_records_everything_without_the_limit() {
    let (scene, steps) = repeated_reads();
    let mut scene = scene.limits(Limits { recorded_bytes: None, ..Limits::default() });
    let host = scene.host().await;
    let (root, outcome) = host.try_steps("worker", &steps).await;
    assert_eq!(outcome, Outcome::Completed);
    let recorded: u64 = host.records(root.id()).await.iter().map(Record::recorded_bytes).sum();
    assert!(recorded > 1_000_000, "{recorded}");
    host.shut_down().await;
}

/// Files that calls put into prompts of children. JSON makes control characters six times as long. The control: other
/// characters.
#[tokio::test(start_paused = true)]
async fn files_of_many_children_are_bounded_as_recorded() {
    let prompt = json!({"task": "go", "contextFiles": ["a", "b", "c", "d"]});
    for (text, started) in [("\u{1}", 18), ("x", 27)] {
        let limits = Limits { recorded_bytes: Some(10_000_000), ..Limits::default() };
        let mut scene = AttackScene::new().limits(limits).dialect(Dialect::Subagent);
        for path in ["a", "b", "c", "d"] {
            std::fs::write(scene.at(path), text.repeat(90_000)).expect("a file");
        }
        let host = scene.host().await;
        let calls: Vec<Value> = (0..40).map(|_| call("subagent", prompt.clone())).collect();
        let (root, _) = host.try_steps("worker", &[in_one_turn(&calls)]).await;
        let (children, mut size) = (host.children(root.id()), host.size(root.id()).await);
        for child in &children {
            size += host.size(*child).await;
        }
        assert!(children.len() == started && size < 10_500_000, "{text:?}: {}, {size}", children.len());
        host.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn answer_with_40_000_calls_is_rejected() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    let (root, outcome) = host.try_steps("worker", &[reads("top.txt", 40_000)]).await;
    let message = "the answer has 40000 calls; the limit is 1024".into();
    assert_eq!(outcome, Outcome::Failed { kind: FailKind::Model { error: ModelFail::BadAnswer, message } });
    let calls = |record: &Record| matches!(record, Record::CallStarted { .. } | Record::CallFinished(_));
    assert!(!host.records(root.id()).await.iter().any(calls));
    host.shut_down().await;
}

/// Parsed arguments take seventy times their bytes, so the number of values is limited too.
#[tokio::test(start_paused = true)]
async fn arguments_with_too_many_values_are_rejected() {
    let attacks: [Value; 2] = [
        json!([{"tool": "read", "args": {"path": vec![json!({}); 60_000]}}]),
        json!(vec![json!({"tool": "read", "args": {"path": vec![json!({}); 6_000]}}); 10]),
    ];
    for attack in attacks {
        let mut scene = AttackScene::new();
        let host = scene.host().await;
        let (_, outcome) = host.try_steps("worker", &[attack]).await;
        let Outcome::Failed { kind: FailKind::Model { error: ModelFail::BadAnswer, message } } = outcome else {
            panic!("{outcome:?}")
        };
        let expected = "JSON values; the limit is 100000";
        assert!(
            message.starts_with("the arguments of the answer have 120") && message.ends_with(expected),
            "{message}"
        );
        host.shut_down().await;
    }
}

/// The control: the same number of bytes in one string is accepted.
#[tokio::test(start_paused = true)]
async fn arguments_with_one_long_value_are_accepted() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    host.run_steps("worker", &[fill("long.txt", 180_000)]).await;
    assert_eq!(scene.content("long.txt").len(), 180_000);
    host.shut_down().await;
}

/// The control: the largest accepted number of calls is recorded, and those within `calls_per_answer` run.
#[tokio::test(start_paused = true)]
async fn answer_with_1_024_calls_is_recorded() {
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    let root = host.run_steps("worker", &[reads("top.txt", 1_024)]).await;
    let failed = host.results(root.id()).iter().filter(|(failed, _)| *failed).count();
    assert_eq!((host.results(root.id()).len(), failed), (1_024, 960));
    host.shut_down().await;
}
