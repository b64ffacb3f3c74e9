//! Special files in place of regular files, and extremely deep directories, which could crash or block the process.

use super::swapped::make_pipe;
use super::*;
use crate::removal::tests::deep;

/// The error contains the path of the directory. The control: a file in this place is removed.
#[test]
fn x14_directory_in_place_of_a_lock_is_named() {
    let scene = Repository::new();
    let at = scene.open();
    put(&at.join("new"), "new\n");
    let branch = scene.worktrees.entry(id(SESSION)).unwrap().unwrap().branch;
    let names = [format!("worktrees/{SESSION}/index.lock"), format!("refs/heads/{branch}.lock")];
    for lock in names.map(|name| scene.repo().join(".git").join(name)) {
        put(&lock, "");
        scene.worktrees.changes(id(SESSION)).unwrap();
        fs::create_dir_all(lock.join("d")).unwrap();
        let error = scene.worktrees.changes(id(SESSION)).unwrap_err().to_string();
        assert!(error.contains(&format!("{} is a directory", lock.display())), "{error}");
        crate::removal::remove(&lock).unwrap();
    }
}

/// A session creates them in the worktree or in git's administrative files.
#[test]
fn x14_deep_directories_are_removed_with_a_worktree() {
    let scene = Repository::new();
    let at = scene.open();
    // More levels than the process has handles.
    deep(&at.join("deep"), 2_000);
    deep(&scene.repo().join(".git/worktrees").join(SESSION).join("index.lock"), 5_000);
    let remover = std::thread::Builder::new().stack_size(256 << 10);
    let worktrees = scene.worktrees.clone();
    remover.spawn(move || worktrees.discard(id(SESSION), None)).unwrap().join().unwrap().unwrap();
    assert_eq!(scene.leftover_files(), [""; 0]);
}

/// A session replaces the directory of worktrees. The control: without the link, the worktree is created.
#[test]
fn x14_new_worktree_is_not_written_through_a_link() {
    let scene = Repository::new();
    let (git, outside) = (scene.repo().join(".git"), scene.dir.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    symlink(&outside, git.join("worktrees")).unwrap();
    open_path(&scene.worktrees, &scene.repo()).unwrap_err();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::remove_file(git.join("worktrees")).unwrap();
    open_path(&scene.worktrees, &scene.repo()).unwrap();
}

/// The error contains the path of the pipe, instead of a timeout. The control: a regular file.
#[test]
fn x14_pipe_in_place_of_a_file_of_git_is_named() {
    let attacks: [&str; 4] = [
        "worktrees/ID/.gitignore",
        "worktrees/ID/sub/.gitattributes",
        "repo/.git/info/exclude",
        "repo/.git/objects/info/alternates",
    ];
    for name in attacks {
        let scene = Repository::new();
        put(&scene.open().join("sub/new"), "new\n");
        let path = scene.dir.path().join(name.replace("ID", SESSION));
        put(&path, "");
        scene.worktrees.changes(id(SESSION)).unwrap();
        put(&scene.worktrees.path(id(SESSION)).join("sub/new"), "newer\n");
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = scene.worktrees.changes(id(SESSION)).unwrap_err().to_string();
        // Git itself refuses a pipe in place of a tracked file. The error has the path in the worktree.
        assert!(error.contains(name.rsplit("ID/").next().unwrap()), "{name}: {error}");
    }
}

/// Git compares this file with its index. The control: a regular file is listed.
#[test]
fn x14_pipe_in_place_of_a_tracked_file_is_named() {
    let scene = Repository::new();
    let path = scene.open().join("a.txt");
    fs::remove_file(&path).unwrap();
    make_pipe(&path);
    let error = scene.worktrees.changes(id(SESSION)).unwrap_err().to_string();
    assert_eq!(error, "the worktree cannot be read: a.txt: it is neither a file nor a link: remove it");
    fs::remove_file(&path).unwrap();
    put(&path, "one\n");
    assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().summary(), "1 file changed, +0 -4 lines: a.txt +0 -4");
}

/// Git is stopped long before its time limit, even if the pipe has no name. The control: a pipe with content.
#[test]
fn x14_git_that_waits_for_a_pipe_is_ended() {
    const NAMED: &str = "git hash-object failed: it waits, probably for `PATH`, which is not a regular file: remove it";
    const UNNAMED: &str =
        "git hash-object failed: it waits for a file that another process replaced with a pipe meanwhile: try again";
    let scene = Repository::new();
    let path = scene.open().join("a.txt");
    let place = scene.worktrees.files_place(&scene.worktrees.find(id(SESSION)).unwrap()).unwrap();
    let hash = || {
        scene.worktrees.git.run_for_line(&place, &["hash-object".as_ref(), "--no-filters".as_ref(), path.as_os_str()])
    };
    let meanwhile = |act: &(dyn Fn(fs::File) + Sync)| {
        fs::remove_file(&path).unwrap_or_default();
        make_pipe(&path);
        std::thread::scope(|scope| {
            let (done, held) = std::sync::mpsc::channel::<()>();
            scope.spawn({
                let path = &path;
                move || {
                    act(fs::File::options().write(true).open(path).unwrap());
                    held.recv().unwrap_err();
                }
            });
            let found = hash().map_err(|error| error.to_string());
            drop(done);
            found
        })
    };
    let of_content = meanwhile(&|mut pipe| std::io::Write::write_all(&mut pipe, b"b\n").unwrap());
    assert_eq!(of_content.as_deref(), Ok(&*scene.git(&["hash-object", "sub/b.txt"])));
    // The writer lives longer than git.
    let kept = std::sync::Mutex::new(Vec::new());
    let keep = |pipe| kept.lock().unwrap().push(pipe);
    let tree = path.canonicalize().unwrap();
    assert_eq!(meanwhile(&keep), Err(NAMED.replace("PATH", &tree.display().to_string())));
    let unnamed = meanwhile(&|pipe| {
        fs::remove_file(&path).unwrap();
        keep(pipe);
    });
    assert_eq!(unnamed, Err(UNNAMED.to_owned()));
}

/// A merge without the change is refused. The control: a submodule that is not checked out has no change.
#[test]
fn x14_moved_submodule_is_a_change() {
    let scene = Repository::new();
    let head = scene.git(&["rev-parse", "HEAD"]);
    scene.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},module")]);
    scene.git(&["commit", "-q", "-m", "x"]);
    let at = scene.open();
    assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap().summary(), "no changes");
    let module = at.join("module");
    let module = module.to_str().unwrap();
    scene.git(&["-C", module, "init", "-q"]);
    scene.git(&["-C", module, "commit", "-q", "--allow-empty", "-m", "moved"]);
    put(&at.join("n"), "n\n");
    let summary = scene.worktrees.changes(id(SESSION)).unwrap().summary();
    assert_eq!(summary, "2 files changed, +2 -1 lines: module +1 -1, n +1 -0");
    let conflicts = scene.merge().unwrap_err().to_string();
    assert_eq!(conflicts, "nothing was merged: `module` is a repository of its own: take its commits by git");
}

/// Files of a repository in the worktree, as `cargo new` creates, would be lost. The control: without them.
#[test]
fn x14_files_that_git_leaves_out_are_named() {
    let scene = Repository::new();
    let head = scene.git(&["rev-parse", "HEAD"]);
    scene.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},module")]);
    scene.git(&["commit", "-q", "-m", "x"]);
    let at = scene.open();
    let tree = scene.worktrees.path(id(SESSION));
    let refused = || {
        let listed = scene.worktrees.changes(id(SESSION)).unwrap_err().to_string();
        assert_eq!(scene.worktrees.keep(id(SESSION), None).unwrap_err().to_string(), listed);
        listed.replace(tree.to_str().unwrap(), "TREE")
    };
    put(&at.join("n"), "n\n");
    scene.git(&["init", "-q", at.join("new").to_str().unwrap()]);
    put(&at.join("new/src/main.rs"), "main\n");
    assert_eq!(
        refused(),
        "the changes are incomplete: `new/` in TREE is a repository of its own, whose files git leaves out. Remove its `.git` to include \
         them, or all of it"
    );
    fs::remove_dir_all(at.join("new/.git")).unwrap();
    put(&at.join("module/lost"), "lost\n");
    assert_eq!(
        refused(),
        "the changes are incomplete: `module` in TREE is a submodule that is not checked out, whose files git leaves out. Move them"
    );
    fs::rename(at.join("module/lost"), at.join("found")).unwrap();
    assert_eq!(scene.merge().unwrap().files, ["found", "n", "new/src/main.rs"]);
}

/// The first children of a data directory start at the same time. All of them share one repository without settings.
#[test]
fn x14_first_worktrees_are_created_at_the_same_time() {
    let scene = Repository::new();
    for round in 0..32 {
        let worktrees = Worktrees::new(scene.dir.path().join(round.to_string()), None);
        let start = std::sync::Barrier::new(8);
        let made = std::thread::scope(|scope| {
            let make = || {
                start.wait();
                worktrees.plain(false).map(drop).map_err(|error| error.to_string())
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<Vec<()>, _>>()
        });
        assert_eq!(made, Ok(vec![(); 8]), "{round}");
    }
}

/// Nothing is recorded, because the record could not be removed. The control: without the cause.
#[test]
fn x14_unsupported_repository_is_refused_with_its_cause() {
    let scene = Repository::new();
    let name = scene.repo().join(".git").canonicalize().unwrap();
    let refused = || {
        let why = open_path(&scene.worktrees, &scene.repo()).unwrap_err().to_string();
        assert_eq!(scene.worktrees.list().unwrap().entries, []);
        why.replace(name.to_str().unwrap(), "REPOSITORY")
    };
    scene.git(&["branch", "subtend"]);
    assert_eq!(
        refused(),
        "cannot create a worktree: REPOSITORY has a branch `subtend`, so it can have no branch `subtend/…`. Rename it (`git branch -m \
         subtend NAME`), or leave `isolation` out"
    );
    scene.git(&["branch", "-m", "subtend", "other"]);
    let shared = scene.repo().join(".git/objects/info/alternates");
    put(&shared, &format!("{}\n", scene.dir.path().display()));
    assert_eq!(
        refused(),
        "cannot create a worktree: REPOSITORY borrows objects of another repository (`git clone --shared`), which git cannot reach here. \
         Copy them (`git repack -a -d`, then remove objects/info/alternates), or leave `isolation` out"
    );
    fs::remove_file(shared).unwrap();
    scene.open();
}

/// The merge could use them for a temporary file. The control: `discard` abandons an unfinishable merge.
#[test]
fn x14_names_of_a_session_do_not_stop_a_merge() {
    let scene = Repository::new();
    let at = scene.open();
    let temporary = format!(".subtend-{SESSION}.tmp");
    put(&at.join(&temporary).join("x"), "x\n");
    put(&at.join("!first"), "first\n");
    put(&at.join("sub").join(&temporary), "kept\n");
    put(&at.join("sub/last"), "last\n");
    assert_eq!(scene.merge().unwrap().files.len(), 4);
    assert_eq!(fs::read_to_string(scene.repo().join("sub").join(&temporary)).unwrap(), "kept\n");
    put(&at.join("later"), "later\n");
    let tip = scene.worktrees.changes(id(SESSION)).unwrap().tip;
    scene.crash_before("file").merge(id(SESSION), &tip).unwrap_err();
    fs::remove_file(scene.worktrees.file(id(SESSION), "merge").join("0")).unwrap();
    let error = scene.worktrees.changes(id(SESSION)).unwrap_err().to_string();
    assert!(error.starts_with("the worktree cannot be merged completely: later: "), "{error}");
    scene.worktrees.discard(id(SESSION), Some(&tip)).unwrap_err();
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert_eq!(scene.leftover_files(), [""; 0]);
}

/// A session can create any number of ignored files. The changes list the first ones, and count the others.
#[test]
fn x14_list_of_ignored_files_is_bounded() {
    let scene = Repository::new();
    let at = scene.open();
    for n in 0..1_010 {
        put(&at.join(format!("d{n:04}/ignored")), "");
    }
    let changes = scene.worktrees.changes(id(SESSION)).unwrap();
    assert_eq!((changes.ignored.len(), changes.more_ignored, &*changes.ignored[999]), (1_000, 10, "d0999/"));
    let summary = changes.summary();
    assert!(summary.ends_with(", d0007/, and 1002 more"), "{summary}");
}

/// An import can choose ids with the same end. The control: the session itself continues on its branch.
#[test]
fn session_with_a_similar_id_has_its_own_branch() {
    let scene = Repository::new();
    put(&scene.open().join("kept"), "kept\n");
    scene.worktrees.keep(id(SESSION), None).unwrap();
    let alike = id("01920000-0000-7000-9000-0000000000aa");
    let other = scene.worktrees.open(alike, WorktreeOrigin::Workspace(&scene.repo())).unwrap();
    assert!(!other.path().join("kept").exists());
    scene.worktrees.discard(alike, None).unwrap();
    assert_eq!(scene.leftover_files(), [format!("refs/heads/{BRANCH}")]);
    assert_eq!(fs::read_to_string(scene.open().join("kept")).unwrap(), "kept\n");
}
