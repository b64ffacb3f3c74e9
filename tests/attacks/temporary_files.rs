//! Temporary files of the host that a session reaches because they lie in its workspace.

use super::scene::*;
use rustix::process::geteuid;
use subtend_session::owners::temporary_dir_name;
use subtend_tools::sandbox;

use crate::cli::call::{CommandOutput, RunningCommand, User};

/// The settings of git that have it start a program, which makes the file `mark`.
fn settings(mark: &str) -> String {
    format!("[core]\n\tfsmonitor = \"touch {mark}; false\"\n")
}

fn call(tool: &str, args: Value) -> Value {
    json!({"tool": tool, "args": args})
}

/// Runs `calls` in the workspace `dir`, all in one turn, with `TMPDIR` in the user's workspace.
fn run_calls(user: &User, dir: &Path, calls: &[Value], more: &[&str]) -> RunningCommand {
    let script = json!({"rules": [{"agent": "*", "steps": [{"calls": calls}, {"text": "done"}]}]});
    let model = user.script(&script.to_string());
    let args = ["run", "--json", "--store", "memory", "--model", &model, "go", "--allow", "fs.*"];
    let mut command = user.command(&[&args[..], more].concat());
    command.current_dir(dir).env("TMPDIR", user.workspace().join("tmp"));
    RunningCommand::start(command, "")
}

/// A session whose workspace contains the directory for temporary files writes settings of git into the `HOME` of a command
/// of another session. The control: the same settings in another directory, which that command makes its `HOME`.
#[test]
fn home_of_a_command_of_another_session_is_out_of_reach() {
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    let user = User::new();
    let victim = user.workspace().join("tmp/project");
    std::fs::create_dir_all(victim.join("plain")).expect("a directory");
    assert!(Command::new("git").args(["init", "-q"]).current_dir(&victim).status().expect("git").success());
    let script = format!(
        "echo {SECRET} > $HOME/note; touch $HOME/only-listed; echo $HOME > home.part; mv home.part home; until [ -e continue ]; do :; done; \
         git status; HOME=$PWD/plain git status"
    );
    let running = run_calls(&user, &victim, &[call("shell", json!({"command": script}))], &["--allow", "shell.run"]);
    while !victim.join("home").exists() {
        std::thread::yield_now();
    }
    let home = std::fs::read_to_string(victim.join("home")).expect("a path");
    let workspace = user.workspace().canonicalize().expect("a directory");
    let home = Path::new(home.trim()).strip_prefix(workspace).expect("a path in the workspace").display().to_string();
    let [planted, copied] = [settings("by-home"), settings("by-copy")];
    let attack =
        |done: CommandOutput| assert!(!done.out.contains(SECRET) && !done.out.contains("only-listed"), "{done:?}");
    let calls = [
        call("list", json!({"path": home})),
        call("read", json!({"path": format!("{home}/note")})),
        call("search", json!({"pattern": "hidden"})),
        call("write", json!({"path": format!("{home}/.gitconfig"), "content": planted})),
        call("write", json!({"path": "tmp/project/plain/.gitconfig", "content": settings("by-plain")})),
    ];
    attack(run_calls(&user, &user.workspace(), &calls, &[]).done());
    std::fs::write(user.workspace().join("copied"), copied).expect("a file");
    let script = format!("ls -a {home}; cat {home}/note; cp copied {home}/.gitconfig; mv {home} moved");
    let calls = [call("shell", json!({"command": script}))];
    attack(run_calls(&user, &user.workspace(), &calls, &["--allow", "shell.run"]).done());
    std::fs::write(victim.join("continue"), "").expect("a file");
    let done = running.done();
    let made = ["by-home", "by-copy", "by-plain"].map(|mark| victim.join(mark).exists());
    assert_eq!(made, [false, false, true], "{done:?}");
}

/// A child that may use the files of one directory, which contains the temporary files, reads and writes those of its parent.
/// The control: other files in that directory.
#[test]
fn temporary_files_of_a_parent_are_out_of_reach() {
    let user = User::new();
    let below = format!("tmp/{}/scratch", temporary_dir_name(geteuid().as_raw()));
    for dir in [&*below, "tmp/other"] {
        user.file(&format!("{dir}/note"), SECRET);
    }
    let rules = "permissions:\n  \"*\": deny\n  fs.*: {\"tmp/**\": allow, \"tmp\": allow}\n";
    user.file(".subtend/agents/scribe.md", &format!("---\nmode: subagent\ndescription: Writes.\n{rules}---\nWrite.\n"));
    let run = |dir: &str| {
        let calls = [
            call("read", json!({"path": format!("{dir}/note")})),
            call("write", json!({"path": format!("{dir}/.gitconfig"), "content": "made"})),
        ];
        let task = [call("task", json!({"subagent_type": "scribe", "prompt": "go"}))];
        let steps = |calls: &[Value]| json!([{"calls": calls}, {"text": "{last}"}]);
        let rules = json!([{"agent": "scribe", "steps": steps(&calls)}, {"agent": "*", "steps": steps(&task)}]);
        let model = user.script(&json!({ "rules": rules }).to_string());
        let args =
            ["run", "--json", "--store", "memory", "--model", &model, "go", "--allow", "fs.*", "--allow", "task:*"];
        let mut command = user.command(&args);
        command.env("TMPDIR", user.workspace().join("tmp"));
        let done = RunningCommand::start(command, "").done();
        (done.out.contains(SECRET), user.workspace().join(dir).join(".gitconfig").exists(), done)
    };
    let (read, written, done) = run(&below);
    assert_eq!((read, written), (false, false), "{done:?}");
    let (read, written, done) = run("tmp/other");
    assert_eq!((read, written), (true, true), "{done:?}");
}
