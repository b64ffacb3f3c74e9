//! Hostile files in the repository of a workspace, or in a worktree.

use super::super::git::GitReach;
use super::*;

/// Creates another repository of the user, outside of the workspace.
fn private(scene: &Repository) -> PathBuf {
    let private = scene.dir.path().join("private");
    fs::create_dir(&private).unwrap();
    put(&private.join("secret"), "secret\n");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(&private).args(["-c", "user.name=p", "-c", "user.email=p@localhost"]).args(args);
        assert!(command.status().unwrap().success(), "{args:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "x"]);
    private.join(".git")
}

/// Replaces the entry at `path` with a link.
fn relink(to: &Path, path: &Path) {
    remove_if_exists(path).unwrap();
    symlink(to, path).unwrap();
}

/// A `.git` points to another repository of the user. The control: plain git follows each form.
#[test]
fn x14_workspace_cannot_name_another_repository() {
    type Spoil = fn(&Path, &Path);
    let attacks: [(&str, Spoil); 5] = [
        ("commondir", |git, private| put(&git.join("commondir"), private.to_str().unwrap())),
        ("gitdir", |git, private| {
            fs::remove_dir_all(git).unwrap();
            put(git, &format!("gitdir: {}\n", private.display()));
        }),
        ("gitdir and commondir", |git, private| {
            let own = git.with_file_name("own");
            fs::rename(git, &own).unwrap();
            put(&own.join("commondir"), private.to_str().unwrap());
            put(&own.join("gitdir"), git.to_str().unwrap());
            put(git, "gitdir: own\n");
        }),
        ("link", |git, private| relink(private, git)),
        ("links in it", |git, private| {
            ["objects", "refs"].iter().for_each(|name| relink(&private.join(name), &git.join(name)))
        }),
    ];
    for (way, spoil) in attacks {
        let scene = Repository::new();
        let private = private(&scene);
        spoil(&scene.repo().join(".git"), &private);
        assert_eq!(scene.git(&["show", "HEAD:secret"]), "secret", "{way}: the control");
        if way == "links in it" && crate::sandbox::probe().is_err() {
            continue;
        }
        let opened = open_path(&scene.worktrees, &scene.repo());
        assert!(opened.is_err(), "{way}: {opened:?}");
        assert!(!scene.worktrees.path(id(SESSION)).join("secret").exists(), "{way}");
    }
}

/// Worktrees and submodules of the user can be workspaces too, because their repositories point back to them.
#[test]
fn x14_worktrees_and_submodules_are_supported() {
    let scene = Repository::new();
    let linked = scene.dir.path().join("linked");
    scene.git(&["worktree", "add", "-q", "-b", "topic", linked.to_str().unwrap()]);
    put(&open_path(&scene.worktrees, &linked).unwrap().join("n"), "n\n");
    assert_eq!(scene.merge().unwrap().files, ["n"]);
    assert_eq!(fs::read_to_string(linked.join("n")).unwrap(), "n\n");
    let private = private(&scene);
    let from = private.parent().unwrap().to_str().unwrap();
    scene.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", from, "module"]);
    let below = scene.worktrees.open(id(OTHER), WorktreeOrigin::Workspace(&scene.repo().join("module"))).unwrap();
    assert_eq!(fs::read_to_string(below.path().join("secret")).unwrap(), "secret\n");
}

/// The worktree is refused, and the link is not followed.
#[test]
fn x14_commit_with_a_link_as_workspace_is_refused() {
    let scene = Repository::new();
    let outside = scene.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let link = scene.repo().join("repo");
    symlink(&outside, &link).unwrap();
    symlink(&outside, scene.repo().join("in")).unwrap();
    scene.commit();
    scene.git(&["config", "core.worktree", "../.."]);
    let at = open_path(&scene.worktrees, &scene.repo()).unwrap();
    assert_eq!(at.canonicalize().unwrap(), scene.worktrees.path(id(SESSION)).canonicalize().unwrap());
    fs::remove_file(scene.repo().join("in")).unwrap();
    fs::create_dir(scene.repo().join("in")).unwrap();
    let below = scene.worktrees.open(id(OTHER), WorktreeOrigin::Workspace(&scene.repo().join("in")));
    assert!(below.is_err(), "{below:?}");
}

#[test]
fn x14_git_does_not_follow_links_in_worktree_files() {
    if crate::sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox for git");
        return;
    }
    let outside = |scene: &Repository| scene.dir.path().join("outside");
    for name in ["worktrees/ID/index", "refs/heads/subtend", "objects"] {
        let scene = Repository::new();
        let at = scene.open();
        put(&at.join("new"), "new\n");
        let path = scene.repo().join(".git").join(name.replace("ID", SESSION));
        fs::rename(&path, outside(&scene)).unwrap();
        if name.ends_with("index") {
            fs::remove_file(outside(&scene)).unwrap();
        }
        relink(&outside(&scene), &path);
        let changes = scene.worktrees.changes(id(SESSION));
        assert!(changes.is_err(), "{name}: {changes:?}");
        assert!(!name.ends_with("index") || !outside(&scene).exists(), "{name}");
    }
}

#[test]
fn x14_attributes_do_not_hide_text_from_a_diff() {
    for is_in_base in [false, true] {
        let scene = Repository::new();
        let attributes = "*.sh -diff\n*.py binary\n";
        if is_in_base {
            scene.file(".gitattributes", attributes);
            scene.commit();
        }
        let at = scene.open();
        put(&at.join(".gitattributes"), attributes);
        put(&at.join("x.sh"), "spoiled\n");
        put(&at.join("x.py"), "spoiled\n");
        let (changes, patch) = scene.worktrees.diff(id(SESSION)).unwrap();
        let patch = String::from_utf8(patch).unwrap();
        assert_eq!(patch.matches("+spoiled").count(), 2, "{patch}");
        assert!(!changes.summary().contains("binary"), "{}", changes.summary());
    }
}

/// They are never shown to the user, so they must not change a merge. The control: plain git applies them.
#[test]
fn x14_ignored_attributes_do_not_change_a_merge() {
    const SHOWN: &str = "echo \u{201c}a\u{ff1b}b\u{201d} # $Id$\n";
    let attacks: [&str; 4] =
        ["working-tree-encoding=ASCII//TRANSLIT", "working-tree-encoding=UTF-16", "ident", "text eol=crlf"];
    for attributes in attacks {
        let scene = Repository::new();
        let at = scene.open();
        put(&at.join("d/x.sh"), SHOWN);
        let (changes, patch) = scene.worktrees.diff(id(SESSION)).unwrap();
        assert!(String::from_utf8(patch).unwrap().contains(&format!("+{SHOWN}")), "{attributes}");
        put(&at.join("d/.gitattributes"), &format!("*.sh {attributes}\n"));
        put(&at.join("d/.gitignore"), ".gitignore\n.gitattributes\n");
        let blob = format!("{}:d/x.sh", changes.tip);
        let mut followed = Command::new("git");
        followed.current_dir(&at).args(["cat-file", "--filters", &blob]);
        assert_ne!(followed.output().unwrap().stdout, SHOWN.as_bytes(), "{attributes}: the control");
        scene.worktrees.merge(id(SESSION), &changes.tip).unwrap();
        assert_eq!(fs::read_to_string(scene.repo().join("d/x.sh")).unwrap(), SHOWN, "{attributes}");
    }
}

/// The attributes of the base apply, but only to line ends: a person saw the text without attributes, in which no command
/// runs. The control: plain git writes another text.
#[test]
fn x14_text_that_attributes_change_is_not_merged() {
    let attacks: [(&str, &[u8], &str); 3] = [
        ("working-tree-encoding=ISO646-FR", b"echo \"a `touch PWNED`\"\n", "echo \"a \u{b5}touch PWNED\u{b5}\"\n"),
        ("working-tree-encoding=UTF-16", b"\xff\xfea\0\n\0", "a\n"),
        ("ident", b"# $Id$\n", "# $Id$\n"),
    ];
    // Not every system knows this encoding.
    for (attributes, written, shown) in attacks.into_iter().skip(usize::from(!cfg!(target_os = "linux"))) {
        let scene = Repository::new();
        scene.file(".gitattributes", &format!("*.sh {attributes}\n"));
        scene.commit();
        let at = scene.open();
        put(&at.join("d/x.sh"), "");
        fs::write(at.join("d/x.sh"), written).unwrap();
        let (changes, patch) = scene.worktrees.diff(id(SESSION)).unwrap();
        assert!(String::from_utf8(patch).unwrap().contains(&format!("+{shown}")), "{attributes}");
        let blob = format!("{}:d/x.sh", changes.tip);
        let mut followed = Command::new("git");
        let followed = followed.current_dir(scene.repo()).args(["cat-file", "--filters", &blob]).output().unwrap();
        assert_ne!(followed.stdout, shown.as_bytes(), "{attributes}: the control");
        let refused = scene.worktrees.merge(id(SESSION), &changes.tip).unwrap_err().to_string();
        assert!(refused.contains("`d/x.sh` has an attribute such as `working-tree-encoding`"), "{refused}");
        assert!(!scene.repo().join("d/x.sh").exists(), "{attributes}");
    }
}

/// If git started in `/`, it would read attributes on disk at `/PATH` for a file with the path `PATH` in the repository.
#[test]
fn x14_attributes_on_disk_do_not_change_a_merge() {
    let scene = Repository::new();
    let at = scene.open();
    let path = format!("{}/d/x.sh", at.strip_prefix("/").unwrap().display());
    put(&at.join(&path), "a\n");
    let (changes, _) = scene.worktrees.diff(id(SESSION)).unwrap();
    put(&at.join("d/.gitattributes"), "*.sh text eol=crlf\n");
    put(&at.join("d/.gitignore"), ".gitignore\n.gitattributes\n");
    let mut followed = Command::new("git");
    followed.current_dir("/").env("GIT_DIR", scene.repo().join(".git"));
    let out = followed.args(["cat-file", "--filters", &format!("{}:{path}", changes.tip)]).output().unwrap();
    assert_eq!(out.stdout, b"a\r\n", "the control");
    scene.worktrees.merge(id(SESSION), &changes.tip).unwrap();
    assert_eq!(fs::read_to_string(scene.repo().join(path)).unwrap(), "a\n");
}

/// The attributes of the base apply, so the files of the workspace keep their line ends.
#[test]
fn x14_merge_keeps_the_line_ends_of_the_workspace() {
    let scene = Repository::new();
    scene.file(".gitattributes", "*.txt text eol=crlf\n");
    scene.file("a.txt", "one\r\ntwo\r\nthree\r\nfour\r\nfive\r\n");
    scene.commit();
    let at = scene.open();
    put(&at.join("a.txt"), "one\r\nTWO\r\nthree\r\nfour\r\nfive\r\n");
    scene.file("a.txt", "one\r\ntwo\r\nthree\r\nfour\r\nFIVE\r\n");
    scene.merge().unwrap();
    assert_eq!(scene.read("a.txt"), "one\r\nTWO\r\nthree\r\nfour\r\nFIVE\r\n");
}

/// A session adds a file within a repository to git's index, which git never does.
#[test]
fn x14_merge_does_not_write_into_a_repository() {
    for name in [".git", ".GIT"] {
        let scene = Repository::new();
        put(&scene.open().join("-git/hooks/pre-commit"), "spoiled\n");
        scene.worktrees.changes(id(SESSION)).unwrap();
        let index = scene.repo().join(".git/worktrees").join(SESSION).join("index");
        let bytes = fs::read(&index).unwrap();
        let at = bytes.windows(11).position(|part| part == b"-git/hooks/").unwrap();
        let mut spoiled = bytes.clone();
        spoiled[at..at + 4].copy_from_slice(name.as_bytes());
        fs::write(&index, spoiled).unwrap();
        fs::rename(scene.open().join("-git"), scene.open().join("aside")).unwrap();
        let merged = scene.merge();
        assert!(merged.is_err(), "{name}: {merged:?}");
        assert!(!scene.repo().join(name).join("hooks/pre-commit").exists(), "{name}");
        // The control: a file with another name is merged.
        fs::write(&index, bytes).unwrap();
        fs::rename(scene.open().join("aside"), scene.open().join("-git")).unwrap();
        assert_eq!(scene.merge().unwrap().files, ["-git/hooks/pre-commit"]);
    }
}

/// A directory that ignores invisible characters opens such a path as one of its repository. The control: another name.
#[test]
fn x14_spellings_of_a_repository_are_not_merged() {
    for name in [".g\u{ad}it", ".GIT\u{34f}", "sub/\u{200b}.git"] {
        let scene = Repository::new();
        let hook = format!("{name}/hooks/post-commit");
        put(&scene.open().join(&hook), "spoiled\n");
        let refused = scene.merge().unwrap_err().to_string();
        assert!(refused.contains(&format!("`{}` lies in a repository", on_one_line(&hook))), "{refused}");
        assert_eq!(scene.git(&["status", "--porcelain"]), "");
        fs::rename(scene.open().join(name), scene.open().join("git")).unwrap();
        assert_eq!(scene.merge().unwrap().files, ["git/hooks/post-commit"]);
    }
}

/// They lie next to the worktree. Neither git nor the host follows links in the repository to them.
#[test]
fn x14_links_of_a_repository_do_not_reach_records() {
    let scene = Repository::new();
    let at = scene.open();
    let victim = id(OTHER);
    scene.worktrees.open(victim, WorktreeOrigin::Workspace(&scene.repo())).unwrap();
    let records = scene.dir.path().join("worktrees");
    let record = records.join(format!("{OTHER}.json"));
    let before = fs::read(&record).unwrap();
    let git = scene.repo().join(".git");
    let branch = scene.worktrees.find(id(SESSION)).unwrap().branch;
    let attacks = [
        (format!("logs/refs/heads/{branch}"), &record),
        (format!("worktrees/{SESSION}/index"), &record),
        ("logs/refs/heads/subtend".to_owned(), &records),
    ];
    for (number, (name, to)) in attacks.into_iter().enumerate() {
        if crate::sandbox::probe().is_err() {
            println!("not tried: this system has no sandbox for git");
            break;
        }
        put(&at.join("new"), &format!("{number}\n"));
        let path = git.join(&name);
        let aside = scene.dir.path().join("aside");
        let existed = path.symlink_metadata().is_ok();
        if existed {
            fs::rename(&path, &aside).unwrap();
        }
        relink(to, &path);
        let changes = scene.worktrees.changes(id(SESSION));
        assert!(changes.is_err(), "{name}: {changes:?}");
        assert_eq!(fs::read(&record).unwrap(), before, "{name}");
        remove_if_exists(&path).unwrap();
        if existed {
            fs::rename(&aside, &path).unwrap();
        }
    }
    // The control: without the links, the operations succeed.
    assert!(scene.worktrees.changes(id(SESSION)).is_ok());

    let outside = scene.dir.path().join("outside");
    put(&outside.join(SESSION).join("file"), "mine\n");
    put(&outside.join(format!("{SESSION}.lock")), "mine\n");
    for name in ["worktrees", "refs/subtend/base"] {
        let (path, aside) = (git.join(name), scene.dir.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        relink(&outside, &path);
        assert!(scene.worktrees.discard(id(SESSION), None).is_err(), "{name}");
        assert!(
            outside.join(SESSION).join("file").exists() && outside.join(format!("{SESSION}.lock")).exists(),
            "{name}"
        );
        remove_if_exists(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert!(!git.join("worktrees").join(SESSION).exists(), "the control");
}

#[test]
fn x14_damaged_record_does_not_hide_other_worktrees() {
    let scene = Repository::new();
    scene.open();
    scene.worktrees.open(id(OTHER), WorktreeOrigin::Workspace(&scene.repo())).unwrap();
    put(&scene.dir.path().join("worktrees").join(format!("{OTHER}.json")), "{} trailing");
    let list = scene.worktrees.list().unwrap();
    assert_eq!(list.entries.iter().map(|entry| entry.session).collect::<Vec<_>>(), [id(SESSION)]);
    assert_eq!(list.damaged.iter().map(|(session, _)| *session).collect::<Vec<_>>(), [id(OTHER)]);
}

/// The link leads to a private repository. The control: plain git, under the same swaps.
#[test]
fn x14_git_does_not_follow_a_swapped_repository() {
    use std::sync::atomic::{AtomicBool, Ordering};

    if crate::sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox for git");
        return;
    }
    let scene = Repository::new();
    let private = private(&scene);
    let (git, aside) = (scene.repo().join(".git"), scene.dir.path().join("aside"));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Pauses that are shorter and longer than the steps of git.
            for pause in (0..6).cycle().map(|step| std::time::Duration::from_micros(100 << step)) {
                fs::rename(&git, &aside).unwrap();
                symlink(&private, &git).unwrap();
                std::thread::sleep(pause);
                fs::remove_file(&git).unwrap();
                fs::rename(&aside, &git).unwrap();
                std::thread::sleep(pause * 16);
                if ends.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut opened = 0;
        for number in 0..24 {
            let session = id(&format!("01920000-0000-7000-8000-{:012x}", 0x1000 + number));
            opened += usize::from(scene.worktrees.open(session, WorktreeOrigin::Workspace(&scene.repo())).is_ok());
            let changed = scene.worktrees.diff(session);
            let at = scene.worktrees.path(session);
            assert!(!at.join("secret").exists(), "{number}");
            assert!(changed.is_err() || !String::from_utf8_lossy(&changed.unwrap().1).contains("secret"), "{number}");
        }
        println!("{opened} of 24 worktrees were created during the swaps");
        let shows = || {
            let shown = Command::new("git").current_dir(scene.repo()).args(["show", "HEAD:secret"]).output().unwrap();
            shown.stdout == b"secret\n"
        };
        let leaks = (0..200).any(|_| shows());
        ends.store(true, Ordering::Relaxed);
        assert!(leaks, "the control");
    });
}

/// Replaces the content of an object of the repository. Git reads it without an error.
fn replace_object(scene: &Repository, object: &str, bytes_of: &str) {
    let path = |name: &str| scene.repo().join(".git/objects").join(&name[..2]).join(&name[2..]);
    fs::set_permissions(path(object), fs::Permissions::from_mode(0o644)).unwrap();
    fs::copy(path(bytes_of), path(object)).unwrap();
}

/// The ids of the replaced objects do not match. The control: plain git reads the other content.
#[test]
fn x14_swapped_objects_are_not_merged() {
    for way in ["file", "directory"] {
        let scene = Repository::new();
        put(&scene.open().join("d/x.sh"), "echo shown\n");
        let (changes, patch) = scene.worktrees.diff(id(SESSION)).unwrap();
        assert!(String::from_utf8(patch).unwrap().contains("+echo shown"));
        scene.file("other", "echo spoiled\n");
        let other = scene.git(&["hash-object", "-w", "other"]);
        fs::remove_file(scene.repo().join("other")).unwrap();
        let name = |rest: &str| scene.git(&["rev-parse", &format!("{}{rest}", changes.tip)]);
        match way {
            "file" => replace_object(&scene, &name(":d/x.sh"), &other),
            _ => {
                put(&scene.repo().join("tree"), "spoiled");
                let entry = format!("100644 blob {other}\tdenied.sh");
                let mut made = Command::new("sh");
                made.current_dir(scene.repo()).args(["-c", "echo \"$0\" | git mktree", &entry]);
                let tree = String::from_utf8(made.output().unwrap().stdout).unwrap();
                replace_object(&scene, &name(":d"), tree.trim());
            }
        }
        assert!(
            scene.git(&["diff-tree", "-r", "--patch", "HEAD", &changes.tip]).contains("+echo spoiled"),
            "{way}: the control"
        );
        let merged = scene.worktrees.merge(id(SESSION), &changes.tip);
        assert!(merged.is_err(), "{way}: {merged:?}");
        assert!(!scene.repo().join("d").exists(), "{way}");
    }
}

/// No list covers all settings that can name programs: git 2.54 runs hooks from settings. The control: plain git.
#[test]
fn x14_git_ignores_settings_of_a_repository() {
    let scene = Repository::new();
    let ran = scene.dir.path().join("ran");
    for event in ["reference-transaction", "post-index-change", "post-checkout"] {
        scene.git(&["config", &format!("hook.{event}-x.event"), event]);
        scene.git(&["config", &format!("hook.{event}-x.command"), &format!("echo {event} >> '{}'", ran.display())]);
    }
    let config = scene.repo().join(".git/config");
    let hooks = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{hooks}[core\n")).unwrap();
    put(&scene.open().join("n"), "n\n");
    assert_eq!(scene.merge().unwrap().files, ["n"]);
    scene.worktrees.keep(id(SESSION), None).unwrap();
    scene.open();
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert!(!ran.exists(), "{}", fs::read_to_string(ran).unwrap());
    let mut control = Command::new("git");
    let control = control.current_dir(scene.repo()).args(["update-ref", "refs/heads/x", "HEAD"]).output().unwrap();
    assert!(String::from_utf8_lossy(&control.stderr).contains("bad config line"), "{control:?}");
    fs::write(&config, hooks).unwrap();
    scene.git(&["update-ref", "refs/heads/x", "HEAD"]);
    println!("this git runs hooks that settings name: {}", ran.exists());
}

/// The object format is the only setting of the repository that is used.
#[test]
fn x14_sha256_repository_supports_worktrees() {
    let scene = Repository::new();
    let again = |format: &str| {
        fs::remove_dir_all(scene.repo().join(".git")).unwrap();
        let mut init = Command::new("git");
        let init = init.current_dir(scene.repo()).args(["init", "-q", "-b", "main", format]).output().unwrap();
        init.status.success() && (scene.commit(), true).1
    };
    assert!(again("--object-format=sha256"));
    let at = scene.open();
    put(&at.join("n"), "n\n");
    let tip = scene.worktrees.changes(id(SESSION)).unwrap().tip;
    let mut head = Command::new("git");
    let head = head.current_dir(&at).args(["log", "--format=%H", "-1"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&head.stdout).trim(), tip, "{head:?}");
    assert_eq!(scene.merge().unwrap().files, ["n"]);
    scene.worktrees.discard(id(SESSION), None).unwrap();
    assert_eq!(scene.leftover_files(), Vec::<String>::new());
    if again("--ref-format=reftable") {
        let why = open_path(&scene.worktrees, &scene.repo()).unwrap_err().to_string();
        assert!(why.contains("stores its refs as `reftable`"), "{why}");
    }
}

/// A program that git ran anyway would have no sockets, only capabilities for files, and two devices.
#[test]
#[cfg(target_os = "linux")]
fn x14_git_runs_in_a_sandbox() {
    const STATE: &str = "grep -E '^(CapEff|Seccomp):' /proc/self/status; true < /dev/zero && echo opened; true < /dev/null && echo null";
    if crate::sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox for git");
        return;
    }
    let scene = Repository::new();
    let at = GitPlace {
        reach: GitReach { written: vec![scene.repo().canonicalize().unwrap()], read: vec![] },
        ..GitPlace::default()
    };
    let alias = format!("alias.held=!{STATE}");
    let held = scene.worktrees.git.run(&at, &["-c", &alias, "held"]).unwrap();
    let held: Vec<String> = String::from_utf8(held).unwrap().split_whitespace().map(str::to_owned).collect();
    // The superuser keeps the capabilities for files of other users, and no other capabilities.
    let kept = if rustix::process::geteuid().is_root() { "000000000000000e" } else { "0000000000000000" };
    assert_eq!(held, ["CapEff:", kept, "Seccomp:", "2", "null"]);
    let control = scene.git(&["-c", &alias, "held"]);
    assert!(control.contains("opened"), "{control}");
}

#[test]
fn x14_git_has_resource_limits() {
    let guard = |args: &[&str]| Guard { program: "sh".into(), args: args.iter().map(Into::into).collect() };
    let guard = guard(&["-c", "printf %s \"$SUBTEND_COMMAND_LIMITS\""]);
    let at = GitPlace::default();
    let limits = Git::new(Some(guard)).run(&at, &["version"]).unwrap();
    let limits: crate::commands::CommandLimits = serde_json::from_slice(&limits).unwrap();
    assert!(limits.memory_bytes <= 384 << 20 && limits.cpu_seconds <= 300, "{limits:?}");
}

/// The list of alternates is replaced with an endless file. The control: a regular file can be read.
#[test]
#[cfg(target_os = "linux")]
fn x14_endless_files_of_a_repository_do_not_fill_memory() {
    use std::io::Read as _;

    if crate::sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox for git");
        return;
    }
    let mut bytes = [1; 8];
    fs::File::open("/dev/zero").unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [0; 8], "the control");
    let scene = Repository::new();
    symlink("/dev/zero", scene.repo().join(".git/objects/info/alternates")).unwrap();
    drop(open_path(&scene.worktrees, &scene.repo()));
    let scene = Repository::new();
    relink(Path::new("/dev/zero"), &scene.repo().join(".git/config"));
    let why = open_path(&scene.worktrees, &scene.repo()).unwrap_err().to_string();
    assert!(why.contains("cannot read ") && why.contains("config: "), "{why}");
}

/// It lies in an ancestor of the workspace, or another user can write to it. The control: neither.
#[test]
fn x14_repository_of_another_user_is_refused() {
    let opens = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let owned = |path: &Path| std::os::unix::fs::chown(path, Some(54321), None).unwrap();
    let scene = Repository::new();
    let workspace = scene.repo().join("sub");
    let places = [scene.repo(), scene.repo().join(".git")];
    let refused = |why: &str| {
        let refused = repository::find(&workspace).err().unwrap().to_string();
        assert!(refused.contains(why) && refused.contains("run `git init` in the workspace"), "{refused}");
    };
    for place in &places {
        for mode in [0o777, 0o1777] {
            opens(place, mode);
            refused("can be written by all users");
        }
        opens(place, 0o755);
    }
    if rustix::process::geteuid().is_root() {
        for place in &places {
            owned(place);
            refused("belongs to another user, 54321");
            std::os::unix::fs::chown(place, Some(0), None).unwrap();
        }
        // The owner of the workspace may own the repository.
        places.iter().chain([&workspace]).for_each(|place| owned(place));
        open_path(&scene.worktrees, &workspace).unwrap();
        let back = |place: &PathBuf| std::os::unix::fs::chown(place, Some(0), None).unwrap();
        places.iter().chain([&workspace]).for_each(back);
    }
    opens(&workspace, 0o777);
    open_path(&scene.worktrees, &workspace).unwrap();
    // On file systems without modes, everyone can write to everything.
    places.iter().for_each(|place| opens(place, 0o777));
    assert!(repository::find(&workspace).is_ok());
}
