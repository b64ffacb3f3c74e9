//! Limits of a tree: what each account counts.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn refused_spawn_uses_no_grant() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", false)])),
            ("parent", 1) => Ok(calls([task("second", false)])),
            ("child", 0) => Ok(calls([task("too deep", false)])),
            (_, _) => Ok(text("done")),
        }
    };
    let limits = Limits { max_depth: 1, spawns: 2, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "parent").await;
    assert_eq!(journal.children(session.id()).expect("children").len(), 2);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn each_root_run_has_its_own_account() {
    let journal = journal();
    let answer = |request: Request| async move {
        let last = last_user(&request);
        let asks = matches!(request.messages.last(), Some(Message::User { .. }));
        match last.as_str() {
            "parent" if asks => Ok(calls([task("child", false)])),
            // A person's message to the child opens a root run, whose spawns count separately.
            "again" if asks => Ok(calls([task("leaf", false)])),
            _ => {
                let failed =
                    request.messages.iter().any(|message| matches!(message, Message::Result { error: true, .. }));
                Ok(text(if failed { "refused" } else { "done" }))
            }
        }
    };
    let limits = Limits { spawns: 1, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "parent").await;
    assert_eq!(ended.text.as_deref(), Some("done"));
    let child = journal.children(session.id()).expect("children")[0];
    let child = runtime.session(child).expect("readable").expect("the session exists");
    for _ in 0..3 {
        let receipt = child.send("again").await.expect("accepted");
        let ended = child.run_ended(receipt.run).await.expect("ended");
        assert_eq!(ended.text.as_deref(), Some("done"), "run {}", receipt.run);
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn continued_task_counts_again_but_persons_branch_does_not() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", true)])),
            ("parent", 1) => Ok(text("waiting")),
            ("parent", 2) => {
                let more = json!({"session_id": short(&request), "prompt": "more"});
                Ok(calls([("task", more)]))
            }
            ("parent", 3) => Ok(calls([task("one too many", false)])),
            ("parent", _) => {
                let failed = |message: &&Message| matches!(message, Message::Result { error: true, .. });
                let failed = request.messages.iter().find(failed).cloned();
                let Some(Message::Result { content, .. }) = failed else { return Ok(text("nothing was refused")) };
                Ok(text(&content))
            }
            (_, _) => Ok(text("done")),
        }
    };
    let limits = Limits { spawns: 2, ..Limits::default() };
    let runtime = builder(&journal).model(model(answer)).limits(limits).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "parent").await;
    let received = ended.text.unwrap_or_default();
    assert!(received.contains("limit of 2 spawns") && received.contains("0 remain"), "{received}");
    assert_eq!(journal.children(session.id()).expect("children").len(), 1, "one child, which ran twice");
    for _ in 0..3 {
        let branch = session.branch(BranchOptions::default()).await.expect("a branch");
        let receipt = branch.send("and you?").await.expect("accepted");
        branch.run_ended(receipt.run).await.expect("ended");
    }
    assert_eq!(journal.children(session.id()).expect("children").len(), 4);
    assert_eq!(runtime.stats().accounts, 0);
    shut(runtime).await;
}
