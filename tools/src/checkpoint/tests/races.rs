//! Races between writes, restores and other programs, and kills by a real signal at each step.

use std::collections::BTreeMap;
use std::process::Command;

use super::*;

/// Environment variable with the step before which this process kills itself, and the directory of its workspace.
const KILLED: &str = "SUBTEND_TEST_CHECKPOINT_KILL";

/// Returns a file whose checkpoints have a gap, or whose last checkpoint differs from its current content.
fn broken_file(scene: &CheckpointFixture) -> Option<String> {
    let mut last: BTreeMap<String, FileState> = BTreeMap::new();
    for checkpoint in scene.checkpoints.of_session(session()).unwrap() {
        for change in checkpoint.changes {
            if last.get(&change.path).is_some_and(|last| *last != change.before) {
                return Some(change.path);
            }
            last.insert(change.path, change.after);
        }
    }
    let workspace = Workspace::open(scene.at("")).unwrap();
    let present = |path: &str| read_entry(&workspace, path, MAX_FILE).unwrap().state;
    last.into_iter().find(|(path, last)| present(path) != *last).map(|(path, _)| path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn x15_concurrent_writes_and_restores_are_serialized() {
    for round in 0..20_u32 {
        let mut scene = CheckpointFixture::after_two_runs().await;
        let mut writers = tokio::task::JoinSet::new();
        for content in 0..12_usize {
            // The restore removes the directory `new`.
            let path = ["b", "sub/c", "new/dir/e"][content % 3];
            scene.calls += 1;
            let args = json!({"path": path, "content": format!("{round} {content}\n")});
            let write = scene.invocation(3, args);
            writers.spawn(async move { tools().get("write").unwrap().run(write).await.map(drop) });
        }
        let ended = scene.restore(|| ()).await.1;
        match ended {
            Ok(_) | Err(CheckpointError::Busy(_) | CheckpointError::Conflicts(_) | CheckpointError::Stale) => {}
            Err(error) => panic!("{error}"),
        }
        for write in writers.join_all().await {
            write.unwrap();
        }
        assert_eq!(broken_file(&scene), None, "{round}");
        // The control: a change by another program is found.
        fs::write(scene.at("b"), "by a user\n").unwrap();
        assert_eq!(broken_file(&scene).as_deref(), Some("b"));
    }
}

/// Saves the checkpoint of a write of `path` that has not renamed its file yet.
fn begin_write(scene: &CheckpointFixture, path: &str) -> SavedCheckpoint {
    let workspace = Workspace::open(scene.at("")).unwrap();
    let key = ToolKey { session: session(), run: RunNo(3), call: CallId { turn: TurnNo(99), ix: 0 } };
    let write = PlannedWrite { path, missing_dir: None, content: b"unfinished", based_on: None };
    tokio::task::block_in_place(|| scene.checkpoints.save(key, &workspace, &write)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn x15_restore_refuses_a_file_that_is_being_written() {
    let scene = CheckpointFixture::after_two_runs().await;
    let before = scene.tree();
    let unfinished = begin_write(&scene, "b");
    let (intended, refused) = scene.restore(|| ()).await;
    assert!(matches!((intended, &refused), (false, Err(CheckpointError::Busy(_)))), "{refused:?}");
    assert_eq!(scene.tree(), before);
    unfinished.undo();
    drop(unfinished);
    scene.restore(|| ()).await.1.unwrap();
    assert_eq!(as_strs(&scene.tree()), RESTORED);
}

#[tokio::test(flavor = "multi_thread")]
async fn x15_hanging_write_delays_only_its_file() {
    let mut scene = CheckpointFixture::new();
    scene.checkpoints.max_wait = Duration::from_millis(20);
    let hanging = begin_write(&scene, "a");
    scene.write(1, "b", "b by 1\n").await;
    for args in [json!({"path": "a", "content": "a by 1\n"}), json!({"path": "a", "content": "a before\n"})] {
        let refused = scene.call(1, "write", args).await.unwrap_err();
        let why = "`a` is being written or restored by another call: repeat the call later";
        assert_eq!((&*refused.message, refused.retryable), (why, true));
    }
    hanging.undo();
    drop(hanging);
    scene.write(1, "a", "a by 1\n").await;
    assert_eq!(broken_file(&scene), None);
}

/// While the restore is planned, another run writes the file twice. Afterwards the file has its old content again.
#[tokio::test]
async fn x15_file_written_since_the_plan_is_not_restored() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    let (start, plan, run) = (scene.checkpoints.begin_plan().unwrap(), scene.plan(2), RunNo(2));
    let shown = plan.digest();
    scene.write(3, "b", "b by 3\n").await;
    scene.write(3, "b", "b by 2 again\n").await;
    let before = scene.tree();
    let again = plan.clone();
    let refused = scene.checkpoints.intend((session(), run), (again, shown), AwaitedRecord::RolledBack(run), start);
    assert!(matches!(refused, Err(CheckpointError::Stale)), "{refused:?}");
    assert_eq!(scene.tree(), before);
    // The control: with a later start, the same plan is recorded. Writes of other files do not matter.
    let start = scene.checkpoints.begin_plan().unwrap();
    scene.write(3, "other", "by 3\n").await;
    let recorded = scene.checkpoints.intend((session(), run), (plan, shown), AwaitedRecord::RolledBack(run), start);
    assert!(matches!(recorded, Ok(Some(_))), "{recorded:?}");
}

#[tokio::test]
async fn x15_pending_restore_delays_only_its_files() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    scene.checkpoints.max_wait = Duration::from_millis(20);
    let (start, plan, run) = (scene.checkpoints.begin_plan().unwrap(), scene.plan(2), RunNo(2));
    let shown = plan.digest();
    let intended = scene.checkpoints.intend((session(), run), (plan, shown), AwaitedRecord::RolledBack(run), start);
    let pending = intended.unwrap().unwrap();
    scene.write(3, "other", "by 3\n").await;
    let refused = scene.call(3, "write", json!({"path": "b", "content": "b by 3\n"})).await.unwrap_err();
    assert!(refused.message.starts_with("`b` is being written or restored by another call"), "{refused}");
    scene.checkpoints.perform(pending).unwrap();
    scene.write(3, "b", "b by 3\n").await;
    assert_eq!((scene.read("b").as_deref(), broken_file(&scene)), (Some("b by 3\n"), None));
}

#[tokio::test]
async fn x15_change_between_plan_and_restore_is_refused() {
    type Change = fn(&Path);
    let changes: [Change; 3] = [
        |path| fs::write(path, "by a user\n").unwrap(),
        |path| fs::remove_file(path).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
    ];
    for name in ["a", "b", "new/dir/d", "sub/c"] {
        for change in changes {
            let scene = CheckpointFixture::after_two_runs().await;
            let (start, plan, run) = (scene.checkpoints.begin_plan().unwrap(), scene.plan(2), RunNo(2));
            let shown = plan.digest();
            change(&scene.at(name));
            let changed = scene.tree();
            let refused =
                scene.checkpoints.intend((session(), run), (plan, shown), AwaitedRecord::RolledBack(run), start);
            assert!(matches!(refused, Err(CheckpointError::Stale)), "{name}: {refused:?}");
            assert_eq!(scene.tree(), changed, "{name}");
        }
    }
}

/// Helper process of other tests: saves or restores, and kills itself before a step.
#[tokio::test]
async fn killed_process() {
    let Ok(text) = std::env::var(KILLED) else { return };
    let [step, passes, dir] = &*text.splitn(3, ' ').collect::<Vec<_>>() else { panic!("{text}") };
    let mut scene = CheckpointFixture::existing(Path::new(dir));
    scene.crash_before(
        ["content", "checkpoint", "saved", "present", "intent", "file", "restored", "recorded"]
            .into_iter()
            .find(|known| known == step)
            .unwrap(),
        passes.parse().unwrap(),
    );
    scene.checkpoints.kills = true;
    if ["content", "checkpoint", "saved"].contains(step) {
        scene.calls = 50;
        drop(scene.call(2, "write", json!({"path": "b", "content": "b at last\n"})).await);
    } else {
        drop(scene.restore(|| fs::write(scene.dir().join("intended"), "").unwrap()).await);
    }
    panic!("the step {step} was not reached");
}

/// Runs [`killed_process`] in `scene` and waits until it is killed.
fn kill_before(step: &str, passes: usize, scene: &CheckpointFixture) {
    use std::os::unix::process::ExitStatusExt as _;

    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "checkpoint::tests::races::killed_process", "--nocapture"]);
    command.env(KILLED, format!("{step} {passes} {}", scene.dir().display()));
    let output = command.output().unwrap();
    assert_eq!(output.status.signal(), Some(9), "{step} {passes}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn x15_save_killed_at_any_step_can_be_restored() {
    for step in ["content", "checkpoint", "saved"] {
        let mut scene = CheckpointFixture::after_two_runs().await;
        let before = scene.tree();
        kill_before(step, 0, &scene);
        assert_eq!(scene.tree(), before, "{step}: a file was written before its checkpoint");
        scene.restart();
        assert_eq!(scene.conflicts(2), Vec::<String>::new(), "{step}");
        scene.restore(|| ()).await.1.unwrap();
        assert_eq!(as_strs(&scene.tree()), RESTORED, "{step}");
    }
}

#[tokio::test]
async fn x15_restore_killed_by_a_signal_is_all_or_nothing() {
    for (step, most) in [("present", 4), ("intent", 1), ("file", 4), ("restored", 1), ("recorded", 1)] {
        for passes in 0..most {
            let mut scene = CheckpointFixture::after_two_runs().await;
            let before = scene.tree();
            kill_before(step, passes, &scene);
            let intended = scene.dir().join("intended").exists();
            scene.restart();
            scene.checkpoints.recover(|_, _| Ok(intended)).unwrap();
            let wanted = if intended { RESTORED.to_vec() } else { as_strs(&before) };
            assert_eq!(as_strs(&scene.tree()), wanted, "{step} {passes}");
            assert_eq!((scene.plan(2).is_empty(), scene.conflicts(2).len()), (intended, 0), "{step} {passes}");
            scene.write(3, "a", "a by 3\n").await;
        }
    }
}
