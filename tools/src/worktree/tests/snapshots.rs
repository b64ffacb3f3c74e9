//! Worktrees of a workspace that is not in a repository.

use super::*;

pub(super) struct Plain {
    pub(super) dir: TempDir,
    pub(super) worktrees: Worktrees,
}

impl Plain {
    pub(super) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let worktrees = Worktrees::new(dir.path().join("worktrees"), None);
        let scene = Self { dir, worktrees };
        scene.file("a.txt", "one\ntwo\nthree\nfour\nfive\n");
        scene.file("sub/b.txt", "b\n");
        scene.file("run.sh", "#!/bin/sh\n");
        fs::set_permissions(scene.workspace().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("a.txt", scene.workspace().join("link")).unwrap();
        scene.file(".gitignore", "ignored\n");
        scene.file("ignored", "not copied\n");
        scene
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.dir.path().join("files")
    }

    fn file(&self, path: &str, text: &str) {
        put(&self.workspace().join(path), text);
    }

    fn crash_before(&self, step: &'static str) -> Worktrees {
        Worktrees { crash_before: Some((step, Arc::new(0.into()))), ..self.worktrees.clone() }
    }

    pub(super) fn open(&self, session: &str) -> Result<PathBuf, WorktreeError> {
        let origin = WorktreeOrigin::Workspace(&self.workspace());
        Ok(self.worktrees.open(id(session), origin)?.path().to_owned())
    }

    fn merge(&self, session: &str) -> Vec<String> {
        let tip = self.worktrees.changes(id(session)).unwrap().tip;
        self.worktrees.merge(id(session), &tip).unwrap().files
    }

    pub(super) fn list_entries(&self) -> Vec<String> {
        let files = fs::read_dir(self.dir.path().join("worktrees")).unwrap().map(|file| file.unwrap().file_name());
        let mut kept: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
        kept.retain(|name| !name.starts_with("plain-") && name != "room.lock");
        kept.sort();
        kept
    }
}

/// Returns all files below a directory with their contents, or the targets of links.
fn files(dir: &Path) -> Vec<(String, String)> {
    let walk = ignore::WalkBuilder::new(dir).standard_filters(false).sort_by_file_name(Ord::cmp).build();
    let entries = walk.map(Result::unwrap).filter(|entry| !entry.path().is_dir());
    let content = |path: &Path| match fs::read_link(path) {
        Ok(to) => format!("-> {}", to.display()),
        Err(_) => fs::read_to_string(path).unwrap(),
    };
    entries
        .map(|entry| (entry.path().strip_prefix(dir).unwrap().display().to_string(), content(entry.path())))
        .collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn x14_workspace_without_a_repository_is_copied() {
    let scene = Plain::new();
    let at = scene.open(SESSION).unwrap();
    let copied = [
        (".gitignore", "ignored\n"),
        ("a.txt", "one\ntwo\nthree\nfour\nfive\n"),
        ("link", "-> a.txt"),
        ("run.sh", "#!/bin/sh\n"),
        ("sub/b.txt", "b\n"),
    ];
    assert_eq!(files(&at), pairs(&copied));
    assert_eq!(fs::metadata(at.join("run.sh")).unwrap().permissions().mode() & 0o111, 0o111);
    put(&at.join("a.txt"), "ONE\ntwo\nthree\nfour\nfive\n");
    put(&at.join("new"), "n\n");
    fs::remove_file(at.join("sub/b.txt")).unwrap();
    // The user keeps editing, even a file that the session changed.
    scene.file("a.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    let (changes, patch) = scene.worktrees.diff(id(SESSION)).unwrap();
    assert_eq!(changes.summary(), "3 files changed, +2 -2 lines: a.txt +1 -1, new +1 -0, sub/b.txt +0 -1");
    assert!(String::from_utf8(patch).unwrap().contains("-one\n+ONE\n"));
    assert_eq!(scene.merge(SESSION), ["sub/b.txt", "a.txt", "new"]);
    let merged = [
        (".gitignore", "ignored\n"),
        ("a.txt", "ONE\ntwo\nthree\nfour\nFIVE\n"),
        ("ignored", "not copied\n"),
        ("link", "-> a.txt"),
        ("new", "n\n"),
        ("run.sh", "#!/bin/sh\n"),
    ];
    assert_eq!(files(&scene.workspace()), pairs(&merged), "no `.git` is created in the workspace");
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert_eq!(scene.list_entries(), [""; 0], "the repository is removed with its last worktree");
}

#[test]
fn x14_each_copy_has_the_files_of_its_time() {
    let scene = Plain::new();
    let first = scene.open(SESSION).unwrap();
    scene.file("later", "l\n");
    scene.file(".gitignore", "ignored\nsub\n");
    fs::remove_file(scene.workspace().join("a.txt")).unwrap();
    let second = scene.open(OTHER).unwrap();
    let copied = [(".gitignore", "ignored\nsub\n"), ("later", "l\n"), ("link", "-> a.txt"), ("run.sh", "#!/bin/sh\n")];
    assert_eq!(files(&second), pairs(&copied));
    assert_eq!(fs::read_to_string(first.join("a.txt")).unwrap(), "one\ntwo\nthree\nfour\nfive\n");
    for session in [SESSION, OTHER] {
        assert_eq!(scene.worktrees.changes(id(session)).unwrap().files, [], "{session}");
    }
    // The first removal keeps the repository for the other worktree.
    scene.worktrees.discard(id(SESSION), None).unwrap();
    put(&second.join("new"), "n\n");
    assert_eq!(scene.merge(OTHER), ["new"]);
    scene.worktrees.discard(id(OTHER), None).unwrap();
    assert_eq!(scene.list_entries(), [""; 0]);
}

#[test]
fn x14_killed_copy_is_completed_or_removed() {
    for step in [
        "snapshot",
        "copy files",
        "commit snapshot",
        "record",
        "base",
        "branch",
        "directory",
        "files",
        "checkout",
        "ready",
    ] {
        let scene = Plain::new();
        let origin = WorktreeOrigin::Workspace(&scene.workspace());
        let died = scene.crash_before(step).open(id(SESSION), origin);
        assert!(matches!(died, Err(WorktreeError::GitDied)), "{step}");
        let at = scene.open(SESSION).unwrap();
        assert_eq!(fs::read_to_string(at.join("a.txt")).unwrap(), "one\ntwo\nthree\nfour\nfive\n", "{step}");
        assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().files, [], "{step}");
        scene.worktrees.discard(id(SESSION), None).unwrap();
        assert_eq!(scene.list_entries(), [""; 0], "{step}");
    }
    for step in ["remove administration", "remove base", "remove snapshots", "forget"] {
        let scene = Plain::new();
        scene.open(SESSION).unwrap();
        let died = scene.crash_before(step).discard(id(SESSION), None);
        assert!(matches!(died, Err(WorktreeError::GitDied)), "{step}");
        scene.worktrees.discard(id(SESSION), None).unwrap();
        assert_eq!(scene.list_entries(), [""; 0], "{step}");
    }
}

/// The branch of a kept copy is in a repository of the host. The session continues on this branch.
#[test]
fn x14_kept_copy_is_a_branch_that_can_be_cloned() {
    let scene = Plain::new();
    put(&scene.open(SESSION).unwrap().join("new"), "n\n");
    let kept = scene.worktrees.keep(id(SESSION), None).unwrap();
    let again = scene.worktrees.kept_branch(id(SESSION), &scene.workspace()).unwrap();
    assert_eq!(again, Some(KeptBranch { already_kept: true, ..kept.clone() }));
    let (to, repository) = (scene.dir.path().join("clone"), kept.repository.clone().unwrap());
    assert_eq!(
        kept.to_use(),
        format!("`git clone --branch {BRANCH} {} DIRECTORY` copies its files", repository.display())
    );
    let clone = ["clone", "-q", "--branch", &kept.name].map(std::ffi::OsString::from);
    let cloned = Command::new("git").args(clone).arg(&repository).arg(&to).status().unwrap();
    assert!(cloned.success());
    assert_eq!(fs::read_to_string(to.join("new")).unwrap(), "n\n");
    assert_eq!(fs::read_to_string(scene.open(SESSION).unwrap().join("new")).unwrap(), "n\n");
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert_eq!(scene.list_entries(), [""; 0]);
}

/// The error contains the files that cannot be copied. The control: without them, the workspace is copied.
#[test]
fn x14_workspace_that_cannot_be_copied_is_refused() {
    let scene = Plain::new();
    let refused = || scene.open(SESSION).unwrap_err().to_string();
    put(&scene.workspace().join("nested/.git/HEAD"), "ref: refs/heads/main\n");
    fs::create_dir_all(scene.workspace().join("nested/.git/refs")).unwrap();
    fs::create_dir_all(scene.workspace().join("nested/.git/objects")).unwrap();
    assert!(refused().contains("since `nested/` is a repository of its own"), "{}", refused());
    fs::remove_dir_all(scene.workspace().join("nested")).unwrap();
    let large = scene.workspace().join("large.bin");
    fs::File::create(&large).unwrap().set_len(2 << 30).unwrap();
    assert!(refused().contains("is too large to be copied: 6 files with 2048 MiB"), "{}", refused());
    fs::remove_file(large).unwrap();
    scene.open(SESSION).unwrap();

    let own = Worktrees::new(scene.workspace().join("data/worktrees"), None);
    let why = own.check(&scene.workspace()).unwrap_err().to_string();
    assert!(why.contains("since it contains") && why.contains("which tools must not read"), "{why}");
    let origin = WorktreeOrigin::Workspace(&scene.workspace());
    assert!(matches!(own.open(id(OTHER), origin), Err(WorktreeError::HoldsOwnFiles { .. })));
    scene.worktrees.check(&scene.workspace()).unwrap();
}

/// A session replaces a list of ignored files with a pipe. The error contains its path.
#[test]
fn x14_pipe_in_a_copied_workspace_is_named() {
    let scene = Plain::new();
    let pipe = scene.workspace().join("sub/.gitignore");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let why = scene.open(SESSION).unwrap_err().to_string();
    assert!(why.contains(&format!("it waits for `{}`", pipe.canonicalize().unwrap().display())), "{why}");
    fs::remove_file(pipe).unwrap();
    scene.open(SESSION).unwrap();
}
