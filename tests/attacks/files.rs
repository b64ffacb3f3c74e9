//! Attacks by another user, who reads the store's files or holds its lock.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The user `nobody`, who exists on every Linux.
const NOBODY: &str = "65534";
const SCRIPT: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "the-hidden-word", "repeat": true } ] } ] }"#;

/// A user's directory that others may enter, with a store of one session in it.
struct Home(TempDir);

impl Home {
    fn new(engine: &str) -> Self {
        let home = Self(tempfile::tempdir().expect("a directory"));
        open_up(home.0.path());
        std::fs::write(home.at("script.json"), SCRIPT).expect("a script");
        let done = home.run(engine);
        assert!(done.status.success(), "{done:?}");
        home
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn call(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_subtend"));
        let command = command.args(args).current_dir(self.0.path()).env("XDG_CONFIG_HOME", self.at("config"));
        command.env("SUBTEND_DATA", self.at("data")).output().expect("run the command")
    }

    fn run(&self, engine: &str) -> Output {
        let store = format!("{engine}:{}", self.at("data").join(engine).display());
        let model = format!("scripted:{}", self.at("script.json").display());
        // A body that is too large for any engine is stored as a blob.
        let long = "x".repeat(100_000);
        self.call(&["run", "--quiet", "--store", &store, "--model", &model, &long])
    }
}

fn open_up(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
}

fn modes(path: &Path) -> Vec<(PathBuf, u32)> {
    let metadata = std::fs::symlink_metadata(path).expect("a file");
    let mut all = vec![(path.to_owned(), metadata.permissions().mode() & 0o777)];
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).expect("a directory") {
            all.extend(modes(&entry.expect("an entry").path()));
        }
    }
    all
}

fn open_to_others(path: &Path) -> Vec<(PathBuf, u32)> {
    modes(path).into_iter().filter(|(_, mode)| mode & 0o077 != 0).collect()
}

/// Runs as another user. Only root can do that; for an ordinary user the test checks the modes instead.
fn as_nobody(args: &[&str]) -> Option<Output> {
    let is_root = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    if !is_root {
        return None;
    }
    let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
    Some(Command::new("setpriv").args(ids).args(args).output().expect("setpriv of util-linux runs"))
}

fn lock_of(home: &Home, engine: &str) -> String {
    home.at("data").join(engine).join("LOCK").display().to_string()
}

/// Tries to read the store and to hold its lock; returns which of the two succeeded.
fn attack(home: &Home, engine: &str) -> Option<(bool, bool)> {
    let lock = lock_of(home, engine);
    let (read, held) = (as_nobody(&["cat", &lock])?, as_nobody(&["flock", "--nonblock", &lock, "true"])?);
    Some((read.status.success(), held.status.success()))
}

#[test]
fn sec6_another_user_cannot_read_files_or_hold_the_lock() {
    for engine in ["redb", "sled"] {
        let home = Home::new(engine);
        let data = home.at("data");
        assert!(modes(&data).len() > 3, "{engine}: the store is missing");
        assert_eq!(open_to_others(&data), [], "{engine}");
        assert!(attack(&home, engine).is_none_or(|did| did == (false, false)), "{engine}");
        // The control: with the modes of earlier versions, both succeed.
        for (path, mode) in modes(&data) {
            let open = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open)).expect("chmod");
        }
        assert!(attack(&home, engine).is_none_or(|did| did == (true, true)), "{engine}");
        // The next start removes the access and warns once.
        let done = home.run(engine);
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        let warning = format!("warning: {} was open to other users (mode 755)", data.join(engine).display());
        assert!(done.status.success() && text.contains(&warning), "{engine}: {text}");
        assert_eq!(open_to_others(&data.join(engine)), [], "{engine}");
        assert!(!String::from_utf8_lossy(&home.run(engine).stderr).contains("warning: "), "{engine}");
        assert!(attack(&home, engine).is_none_or(|did| did == (false, false)), "{engine}");
    }
}

#[test]
fn sec6_data_directory_is_closed_and_other_files_remain() {
    let home = Home::new("redb");
    let data = home.at("data");
    open_up(&data);
    let done = home.call(&["sessions"]);
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(text.contains(&format!("warning: {} was open to other users (mode 755)", data.display())), "{text}");
    assert_eq!(open_to_others(&data), []);
    // A directory with other files is left unchanged, and a warning names it.
    std::fs::write(data.join("notes.txt"), "mine").expect("a file");
    [data.clone(), data.join("notes.txt")].iter().for_each(|path| open_up(path));
    let text = String::from_utf8_lossy(&home.call(&["sessions"]).stderr).into_owned();
    assert!(
        text.contains(
            "is open to other users (mode 755) and cannot be closed: it contains files that do not belong to stores"
        ),
        "{text}"
    );
    assert_eq!(open_to_others(&data), [(data.clone(), 0o755), (data.join("notes.txt"), 0o755)]);
}

#[test]
fn sec6_export_is_private_and_follows_no_links() {
    let home = Home::new("redb");
    // A link and a file of the user have the names of a partial export.
    std::fs::write(home.at("victim"), "untouched").expect("a file");
    std::os::unix::fs::symlink(home.at("victim"), home.at("all.jsonl.part")).expect("a link");
    std::fs::write(home.at("all.jsonl.part-1"), "mine").expect("a file");
    let out = home.at("all.jsonl").display().to_string();
    let done = home.call(&["export", "--out", &out]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(std::fs::read_to_string(home.at("victim")).expect("a file"), "untouched");
    assert!(home.at("all.jsonl.part").is_symlink());
    assert_eq!(std::fs::read_to_string(home.at("all.jsonl.part-1")).expect("a file"), "mine");
    assert!(!home.at("all.jsonl.part-2").exists());
    assert_eq!(open_to_others(&home.at("all.jsonl")), []);
    assert!(as_nobody(&["cat", &out]).is_none_or(|read| !read.status.success()));
    open_up(&home.at("all.jsonl"));
    assert!(as_nobody(&["cat", &out]).is_none_or(|read| read.status.success()), "the control");
}

/// The target of a link in a store's directory must not change. The control: a plain file there is written.
#[test]
fn sec6_links_in_a_store_are_not_written_through() {
    for name in ["LOCK", "WATERMARK"] {
        for linked in [true, false] {
            let home = Home::new("redb");
            let (file, victim) = (home.at("data/redb").join(name), home.at("victim"));
            let before = std::fs::read(&file).expect("a file of the store");
            std::fs::rename(&file, &victim).expect("moved");
            if linked {
                std::os::unix::fs::symlink(&victim, &file).expect("a link");
            } else {
                std::fs::copy(&victim, &file).expect("a copy");
            }
            let done = home.run("redb");
            assert_eq!(done.status.success(), !linked, "{name}: {done:?}");
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(text.contains(&format!("{name} is a link, but a store has only")), linked, "{name}: {text}");
            let after = std::fs::read(if linked { &victim } else { &file }).expect("a file");
            assert_eq!(after == before, linked, "{name}");
        }
    }
}

/// Another user puts a pipe in place of the lock of a copy, in the temporary directory. The control: opening it blocks.
#[test]
fn sec6_pipe_of_another_user_does_not_block_readers() {
    let home = Home::new("sled");
    let temporary = home.at("tmp");
    std::fs::create_dir(&temporary).expect("a directory");
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o1777)).expect("chmod");
    let script = format!("cd {} && mkdir subtend-read-x && mkfifo subtend-read-x/LOCK", temporary.display());
    let made = ["sh", "-c", &script];
    as_nobody(&made).unwrap_or_else(|| Command::new(made[0]).args(&made[1..]).output().expect("run the command"));
    let pipe = temporary.join("subtend-read-x/LOCK");
    let timed = |program: &str, args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["20", program]).args(args).env("TMPDIR", &temporary).env("XDG_CONFIG_HOME", home.at("config"));
        command.output().expect("run the command").status.code()
    };
    let store = format!("sled:{}", home.at("data/sled").display());
    assert_eq!(timed(env!("CARGO_BIN_EXE_subtend"), &["verify", "--store", &store]), Some(0));
    assert!(pipe.exists());
    let blocked = Command::new("timeout").arg("1").arg("cat").arg(&pipe).output().expect("run the command");
    assert_eq!(blocked.status.code(), Some(124));
}

/// The user's configuration decides what agents may do and which workspaces are trusted. The control: a workspace file
/// has the mode that the umask allows.
#[test]
fn sec6_own_configuration_is_private() {
    let home = Home::new("redb");
    let open = |more: &str| {
        let script = format!("umask 0; exec \"$0\" config set limits.turns 9 {more}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_subtend")]).current_dir(home.0.path());
        let done = command.env("XDG_CONFIG_HOME", home.at("config")).output().expect("run the command");
        assert!(done.status.success(), "{done:?}");
    };
    open("--user");
    open("");
    assert!(home.at("config/subtend/subtend.yaml").exists() && home.at("config/subtend/trusted.json").exists());
    assert_eq!(open_to_others(&home.at("config")), []);
    assert_eq!(open_to_others(&home.at("subtend.yaml")), [(home.at("subtend.yaml"), 0o666)]);
}
