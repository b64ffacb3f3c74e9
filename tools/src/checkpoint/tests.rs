//! Tests of checkpoints on real directories: saves by the tools, restores, and crashes before each step.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use serde_json::{Map, Value, json};
use subtend_session::authority::Authority;
use subtend_session::ids::{CallId, Hash, RunNo, SessionId, TurnNo};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::processes::Processes;
use crate::registry::Registry;
use crate::tool::{Progress, ToolError, ToolInvocation, ToolOutput};

pub(super) mod hanging;
#[cfg(unix)]
mod links;
#[cfg(unix)]
mod patches;
#[cfg(unix)]
mod races;
#[cfg(unix)]
mod times;

struct CheckpointFixture {
    dir: PathBuf,
    /// Removes `dir` when it is dropped.
    temporary: Option<tempfile::TempDir>,
    checkpoints: Checkpoints,
    calls: u32,
}

const SESSION: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn tools() -> Registry {
    Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build()
}

fn session() -> SessionId {
    SESSION.parse().unwrap()
}

impl CheckpointFixture {
    /// Creates a workspace with the files `a`, `b` and `sub/c`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut scene = Self::existing(dir.path());
        scene.temporary = Some(dir);
        fs::create_dir_all(scene.at("sub")).unwrap();
        for name in ["a", "b", "sub/c"] {
            fs::write(scene.at(name), format!("{name} before\n")).unwrap();
        }
        scene
    }

    /// Returns a fixture for the files that another fixture created in `dir`.
    fn existing(dir: &Path) -> Self {
        let checkpoints = Checkpoints::new(dir.join("checkpoints"));
        Self { dir: dir.into(), temporary: None, checkpoints, calls: 0 }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir().join("work").join(path)
    }

    fn session_dir(&self) -> PathBuf {
        self.dir().join("checkpoints").join(SESSION)
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    fn tree(&self) -> Vec<(String, Option<String>)> {
        let mut names = Vec::new();
        let mut next = vec![String::new()];
        while let Some(dir) = next.pop() {
            for entry in fs::read_dir(self.at(&dir)).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{dir}{}", entry.file_name().to_string_lossy());
                if entry.file_type().unwrap().is_dir() {
                    next.push(format!("{name}/"));
                }
                names.push(name);
            }
        }
        names.sort();
        names.into_iter().map(|name| (name.clone(), self.read(&name))).collect()
    }

    fn invocation(&self, run: u32, args: Value) -> ToolInvocation {
        ToolInvocation {
            key: ToolKey { session: session(), run: RunNo(run), call: CallId { turn: TurnNo(self.calls), ix: 0 } },
            args,
            options: Arc::new(Map::new()),
            workspace: Arc::new(Workspace::open(self.at("")).unwrap()),
            authority: Arc::new(Authority::allow_all()),
            cancel: CancellationToken::new(),
            max_bytes: 1 << 16,
            progress: Progress::none(),
            processes: Processes::default(),
            checkpoints: Some(self.checkpoints.clone()),
            messenger: None,
            child_tools: None,
            approved: false,
        }
    }

    async fn call(&mut self, run: u32, tool: &str, args: Value) -> Result<ToolOutput, ToolError> {
        self.calls += 1;
        tools().get(tool).unwrap().run(self.invocation(run, args)).await
    }

    async fn write(&mut self, run: u32, path: &str, content: &str) {
        self.call(run, "write", json!({"path": path, "content": content})).await.unwrap();
    }

    /// Creates a workspace in which run 1 changed `a`, and run 2 changed `a`, `b`, `new/dir/d` and a part of `sub/c`.
    async fn after_two_runs() -> Self {
        let mut scene = Self::new();
        scene.write(1, "a", "a by 1\n").await;
        scene.write(2, "a", "a by 2\n").await;
        scene.write(2, "b", "b by 2\n").await;
        scene.write(2, "b", "b by 2 again\n").await;
        scene.write(2, "new/dir/d", "d\n").await;
        scene.call(2, "edit", json!({"path": "sub/c", "old": "before", "new": "by 2"})).await.unwrap();
        scene
    }

    fn plan(&self, run: u32) -> RestorePlan {
        let all = self.checkpoints.of_session(session()).unwrap();
        let undone: BTreeSet<u64> =
            all.iter().filter(|at| at.call.is_some() && at.run == RunNo(run)).map(|at| at.number).collect();
        self.checkpoints.plan(&all, &undone, Some(Patches::default()))
    }

    fn conflicts(&self, run: u32) -> Vec<String> {
        self.plan(run).conflicts.into_iter().map(|conflict| format!("{} {}", conflict.path, conflict.why)).collect()
    }

    fn crash_before(&mut self, step: &'static str, passes: usize) {
        self.checkpoints = Checkpoints::new(self.dir().join("checkpoints"));
        self.checkpoints.crash_before = Some((step, Arc::new(AtomicUsize::new(passes))));
    }

    fn restart(&mut self) {
        self.checkpoints = Checkpoints::new(self.dir().join("checkpoints"));
    }

    /// Restores run 2, with `meanwhile` after the intent. Returns whether it was recorded, and the result.
    async fn restore(&self, meanwhile: impl FnOnce()) -> (bool, Result<Restored, CheckpointError>) {
        let start = self.checkpoints.begin_plan().unwrap();
        let plan = self.plan(2);
        let digest = plan.digest();
        let run = RunNo(2);
        match self.checkpoints.intend((session(), run), (plan, digest), AwaitedRecord::RolledBack(run), start) {
            Ok(Some(pending)) => {
                meanwhile();
                (true, self.checkpoints.perform(pending))
            }
            Ok(None) => (false, Ok(Restored::default())),
            Err(error) => (false, Err(error)),
        }
    }
}

fn as_strs(tree: &[(String, Option<String>)]) -> Vec<(&str, Option<&str>)> {
    tree.iter().map(|(name, text)| (&**name, text.as_deref())).collect()
}

const RESTORED: [(&str, Option<&str>); 4] =
    [("a", Some("a by 1\n")), ("b", Some("b before\n")), ("sub", None), ("sub/c", Some("sub/c before\n"))];

#[tokio::test]
async fn x15_restore_undoes_all_writes_of_a_run() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    let plan = scene.plan(2);
    assert_eq!(plan.conflicts, []);
    for part in
        ["--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a by 2\n+a by 1\n", "--- a/new/dir/d\n+++ /dev/null\n", "-sub/c by 2\n"]
    {
        assert!(plan.patch().contains(part), "{:?}", plan.patches);
    }
    let (_, restored) = scene.restore(|| ()).await;
    assert_eq!(restored.unwrap().files, ["a", "b", "new/dir/d", "sub/c"]);
    assert_eq!(as_strs(&scene.tree()), RESTORED);
    assert!(scene.plan(2).is_empty(), "a second restore would change files");
    // The earlier run can be restored next, because restored contents count as written by the session.
    let first = scene.plan(1);
    assert_eq!((first.changes.len(), first.conflicts.len()), (1, 0));
    scene.write(3, "a", "a by 3\n").await;
    assert_eq!(scene.conflicts(1), ["a was changed later by run 3 of session 9a8057"]);
}

#[tokio::test]
async fn x15_write_waits_for_its_checkpoint() {
    for step in ["content", "checkpoint"] {
        let mut scene = CheckpointFixture::new();
        scene.crash_before(step, 0);
        let before = scene.tree();
        let failed = scene.call(1, "write", json!({"path": "a", "content": "x"})).await.unwrap_err();
        assert!(failed.message.contains("files are not written without a checkpoint"), "{failed}");
        assert_eq!(scene.tree(), before, "{step}");
        scene.restart();
        scene.write(1, "a", "y").await;
        assert_eq!((scene.plan(1).changes.len(), scene.conflicts(1).len()), (1, 0), "{step}");
    }
}

#[tokio::test]
async fn x15_restore_killed_at_any_step_is_all_or_nothing() {
    let mut crashes = 0;
    for (step, most) in [("present", 4), ("intent", 1), ("file", 4), ("restored", 1), ("recorded", 1)] {
        for passes in 0..most {
            let mut scene = CheckpointFixture::after_two_runs().await;
            let before = scene.tree();
            scene.crash_before(step, passes);
            let (intended, ended) = scene.restore(|| ()).await;
            assert!(matches!(ended, Err(CheckpointError::Died)), "{step} {passes}: {ended:?}");
            crashes += 1;
            scene.restart();
            // The record of the rollback follows the intent.
            let done = scene.checkpoints.recover(|_, _| Ok(intended)).unwrap();
            let wanted = if intended { RESTORED.to_vec() } else { as_strs(&before) };
            assert_eq!(as_strs(&scene.tree()), wanted, "{step} {passes}: {done:?}");
            assert!(
                scene.checkpoints.recover(|_, _| Ok(true)).unwrap().is_empty(),
                "a second recovery must find nothing"
            );
            assert_eq!((scene.plan(2).is_empty(), scene.plan(2).conflicts.len()), (intended, 0), "{step} {passes}");
        }
    }
    assert_eq!(crashes, 11);
}

/// If the record of an intent is missing, the conversation was not rolled back, so the files are not restored.
#[tokio::test]
async fn x15_restore_without_its_record_does_not_change_files() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    let before = scene.tree();
    scene.crash_before("file", 0);
    assert!(scene.restore(|| ()).await.0);
    scene.restart();
    assert_eq!(scene.checkpoints.recover(|_, _| Ok(false)).unwrap(), []);
    assert_eq!(scene.tree(), before);
    assert_eq!(scene.checkpoints.recover(|_, _| Ok(true)).unwrap(), []);
}

#[tokio::test]
async fn x15_restore_is_undone_if_a_file_was_changed() {
    for (step, passes) in [("none", 0), ("undoing", 0), ("file", 4), ("file", 5), ("file", 7), ("undone", 0)] {
        let mut scene = CheckpointFixture::after_two_runs().await;
        scene.crash_before(step, passes);
        let at = scene.at("sub/c");
        let (_, ended) = scene.restore(|| fs::write(&at, "by a user\n").unwrap()).await;
        let mut wanted = scene.tree();
        if step == "none" {
            assert_eq!(
                ended.unwrap_err().to_string(),
                "no file is restored: another program changed `sub/c` meanwhile"
            );
        } else {
            assert!(matches!(ended, Err(CheckpointError::Died)), "{step} {passes}: {ended:?}");
            scene.restart();
            let again = scene.checkpoints.recover(|_, _| Ok(true));
            assert!(matches!(again, Err(CheckpointError::Undone(_))), "{step}: {again:?}");
            wanted = scene.tree();
        }
        let text = |name: &str| wanted.iter().find(|(of, _)| of == name).and_then(|(_, text)| text.as_deref());
        assert_eq!(text("a"), Some("a by 2\n"), "{step} {passes}");
        assert_eq!(text("b"), Some("b by 2 again\n"), "{step} {passes}");
        assert_eq!(text("new/dir/d"), Some("d\n"), "{step} {passes}");
        assert_eq!(text("sub/c"), Some("by a user\n"), "{step} {passes}");
        assert!(scene.checkpoints.recover(|_, _| Ok(true)).unwrap().is_empty());
    }
}

#[tokio::test]
async fn x15_restore_refuses_files_that_others_changed() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    fs::write(scene.at("a"), "by a user\n").unwrap();
    assert_eq!(scene.conflicts(2), ["a was changed later by another program"]);
    let before = scene.tree();
    let (_, refused) = scene.restore(|| ()).await;
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "nothing is restored: `a` was changed later by another program");
    assert_eq!(scene.tree(), before);
    // A user's write between two writes of the session is a conflict too.
    scene.write(2, "a", "a by 2 again\n").await;
    assert_eq!(scene.conflicts(2), ["a was changed by another program between two writes of the session"]);
    fs::remove_file(scene.at("b")).unwrap();
    assert!(scene.conflicts(2).contains(&"b was changed later by another program".to_owned()));
    // A plan that differs from the confirmed one is refused.
    let start = scene.checkpoints.begin_plan().unwrap();
    let stale = scene.checkpoints.intend(
        (session(), RunNo(1)),
        (scene.plan(1), Hash::of(b"another")),
        AwaitedRecord::RolledBack(RunNo(1)),
        start,
    );
    assert!(matches!(stale, Err(CheckpointError::Stale)), "{stale:?}");
}

/// A later run writes the same content as the undone run. The file then belongs to the later run.
#[tokio::test]
async fn x15_restore_keeps_equal_content_of_a_later_run() {
    let mut scene = CheckpointFixture::new();
    scene.write(2, "a", "again\n").await;
    scene.restore(|| {}).await.1.unwrap();
    scene.write(3, "a", "again\n").await;
    assert_eq!(scene.plan(2), RestorePlan::default());
    // The same without a restore in between.
    let mut scene = CheckpointFixture::new();
    scene.write(2, "a", "again\n").await;
    scene.write(3, "a", "other\n").await;
    scene.write(3, "a", "again\n").await;
    let why = format!("a was changed later by run 3 of session {}", session().short().0);
    assert_eq!((scene.conflicts(2), scene.plan(2).changes), (vec![why], vec![]));
}

/// For example, a disk that is not mounted yet at the start.
#[tokio::test]
async fn x15_restore_waits_for_an_unreachable_directory() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    scene.crash_before("file", 2);
    assert!(matches!(scene.restore(|| {}).await, (true, Err(CheckpointError::Died))));
    let (here, away) = (scene.at(""), scene.dir().join("away"));
    fs::rename(&here, &away).unwrap();
    scene.restart();
    assert!(scene.checkpoints.recover(|_, _| Ok(true)).is_err());
    fs::rename(&away, &here).unwrap();
    // The restore also waits if the journal cannot be read.
    assert!(scene.checkpoints.recover(|_, _| Err(std::io::Error::other("unread"))).is_err());
    scene.restart();
    assert_eq!(scene.checkpoints.recover(|_, _| Ok(true)).unwrap().len(), 1);
    assert_eq!(as_strs(&scene.tree()), RESTORED);
}

/// On a full disk, the partial file of a failed save would keep it full.
#[tokio::test]
async fn x15_failed_save_removes_its_partial_file() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    let content = Hash::of(b"b by 2 again\n").to_string();
    // A directory in place of the content makes the save fail.
    fs::create_dir_all(scene.session_dir().join(&content).join("full")).unwrap();
    scene.call(3, "write", json!({"path": "b", "content": "more\n"})).await.unwrap_err();
    assert!(!scene.session_dir().join(format!("{content}.new")).exists());
    // A kill during a save leaves a partial file, which the next start removes.
    fs::remove_dir_all(scene.session_dir().join(&content)).unwrap();
    fs::write(scene.session_dir().join(format!("{content}.new")), "b by").unwrap();
    scene.restart();
    scene.write(3, "a", "a by 3\n").await;
    assert!(!scene.session_dir().join(format!("{content}.new")).exists());
}

#[tokio::test]
async fn x15_failed_write_does_not_keep_a_checkpoint() {
    let mut scene = CheckpointFixture::new();
    let text = "before".repeat(3);
    for args in [json!({"path": "a", "old": text, "new": "x"}), json!({"path": "gone", "old": "a", "new": "x"})] {
        assert!(scene.call(1, "edit", args).await.is_err());
    }
    // A write of the same content does not change the file.
    scene.write(1, "a", "a before\n").await;
    assert_eq!(scene.checkpoints.of_session(session()).unwrap(), []);
}

#[tokio::test]
async fn x15_checkpoint_shows_whether_its_file_was_written() {
    let mut scene = CheckpointFixture::new();
    scene.write(1, "a", "a by 1\n").await;
    let [saved] = &*scene.checkpoints.of_session(session()).unwrap() else { panic!() };
    let fate = || {
        let [file] = &*scene.checkpoints.examine(saved, &mut Patches::default()) else { panic!() };
        (file.fate, file.patch.clone())
    };
    assert_eq!(fate(), (FileFate::Written, "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a before\n+a by 1\n".to_owned()));
    fs::write(scene.at("a"), "a before\n").unwrap();
    assert_eq!(fate(), (FileFate::Unwritten, String::new()));
    assert!(scene.plan(1).is_empty());
    fs::write(scene.at("a"), "x").unwrap();
    assert_eq!(fate(), (FileFate::ChangedSince, String::new()));
}

#[tokio::test]
async fn x15_checkpoints_are_bounded_and_erased() {
    let mut scene = CheckpointFixture::new();
    fs::write(scene.at("a"), vec![b'x'; 17 << 20]).unwrap();
    scene.write(1, "a", "small\n").await;
    assert_eq!(scene.conflicts(1), ["a is not restored: its content was larger than 16 MiB, so it was not saved"]);
    scene.checkpoints.bound = 20;
    scene.write(2, "b", "b by 2\n").await;
    scene.write(2, "sub/c", "c by 2\n").await;
    assert!(scene.checkpoints.bytes().unwrap() > 0);
    let why = scene.conflicts(2);
    assert_eq!(why, ["b is not restored: its saved content was erased to limit the size of checkpoints"]);
    // A damaged content cannot be restored either.
    for (name, _) in files::entries(&scene.session_dir()).unwrap() {
        if files::number_of(&name).is_none() {
            fs::write(scene.session_dir().join(name), "other").unwrap();
        }
    }
    assert_eq!(scene.conflicts(2).len(), 2);
    // One old file does not expire the session's checkpoints: the latest write counts. Deleting the session erases them.
    let old = fs::File::options().write(true).open(scene.session_dir().join("0".repeat(19) + "1.json")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    scene.restart();
    scene.write(3, "b", "b by 3\n").await;
    assert_eq!(scene.checkpoints.of_session(session()).unwrap().len(), 4, "checkpoints with a recent write expired");
    scene.checkpoints.erase(session()).unwrap();
    assert_eq!((scene.checkpoints.bytes().unwrap(), scene.checkpoints.sessions().unwrap()), (0, vec![]));
}

#[cfg(unix)]
#[tokio::test]
async fn checkpoints_are_private_to_the_user() {
    use std::os::unix::fs::PermissionsExt as _;

    let scene = CheckpointFixture::after_two_runs().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&scene.dir().join("checkpoints")), mode(&scene.session_dir())), (0o700, 0o700));
    for (name, _) in files::entries(&scene.session_dir()).unwrap() {
        assert_eq!(mode(&scene.session_dir().join(&name)), 0o600, "{name}");
    }
    // The control: the check notices a file with another mode.
    fs::write(scene.at("plain"), "x").unwrap();
    fs::set_permissions(scene.at("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_ne!(mode(&scene.at("plain")), 0o600);
}

#[cfg(unix)]
#[tokio::test]
async fn restore_does_not_follow_swapped_links() {
    use std::os::unix::fs::symlink;

    for late in [false, true] {
        for name in ["b", "sub"] {
            let scene = CheckpointFixture::after_two_runs().await;
            let outside = scene.dir().join("outside");
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("c"), "sub/c by 2\n").unwrap();
            fs::write(outside.join("b"), "b by 2 again\n").unwrap();
            let (from, to) = (scene.at(name), if name == "b" { outside.join("b") } else { outside.clone() });
            let swap = || {
                fs::rename(&from, scene.at("moved")).unwrap();
                symlink(&to, &from).unwrap();
            };
            let ended = if late {
                scene.restore(swap).await.1
            } else {
                swap();
                scene.restore(|| ()).await.1
            };
            assert!(ended.is_err(), "{name} {late}");
            assert_eq!(fs::read_to_string(outside.join("c")).unwrap(), "sub/c by 2\n");
            assert_eq!(fs::read_to_string(outside.join("b")).unwrap(), "b by 2 again\n");
            assert_eq!(scene.read("a").as_deref(), Some("a by 2\n"), "another file was restored");
            assert!(from.symlink_metadata().unwrap().is_symlink());
            // The control: a write that follows links leaves the workspace by the same path.
            let path = if name == "b" { "b" } else { "sub/c" };
            fs::write(scene.at(path), "through").unwrap();
            assert_eq!(fs::read_to_string(outside.join(path.trim_start_matches("sub/"))).unwrap(), "through");
        }
    }
}

#[tokio::test]
async fn colliding_content_is_refused() {
    let scene = CheckpointFixture::after_two_runs().await;
    let dir = scene.session_dir();
    let all = scene.checkpoints.of_session(session()).unwrap();
    let FileState::File { hash, .. } = &all[0].changes[0].before else { panic!() };
    let refused = scene.checkpoints.save_content(&dir, *hash, b"another content").unwrap_err();
    assert_eq!(refused.to_string(), "the checkpoint cannot be saved: two contents have one hash");
    assert_eq!(scene.checkpoints.read_content(session(), *hash).unwrap(), b"a before\n");
    // The control: without the comparison, the file name alone does not show the difference.
    fs::write(dir.join(hash.to_string()), "another content").unwrap();
    assert_eq!(fs::read(dir.join(hash.to_string())).unwrap(), b"another content");
    assert_eq!(scene.checkpoints.read_content(session(), *hash), None);
}

#[tokio::test]
async fn restore_refuses_files_that_configure_agents() {
    let mut scene = CheckpointFixture::new();
    scene.write(1, ".subtend/agents/x.md", "x").await;
    assert_eq!(scene.conflicts(1), [".subtend/agents/x.md configures agents: restore it by hand"]);
}

/// A file system that ignores case opens such a file as one that configures agents. The control: another name.
#[tokio::test]
async fn restore_refuses_spellings_of_agent_configuration() {
    let scene = CheckpointFixture::new();
    for (path, expected) in [
        (".Claude/x.md", vec![".Claude/x.md configures agents: restore it by hand"]),
        (".cl\u{ad}aude/x.md", vec![".cl\u{ad}aude/x.md configures agents: restore it by hand"]),
        ("claude/x.md", vec![]),
    ] {
        let call = scene.invocation(1, Value::Null);
        let write = PlannedWrite { path, missing_dir: None, content: b"x", based_on: None };
        drop(scene.checkpoints.save(call.key, &call.workspace, &write).unwrap());
        fs::create_dir_all(scene.at(path).parent().unwrap()).unwrap();
        fs::write(scene.at(path), "x").unwrap();
        assert_eq!(scene.conflicts(1), expected);
        fs::remove_file(scene.at(path)).unwrap();
    }
}
