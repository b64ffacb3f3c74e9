//! Files in the place of others, and directories without end, that would end the process or hold it.

use super::*;
use crate::removal::tests::deep;

/// A session puts a directory in the place of a lock that a killed git would leave. Nothing of it is removed, and the error names it.
/// The control: a file there is removed.
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

/// Directories that a session made in its worktree, and in what git keeps of it, are removed with it at any depth.
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
    assert_eq!(scene.traces(), [""; 0]);
}

/// A session that put a link in place of the directory of worktrees has nothing written through it. The control: without it, the worktree is
/// made.
#[test]
fn x14_no_link_is_in_the_place_of_a_new_worktree() {
    let scene = Repository::new();
    let (git, outside) = (scene.repo().join(".git"), scene.dir.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    symlink(&outside, git.join("worktrees")).unwrap();
    opened(&scene.worktrees, &scene.repo()).unwrap_err();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::remove_file(git.join("worktrees")).unwrap();
    opened(&scene.worktrees, &scene.repo()).unwrap();
}
