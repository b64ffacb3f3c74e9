//! Files in such numbers, or with such names, that they must not be taken.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use super::*;
use crate::worktree::changes::MAX_FILES;
use crate::worktree::contents::{ContentsTurn, WATCH};
use crate::worktree::git::split_paths;

/// Git adds the files after each run, and its work grows with their number. The control: as many ignored files.
#[test]
fn x14_too_many_changed_files_are_refused() {
    let scene = Repository::new();
    let at = scene.open();
    fs::create_dir(at.join("d")).unwrap();
    (0..=MAX_FILES).for_each(|n| drop(fs::File::create(at.join(format!("d/{n}"))).unwrap()));
    let refused = scene.worktrees.changes(id(SESSION)).unwrap_err().to_string();
    let expected = format!("the changes are incomplete: {} files were changed in ", MAX_FILES + 1);
    assert!(refused.starts_with(&expected) && refused.ends_with("name them in a `.gitignore`"), "{refused}");
    put(&at.join(".gitignore"), "d\n");
    let changes = scene.worktrees.changes(id(SESSION)).unwrap();
    let files: Vec<&str> = changes.files.iter().map(|file| &*file.path).collect();
    assert_eq!((files, changes.ignored), (vec![".gitignore"], vec!["d/".to_owned()]));
}

/// A path takes many times as much memory in a set as in the output of git. The control: a list of the maximum length.
#[test]
fn x14_list_of_git_is_counted_before_it_is_built() {
    let set = |paths: &[&[u8]]| paths.iter().map(|path| path.to_vec()).collect::<BTreeSet<_>>();
    let list = b"a\0b\0b\0c\0d\0";
    assert_eq!(split_paths(list, 2), (set(&[b"a", b"b"]), 4));
    assert_eq!(split_paths(list, 4), (set(&[b"a", b"b", b"c", b"d"]), 4));
    assert_eq!(split_paths(b"", 4), (set(&[]), 0));
}

/// A file system that ignores case or invisible characters opens such a file as one that configures agents. The control: other names.
#[test]
fn x14_spellings_of_agent_configuration_are_not_merged() {
    for path in [
        ".Subtend/agents/a.md",
        "SUBTEND.YAML",
        "\u{17f}ubtend.yaml",
        ".MCP.json",
        ".sub\u{ad}tend/agents/a.md",
        "subtend.yaml\u{200b}",
        ".claude./settings.json",
    ] {
        let scene = Repository::new();
        let at = scene.open();
        put(&at.join(path), "x\n");
        put(&at.join("sub/Subtend.yaml"), "x\n");
        let refused = scene.merge().unwrap_err().to_string();
        assert!(refused.contains(&format!("`{}` configures agents", on_one_line(path))), "{refused}");
        assert_eq!(scene.git(&["status", "--porcelain"]), "");
        fs::remove_file(at.join(path)).unwrap();
        assert_eq!(scene.merge().unwrap().files, ["sub/Subtend.yaml"]);
    }
}

/// Attack: merges and patches of large files at the same time. The control: small files, which wait for no others.
#[test]
fn x14_large_files_are_merged_one_at_a_time() {
    let scene = Repository::new();
    let large = |name: &str| name.repeat(1 << 20);
    scene.file("b.txt", &large("b\n"));
    scene.commit();
    let at = scene.open();
    let mut held = ContentsTurn::default();
    held.take_for(u64::MAX);
    put(&at.join("a.txt"), "small\n");
    scene.worktrees.diff_start(id(SESSION), 1).unwrap();
    scene.merge().unwrap();
    put(&at.join("b.txt"), &large("c\n"));
    // The last one finishes a merge that was planned.
    type WorktreeUse = fn(&Worktrees);
    let work: [(&Worktrees, WorktreeUse); 3] = [
        (&scene.worktrees, |worktrees| drop(worktrees.diff_start(id(SESSION), 1).unwrap())),
        (&scene.crash_before("file"), |worktrees| drop(merge_all(worktrees).unwrap_err())),
        (&scene.worktrees, |worktrees| assert_eq!(worktrees.recover(id(SESSION)).unwrap().unwrap().files, ["b.txt"])),
    ];
    for (worktrees, work) in work {
        let (send, events) = mpsc::channel();
        let (worktrees, waiting, is_released) = (worktrees.clone(), send.clone(), Arc::new(AtomicBool::new(false)));
        let released = Arc::clone(&is_released);
        let thread = std::thread::spawn(move || {
            WATCH.set(Box::new(move |_| waiting.send("waits").unwrap()));
            work(&worktrees);
            send.send(if released.load(Ordering::Relaxed) { "ended" } else { "ended too early" }).unwrap();
        });
        assert_eq!(events.recv().unwrap(), "waits");
        is_released.store(true, Ordering::Relaxed);
        held = ContentsTurn::default();
        thread.join().unwrap();
        assert_eq!(events.try_iter().last(), Some("ended"));
        held.take_for(u64::MAX);
    }
}

/// Git may take minutes for a merge by lines. What is written before git starts is merged. The control: what is written after it has ended.
#[test]
fn x14_merge_by_lines_gives_up_the_turn() {
    let scene = Repository::new();
    let large = "b\n".repeat(1 << 20);
    scene.file("b.txt", &large);
    scene.commit();
    put(&scene.open().join("b.txt"), &format!("theirs\n{large}"));
    scene.file("b.txt", &format!("{large}ours\n"));
    let entry = scene.worktrees.entry(id(SESSION)).unwrap().unwrap();
    let theirs = scene.worktrees.copy_dir(&entry).join("start/theirs");
    let (send, events) = mpsc::channel();
    WATCH.set(Box::new(move |is_wanted| {
        if let Ok(mut file) = fs::OpenOptions::new().write(true).open(&theirs) {
            file.write_all(if is_wanted { b"after!" } else { b"before" }).unwrap();
            send.send(is_wanted).unwrap();
        }
    }));
    assert_eq!(scene.merge().unwrap().files, ["b.txt"]);
    assert!(scene.read("b.txt") == format!("before\n{large}ours\n"), "{}", &scene.read("b.txt")[..20]);
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [false, true]);
}

/// A large content keeps the turn while the file is merged. The control: small contents.
#[test]
fn x14_large_contents_take_the_turn() {
    let scene = Repository::new();
    scene.file("b.txt", &"b\n".repeat(1 << 20));
    scene.commit();
    scene.open();
    let entry = scene.worktrees.entry(id(SESSION)).unwrap().unwrap();
    let (at, target) = (scene.worktrees.files_place(&entry).unwrap(), Workspace::open(scene.repo()).unwrap());
    for (path, is_large) in [("a.txt", false), ("b.txt", true)] {
        let (mut printed, mut read) = (ContentsTurn::default(), ContentsTurn::default());
        let object = scene.git(&["rev-parse", &format!("HEAD:{path}")]);
        let content = scene.worktrees.content(&at, &["cat-file", "blob", &object], &mut printed).unwrap();
        let is_taken = printed.is_taken();
        drop(printed);
        assert_eq!(read.read_entry(&target, path).unwrap().bytes, content);
        assert_eq!([is_taken, read.is_taken()], [is_large; 2], "{path}");
    }
}

/// Attack: a session adds a link to git's index with a longer target than the system permits. The control: one byte less.
#[test]
fn x14_link_with_a_long_target_is_not_merged() {
    let scene = Repository::new();
    for (length, is_merged) in [(4095, true), (4096, false)] {
        let at = scene.open();
        put(&scene.repo().join("target"), &"x".repeat(length));
        let object = scene.git(&["hash-object", "-w", "target"]);
        fs::remove_file(scene.repo().join("target")).unwrap();
        for args in [&["--add", "--cacheinfo", &*format!("120000,{object},link")][..], &["--skip-worktree", "link"]] {
            let git = scene.repo().join(".git");
            let index = git.join("worktrees").join(SESSION).join("index");
            let mut command = Command::new("git");
            command.current_dir(&at).env("GIT_DIR", git).env("GIT_WORK_TREE", &at).env("GIT_INDEX_FILE", index);
            assert!(command.arg("update-index").args(args).status().unwrap().success());
        }
        let merged = scene.merge().map(|merged| merged.files).map_err(|error| error.to_string());
        let why = "nothing was merged: `link` is a link whose target is too long".to_owned();
        assert_eq!(merged, if is_merged { Ok(vec!["link".to_owned()]) } else { Err(why) });
    }
}
