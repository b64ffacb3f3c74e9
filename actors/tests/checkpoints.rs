//! Files are restored together with the record of a rollback, even if the process dies at any moment.

use crate::support::*;
use subtend_actors::RestorePoint;
use subtend_tools::checkpoint::{AwaitedRecord, Checkpoints};

/// Returns a host whose model writes `a` when asked to and then fails, and answers everything else.
fn host(journal: &Journal, dir: &Path) -> Builder {
    let writes = model(move |request| async move {
        match request.messages.last() {
            Some(Message::User { text, .. }) if &**text == "write" => {
                Ok(calls([("write", json!({"path": "a", "content": "written"}))]))
            }
            Some(Message::Result { .. }) => Err(ModelError::new(ModelFail::Auth, "no key")),
            _ => Ok(text("fine")),
        }
    });
    let tools = Registry::builder().tools(Registry::workspace_tools(None)).expect("names").build();
    std::fs::create_dir_all(dir.join("work")).expect("a directory");
    let workspace = Arc::new(Workspace::open(dir.join("work")).expect("a workspace"));
    builder(journal).model(writes).tools(tools).workspace(workspace).checkpoints(Checkpoints::new(dir.join("saved")))
}

fn content(dir: &Path) -> Option<String> {
    std::fs::read_to_string(dir.join("work/a")).ok()
}

async fn wrote(runtime: &Runtime) -> SessionHandle {
    let session = open(runtime);
    let receipt = session.send("write").await.expect("accepted");
    let ended = session.run_ended(receipt.run).await.expect("the run ends");
    assert_ne!(ended.outcome, Outcome::Completed);
    session
}

async fn digest(session: &SessionHandle, point: RestorePoint) -> Hash {
    session.restore_plan(point, false).await.expect("a plan").digest()
}

#[tokio::test]
async fn x15_rollback_restores_the_files_that_were_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = host(&journal(), dir.path()).start().await.expect("a runtime");
    let session = wrote(&runtime).await;
    assert_eq!(content(dir.path()).as_deref(), Some("written"));
    let other = session.roll_back_files(None, Hash::of(b"another")).await;
    assert!(
        matches!(&other, Err(ControlError::Refused(why)) if why.contains("changed after the restore was shown")),
        "{other:?}"
    );
    let shown = digest(&session, RestorePoint::Run(None)).await;
    let (run, restored) = session.roll_back_files(None, shown).await.expect("rolled back");
    assert_eq!((run, restored.files), (RunNo(1), vec!["a".to_owned()]));
    assert_eq!(content(dir.path()), None);
    // A completed run is not rolled back, and its files are not restored.
    let done = session.send("more").await.expect("accepted");
    session.run_ended(done.run).await.expect("the run ends");
    assert!(session.restore_plan(RestorePoint::Run(None), false).await.expect("a plan").is_empty());
    // A refused branch does not restore files either: its intent is withdrawn.
    let again = wrote(&runtime).await;
    let at = BranchOptions { at: Some(subtend_session::ids::Seq(1)), ..BranchOptions::default() };
    let shown = digest(&again, RestorePoint::Message(at.at)).await;
    assert!(again.branch_files(at, shown).await.is_err());
    assert_eq!(content(dir.path()).as_deref(), Some("written"));
    shut(runtime).await;
}

/// If the process dies after the intent of a restore, the next start makes its files match the journal.
#[tokio::test]
async fn x15_start_finishes_a_restore_if_its_record_exists() {
    for rolls_back in [true, false] {
        let (dir, memory) = (tempfile::tempdir().expect("a directory"), Memory::new());
        let journal = reopen(&memory);
        let runtime = host(&journal, dir.path()).start().await.expect("a runtime");
        let session = wrote(&runtime).await;
        let id: SessionId = session.id();
        let saved = Checkpoints::new(dir.path().join("saved"));
        let all = saved.of_session(id).expect("checkpoints");
        let start = saved.begin_plan().expect("a start");
        let plan = saved.plan(&all, &all.iter().map(|at| at.number).collect(), None);
        let shown = plan.digest();
        let awaits = AwaitedRecord::RolledBack(RunNo(1));
        let pending = saved.intend((id, RunNo(1)), (plan, shown), awaits, start).expect("an intent");
        assert!(pending.is_some());
        if rolls_back {
            session.roll_back(None).await.expect("rolled back");
        }
        shut(runtime).await;
        drop((pending, journal));
        assert_eq!(content(dir.path()).as_deref(), Some("written"));
        let runtime = host(&reopen(&memory), dir.path()).start().await.expect("a runtime");
        assert_eq!(runtime.boot().restored, usize::from(rolls_back));
        assert_eq!(content(dir.path()).is_none(), rolls_back);
        shut(runtime).await;
    }
}

#[tokio::test]
async fn x15_host_without_checkpoints_refuses_to_restore() {
    let runtime = builder(&journal()).model(model(|_| async { Ok(text("a")) })).start().await.expect("a runtime");
    let session = open(&runtime);
    let refused = session.restore_plan(RestorePoint::Run(None), false).await.expect_err("no checkpoints");
    assert_eq!(refused.to_string(), "this host keeps no checkpoints, so no file can be restored");
    shut(runtime).await;
}
