//! The disk that worktrees take: bounds of one, of all and of the file system, and removal of those without changes.

use super::snapshots::Plain;
use super::*;
use crate::worktree::git::GitPlace;
use crate::worktree::room::Reserve;

/// A reserve that no file system leaves.
const ALL: Reserve = Reserve { bytes: u64::MAX, files: 0, share: 1 };

impl Repository {
    /// Returns the same worktrees with other bounds.
    fn bounded(&self, change: impl FnOnce(&mut Bounds)) -> Worktrees {
        let mut worktrees = self.worktrees.clone();
        change(&mut worktrees.bounds);
        worktrees
    }

    /// Makes the last commit one of a tree that holds `object` 10 times on each of `levels` levels.
    fn commit_repeated(&self, object: &str, levels: usize) {
        let tree = (0..levels).fold(object.to_owned(), |object, level| {
            let mode = if level == 0 { "100644 blob" } else { "040000 tree" };
            let lines: String = (0..10).map(|n| format!("{mode} {object}\t{n}\n")).collect();
            self.file("tree.txt", &lines);
            let mut command = Command::new("git");
            let input = fs::File::open(self.repo().join("tree.txt")).unwrap();
            let out = command.current_dir(self.repo()).arg("mktree").stdin(input).output().unwrap();
            String::from_utf8(out.stdout).unwrap().trim().to_owned()
        });
        let commit = self.git(&["commit-tree", "-m", "x", &tree]);
        self.git(&["update-ref", "HEAD", &commit]);
    }
}

/// Attack: a repository of some KiB whose commit names an object many times. The control: a bound above the sum.
#[test]
fn x14_commit_with_a_large_sum_of_files_is_refused() {
    let scene = Repository::new();
    scene.file("large.txt", &"x".repeat(1 << 20));
    let object = scene.git(&["hash-object", "-w", "large.txt"]);
    scene.commit_repeated(&object, 2);
    let small = scene.bounded(|bounds| bounds.bytes = 50 << 20);
    let refused = open_path(&small, &scene.repo()).unwrap_err().to_string();
    let repository = scene.repo().join(".git").canonicalize().unwrap();
    let expected = format!(
        "cannot create a worktree: the commit of {} is too large to be checked out: at least 55 files and directories with 50 MiB, and the \
         limits are 1000000 and 50 MiB. Leave `isolation` out",
        repository.display()
    );
    assert_eq!((refused, scene.leftover_files()), (expected, Vec::new()));
    let large = scene.bounded(|bounds| bounds.bytes = 150 << 20);
    assert_eq!(fs::metadata(open_path(&large, &scene.repo()).unwrap().join("9/9")).unwrap().len(), 1 << 20);
}

/// Attack: trees that hold each other, with 10^12 files. Git would list them for days. The control: 100 files and 10 directories.
#[test]
fn x14_commit_with_endless_files_is_refused() {
    let scene = Repository::new();
    let object = scene.git(&["rev-parse", "HEAD:a.txt"]);
    scene.commit_repeated(&object, 12);
    let few = scene.bounded(|bounds| bounds.entries = 110);
    let refused = open_path(&few, &scene.repo()).unwrap_err().to_string();
    assert!(refused.contains("and the limits are 110 and 8192 MiB"), "{refused}");
    scene.commit_repeated(&object, 2);
    open_path(&few, &scene.repo()).unwrap();
    scene.worktrees.discard(id(SESSION), None).unwrap();
    let fewer = scene.bounded(|bounds| bounds.entries = 109);
    assert!(open_path(&fewer, &scene.repo()).unwrap_err().to_string().contains("at least 110 files"));
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
}

/// Attack: a reference replaces the tree of a commit, so that its sizes are listed as others than those that are written. The controls: what git
/// lists with the reference, and a bound above the sum.
#[test]
fn x14_replaced_objects_do_not_hide_the_size_of_a_commit() {
    let scene = Repository::new();
    scene.file("large.txt", &"x".repeat(1 << 20));
    let object = scene.git(&["hash-object", "-w", "large.txt"]);
    scene.commit_repeated(&object, 1);
    let empty = scene.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let tree = scene.git(&["rev-parse", "HEAD^{tree}"]);
    scene.git(&["update-ref", &format!("refs/replace/{tree}"), &empty]);
    assert_eq!(scene.git(&["ls-tree", "-r", "HEAD"]), "");
    let small = scene.bounded(|bounds| bounds.bytes = 5 << 20);
    let refused = open_path(&small, &scene.repo()).unwrap_err().to_string();
    assert!(
        refused.contains("is too large to be checked out: at least 6 files and directories with 6 MiB"),
        "{refused}"
    );
    assert_eq!(fs::metadata(scene.open().join("9")).unwrap().len(), 1 << 20);
}

/// Attack: a few objects name many long paths, of which git has a list in memory. The control: paths of usual length.
#[test]
fn x14_commit_with_long_paths_is_refused() {
    let scene = Repository::new();
    let object = scene.git(&["rev-parse", "HEAD:a.txt"]);
    for (length, refused) in [(4_000, true), (40, false)] {
        scene.commit_repeated(&object, 4);
        let tree = scene.git(&["rev-parse", "HEAD^{tree}"]);
        scene.file("tree.txt", &format!("040000 tree {tree}\t{}\n", "d".repeat(length)));
        let mut command = Command::new("git");
        let input = fs::File::open(scene.repo().join("tree.txt")).unwrap();
        let out = command.current_dir(scene.repo()).arg("mktree").stdin(input).output().unwrap();
        let tree = String::from_utf8(out.stdout).unwrap().trim().to_owned();
        let commit = scene.git(&["commit-tree", "-m", "x", &tree]);
        let repository = scene.repo().join(".git").canonicalize().unwrap();
        let size = scene.worktrees.size_of(&repository, &commit).map_err(|error| error.to_string());
        let too_long = format!(
            "cannot create a worktree: the commit of {} is too large to be checked out: its paths have more than 32 MiB, or one has more than \
             64 KiB. Leave `isolation` out",
            repository.display()
        );
        assert_eq!(size, if refused { Err(too_long) } else { Ok(11_111 * 4096) });
    }
}

/// Attack: a file of the repository stops the creation of a worktree and its removal. What was recorded of it took the room of others. The
/// control: the room of one whose files exist.
#[test]
fn x14_worktree_that_cannot_be_created_takes_no_room() {
    let scene = Repository::new();
    fs::write(scene.repo().join(".git/refs/subtend"), "a file").unwrap();
    let room = scene.bounded(|bounds| bounds.all_bytes = 40 << 20);
    let repo = scene.repo();
    let origin = || WorktreeOrigin::Workspace(&repo);
    for session in [SESSION, OTHER] {
        let failed = room.open(id(session), origin()).map(drop).unwrap_err().to_string();
        assert!(!failed.contains("the limit is 40"), "{failed}");
        let left = room.entry(id(session)).unwrap().map(|entry| (entry.stage, entry.bytes));
        assert!(left.is_none_or(|left| left == (Stage::Discarding, 0)), "{left:?}");
        assert!(!room.path(id(session)).exists());
    }
    fs::remove_file(scene.repo().join(".git/refs/subtend")).unwrap();
    room.open(id("01920000-0000-7000-8000-0000000000cc"), origin()).unwrap();
    let full = room.open(id(SESSION), origin()).map(drop).unwrap_err().to_string();
    assert!(full.contains("the limit is 40"), "{full}");
}

/// Attack: an attribute makes files four times as large as their objects. The controls: a larger bound, and the same files without it.
#[test]
fn x14_worktree_counts_with_what_git_wrote() {
    let scene = Repository::new();
    scene.file("large.txt", &"x".repeat(10 << 20));
    scene.commit();
    let of = |bytes: u64| {
        let made = open_path(&scene.bounded(|bounds| bounds.all_bytes = bytes), &scene.repo()).map(drop);
        let made = made.map_err(|error| error.to_string());
        (made.is_ok(), made.err().is_some_and(|why| why.contains("would have 40 MiB, and the limit is 36")))
    };
    assert_eq!(of(36 << 20), (true, false));
    scene.worktrees.discard(id(SESSION), None).unwrap();
    scene.file(".gitattributes", "large.txt working-tree-encoding=UTF-32LE\n");
    // Without the file itself, whose object would be decoded.
    scene.git(&["add", ".gitattributes"]);
    scene.git(&["commit", "-q", "-m", "x"]);
    assert_eq!(of(36 << 20), (false, true));
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
    assert_eq!(of(48 << 20), (true, false));
}

/// Attack: many sessions get a worktree, also at the same time. The control: those below the limit, and one in place of a discarded one.
#[test]
fn x14_all_worktrees_of_a_store_are_bounded() {
    let scene = Repository::new();
    let worktrees = scene.worktrees.clone().at_most(64);
    let (repo, name) = (scene.repo(), |n: usize| id(&format!("01920000-0000-7000-8000-00000000000{n}")));
    let open =
        |n| worktrees.open(name(n), WorktreeOrigin::Workspace(&repo)).map(drop).map_err(|error| error.to_string());
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || open(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refused = "cannot create a worktree: with it, the 2 others of this store would have 96 MiB, and the limit is 64. Discard some \
                   (`subtend worktree list`, `subtend worktree discard ID`), or raise the limit (`--host worktree_mib=N`, or \
                   `host.worktree_mib` in subtend.yaml)";
    let errors: Vec<&String> = opened.iter().filter_map(|opened| opened.as_ref().err()).collect();
    assert_eq!(errors, [refused; 6]);
    let first = opened.iter().position(Result::is_ok).unwrap();
    worktrees.discard(name(first), None).unwrap();
    assert_eq!(open(first), Ok(()));
    assert_eq!(open(8), Err(refused.to_owned()));
}

/// The records of all sessions are on the same file system. The control: the same worktree with the usual reserve.
#[test]
fn x14_reserve_of_the_file_system_is_kept() {
    let scene = Repository::new();
    let full = scene.bounded(|bounds| bounds.reserve = ALL);
    let refused = open_path(&full, &scene.repo()).unwrap_err().to_string();
    let dir = scene.dir.path().join("worktrees");
    let expected =
        format!("cannot create a worktree: its files have 0 MiB, and the file system of {} has ", dir.display());
    assert!(refused.starts_with(&expected), "{refused}");
    let files = scene.bounded(|bounds| bounds.reserve = Reserve { bytes: 0, files: u64::MAX, share: 1 });
    let refused = open_path(&files, &scene.repo()).unwrap_err().to_string();
    assert!(refused.contains(" more files, and ") && refused.contains(" are reserved for records"), "{refused}");
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
    scene.open();
    let scene = Plain::new();
    let mut full = scene.worktrees.clone();
    full.bounds.reserve = ALL;
    open_path(&full, &scene.workspace()).unwrap_err();
    scene.open(SESSION).unwrap();
}

/// A refused worktree leaves no copy of its workspace. The control: while another worktree needs the copy, it stays.
#[test]
fn x14_refused_worktree_leaves_no_snapshot() {
    let scene = Plain::new();
    let few = scene.worktrees.clone().at_most(32);
    let open = |worktrees: &Worktrees, session| {
        worktrees.open(id(session), WorktreeOrigin::Workspace(&scene.workspace())).map(drop)
    };
    open(&few.clone().at_most(1), SESSION).unwrap_err();
    assert_eq!(scene.list_entries(), Vec::<String>::new());
    open(&few, SESSION).unwrap();
    let before = scene.list_entries();
    open(&few, OTHER).unwrap_err();
    assert_eq!(scene.list_entries(), before);
}

/// Attributes of a repository make files larger than their objects. The control: the same command with space.
#[test]
fn x14_git_ends_when_space_is_low() {
    let scene = Repository::new();
    scene.open();
    let place = scene.worktrees.refs_place(&scene.repo().join(".git"), &scene.repo().join(".git")).unwrap();
    let run = |worktrees: &Worktrees| {
        let at = GitPlace { room: Some(worktrees.room()), ..place.clone() };
        worktrees.git.run(&at, &["-c", "alias.x=!sleep 1; echo done", "x"]).map_err(|error| error.to_string())
    };
    let ended = run(&scene.bounded(|bounds| bounds.reserve = ALL)).unwrap_err();
    assert!(ended.contains("failed: its files have 0 MiB, and the file system of "), "{ended}");
    assert_eq!(run(&scene.worktrees), Ok(b"done\n".to_vec()));
}

/// A checkout fails half-way. The control: the whole object.
#[test]
fn x14_failed_checkout_is_removed_at_once() {
    let scene = Repository::new();
    // Text that does not compress, so that the first half of the object has no whole file.
    let text: String = (0..20_000_u64).map(|n| format!("{:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    scene.file("z.txt", &text);
    scene.commit();
    let object = scene.git(&["rev-parse", "HEAD:z.txt"]);
    let (folder, name) = object.split_at(2);
    let path = scene.repo().join(".git/objects").join(folder).join(name);
    let whole = fs::read(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let failed = open_path(&scene.worktrees, &scene.repo()).unwrap_err().to_string();
    assert!(failed.starts_with("git checkout-index failed: "), "{failed}");
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
    fs::write(&path, &whole).unwrap();
    scene.open();
}

/// Agents that only read leave nothing. The controls: changes, ignored files, a repository, another run, a
/// worktree that merges into it.
#[test]
fn x14_worktree_without_changes_goes_with_its_run() {
    let scene = Repository::new();
    let finish = |is_used| {
        let finished = scene.worktrees.finish_run(id(SESSION), || is_used);
        let is_removed = matches!(finished, Ok((_, Removal::Done)));
        let note = note(id(SESSION), &finished);
        assert_eq!(note.contains("so it was removed]"), is_removed, "{note}");
        is_removed
    };
    let at = scene.open();
    assert!(!finish(true));
    put(&at.join("ignored"), "x\n");
    assert!(!finish(false));
    fs::remove_file(at.join("ignored")).unwrap();
    put(&at.join("a.txt"), "x\n");
    assert!(!finish(false));
    put(&at.join("a.txt"), "one\ntwo\nthree\nfour\nfive\n");
    scene.worktrees.open(id(OTHER), WorktreeOrigin::Worktree(id(SESSION))).unwrap();
    assert!(!finish(false));
    scene.worktrees.discard(id(OTHER), None).unwrap();
    // A repository that the session made there has commits that git does not list.
    let file = fs::read(at.join(".git")).unwrap();
    fs::remove_file(at.join(".git")).unwrap();
    fs::create_dir(at.join(".git")).unwrap();
    assert!(!finish(false));
    fs::remove_dir(at.join(".git")).unwrap();
    fs::write(at.join(".git"), file).unwrap();
    // Git lists no file below or named `.git` in a directory that has other files, even if it is not that of a repository.
    put(&at.join("sub/.git/x"), "x\n");
    assert!(!finish(false));
    fs::remove_dir_all(at.join("sub/.git")).unwrap();
    put(&at.join("sub/.git"), "x\n");
    assert!(!finish(false));
    fs::remove_file(at.join("sub/.git")).unwrap();
    assert!(finish(false));
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
    // A continued session starts from the commit of that time.
    scene.file("a.txt", "later\n");
    scene.commit();
    assert_eq!(fs::read_to_string(scene.open().join("a.txt")).unwrap(), "later\n");
}

/// A branch that a person kept outlives a later run without changes.
#[test]
fn x14_kept_branch_outlives_a_run_without_changes() {
    let scene = Repository::new();
    put(&scene.open().join("a.txt"), "kept\n");
    scene.worktrees.keep(id(SESSION), None).unwrap();
    let tip = scene.git(&["rev-parse", BRANCH]);
    assert_eq!(fs::read_to_string(scene.open().join("a.txt")).unwrap(), "kept\n");
    assert!(matches!(scene.worktrees.finish_run(id(SESSION), || false), Ok((_, Removal::Done))));
    assert_eq!(scene.leftover_files(), [format!("refs/heads/{BRANCH}")]);
    assert_eq!(scene.git(&["rev-parse", BRANCH]), tip);
}
