//! Sessions in worktrees that try to reach the files of their parent, or the worktree of another session.

use serde_json::{Value, json};
use subtend_tools::sandbox;

use super::scene::SECRET;
use crate::cli::call::{RunningCommand, User};
use crate::cli::worktree::{delegating_model, git, isolated, repository, run, writes};

fn shell(command: &str) -> Value {
    json!({"calls": [{"tool": "shell", "args": {"command": command}}]})
}

/// The parent may do everything. Its isolated child cannot reach the workspace through file tools or commands: not by
/// absolute paths, `..`, links or git. The control: a child without isolation does all of it.
#[test]
fn worktree_is_the_authority_of_its_session() {
    if sandbox::probe().is_err() {
        println!("skipped: without a sandbox such a session has no shell");
        return;
    }
    let spoils = |user: &User| {
        let workspace = user.workspace();
        let at = |path: &str| workspace.join(path).display().to_string();
        let link =
            format!("ln -s {0} sub/out; echo spoiled > sub/out/link.txt; echo spoiled > {0}/shell.txt", at("sub"));
        let hook = format!("echo spoiled > {}", at(".git/hooks/pre-commit"));
        [
            writes(&at("absolute.txt"), "spoiled"),
            shell(&link),
            writes("sub/out/through.txt", "spoiled"),
            shell(&hook),
            shell(&format!(
                "git --git-dir={} commit --allow-empty -qm spoiled; git commit --allow-empty -qm spoiled",
                at(".git")
            )),
            writes("own.txt", "fine"),
            json!({"text": "done"}),
        ]
    };
    let head = |user: &User| git(&user.workspace(), &["rev-parse", "main"]);
    let spoiled = |user: &User| {
        let files =
            ["absolute.txt", "sub/link.txt", "sub/shell.txt", "sub/through.txt", ".git/hooks/pre-commit", "own.txt"];
        files.into_iter().filter(|path| user.workspace().join(path).exists()).collect::<Vec<_>>()
    };
    let user = User::new();
    repository(&user);
    let before = head(&user);
    let out = run(&user, &delegating_model(&user, &isolated(), &spoils(&user)));
    assert_eq!((spoiled(&user), head(&user)), (Vec::new(), before), "{out}");
    assert!(out.contains("own.txt +1 -0"), "{out}");

    let control = User::new();
    repository(&control);
    run(&control, &delegating_model(&control, &json!({}), &spoils(&control)));
    let met = spoiled(&control);
    assert!(
        met.contains(&"sub/shell.txt") && met.contains(&"own.txt") && met.contains(&".git/hooks/pre-commit"),
        "{met:?}"
    );
}

/// A descendant without its own isolation works in the worktree of its parent, at any depth. A call cannot lift the
/// isolation that a manifest demands.
#[test]
fn worktree_confines_descendants_and_calls_cannot_lift_it() {
    let user = User::new();
    repository(&user);
    let task = |agent: &str, more: Value| {
        let mut args = json!({"subagent_type": agent, "prompt": "work"});
        args.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        json!({"calls": [{"tool": "task", "args": args}]})
    };
    let agent = |name: &str, more: &str| {
        user.file(
            &format!(".subtend/agents/{name}.md"),
            &format!("---\nmode: all\ndescription: Works.\n{more}---\nWork.\n"),
        );
    };
    agent("upper", "isolation: worktree\n");
    agent("lower", "");
    let rules = json!([
        {"agent": "upper", "steps": [task("lower", json!({})), {"text": "done"}]},
        {"agent": "lower", "steps": [writes("deep.txt", "spoiled"), {"text": "done"}]},
        {"agent": "*", "steps": [task("upper", json!({"isolation": "none"})), task("upper", json!({})), {"text": "done"}]},
    ]);
    let out = run(&user, &user.script(&json!({ "rules": rules }).to_string()));
    assert!(out.contains("this agent always works in a worktree of its own"), "{out}");
    assert!(out.contains("deep.txt +1 -0") && !user.workspace().join("deep.txt").exists(), "{out}");
    let listed = user.json(&["worktree", "list", "--json"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
}

/// Attack: a model without any right to write starts readers in worktrees, whose copies fill the disk of the store. The
/// control: one that changes a file, which stays until a person discards it and counts against the limit.
#[test]
fn worktrees_of_readers_take_no_disk() {
    let user = User::new();
    repository(&user);
    let model = delegating_model(&user, &isolated(), &[json!({"text": "read"})]);
    let done = user.succeeds(&["run", "--json", "--model", &model, "go"]).out;
    assert!(done.contains(": no changes, so it was removed]"), "{done}");
    let all = || user.json(&["worktree", "list", "--json"]).as_array().map(Vec::len);
    assert_eq!(all(), Some(0));
    // A run that ends without an answer leaves none either.
    let lists = json!({"calls": [{"tool": "list", "args": {}}]});
    let model = delegating_model(&user, &isolated(), &[lists.clone(), lists.clone(), lists]);
    user.call(&["run", "--json", "--model", &model, "go", "--limit", "turns=2"]);
    assert_eq!(all(), Some(0));
    let model = delegating_model(&user, &isolated(), &[writes("a.txt", "child\n"), json!({"text": "done"})]);
    run(&user, &model);
    assert_eq!(all(), Some(1));
    let limited = ["run", "--json", "--model", &model, "go", "--allow", "fs.*", "--host", "worktree_mib=32"];
    let refused = user.succeeds(&limited).out;
    let why = "with it, the 1 others of this store would have 64 MiB, and the limit is 32";
    assert!(refused.contains(why), "{refused}");
    assert_eq!(all(), Some(1));
}

/// An agent that needs its own worktree cannot answer in a session without one. The control: its own session has a
/// worktree and leaves no changes in the workspace.
#[test]
fn isolated_agent_cannot_answer_without_a_worktree() {
    let user = User::new();
    repository(&user);
    user.file(".subtend/agents/upper.md", "---\nmode: all\ndescription: Works.\nisolation: worktree\n---\nWork.\n");
    let rules = json!([
        {"agent": "upper", "steps": [writes("upper.txt", "spoiled"), {"text": "done"}]},
        {"agent": "*", "steps": [{"text": "done"}, {"text": "done"}]},
    ]);
    let script = user.script(&json!({ "rules": rules }).to_string());
    run(&user, &script);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let sent = user.call(&["send", "--agent", "upper", "--model", &script, &id, "work"]);
    assert_ne!(sent.code, Some(0), "{sent:?}");
    assert!(sent.err.contains("agent `upper` needs a worktree of its own, which this session lacks"), "{sent:?}");
    let branch = user.call(&["branch", "--agent", "upper", &id]);
    assert!(branch.code != Some(0) && branch.err.contains("needs a worktree of its own"), "{branch:?}");
    let own = user.call(&["run", "--agent", "upper", "--allow", "fs.write=*", "--model", &script, "work"]);
    assert!(own.code == Some(0) && !user.workspace().join("upper.txt").exists(), "{own:?}");
}

/// A directory of the workspace on `PATH`, as in a virtual environment: a program that a session puts there does not run
/// in place of git, where it could show other changes than it merges: neither in the session, nor in a later command that
/// the person starts in another directory. The control: a directory of the user.
#[cfg(unix)]
#[test]
fn git_is_not_taken_from_the_workspace() {
    use std::os::unix::fs::PermissionsExt as _;

    let is_run = |(inside, is_later): (bool, bool)| {
        let user = User::new();
        let outside = user.workspace().with_file_name("outside");
        let bin = if inside { user.workspace() } else { outside }.join(".venv/bin");
        std::fs::create_dir_all(&bin).expect("a directory");
        std::fs::write(bin.join("git"), "#!/bin/sh\ntouch \"$GIT_DIR/planted\"\nexit 1\n").expect("a program");
        std::fs::set_permissions(bin.join("git"), std::fs::Permissions::from_mode(0o755)).expect("a program");
        let model = delegating_model(&user, &isolated(), &[writes("own.txt", "fine"), json!({"text": "done"})]);
        let mut command = user.command(&["run", "--json", "--model", &model, "--allow", "fs.write", "go"]);
        let system = std::env::var_os("PATH").unwrap_or_default();
        let path = [bin].into_iter().chain(std::env::split_paths(&system));
        let path = std::env::join_paths(path).expect("a PATH");
        command.env("PATH", if is_later { &system } else { &path });
        RunningCommand::start(command, "").done();
        let worktrees = || std::fs::read_dir(user.data().join("worktrees")).expect("a directory").flatten();
        if is_later {
            let name = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned);
            let id = worktrees().find_map(name).expect("a worktree");
            let mut later = user.command(&["worktree", "diff", &id]);
            later.env("PATH", &path).current_dir(user.data());
            // The planted program cannot write here, but it fails.
            return RunningCommand::start(later, "").done().code != Some(0);
        }
        worktrees().any(|entry| entry.path().join("planted").exists())
    };
    let cases = [(true, false), (false, false), (true, true), (false, true)];
    assert_eq!(cases.map(is_run), [false, true, false, true]);
}

/// The parent puts links into a directory of the workspace on `PATH`, as in a virtual environment: they open nothing
/// outside to commands of its isolated child. The control: in the user's own directory, the link to a program does.
#[cfg(unix)]
#[test]
fn links_of_a_parent_on_path_open_nothing_to_its_child() {
    use std::os::unix::fs::PermissionsExt as _;

    if sandbox::probe().is_err() {
        println!("skipped: without a sandbox such a session has no shell");
        return;
    }
    let is_read = |in_workspace: bool| {
        let user = User::new();
        repository(&user);
        let outside = user.workspace().with_file_name("outside");
        let tools = if in_workspace { user.workspace().join(".venv") } else { outside.join("tools") };
        std::fs::create_dir_all(outside.join("private")).expect("a directory");
        std::fs::create_dir_all(tools.join("bin")).expect("a directory");
        for path in ["private.txt", "private/a.txt"] {
            std::fs::write(outside.join(path), SECRET).expect("a file");
            std::fs::set_permissions(outside.join(path), std::fs::Permissions::from_mode(0o755)).expect("a program");
        }
        for (to, at) in [("private.txt", "bin/x"), ("private", "lib")] {
            std::os::unix::fs::symlink(outside.join(to), tools.join(at)).expect("a link");
        }
        let attacks: [&str; 2] = ["private.txt", "private/a.txt"];
        let reads = attacks.map(|path| shell(&format!("cat {}", outside.join(path).display())));
        let steps = [&reads[..], &[json!({"text": "done"})]].concat();
        let model = delegating_model(&user, &isolated(), &steps);
        let mut command =
            user.command(&["run", "--json", "--model", &model, "go", "--allow", "fs.*", "--allow", "shell.run"]);
        let system = std::env::var_os("PATH").unwrap_or_default();
        let path = [tools.join("bin")].into_iter().chain(std::env::split_paths(&system));
        command.env("PATH", std::env::join_paths(path).expect("a PATH"));
        let done = RunningCommand::start(command, "").done();
        done.out.matches(&format!("\"content\":\"{SECRET}")).count()
    };
    assert_eq!([true, false].map(is_read), [0, 1]);
}
