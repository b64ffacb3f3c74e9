//! Directories that several users write to: that of a store, that for temporary files, and a shared workspace.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use serde_json::json;
use subtend_session::owners::temporary_dir_name;

use crate::cli::call::{RunningCommand, User};

/// The user and the group `nobody`, which exist on every Linux.
const NOBODY: u32 = 65_534;

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Creates a directory with this mode, and returns its path and the option of a store in it.
fn directory_with_a_store(user: &User, mode: u32) -> (std::path::PathBuf, String) {
    let dir = user.data().join(format!("{mode:o}"));
    std::fs::create_dir_all(&dir).expect("a directory");
    allow(&dir, mode);
    let store = format!("redb:{}", dir.join("redb").display());
    (dir, store)
}

/// Runs `args` with a directory of this mode for temporary files, which belongs to `owner` if there is one.
fn call_with_temporary_files(
    user: &User,
    (mode, owner): (u32, Option<u32>),
    args: &[&str],
) -> crate::cli::call::CommandOutput {
    let temporary = user.data().join("temporary");
    std::fs::create_dir_all(&temporary).expect("a directory");
    allow(&temporary, mode);
    if owner.is_some() {
        chown(&temporary, owner, None).expect("chown");
    }
    let mut command = user.command(args);
    command.env("TMPDIR", &temporary);
    RunningCommand::start(command, "").done()
}

/// In a directory such as `/tmp`, another user makes the directory of checkpoints while a host runs, with a link in it
/// that leads the first checkpoint to any file of the victim. The control: in a directory of the user, where no one else
/// makes names, they are free.
#[test]
fn directories_next_to_a_shared_store_cannot_be_planted() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let planted = |mode| {
        let (dir, store) = directory_with_a_store(&user, mode);
        user.succeeds(&["run", "--quiet", "--model", &model, "--store", &store, "hi"]);
        ["redb.checkpoints", "redb.worktrees"].map(|name| std::fs::create_dir(dir.join(name)).is_ok())
    };
    assert_eq!(planted(0o1777), [false; 2]);
    assert_eq!(planted(0o755), [true; 2]);
}

/// Another user links to the host of another store, where the host of a data directory would be. The control: a store in
/// a data directory, which is closed to other users, is hosted there.
#[test]
fn link_next_to_a_shared_store_leads_to_no_other_host() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let is_hosted = |dir: &Path| {
        let store = format!("redb:{}", dir.join("redb").display());
        user.succeeds(&["run", "--quiet", "--model", &model, "--store", &store, "hi"]);
        user.succeeds(&["sessions", "--json"]).out.contains(r#""id""#)
    };
    let (dir, _) = directory_with_a_store(&user, 0o1777);
    symlink(user.data().join("host"), dir.join("host")).expect("a link");
    assert!(!is_hosted(&dir) && dir.join("redb").exists());
    assert!(is_hosted(&user.data()));
    host.stops();
}

/// Another user links to the host of another store in place of the directory of a host, before there is one. The control:
/// without the link the store has a host of its own.
#[test]
fn link_in_place_of_the_directory_of_a_host_is_refused() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let (dir, store) = directory_with_a_store(&user, 0o1777);
    symlink(user.data().join("host"), dir.join("redb.host")).expect("a link");
    let run = || user.call(&["run", "--quiet", "--model", &model, "--store", &store, "hi"]);
    let refused = run();
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.err.contains("it is a link or belongs to another user: remove it"), "{refused:?}");
    assert!(!user.succeeds(&["sessions", "--json"]).out.contains(r#""id""#));
    std::fs::remove_file(dir.join("redb.host")).expect("removed");
    assert_eq!((run().code, dir.join("redb").exists()), (Some(0), true));
    host.stops();
}

/// Another user replaces the private directory of a command, its `HOME`: git would start what a file there names. The
/// control: in a sticky directory no other user can.
#[test]
fn command_is_not_run_where_others_can_replace_its_home() {
    let user = User::new();
    let steps = json!([{"calls": [{"tool": "shell", "args": {"command": "echo ran"}}]}, {"text": "done"}]);
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let args = ["run", "--json", "--store", "memory", "--model", &model, "--allow", "shell.run", "go"];
    let outcome = |mode, owner| {
        let done = call_with_temporary_files(&user, (mode, owner), &args);
        [r#""content":"ran\n"#, "other users can replace files in", "who can replace files in it"]
            .map(|text| done.out.contains(text))
    };
    let is_confined = subtend_tools::sandbox::probe().is_ok();
    assert_eq!(outcome(0o777, None), [false, is_confined, false]);
    assert_eq!(outcome(0o1777, None), [is_confined, false, false]);
    // An ordinary user where all users are mapped, as in these tests.
    if is_root() {
        assert_eq!(outcome(0o755, Some(NOBODY)), [false, false, is_confined]);
    }
}

/// Another user takes the name of the directory for temporary files of the victim, or makes a link with that name: no
/// command has its `HOME` there, and no store is copied there. The control: a directory of the victim.
#[test]
fn temporary_directory_of_another_user_is_not_used() {
    let user = User::new();
    let hello = user.script_named("hello", "Hello.");
    let store = format!("sled:{}", user.data().join("sled").display());
    user.succeeds(&["run", "--quiet", "--model", &hello, "--store", &store, "hi"]);
    let steps = json!([{"calls": [{"tool": "shell", "args": {"command": "echo ran"}}]}, {"text": "done"}]);
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let run = ["run", "--json", "--store", "memory", "--model", &model, "--allow", "shell.run", "go"];
    let uses = || {
        let ran = call_with_temporary_files(&user, (0o1777, None), &run).out.contains(r#""content":"ran\n"#);
        let read = call_with_temporary_files(&user, (0o1777, None), &["verify", "--store", &store]);
        assert!(read.code == Some(0) || read.err.contains("must be a directory of this user alone"), "{read:?}");
        (ran, read.code == Some(0))
    };
    let is_confined = subtend_tools::sandbox::probe().is_ok();
    assert_eq!(uses(), (is_confined, true));
    let dir = user.data().join("temporary").join(temporary_dir_name(rustix::process::geteuid().as_raw()));
    allow(&dir, 0o755);
    assert_eq!(uses(), (false, false));
    if is_root() {
        allow(&dir, 0o700);
        chown(&dir, Some(NOBODY), None).expect("root may");
        assert_eq!(uses(), (false, false));
    }
    std::fs::rename(&dir, dir.with_extension("moved")).expect("moved");
    std::fs::create_dir(user.data().join("target")).expect("a directory");
    allow(&user.data().join("target"), 0o700);
    symlink(user.data().join("target"), &dir).expect("a link");
    assert_eq!(uses(), (false, false));
}

/// Another user replaces the directory of a copy, and is given the rest of the store. The control: a sticky directory.
#[test]
fn store_is_not_copied_where_others_can_replace_the_copy() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let store = format!("sled:{}", user.data().join("sled").display());
    user.succeeds(&["run", "--quiet", "--model", &model, "--store", &store, "hi"]);
    let verify = |mode, owner| call_with_temporary_files(&user, (mode, owner), &["verify", "--store", &store]);
    let refused = verify(0o777, None);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.err.contains("other users can replace files in"), "{refused:?}");
    assert_eq!(std::fs::read_dir(user.data().join("temporary")).expect("a directory").count(), 0);
    assert_eq!(verify(0o1777, None).code, Some(0));
    if is_root() {
        assert_eq!(verify(0o755, Some(NOBODY)).code, Some(3));
    }
}

/// In a setgid directory a new file has the group of the directory, whose members may not read the replaced one. The
/// control: a file that did not exist.
#[test]
fn replaced_file_keeps_its_group_in_a_shared_workspace() {
    if !is_root() {
        return;
    }
    let user = User::new();
    let workspace = user.workspace();
    user.file("notes.md", "one\n");
    user.file("subtend.yaml", "limits:\n  turns: 8\n");
    ["notes.md", "subtend.yaml"].iter().for_each(|name| allow(&workspace.join(name), 0o640));
    chown(&workspace, None, Some(NOBODY)).expect("root may");
    allow(&workspace, 0o2775);
    let edit = json!({"tool": "edit", "args": {"path": "notes.md", "old": "one", "new": "two"}});
    let write = json!({"tool": "write", "args": {"path": "new.md", "content": "three\n"}});
    let steps = json!([{"calls": [edit, write]}, {"text": "done"}]);
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    user.succeeds(&["run", "--store", "memory", "--model", &model, "--allow", "fs.*", "go"]);
    user.succeeds(&["config", "set", "limits.turns", "9"]);
    let found = |name: &str| {
        let found = std::fs::metadata(workspace.join(name)).expect("a file");
        (found.gid(), found.mode() & 0o777)
    };
    assert_eq!(std::fs::read_to_string(workspace.join("notes.md")).expect("a file"), "two\n");
    assert_eq!(["notes.md", "subtend.yaml"].map(found), [(0, 0o640); 2]);
    assert_eq!(found("new.md").0, NOBODY);
}

/// With an access control list, the bits of the group in a mode are the most that the list grants, and no rights of the
/// group: a file that only one other user may read was readable for the group after an edit. The control: without a list
/// those bits are its rights.
#[test]
fn replaced_file_keeps_its_access_control_list() {
    const NAME: &str = "system.posix_acl_access";
    let user = User::new();
    user.file("notes.md", "one\n");
    let notes = user.workspace().join("notes.md");
    // The owner reads and writes, the user 1 reads, the group and others do nothing.
    let entries: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 4, 1), (4, 0, !0), (16, 4, !0), (32, 0, !0)];
    let of_entry = |(tag, rights, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = [&2_u32.to_le_bytes()[..], &entries.map(of_entry).concat()].concat();
    allow(&notes, 0o600);
    if rustix::fs::setxattr(&notes, NAME, &list, rustix::fs::XattrFlags::empty()).is_err() {
        return;
    }
    let edit = json!({"tool": "edit", "args": {"path": "notes.md", "old": "one", "new": "two"}});
    let steps = json!([{"calls": [edit]}, {"text": "done"}]);
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    user.succeeds(&["run", "--store", "memory", "--model", &model, "--allow", "fs.*", "go"]);
    let mut found = vec![0; 1_024];
    let bytes = rustix::fs::getxattr(&notes, NAME, found.as_mut_slice()).expect("a list");
    assert_eq!(std::fs::read_to_string(&notes).expect("a file"), "two\n");
    assert_eq!((found.get(..bytes), std::fs::metadata(&notes).expect("a file").mode() & 0o777), (Some(&*list), 0o640));
    // What a copy of the mode alone gives to the group.
    rustix::fs::removexattr(&notes, NAME).expect("its owner may");
    assert_eq!(std::fs::metadata(&notes).expect("a file").mode() & 0o070, 0o040);
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}
