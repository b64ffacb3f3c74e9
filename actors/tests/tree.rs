//! Trees as people see them, read from the journal.

use crate::support::*;
use subtend_actors::Tree;

type TreeRow = (u32, String, String, Phase, RunNo, Option<Outcome>, u64);

fn rows(tree: &Tree) -> Vec<TreeRow> {
    let mut rows = Vec::new();
    tree.each(&mut |node| {
        rows.push((
            node.depth,
            node.agent.to_string(),
            node.title.to_string(),
            node.phase,
            node.run,
            node.outcome.clone(),
            node.usage.tokens(),
        ));
    });
    rows
}

#[tokio::test(start_paused = true)]
async fn tree_lists_sessions_by_creation_without_activating() {
    let journal = journal();
    let answer = |request: Request| async move {
        let usage = Usage { input: 10, output: 1, ..Usage::default() };
        let reply = match (&*crate::support::prompt(&request), answers(&request)) {
            ("go", 0) => calls([task("slow", true), task("fast", true)]),
            ("slow", _) => {
                seconds(3_600).await;
                text("at last")
            }
            _ => text("done"),
        };
        Ok(Answer { usage, ..reply })
    };
    let options = Options { idle: Duration::from_secs(1), seed: Some(7), ..Options::default() };
    let limits = subtend_session::limits::Limits {
        turn_ms: 7_200_000,
        stall_ms: 7_200_000,
        first_byte_ms: 7_200_000,
        run_ms: None,
        ..Default::default()
    };
    let runtime = started(builder(&journal).options(options).limits(limits).model(model(answer))).await;
    let session = open(&runtime);
    assert_eq!(rows(&session.tree().await.expect("a tree"))[0].3, Phase::Quiet);
    let receipt = session.send("go").await.expect("accepted");
    seconds(60).await;
    let present = runtime.loaded_sessions();
    let tree = session.tree().await.expect("a tree");
    let row = |depth, title: &str, phase, outcome, tokens| {
        (depth, "worker".to_owned(), title.to_owned(), phase, RunNo(1), outcome, tokens)
    };
    let expected = [
        row(0, "go", Phase::WaitingAtRest, None, 33),
        row(1, "slow", Phase::Working, None, 0),
        row(1, "fast", Phase::Quiet, Some(Outcome::Completed), 11),
    ];
    assert_eq!(rows(&tree), expected);
    assert_eq!(runtime.loaded_sessions(), present, "a session was woken");
    assert!(tree.children.iter().all(|child| child.background && child.short == child.id.short()));
    let (root, slow, fast) = (&tree.short, &tree.children[0].short, &tree.children[1].short);
    let drawn = format!(
        "worker {root}  waiting, 3 turns  go\n├─ worker {slow}  in flight, 0 turns  slow\n└─ worker {fast}  completed, 1 turn  fast"
    );
    assert_eq!(tree.to_string(), drawn);
    session.run(receipt.run).ended().await.expect("ended");
    let tree = session.tree().await.expect("a tree");
    assert_eq!((tree.phase, tree.outcome.clone()), (Phase::Quiet, Some(Outcome::Completed)));
    assert_eq!(Tree::read(&journal, session.id()).expect("a tree"), tree, "the tree without a runtime differs");
    let unknown: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().unwrap();
    assert_eq!(Tree::read(&journal, unknown).unwrap_err().to_string(), format!("no session {unknown} in this store"));
    shut(runtime).await;
}
