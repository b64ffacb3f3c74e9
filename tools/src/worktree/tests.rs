//! Tests with real repositories: kills at every step, and repositories that try to execute programs.

#![cfg(unix)]

#[cfg(target_os = "linux")]
mod blocked;
mod bounds;
mod planted;
mod room;
mod snapshots;
#[cfg(target_os = "linux")]
mod swapped;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::*;

const SESSION: &str = "01920000-0000-7000-8000-0000000000aa";
const BRANCH: &str = "subtend/01920000-0000-7000-8000-0000000000aa";
const OTHER: &str = "01920000-0000-7000-8000-0000000000bb";

struct Repository {
    dir: TempDir,
    worktrees: Worktrees,
}

fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}

impl Repository {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let worktrees = Worktrees::new(dir.path().join("worktrees"), None);
        let scene = Self { dir, worktrees };
        fs::create_dir(scene.repo()).unwrap();
        scene.git(&["init", "-q", "-b", "main"]);
        scene.file("a.txt", "one\ntwo\nthree\nfour\nfive\n");
        scene.file("sub/b.txt", "b\n");
        scene.file(".gitignore", "ignored\n");
        scene.commit();
        scene
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.current_dir(self.repo()).args(["-c", "user.name=p", "-c", "user.email=p@localhost"]).args(args);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "x"]);
    }

    fn file(&self, path: &str, text: &str) {
        put(&self.repo().join(path), text);
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.repo().join(path)).unwrap()
    }

    fn crash_before(&self, step: &'static str) -> Worktrees {
        self.dies_after(0, step)
    }

    /// Returns worktrees whose process dies at a step after passing it this many times.
    fn dies_after(&self, times: usize, step: &'static str) -> Worktrees {
        Worktrees { crash_before: Some((step, Arc::new(times.into()))), ..self.worktrees.clone() }
    }

    fn open(&self) -> PathBuf {
        open_path(&self.worktrees, &self.repo()).unwrap()
    }

    fn merge(&self) -> Result<Merged, WorktreeError> {
        merge_all(&self.worktrees)
    }

    fn leftover_files(&self) -> Vec<String> {
        let mut traces: Vec<String> =
            self.git(&["for-each-ref", "--format=%(refname)"]).lines().map(str::to_owned).collect();
        traces.retain(|name| name != "refs/heads/main");
        let worktrees = self.git(&["worktree", "list", "--porcelain"]);
        traces.extend(worktrees.lines().filter(|line| line.starts_with("worktree ")).skip(1).map(str::to_owned));
        let files = fs::read_dir(self.dir.path().join("worktrees")).unwrap().map(|file| file.unwrap().file_name());
        traces.extend(
            files
                .map(|name| name.into_string().unwrap())
                .filter(|name| !name.starts_with("plain-") && name != "room.lock"),
        );
        traces
    }
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn open_path(worktrees: &Worktrees, from: &Path) -> Result<PathBuf, WorktreeError> {
    Ok(worktrees.open(id(SESSION), WorktreeOrigin::Workspace(from))?.path().to_owned())
}

fn merge_all(worktrees: &Worktrees) -> Result<Merged, WorktreeError> {
    let tip = worktrees.changes(id(SESSION))?.tip;
    worktrees.merge(id(SESSION), &tip)
}

fn change_files(scene: &Repository) {
    let at = scene.open();
    put(&at.join("a.txt"), "ONE\ntwo\nthree\nfour\nfive\n");
    put(&at.join("new/dir/c.txt"), "c\n");
    fs::remove_file(at.join("sub/b.txt")).unwrap();
    put(&at.join("run.sh"), "#!/bin/sh\n");
    fs::set_permissions(at.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a.txt", at.join("link")).unwrap();
    put(&at.join("ignored"), "not mine");
}

fn assert_merged(scene: &Repository) {
    assert_eq!(scene.read("a.txt"), "ONE\ntwo\nthree\nfour\nfive\n");
    assert_eq!(scene.read("new/dir/c.txt"), "c\n");
    assert!(!scene.repo().join("sub").exists(), "the directory is empty");
    assert_eq!(fs::read_link(scene.repo().join("link")).unwrap(), Path::new("a.txt"));
    assert_eq!(fs::metadata(scene.repo().join("run.sh")).unwrap().permissions().mode() & 0o111, 0o111);
    assert!(!scene.repo().join("ignored").exists());
    let files = scene.git(&["status", "--porcelain", "-uall"]);
    let files: Vec<&str> = files.lines().map(|line| line.trim_start().split_once(' ').unwrap().1.trim()).collect();
    assert_eq!(files, ["a.txt", "sub/b.txt", "link", "new/dir/c.txt", "run.sh"]);
    assert_eq!(scene.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "main");
}

#[test]
fn x14_changes_stay_on_a_branch_until_merged() {
    let scene = Repository::new();
    change_files(&scene);
    let changes = scene.worktrees.changes(id(SESSION)).unwrap();
    assert_eq!(
        changes.summary(),
        "5 files changed, +4 -2 lines: a.txt +1 -1, link +1 -0, new/dir/c.txt +1 -0, run.sh +1 -0, sub/b.txt +0 -1; ignored by \
         git and left out: ignored"
    );
    assert_eq!(changes.branch, BRANCH);
    assert_eq!(scene.git(&["status", "--porcelain"]), "", "nothing of it is in the workspace");
    assert_eq!(scene.git(&["rev-parse", &changes.branch]), changes.tip);
    let patch = String::from_utf8(scene.worktrees.diff(id(SESSION)).unwrap().1).unwrap();
    assert!(patch.contains("-one\n+ONE\n") && patch.contains("new file mode 120000"), "{patch}");
    assert_eq!(scene.merge().unwrap().files.len(), 5);
    assert_merged(&scene);
    // Merged changes no longer count as changes; later ones do.
    assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().files, []);
    put(&scene.open().join("later"), "x\n");
    assert_eq!(scene.merge().unwrap().files, ["later"]);
}

#[test]
fn x14_worktree_is_known_to_git_and_opens_the_same_directory() {
    let scene = Repository::new();
    let at = open_path(&scene.worktrees, &scene.repo().join("sub")).unwrap();
    assert_eq!(fs::read_to_string(at.join("b.txt")).unwrap(), "b\n");
    assert!(at.ends_with("sub"));
    assert!(scene.git(&["worktree", "list"]).contains(&format!("[{BRANCH}]")));
    let status = Command::new("git").current_dir(&at).args(["status", "--porcelain"]).output().unwrap();
    assert!(status.status.success() && status.stdout.is_empty(), "{status:?}");
    put(&at.join("n"), "n\n");
    assert_eq!(scene.merge().unwrap().files, ["n"]);
    assert_eq!(scene.read("sub/n"), "n\n");
}

#[test]
fn x14_child_worktree_starts_with_its_parents_changes() {
    let scene = Repository::new();
    put(&scene.open().join("p"), "p\n");
    let below = scene.worktrees.open(id(OTHER), WorktreeOrigin::Worktree(id(SESSION))).unwrap();
    assert_eq!(fs::read_to_string(below.path().join("p")).unwrap(), "p\n");
    put(&below.path().join("q"), "q\n");
    let tip = scene.worktrees.changes(id(OTHER)).unwrap().tip;
    assert_eq!(scene.worktrees.merge(id(OTHER), &tip).unwrap().files, ["q"]);
    assert!(!scene.repo().join("q").exists(), "its parent's worktree is what it changes");
    assert_eq!(scene.merge().unwrap().files, ["p", "q"]);
}

#[test]
fn x14_killed_creation_is_repeated_from_its_record() {
    let steps = ["record", "base", "branch", "directory", "files", "checkout", "ready"];
    for step in steps {
        let scene = Repository::new();
        let first = scene.git(&["rev-parse", "HEAD"]);
        assert!(matches!(open_path(&scene.crash_before(step), &scene.repo()), Err(WorktreeError::GitDied)), "{step}");
        let missing = step == "record";
        let why = if missing { WorktreeError::Missing } else { WorktreeError::Unfinished }(id(SESSION)).to_string();
        assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap_err().to_string(), why, "{step}: nothing is shown");
        scene.file("a.txt", "committed later\n");
        scene.commit();
        let at = scene.open();
        // A crash before the record leaves nothing to complete.
        let base = if step == "record" { scene.git(&["rev-parse", "HEAD"]) } else { first };
        assert_eq!(scene.git(&["rev-parse", BRANCH]), base, "{step}");
        assert_eq!(
            scene.git(&["show", &format!("{base}:a.txt")]),
            fs::read_to_string(at.join("a.txt")).unwrap().trim()
        );
        assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().files, [], "{step}");
    }
}

#[test]
fn x14_killed_merge_is_finished_by_the_next_call() {
    for step in ["add", "commit", "advance", "plan"] {
        let scene = Repository::new();
        change_files(&scene);
        assert!(matches!(merge_all(&scene.crash_before(step)), Err(WorktreeError::GitDied)), "{step}");
        assert_eq!(scene.git(&["status", "--porcelain"]), "", "{step}: nothing is merged");
        assert_eq!(scene.worktrees.recover(id(SESSION)).unwrap(), None);
        assert_eq!(scene.merge().unwrap().files.len(), 5, "{step}");
        assert_merged(&scene);
    }
    for (times, step) in [(0, "file"), (1, "file"), (2, "file"), (3, "file"), (4, "file"), (0, "merged"), (0, "unplan")]
    {
        let scene = Repository::new();
        change_files(&scene);
        assert!(matches!(merge_all(&scene.dies_after(times, step)), Err(WorktreeError::GitDied)), "{step}");
        let half = scene.git(&["status", "--porcelain", "-uall"]).lines().count();
        assert_eq!(half, if step == "file" { times } else { 5 }, "the control: the merge stopped at this file");
        let recovered = scene.worktrees.recover(id(SESSION)).unwrap().unwrap();
        assert_eq!((recovered.files.len(), recovered.left.len()), (5, 0), "{step}");
        assert_merged(&scene);
        assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().files, [], "{step}");
    }
}

#[test]
fn x14_recovered_merge_keeps_files_changed_after_the_kill() {
    let scene = Repository::new();
    change_files(&scene);
    assert!(merge_all(&scene.crash_before("file")).is_err());
    scene.file("a.txt", "mine\n");
    // Any call finishes the merge.
    let recovered = scene.worktrees.recover(id(SESSION)).unwrap().unwrap();
    assert_eq!(recovered.left, ["a.txt"]);
    // The change of the skipped file is no longer merged, so the summary lists the file.
    let changes = scene.worktrees.changes(id(SESSION)).unwrap();
    assert_eq!((changes.files, changes.left), (Vec::new(), vec!["a.txt".to_owned()]));
    assert_eq!((scene.read("a.txt"), scene.read("new/dir/c.txt")), ("mine\n".into(), "c\n".into()));
    // Once the workspace has the change, a later change can be merged, and the summary no longer lists the file.
    scene.file("a.txt", "ONE\ntwo\nthree\nfour\nfive\n");
    put(&scene.open().join("a.txt"), "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(scene.merge().unwrap().files, ["a.txt"]);
    assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().left, [""; 0]);
}

#[test]
fn x14_killed_removal_is_finished_by_the_next_call() {
    for step in ["unmerge", "remove directory", "remove administration", "remove base", "forget"] {
        for keeps in [false, true] {
            let scene = Repository::new();
            change_files(&scene);
            let remove = |worktrees: &Worktrees| match keeps {
                true => worktrees.keep(id(SESSION), None).map(drop),
                false => worktrees.discard(id(SESSION), None),
            };
            assert!(matches!(remove(&scene.crash_before(step)), Err(WorktreeError::GitDied)), "{step}");
            // Any other call finishes the merge too.
            assert!(scene.worktrees.changes(id(SESSION)).is_err(), "{step}");
            let kept = if keeps { vec![format!("refs/heads/{BRANCH}")] } else { Vec::new() };
            assert_eq!(scene.leftover_files(), kept, "{step}");
            if keeps {
                assert_eq!(scene.git(&["show", &format!("{BRANCH}:a.txt")]), "ONE\ntwo\nthree\nfour\nfive");
            }
        }
    }
    // The control: before the record of the removal nothing is removed.
    let scene = Repository::new();
    change_files(&scene);
    assert!(scene.crash_before("removing").discard(id(SESSION), None).is_err());
    assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().files.len(), 5);
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
}

/// After a kill between the removal of the entry and of the lock, the next start removes the lock. It does not remove a lock that is held.
#[test]
fn x14_lock_of_a_removed_worktree_is_removed() {
    let scene = Repository::new();
    scene.open();
    assert!(scene.crash_before("unlock").discard(id(SESSION), None).is_err());
    let lock = vec![format!("{SESSION}.lock")];
    let held = scene.worktrees.lock(id(SESSION)).unwrap();
    scene.worktrees.remove_unused_locks().unwrap();
    assert_eq!(scene.leftover_files(), lock);
    drop(held);
    // A process that another test forks holds the lock too until it executes its program.
    (0..1_000).take_while(|_| !scene.leftover_files().is_empty()).for_each(|_| {
        scene.worktrees.remove_unused_locks().unwrap();
    });
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
    // The control: a worktree keeps its lock.
    scene.open();
    scene.worktrees.remove_unused_locks().unwrap();
    assert!(scene.leftover_files().contains(&lock[0]));
    scene.worktrees.discard(id(SESSION), None).unwrap();
    // A query for a missing worktree leaves no lock.
    assert!(scene.worktrees.changes(id(SESSION)).is_err());
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
}

#[test]
fn x14_files_changed_on_both_sides_are_merged_or_refused() {
    let scene = Repository::new();
    put(&scene.open().join("a.txt"), "ONE\ntwo\nthree\nfour\nfive\n");
    scene.file("a.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(scene.merge().unwrap().files, ["a.txt"]);
    assert_eq!(scene.read("a.txt"), "ONE\ntwo\nthree\nfour\nFIVE\n");

    let scene = Repository::new();
    change_files(&scene);
    scene.file("a.txt", "mine\ntwo\nthree\nfour\nfive\n");
    scene.file("run.sh", "mine\n");
    fs::remove_dir_all(scene.repo().join("sub")).unwrap();
    let refused = scene.merge().unwrap_err().to_string();
    assert_eq!(
        refused,
        "nothing was merged: `a.txt` was also changed in the workspace, in the same lines; `run.sh` was also changed in \
         the workspace"
    );
    assert_eq!(
        (scene.read("a.txt"), scene.repo().join("new").exists()),
        ("mine\ntwo\nthree\nfour\nfive\n".into(), false)
    );
}

#[test]
fn x14_merge_refuses_changes_made_after_they_were_shown() {
    let scene = Repository::new();
    change_files(&scene);
    let tip = scene.worktrees.changes(id(SESSION)).unwrap().tip;
    put(&scene.open().join("a.txt"), "another\n");
    assert!(matches!(scene.worktrees.merge(id(SESSION), &tip), Err(WorktreeError::Changed)));
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    assert_eq!(scene.merge().unwrap().files.len(), 5, "the control: the shown changes are merged");
}

#[test]
fn x14_merge_error_names_each_conflicting_file() {
    use std::os::unix::ffi::OsStrExt as _;

    let scene = Repository::new();
    let latin = scene.open().join(std::ffi::OsStr::from_bytes(b"caf\xe9.txt"));
    fs::write(&latin, "black\n").unwrap();
    let (changes, patch) = scene.worktrees.diff(id(SESSION)).unwrap();
    let paths: Vec<&str> = changes.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["caf\u{fffd}.txt"]);
    assert!(String::from_utf8(patch).unwrap().contains("+black"));
    let why = scene.merge().unwrap_err().to_string();
    assert_eq!(why, "nothing was merged: `caf\u{fffd}.txt` has a name that is not UTF-8: rename it in the worktree");
    fs::rename(latin, scene.open().join("cafe.txt")).unwrap();
    assert_eq!(scene.merge().unwrap().files, ["cafe.txt"], "the control");

    let large = scene.open().join("large.bin");
    fs::File::create(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    let why = scene.worktrees.diff(id(SESSION)).unwrap_err().to_string();
    assert!(why.starts_with("`large.bin` has more than 64 MiB, too large for diff and merge: remove it from"), "{why}");
    assert!(!scene.worktrees.file(id(SESSION), "objects").exists(), "an error leaves no copies");
    fs::remove_file(large).unwrap();
    assert_eq!(scene.worktrees.diff(id(SESSION)).unwrap().0.files, [], "the control");
}

#[test]
fn x14_repository_without_a_commit_is_refused() {
    let scene = Repository::new();
    let empty = scene.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(Command::new("git").current_dir(&empty).args(["init", "-q"]).status().unwrap().success());
    scene.worktrees.check(&scene.repo().join("sub")).unwrap();
    let why = open_path(&scene.worktrees, &empty).unwrap_err().to_string();
    assert_eq!(
        why,
        format!(
            "cannot create a worktree: the repository of {} has no commit. Commit its files first",
            empty.display()
        )
    );
    // A repository that git cannot read may have commits.
    fs::remove_file(empty.join(".git/HEAD")).unwrap();
    let why = open_path(&scene.worktrees, &empty).unwrap_err().to_string();
    assert!(why.starts_with("git rev-parse failed: fatal: not a git repository"), "{why}");
}

/// Hooks, filters, `core.fsmonitor` and other settings of a repository can name programs. No operation runs them.
#[test]
fn x14_programs_named_by_a_repository_are_not_executed() {
    let scene = Repository::new();
    let evil = scene.dir.path().join("evil");
    put(&evil, &format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", scene.dir.path().join("ran").display()));
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = || fs::read_to_string(scene.dir.path().join("ran")).unwrap_or_default();
    scene.file(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    scene.commit();
    let evil = evil.to_str().unwrap();
    for key in ["filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.evil.command", "diff.external"] {
        scene.git(&["config", key, evil]);
    }
    for key in ["core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "gpg.program", "core.askPass"] {
        scene.git(&["config", key, evil]);
    }
    scene.git(&["config", "merge.evil.driver", evil]);
    scene.git(&["config", "commit.gpgSign", "true"]);
    for hook in
        ["post-checkout", "reference-transaction", "post-index-change", "pre-commit", "post-commit", "post-merge"]
    {
        let path = scene.repo().join(".git/hooks").join(hook);
        fs::copy(evil, path).unwrap();
    }
    let at = scene.open();
    put(&at.join("a.txt"), "ONE\ntwo\nthree\nfour\nfive\n");
    scene.file("a.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    // The session creates a repository in its worktree, and changes `.git` so that the worktree seems to belong to it.
    let nested = at.join("nested");
    fs::create_dir(&nested).unwrap();
    let git = |dir: &Path, args: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(dir).args(["-c", "user.name=p", "-c", "user.email=p@localhost"]).args(args);
        assert!(command.status().unwrap().success(), "{args:?}");
    };
    git(&nested, &["init", "-q"]);
    put(&nested.join("x"), "x");
    git(&nested, &["add", "-A"]);
    git(&nested, &["commit", "-q", "-m", "x"]);
    git(&nested, &["config", "core.fsmonitor", evil]);
    put(&at.join(".git"), &format!("gitdir: {}\n", nested.join(".git").display()));
    assert_eq!(ran(), "");
    let refused = scene.worktrees.diff(id(SESSION)).unwrap_err();
    assert!(matches!(&refused, WorktreeError::LeftOut { path, .. } if path == "nested/"), "{refused}");
    let elsewhere = scene.dir.path().join("elsewhere");
    fs::rename(nested.join(".git"), &elsewhere).unwrap();
    put(&at.join(".git"), &format!("gitdir: {}\n", elsewhere.display()));
    scene.worktrees.diff(id(SESSION)).unwrap();
    assert_eq!(scene.merge().unwrap().files, ["a.txt", "nested/x"]);
    scene.worktrees.keep(id(SESSION), None).unwrap();
    scene.open();
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert_eq!(ran(), "");
    // The control: plain git runs them.
    drop(Command::new("git").current_dir(scene.repo()).args(["status"]).output().unwrap());
    assert!(ran().contains("evil"), "{}", ran());
}

/// A command may create files that configure agents, and make git list them. They are never merged.
#[test]
fn x14_files_that_configure_agents_are_not_merged() {
    let scene = Repository::new();
    scene.file(".gitignore", ".subtend\n");
    scene.commit();
    let at = scene.open();
    put(&at.join(".gitignore"), "");
    put(&at.join(".subtend/agents/general.md"), "---\nmode: all\n---\nObey.\n");
    put(&at.join(".subtend-plain"), "x\n");
    let refused = scene.merge().unwrap_err().to_string();
    assert!(refused.contains("`.subtend/agents/general.md` configures agents"), "{refused}");
    assert_eq!(scene.git(&["status", "--porcelain"]), "");
    fs::remove_dir_all(at.join(".subtend")).unwrap();
    assert_eq!(scene.merge().unwrap().files, [".gitignore", ".subtend-plain"], "the control");
}

/// A killed git leaves lock files, which later git commands do not remove.
#[test]
fn x14_locks_of_a_killed_git_are_removed() {
    let scene = Repository::new();
    change_files(&scene);
    let admin = scene.repo().join(".git/worktrees").join(SESSION);
    put(&admin.join("index.lock"), "");
    put(&scene.repo().join(format!(".git/refs/heads/{BRANCH}.lock")), "");
    put(&scene.repo().join(".git/refs/subtend/base").join(format!("{SESSION}.lock")), "");
    assert_eq!(scene.merge().unwrap().files.len(), 5);
    // The control: plain git fails because of a lock file.
    put(&admin.join("index.lock"), "");
    let mut add = Command::new("git");
    add.current_dir(scene.open()).args(["add", "-A"]);
    put(&admin.join("index.lock"), "");
    assert!(!add.output().unwrap().status.success());
}

#[test]
fn x14_merge_does_not_follow_links_of_a_worktree() {
    let scene = Repository::new();
    let outside = scene.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let at = scene.open();
    symlink(&outside, at.join("absolute")).unwrap();
    symlink("../outside", at.join("relative")).unwrap();
    // `s` is the workspace itself, so `s/..` is outside of it.
    symlink(".", at.join("s")).unwrap();
    symlink("s/s/../outside", at.join("chained")).unwrap();
    put(&at.join("fine"), "x\n");
    let refused = scene.merge().unwrap_err().to_string();
    for name in ["absolute", "relative", "chained"] {
        assert!(refused.contains(&format!("`{name}` is a link that leads out")), "{name}: {refused}");
        fs::remove_file(at.join(name)).unwrap();
    }
    assert!(!scene.repo().join("fine").exists());
    fs::remove_file(at.join("s")).unwrap();
    // A link replaces a directory of the workspace meanwhile. Nothing is written through it.
    put(&at.join("sub/new"), "x\n");
    fs::remove_dir_all(scene.repo().join("sub")).unwrap();
    symlink(&outside, scene.repo().join("sub")).unwrap();
    let refused = scene.merge().unwrap_err().to_string();
    assert!(refused.contains("`sub/new` is a directory in the workspace, or is reached through a link"), "{refused}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::remove_file(scene.repo().join("sub")).unwrap();
    assert_eq!(scene.merge().unwrap().files, ["fine", "sub/new"], "the control");
}

#[test]
fn x14_removal_refuses_changes_made_after_they_were_shown() {
    let scene = Repository::new();
    change_files(&scene);
    let shown = scene.worktrees.changes(id(SESSION)).unwrap().tip;
    put(&scene.open().join("later.txt"), "later\n");
    let refused =
        [scene.worktrees.discard(id(SESSION), Some(&shown)), scene.worktrees.keep(id(SESSION), Some(&shown)).map(drop)];
    for refused in refused {
        assert!(matches!(refused, Err(WorktreeError::Changed)), "{refused:?}");
    }
    let now = scene.worktrees.changes(id(SESSION)).unwrap();
    assert_eq!(now.files.len(), 6);
    scene.worktrees.discard(id(SESSION), Some(&now.tip)).unwrap();
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
}
