//! Files that a session replaces while the host copies them.

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::super::staged::stage;
use super::snapshots::Plain;
use super::*;

/// Makes a directory `pub/d`, and a link `pub/l` to the directory `secret`.
fn make_files(tree: &Path) {
    put(&tree.join("secret/key"), "secret\n");
    put(&tree.join("pub/d/a"), "a\n");
    put(&tree.join("pub/d/key"), "decoy\n");
    symlink("../secret", tree.join("pub/l")).unwrap();
}

pub(super) fn make_pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

/// Exchanges `pub/d` with the link `pub/l` while `act` runs git, and git waits for the pipe `pub/d/.gitattributes`. At this time, git has
/// already found that `pub/d` is a directory.
fn run_while_exchanging<T>(tree: &Path, act: impl FnOnce() -> T) -> T {
    let (at, pipe) = (tree.join("pub"), tree.join("pub/d/.gitattributes"));
    make_pipe(&pipe);
    std::thread::scope(|scope| {
        let swap = scope.spawn(|| {
            let writer = fs::File::options().write(true).open(&pipe).unwrap();
            fs::rename(at.join("d"), at.join("x")).unwrap();
            fs::rename(at.join("l"), at.join("d")).unwrap();
            drop(writer);
        });
        let done = act();
        // If git did not open the pipe, this ends the wait of the thread.
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let reader = rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty());
        swap.join().unwrap();
        drop(reader);
        done
    })
}

/// Neither in a workspace without a repository nor in a worktree. The control: plain git follows the link.
#[test]
fn x14_link_swapped_in_while_files_are_copied_is_not_followed() {
    let control = TempDir::new().unwrap();
    make_files(control.path());
    let git = |args: &[&str]| Command::new("git").current_dir(&control).args(args).output().unwrap();
    assert!(git(&["init", "-q"]).status.success());
    let add = ["update-index", "--add", "--", "pub/d/a", "pub/d/key"];
    assert!(run_while_exchanging(control.path(), || git(&add)).status.success());
    assert_eq!(git(&["show", ":pub/d/key"]).stdout, b"secret\n", "the control");

    let scene = Plain::new();
    make_files(&scene.workspace());
    let at = run_while_exchanging(&scene.workspace(), || scene.open(SESSION)).unwrap();
    assert_eq!(fs::read_to_string(at.join("pub/d/key")).unwrap(), "decoy\n");

    let scene = Repository::new();
    let at = scene.open();
    make_files(&at);
    let tip = run_while_exchanging(&at, || scene.worktrees.changes(id(SESSION))).unwrap().tip;
    assert_eq!(scene.git(&["show", &format!("{tip}:pub/d/key")]), "decoy");
}

/// Pipes and endless files do not block the copy. The control: the original files are copied.
#[test]
fn x14_files_exchanged_after_they_were_listed_are_not_opened() {
    type Exchange = fn(&Path);
    let attacks: [(&str, Exchange, Result<(), &str>); 6] = [
        (
            "link in place of a directory",
            |tree| {
                fs::rename(tree.join("pub/d"), tree.join("pub/x")).unwrap();
                fs::rename(tree.join("pub/l"), tree.join("pub/d")).unwrap();
            },
            Ok(()),
        ),
        ("file in place of a directory", |tree| replace_by(tree, "pub/d", |path| put(path, "x")), Ok(())),
        ("directory", |tree| replace_by(tree, "pub/d/key", |path| fs::create_dir(path).unwrap()), Ok(())),
        ("pipe", |tree| replace_by(tree, "pub/d/key", make_pipe), Err("it is neither a file nor a link: remove it")),
        (
            "hard link",
            |tree| replace_by(tree, "pub/d/key", |path| fs::hard_link(tree.join("secret/key"), path).unwrap()),
            Err("it has other names (hard links), which may be outside of the workspace: copy the file"),
        ),
        (
            "endless file",
            |tree| fs::File::create(tree.join("pub/d/key")).unwrap().set_len(8 << 30).unwrap(),
            Err("with it, too many bytes would be copied: remove large files"),
        ),
    ];
    for (way, exchange, expected) in attacks {
        for is_control in [true, false] {
            let dir = TempDir::new().unwrap();
            let (tree, copies) = (dir.path().join("tree"), dir.path().join("copies"));
            make_files(&tree);
            fs::create_dir(&copies).unwrap();
            if !is_control {
                exchange(&tree);
            }
            let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
            let staged = stage((&open(&tree), &open(&copies)), Path::new("pub/d/key"), &mut 1000);
            let copied = fs::read_to_string(copies.join("pub/d/key")).ok();
            if is_control {
                assert_eq!((staged.unwrap(), copied.as_deref()), ((), Some("decoy\n")), "{way}");
            } else {
                assert_eq!(staged.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{way}");
                assert!(copied.is_none_or(|text| text.len() <= 1001 && !text.contains("secret")), "{way}");
            }
        }
    }
}

fn replace_by(tree: &Path, path: &str, put_there: impl FnOnce(&Path)) {
    let path = tree.join(path);
    remove_if_exists(&path).unwrap();
    put_there(&path);
}

/// A rule that denies one name would not apply to the copy. The control: a file with one name.
#[test]
fn x14_file_with_other_names_is_not_copied() {
    const WHY: &str = "the worktree cannot be read: hard: it has other names (hard links), which may be outside of the workspace: copy the file";
    let attacks: [(&str, &str); 2] = [("files/secret/key", "hard, secret/key"), ("outside", "hard")];
    let why = |names: &str| match names {
        "hard" => WHY.to_owned(),
        _ => WHY.replace("hard: it has", &format!("{names}: they have")).replace("the file", "the files"),
    };
    for (linked, names) in attacks {
        let scene = Plain::new();
        let (linked, link) = (scene.dir.path().join(linked), scene.workspace().join("hard"));
        put(&linked, "secret\n");
        fs::hard_link(&linked, &link).unwrap();
        assert_eq!(scene.open(SESSION).unwrap_err().to_string(), why(names));
        fs::remove_file(&link).unwrap();
        fs::copy(&linked, &link).unwrap();
        let at = scene.open(SESSION).unwrap();
        assert_eq!(fs::read_to_string(at.join("hard")).unwrap(), "secret\n", "the control");

        put(&linked, "another secret\n");
        fs::remove_file(at.join("hard")).unwrap();
        fs::hard_link(&linked, at.join("hard")).unwrap();
        assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap_err().to_string(), WHY);
        fs::hard_link(&linked, at.join("hard2")).unwrap();
        assert_eq!(scene.worktrees.changes(id(SESSION)).unwrap_err().to_string(), why("hard, hard2"));
        fs::remove_file(at.join("hard2")).unwrap();
        fs::remove_file(at.join("hard")).unwrap();
        let changes = scene.worktrees.changes(id(SESSION)).unwrap();
        assert!(changes.summary().starts_with("1 file changed, +0 -1 lines: hard"), "{}", changes.summary());
    }
}

/// Neither to files nor to a repository. The control: the directory to which the link leads.
#[test]
fn x14_worktree_follows_no_link_in_place_of_its_workspace() {
    let files = Plain::new();
    let repository = Repository::new();
    for (worktrees, real) in [(&files.worktrees, files.workspace()), (&repository.worktrees, repository.repo())] {
        let workspace = real.with_file_name("workspace");
        symlink(&real, &workspace).unwrap();
        let open = |path: &Path| worktrees.open(id(OTHER), WorktreeOrigin::Workspace(path));
        let refused = open(&workspace).unwrap_err().to_string();
        assert!(refused.starts_with("the worktree cannot be created: "), "{refused}");
        assert!(worktrees.list().unwrap().entries.is_empty(), "{refused}");
        open(&real).unwrap();
    }
}
