//! A store that belongs to another user, or that another user could replace. Its runs would resume with this user's
//! keys, at servers that the attacker chooses.

use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use subtend_tools::sandbox::{self, SandboxStrength};

use crate::cli::call::{Command, CommandOutput, RunningCommand, Stdio, User, json, no_forks};

/// The user `nobody`, who exists on every Linux.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o7777
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

fn all(path: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(path).into_iter().flatten().flatten().flat_map(|entry| all(&entry.path()));
    std::iter::once(path.to_owned()).chain(below).collect()
}

/// A store of this user in its own directory, and the directory that is given to another user or opened to others.
struct Planted {
    user: User,
    /// The store as named on the command line.
    data: PathBuf,
}

impl Planted {
    fn new() -> Self {
        let user = User::new();
        let model = user.script_named("hello", "Hello.");
        let data = user.data().join("above/data");
        user.succeeds(&["run", "--quiet", "--data", &data.to_string_lossy(), "--model", &model, "hi"]);
        Self { user, data }
    }

    /// Prepares the store for `attack`; returns the path that the refusal must name.
    fn plant(&mut self, attack: &str) -> PathBuf {
        let (data, above) = (self.data.clone(), self.user.data().join("above"));
        let give = |path: &Path| chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
        let named = match attack {
            "all of it" => {
                all(&data).iter().for_each(|path| give(path));
                data
            }
            "data" => data,
            "store" => data.join("redb"),
            "file" => data.join("redb/WATERMARK"),
            "checkpoints" => {
                std::fs::create_dir_all(data.join("checkpoints")).expect("a directory");
                data.join("checkpoints")
            }
            "above" => above,
            "link" => {
                let shared = self.user.data().join("shared");
                std::fs::create_dir(&shared).expect("a directory");
                allow(&shared, 0o1777);
                self.data = shared.join("link");
                symlink(&data, &self.data).expect("a link");
                lchown(&self.data, Some(NOBODY), Some(NOBODY)).expect("root may");
                return self.data.clone();
            }
            "above that all write" => {
                allow(&above, 0o777);
                return above;
            }
            "above that a group writes" => {
                chown(&above, None, Some(NOBODY)).expect("root may");
                allow(&above, 0o770);
                return above;
            }
            "data that all write" => {
                std::fs::write(data.join("notes.txt"), "mine").expect("a file");
                allow(&data, 0o777);
                return data;
            }
            other => panic!("{other}"),
        };
        give(&named);
        named
    }
}

#[test]
fn store_owned_or_replaceable_by_another_user_is_refused() {
    const ATTACKS: [&str; 10] = [
        "all of it",
        "data",
        "store",
        "file",
        "checkpoints",
        "above",
        "link",
        "above that a group writes",
        "above that all write",
        "data that all write",
    ];
    for attack in ATTACKS {
        if !is_root() && !attack.contains("all write") {
            continue;
        }
        let mut planted = Planted::new();
        let named = planted.plant(attack);
        let (user, before) = (&planted.user, mode(&named));
        let model = user.script_named("hello", "Hello.");
        let call = |args: &[&str]| {
            let mut command = user.command(args);
            command.env("SUBTEND_DATA", &planted.data);
            RunningCommand::start(command, "").done()
        };
        let calls: [&[&str]; 6] = [
            &["sessions"],
            &["run", "--quiet", "--model", &model, "hi"],
            &["run", "--detach", "--model", &model, "hi"],
            &["serve", "--json", "--listen", "none", "--until-idle"],
            &["token", "create", "x"],
            &["compact"],
        ];
        for args in calls {
            let refused = call(args);
            assert_eq!(refused.code, Some(3), "{attack}, {args:?}: {refused:?}");
            assert!(refused.err.contains(&named.display().to_string()), "{attack}, {args:?}: {refused:?}");
            let why = ["belongs to user 65534", "other users can write", "is open to other users (mode 777)"];
            assert!(why.iter().any(|why| refused.err.contains(why)), "{attack}, {args:?}: {refused:?}");
        }
        assert_eq!(mode(&named), before, "{attack}: the mode was changed");
        // The control: a closed store of this user.
        if is_root() {
            all(&user.data()).iter().for_each(|path| lchown(path, Some(0), Some(0)).expect("root may"));
        }
        if attack.contains("write") {
            allow(&named, 0o755);
        }
        let sessions = call(&["sessions", "--json"]);
        assert!(sessions.code == Some(0) && sessions.out.contains(r#""id""#), "{attack}: {sessions:?}");
    }
}

/// A sticky directory that all users write to, such as the temporary directory, can hold stores: other users cannot
/// replace this user's files there.
#[test]
fn store_in_a_sticky_directory_is_used() {
    let user = User::new();
    let shared = user.data().join("tmp");
    std::fs::create_dir_all(&shared).expect("a directory");
    allow(&shared, 0o1777);
    let model = user.script_named("hello", "Hello.");
    for store in [
        ["--data".to_owned(), shared.join("data").display().to_string()],
        ["--store".to_owned(), format!("redb:{}", shared.join("store").display())],
    ] {
        let [option, place] = &store;
        user.succeeds(&["run", "--quiet", "--model", &model, option, place, "hi"]);
        assert_eq!(user.call(&["sessions", option, place]).code, Some(0));
    }
}

/// The configuration of another user names programs that would start as this user, for example as a superuser whose
/// HOME belongs to that user. The control: the same files, closed and of this user.
///
/// A command of an agent may open a file of this user to others. So if it restricts agents, nothing starts without it.
#[test]
fn configuration_of_another_user_is_ignored() {
    const ATTACKS: [(&str, &str); 14] = [
        ("owner", ""),
        ("owner", "subtend"),
        ("owner", "subtend/subtend.yaml"),
        ("owner", "subtend/trusted.json"),
        ("owner", "subtend/skills"),
        ("owner", "subtend/skills/planted-skill/SKILL.md"),
        ("owner", "claude/agents"),
        ("owner", "claude/agents/planted-agent.md"),
        ("mode", "subtend/skills/planted-skill"),
        ("mode", "claude/agents/planted-agent.md"),
        ("mode", "subtend"),
        ("mode", "subtend/subtend.yaml"),
        ("mode", "subtend/trusted.json"),
        ("link", "subtend"),
    ];
    for (attack, path) in ATTACKS {
        if attack != "mode" && !is_root() {
            continue;
        }
        let user = User::new();
        let file = |path: &str, text: &str| {
            let path = user.config().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        file("subtend/subtend.yaml", "limits: {turns: 7}\n");
        file("subtend/skills/planted-skill/SKILL.md", "---\nname: planted-skill\ndescription: d\n---\nWork.\n");
        file("claude/agents/planted-agent.md", "---\nname: planted-agent\ndescription: d\n---\nWork.\n");
        let call = |args: &[&str]| {
            let mut command = user.command(args);
            command.env_remove("SUBTEND_TRUST");
            RunningCommand::start(command, "").done()
        };
        user.file("subtend.yaml", "limits: {spawns: 9}\n");
        assert_eq!(call(&["trust", "--yes"]).code, Some(0));
        let used = || {
            let shown = ["turns", "spawns"].map(|name| call(&["config", "show", &format!("limits.{name}")]));
            let (agents, prompt) = (call(&["agents"]), call(&["agents", "prompt", "general"]));
            let is_used = [
                shown[0].out.contains('7'),
                shown[1].out.contains('9'),
                prompt.out.contains("planted-skill"),
                agents.out.contains("planted-agent"),
            ];
            (is_used, shown[0].err.clone())
        };
        let (before, warned) = used();
        assert_eq!((before, warned.contains("left out")), ([true; 4], false), "the control, {attack} {path}: {warned}");
        let planted = user.config().join(path);
        match attack {
            "owner" => lchown(&planted, Some(NOBODY), Some(NOBODY)).expect("root may"),
            "mode" => allow(&planted, if planted.is_dir() { 0o777 } else { 0o666 }),
            _ => {
                let real = user.config().join("real");
                std::fs::rename(&planted, &real).expect("a folder");
                symlink(&real, &planted).expect("a link");
                lchown(&planted, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
        }
        if attack == "mode" && path != "subtend/skills/planted-skill" {
            let model = user.script_named("hello", "Hello.");
            assert_refused(&call(&["run", "--store", "memory", "--model", &model, "hi"]), &planted);
            continue;
        }
        let left = match path {
            "" => [false; 4],
            "subtend" => [false, false, false, true],
            "subtend/subtend.yaml" => [false, true, true, true],
            "subtend/trusted.json" => [true, false, true, true],
            path if path.starts_with("subtend/skills") => [true, true, false, true],
            _ => [true, true, true, false],
        };
        let (after, warned) = used();
        assert_eq!(after, left, "{attack} {path}: {warned}");
        assert!(
            warned.contains("left out") && warned.contains(&planted.display().to_string()),
            "{attack} {path}: {warned}"
        );
    }
}

fn assert_refused(done: &CommandOutput, path: &Path) {
    let (path, chmod) = (path.display().to_string(), "chmod ");
    let is_named = done.err.contains(&path) && (done.err.contains(chmod) || done.err.contains("Correct its mode"));
    assert!(done.code == Some(2) && is_named, "{path}: {done:?}");
}

/// Calls the command as a user whom modes bind: for a superuser, `nobody` runs a copy, and owns all files.
fn call_as_ordinary_user(user: &User, args: &[&str]) -> CommandOutput {
    let mut command = user.command(args);
    if is_root() {
        let home = user.workspace().parent().expect("a home").to_owned();
        let program = home.join("subtend");
        if !program.exists() {
            // A process forked meanwhile would keep the copy open for writing.
            let _alone = no_forks();
            std::fs::copy(command.get_program(), &program).expect("a copy");
        }
        all(&home).iter().for_each(|path| lchown(path, Some(NOBODY), Some(NOBODY)).expect("root may"));
        let mut other = Command::new(program);
        other.args(command.get_args()).current_dir(user.workspace()).uid(NOBODY).gid(NOBODY);
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("HOME", home);
        other.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command = other;
    }
    command.env_remove("SUBTEND_TRUST");
    RunningCommand::start(command, "").done()
}

/// A command of an agent may close what this user owns. Then nothing starts: rules, trust, agents that deny, and links
/// would count as missing. The control: the same files, opened again.
#[test]
fn closed_configuration_does_not_count_as_missing() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let file = |path: &str, text: &str| {
        let path = user.workspace().with_file_name(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    file("config/subtend/subtend.yaml", "limits: {turns: 7}\n");
    for path in ["config/claude/agents/own.md", "workspace/.subtend/agents/other.md", "workspace/.claude/agents/c.md"] {
        file(path, "---\nname: own\ndescription: Works.\n---\nWork.\n");
    }
    // The user's own instructions, which import files of the workspace.
    file("workspace/dots/AGENTS.md", "@first.md\n");
    file("workspace/dots/first.md", "@second.md\n");
    let link = user.config().join("subtend/AGENTS.md");
    symlink(user.workspace().join("dots/AGENTS.md"), link).expect("a link");
    let trusted = call_as_ordinary_user(&user, &["trust", "--yes"]);
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    let run = || call_as_ordinary_user(&user, &["run", "--store", "memory", "--model", &model, "hi"]);
    for (path, closed) in [
        ("config/subtend/subtend.yaml", 0),
        ("config/subtend/trusted.json", 0),
        ("config/subtend", 0),
        ("config/subtend", 0o600),
        ("config/claude", 0),
        ("config/claude/agents", 0),
        ("config/claude/agents/own.md", 0),
        ("workspace/.subtend/agents", 0),
        ("workspace/.subtend/agents", 0o400),
        ("workspace/.subtend/agents/other.md", 0),
        ("workspace/.claude/agents/c.md", 0),
        ("workspace/dots", 0o300),
        ("workspace/dots/AGENTS.md", 0o666),
        ("workspace/dots/first.md", 0),
        ("workspace/dots/first.md", 0o666),
    ] {
        let path = user.workspace().with_file_name(path);
        let open = mode(&path);
        allow(&path, closed);
        let refused = run();
        allow(&path, open);
        assert_refused(&refused, &path);
        assert_eq!(run().code, Some(0), "the control");
    }
}

/// A directory below the workspace stays trusted, and so protected, while a directory above it is closed. Another program
/// opens that while the session works. The control: a directory that is not trusted.
#[test]
fn trusted_directory_below_a_closed_one_is_protected() {
    if !sandbox::probe().is_ok_and(|strength| strength == SandboxStrength::FilesAndNetwork) {
        return;
    }
    let user = User::new();
    let paths = ["trusted/below/subtend.yaml", "other/below/subtend.yaml"];
    paths.iter().for_each(|path| user.file(path, "limits: {turns: 7}\n"));
    let trusted = call_as_ordinary_user(&user, &["trust", "--yes", "trusted/below"]);
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    ["trusted", "other"].iter().for_each(|dir| allow(&user.workspace().join(dir), 0));
    let shell = |command: String| json!({"calls": [{"tool": "shell", "args": {"command": command}}]});
    let write = |path: &str| json!({"calls": [{"tool": "write", "args": {"path": path, "content": "spoiled"}}]});
    let started = json!({"calls": [{"tool": "write", "args": {"path": "started", "content": ""}}]});
    let opened = [started, shell("until test -e trusted/below -a -e other/below; do sleep 0.05; done".to_owned())];
    let written = paths.iter().flat_map(|path| [write(path), shell(format!("echo spoiled > {path}"))]);
    let steps: Vec<_> = opened.into_iter().chain(written).chain([json!({"text": "done"})]).collect();
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let args =
        ["run", "--json", "--store", "memory", "--model", &model, "--allow", "fs.*", "--allow", "shell.run", "go"];
    let done = std::thread::scope(|threads| {
        let run = threads.spawn(|| call_as_ordinary_user(&user, &args));
        while !run.is_finished() && !user.workspace().join("started").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        ["trusted", "other"].iter().for_each(|dir| allow(&user.workspace().join(dir), 0o755));
        run.join().expect("the command runs")
    });
    let spoiled = paths
        .map(|path| std::fs::read_to_string(user.workspace().join(path)).is_ok_and(|text| text.contains("spoiled")));
    assert_eq!(spoiled, [false, true], "{done:?}");
}

/// A replaced file may be setuid, or writable by others. The control: other bits of the user's own file are kept.
#[test]
fn replaced_file_does_not_keep_permissions_of_others() {
    // The mode, whether another user owns the file, and the modes after an edit by a model and after `config set`.
    let attacks: [(u32, bool, [u32; 2]); 4] = [
        (0o4777, false, [0o777, 0o777]),
        (0o2770, false, [0o770, 0o770]),
        (0o4777, true, [0o755, 0o644]),
        (0o640, false, [0o640, 0o640]),
    ];
    for (before, is_foreign, after) in attacks {
        if is_foreign && !is_root() {
            continue;
        }
        let user = User::new();
        user.file("notes.md", "one\n");
        user.file("subtend.yaml", "limits:\n  turns: 8\n");
        let planted = ["notes.md", "subtend.yaml"].map(|name| user.workspace().join(name));
        for path in &planted {
            if is_foreign {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
            allow(path, before);
        }
        let edit = serde_json::json!({"tool": "edit", "args": {"path": "notes.md", "old": "one", "new": "two"}});
        let steps = serde_json::json!([{"calls": [edit]}, {"text": "done"}]);
        let model = user.script(&serde_json::json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
        user.succeeds(&["run", "--store", "memory", "--model", &model, "--allow", "fs.*", "go"]);
        user.succeeds(&["config", "set", "limits.turns", "9"]);
        let [notes, settings] = &planted;
        let read = |path: &Path| std::fs::read_to_string(path).expect("a file");
        assert_eq!(read(notes), "two\n");
        assert!(read(settings).contains("turns: 9"), "{}", read(settings));
        let [edited, set] = [mode(notes), mode(settings)];
        assert_eq!([edited, set], after, "{before:o}: {edited:o}, {set:o}");
    }
}
