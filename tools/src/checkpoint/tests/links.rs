//! Links in place of the directory whose files were written.

use std::os::unix::fs::symlink;

use super::*;

/// The workspace is replaced by a link to a directory with the same files. The control: the workspace is put back.
#[tokio::test]
async fn restore_follows_no_link_in_place_of_a_workspace() {
    for moment in ["before the plan", "before the intent", "before the restore", "before its end"] {
        let mut scene = CheckpointFixture::after_two_runs().await;
        let [work, moved, victim] = ["work", "moved", "victim"].map(|name| scene.dir().join(name));
        let files = [("a", "a by 2\n"), ("b", "b by 2 again\n"), ("new/dir/d", "d\n"), ("sub/c", "sub/c by 2\n")];
        ["new/dir", "sub"].iter().for_each(|dir| fs::create_dir_all(victim.join(dir)).unwrap());
        files.iter().for_each(|(path, text)| fs::write(victim.join(path), text).unwrap());
        let swap = || {
            fs::rename(&work, &moved).unwrap();
            symlink(&victim, &work).unwrap();
        };
        let shown = work.canonicalize().unwrap();
        let refused = match moment {
            "before the plan" => {
                swap();
                scene.restore(|| ()).await.1.map(drop)
            }
            "before the intent" => {
                let (start, plan, run) = (scene.checkpoints.begin_plan().unwrap(), scene.plan(2), RunNo(2));
                let digest = plan.digest();
                swap();
                let awaits = AwaitedRecord::RolledBack(run);
                scene.checkpoints.intend((session(), run), (plan, digest), awaits, start).map(drop)
            }
            "before the restore" => scene.restore(swap).await.1.map(drop),
            _ => {
                scene.crash_before("file", 2);
                assert!(matches!(scene.restore(|| ()).await, (true, Err(CheckpointError::Died))));
                scene.restart();
                swap();
                scene.checkpoints.recover(|_, _| Ok(true)).map(drop)
            }
        };
        let why = format!(
            "the workspace `{}` was replaced by a link, or is behind one: restore the directory",
            shown.display()
        );
        let each = files.map(|(path, _)| format!("`{path}` is unreachable: {why}")).join("; ");
        let expected = if moment == "before the plan" { format!("nothing is restored: {each}") } else { why };
        assert_eq!(refused.unwrap_err().to_string(), expected, "{moment}");
        assert_eq!(files.map(|(path, _)| fs::read_to_string(victim.join(path)).unwrap()), files.map(|(_, text)| text));
        let all = scene.checkpoints.of_session(session()).unwrap();
        let mut patches = Patches::default();
        let examined: Vec<_> = all.iter().flat_map(|saved| scene.checkpoints.examine(saved, &mut patches)).collect();
        assert!(examined.iter().all(|file| file.fate == FileFate::ChangedSince), "{moment}: {examined:?}");
        fs::remove_file(&work).unwrap();
        fs::rename(&moved, &work).unwrap();
        if moment == "before the plan" || moment == "before the intent" {
            scene.restore(|| ()).await.1.unwrap();
        } else {
            assert_eq!(scene.checkpoints.recover(|_, _| Ok(true)).unwrap().len(), 1, "{moment}");
        }
        assert_eq!(as_strs(&scene.tree()), RESTORED, "{moment}");
    }
}

/// A user may open the workspace through a link. A later change of the link has no effect on the restore.
#[tokio::test]
async fn restore_finds_a_workspace_that_was_named_by_a_link() {
    let mut scene = CheckpointFixture::new();
    let [work, real, other] = ["work", "real", "other"].map(|name| scene.dir().join(name));
    fs::rename(&work, &real).unwrap();
    symlink(&real, &work).unwrap();
    scene.write(2, "a", "a by 2\n").await;
    fs::create_dir(&other).unwrap();
    fs::write(other.join("a"), "a by 2\n").unwrap();
    fs::remove_file(&work).unwrap();
    symlink(&other, &work).unwrap();
    assert_eq!(scene.restore(|| ()).await.1.unwrap().files, ["a"]);
    assert_eq!([real, other].map(|dir| fs::read_to_string(dir.join("a")).unwrap()), ["a before\n", "a by 2\n"]);
}

/// An open session still writes to a directory that was moved. Its files can be restored once the directory is back.
#[tokio::test]
async fn write_in_a_moved_workspace_has_a_checkpoint() {
    let mut scene = CheckpointFixture::new();
    scene.dir = scene.dir.canonicalize().unwrap();
    let [work, moved] = ["work", "moved"].map(|name| scene.dir().join(name));
    let write = scene.invocation(2, json!({"path": "a", "content": "a by 2\n"}));
    fs::rename(&work, &moved).unwrap();
    tools().get("write").unwrap().run(write).await.unwrap();
    assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "a by 2\n");
    let why = format!("a is unreachable: cannot open its directory {}", scene.at("").display());
    assert_eq!(scene.conflicts(2), [why]);
    fs::rename(&moved, &work).unwrap();
    assert_eq!(scene.restore(|| ()).await.1.unwrap().files, ["a"]);
    assert_eq!(scene.read("a").as_deref(), Some("a before\n"));
}

/// The author of a store puts a link to a directory of the person in place of that of checkpoints. The control: what a killed process
/// left in the directory of a session is removed.
#[tokio::test]
async fn start_removes_only_files_of_sessions() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    let foreign = scene.session_dir().with_file_name("letters");
    fs::create_dir(&foreign).unwrap();
    let unfinished = [foreign.join("draft.new"), scene.session_dir().join("draft.new")];
    unfinished.iter().for_each(|path| fs::write(path, "text").unwrap());
    scene.restart();
    scene.write(3, "b", "b by 3\n").await;
    assert_eq!(unfinished.map(|path| path.exists()), [true, false]);
}
