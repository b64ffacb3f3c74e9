//! Deletion and erasure (J-10): atomic across a crash at any write, and erased data never reappears.

use crate::support::*;
use subtend_journal::Scope;
use subtend_journal::compact::{self, Compacted};

/// The answer of the child and of the branch, which the parent never gets.
const SECRET: &str = "the-launch-code-is-0451";

/// The parent starts a task and then continues it; the child does not reveal its secret.
async fn secretive(request: Request) -> Result<Answer, ModelError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let is_resumed =
        request.messages.iter().any(|message| matches!(message, Message::User { text, .. } if &**text == "again"));
    Ok(match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => calls([task("child", true)]),
        ("parent", 3) if is_resumed => {
            let received: Value = serde_json::from_str(&results(&request)[0]).expect("a result");
            let resume = json!({"subagent_type": "worker", "prompt": "more", "session_id": received["session_id"]});
            calls([("task", resume)])
        }
        ("child", 0) => calls([("read", json!({"path": SECRET}))]),
        _ => text("done"),
    })
}

/// Opens a tree of three sessions: the parent, its child and a person's branch. Returns `None` if the store fails meanwhile.
async fn tree(runtime: &Runtime) -> Option<(SessionHandle, SessionHandle)> {
    let session = runtime.open("worker").ok()?;
    let receipt = session.send("parent").await.ok()?;
    session.run_ended(receipt.run).await.ok()?;
    let child =
        session.child(&runtime.journal().head(runtime.journal().children(session.id()).ok()?[0]).ok()??.short.0);
    let branch = session.branch(BranchOptions::default()).await.ok()?;
    let receipt = branch.send(SECRET).await.ok()?;
    branch.run_ended(receipt.run).await.ok()?;
    Some((session, child.ok()??))
}

fn exported(journal: &Journal) -> String {
    let mut out = Vec::new();
    journal.export(Scope::Store, &mut out, &mut |_| {}).expect("an export");
    String::from_utf8(out).expect("text")
}

fn listed(journal: &Journal) -> Vec<(SessionId, bool)> {
    journal.heads().expect("heads").into_iter().map(|(session, head)| (session, head.deleted)).collect()
}

/// Deletes the tree in a host that dies at the `n`-th write. Returns whether it reached that write, and the number of sessions deleted before and
/// after the next start.
async fn killed(n: u64) -> (bool, usize, usize) {
    let memory = Memory::new();
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    faults.fail_write(n);
    let journal = on(Box::new(faulty));
    let mut received = false;
    if let Ok(runtime) = builder(&journal).model(model(secretive)).start().await {
        if let Some((session, _)) = tree(&runtime).await {
            received = session.delete(false).await.is_ok();
        }
        runtime.shutdown(Duration::from_secs(1)).await;
    }
    let writes = faults.writes();
    drop(journal);
    let journal = on(Box::new(memory));
    let before = listed(&journal);
    let deleted = |listed: &[(SessionId, bool)]| listed.iter().filter(|(_, deleted)| *deleted).count();
    let is_whole = |listed: &[(SessionId, bool)]| [0, listed.len()].contains(&deleted(listed));
    assert!(is_whole(&before), "write {n}: {before:?}");
    assert!(!received || deleted(&before) == 3, "write {n}: the deletion was acknowledged");
    if deleted(&before) > 0 {
        assert!(!exported(&journal).contains(SECRET), "write {n}");
    }
    let noted = before
        .iter()
        .filter(|(id, _)| journal.head(*id).expect("readable").expect("the session exists").deleted)
        .count();
    let runtime = builder(&journal).model(model(secretive)).start().await.expect("the runtime starts again");
    seconds(60).await;
    assert_eq!(listed(&journal), before, "write {n}");
    let after = before
        .iter()
        .filter(|(id, _)| journal.head(*id).expect("readable").expect("the session exists").deleted)
        .count();
    assert_eq!(after, deleted(&before), "write {n}: the next start completes the deletion");
    shut(runtime).await;
    (writes >= n, noted, after)
}

#[tokio::test(start_paused = true)]
async fn j10_delete_is_atomic_when_its_host_dies_at_any_write() {
    let mut met = Vec::new();
    for n in 1.. {
        let (there, noted, after) = killed(n).await;
        met.push((noted, after));
        if !there {
            break;
        }
    }
    for partly in [(0, 0), (1, 3), (2, 3), (3, 3)] {
        assert!(met.contains(&partly), "{partly:?} never happened: {met:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn j10_erased_text_does_not_reappear() {
    let memory = Memory::new();
    let journal = on(Box::new(memory.clone()));
    let runtime = builder(&journal).model(model(secretive)).start().await.expect("a runtime");
    let (session, child) = tree(&runtime).await.expect("a tree");
    assert_eq!(child.delete(false).await, Ok(1));
    let parent = journal.records(session.id()).expect("records");
    shut(runtime).await;
    drop(journal);

    let compacted = Memory::new();
    let done = compact::copy(&memory, &memory, &compacted, &mut |_| {}).expect("compacted");
    assert_eq!((done.erased, done.deferred), (1, vec![]));
    let journal = on(Box::new(compacted.clone()));
    assert_eq!(journal.records(session.id()).expect("records"), parent);
    assert!(matches!(journal.records(child.id()), Err(ReadError::NoSuchSession(_))));
    let runtime = builder(&journal).model(model(secretive)).start().await.expect("the runtime starts again");
    assert!(runtime.session(child.id()).expect("readable").is_none());
    assert!(runtime.find(&child.id().to_string()).await.expect("readable").is_none());
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    let kids: Vec<SessionId> = session.tree().await.expect("a tree").children.iter().map(|kid| kid.id).collect();
    assert!(!kids.contains(&child.id()) && kids.len() == 1, "{kids:?}");
    session.usage().await.expect("usage");
    let receipt = session.send("again").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the runtime is running");
    let refused = format!("The task {} is deleted: start a new one.", child.id().short().0);
    let all = exported(&journal);
    assert!(all.contains(&refused), "{refused}: {all}");
    shut(runtime).await;
    let again = compact::copy(&compacted, &compacted, &Memory::new(), &mut |_| {}).expect("compacted");
    assert_eq!(again, Compacted::default(), "it was erased again");
}
