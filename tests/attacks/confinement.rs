//! Files outside of the workspace that a confined command must not read.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::scene::*;
use subtend_session::owners::temporary_dir_name;
use subtend_tools::policy::PROTECTED;
use subtend_tools::sandbox::{self, SandboxStrength};

use crate::cli::call::{RunningCommand, User, last_event};

fn run_confined(user: &User, path: &[PathBuf], script: &str, more: &[&str]) -> String {
    let call = json!({"tool": "shell", "args": {"command": script}});
    let steps: [Value; 2] = [json!({"calls": [call]}), json!({"text": "done"})];
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let args = ["run", "--json", "--model", &model, "go", "--allow", "shell.run", "--allow", "fs.*"];
    let mut command = user.command(&[&args[..], more].concat());
    let system = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    command.env("PATH", std::env::join_paths(path.iter().chain(&system)).expect("a PATH"));
    let done = RunningCommand::start(command, "").done();
    assert_eq!(done.code, Some(0), "{done:?}");
    done.out
}

/// Returns the output of a shell in a session without any limits, not even the protection of agent configuration.
fn run_unconfined(user: &User, script: &str) -> String {
    let spelled: Vec<String> = PROTECTED.iter().map(|path| format!("fs.write={path}/**")).collect();
    let lifted = spelled.iter().flat_map(|rule| ["--allow", rule]);
    run_confined(user, &[], script, &lifted.chain(["--allow", "net.fetch"]).collect::<Vec<_>>())
}

fn can_confine() -> bool {
    sandbox::probe().is_ok_and(|strength| strength == SandboxStrength::FilesAndNetwork)
}

/// A directory of the workspace on `PATH`, as in a virtual environment: links in it, and links to it, grant no access.
/// The control: a link in the user's own directory on `PATH` leads to a readable program.
#[test]
fn workspace_links_on_path_grant_no_access() {
    let user = User::new();
    let home = user.workspace().with_file_name("outside");
    for (path, text) in [("private.txt", SECRET), ("private/lib.txt", SECRET), ("tool", SECRET)] {
        std::fs::create_dir_all(home.join(path).parent().expect("a folder")).expect("a folder");
        std::fs::write(home.join(path), text).expect("a file");
    }
    let (bin, own) = (user.workspace().join(".venv/bin"), home.join("bin"));
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::create_dir_all(&own).expect("a folder");
    let link = |to: &Path, at: PathBuf| symlink(to, at).expect("a link");
    link(&home.join("private.txt"), bin.join("x"));
    link(&home.join("private"), user.workspace().join(".venv/lib"));
    link(&bin.join("x"), own.join("through"));
    let script = format!("cat {0}/private.txt {0}/private/lib.txt", home.display());
    let path = [bin, own.clone()];
    assert!(!run_confined(&user, &path, &script, &[]).contains(SECRET));
    std::fs::set_permissions(home.join("tool"), std::fs::Permissions::from_mode(0o755)).expect("a program");
    link(&home.join("tool"), own.join("tool"));
    assert_eq!(run_confined(&user, &path, "cat ../outside/tool", &[]).contains(SECRET), can_confine());
    assert!(run_unconfined(&user, &script).contains(SECRET));
}

/// Links in a directory on `PATH` that a session of another workspace may have made, and such a directory behind a link:
/// they open programs alone. The control: a link to a program.
#[test]
fn links_on_path_open_programs_alone() {
    let user = User::new();
    let home = user.workspace().with_file_name("outside");
    let attacks: [&str; 3] = ["private.txt", "private/lib.txt", "behind/a.txt"];
    for path in attacks.iter().chain(&["tools/bin/own", "program"]) {
        std::fs::create_dir_all(home.join(path).parent().expect("a folder")).expect("a folder");
        std::fs::write(home.join(path), SECRET).expect("a file");
    }
    std::fs::set_permissions(home.join("program"), std::fs::Permissions::from_mode(0o755)).expect("a program");
    for (to, at) in
        [("private.txt", "tools/bin/x"), ("private", "tools/lib"), ("behind", "linked"), ("program", "tools/bin/p")]
    {
        symlink(home.join(to), home.join(at)).expect("a link");
    }
    let path = [home.join("tools/bin"), home.join("linked")];
    for attack in attacks {
        let read = run_confined(&user, &path, &format!("cat {}/{attack}", home.display()), &[]);
        assert!(!read.contains(SECRET), "{attack}: {read}");
    }
    let read = run_confined(&user, &path, &format!("cat {}/program", home.display()), &[]);
    assert_eq!(read.contains(SECRET), can_confine(), "{read}");
}

/// Settings for the superuser alone, such as password hashes. The control: an unconfined shell reads as its user may.
#[test]
fn confined_command_reads_only_world_readable_settings() {
    let user = User::new();
    let own = |path: &&str| Path::new(path).metadata().is_ok_and(|found| found.mode() & 0o004 == 0);
    let Some(hidden) = ["/etc/shadow", "/etc/gshadow", "/etc/sudoers"].into_iter().find(own) else {
        println!("skipped: this system has no settings for the superuser alone");
        return;
    };
    let script =
        format!("cat /etc/passwd > /dev/null && echo settings; head -c 1 {hidden} > /dev/null && echo spoiled");
    let held = run_confined(&user, &[], &script, &[]);
    assert!(!held.contains("\"content\":\"settings\\nspoiled") && !held.contains("\\nspoiled"), "{held}");
    assert_eq!(held.contains("settings\\n"), can_confine(), "{held}");
    let free = run_unconfined(&user, &script);
    assert_eq!(free.contains("\\nspoiled"), std::fs::File::open(hidden).is_ok(), "{free}");
}

/// A command does not inherit files that the host's caller left open. The control: another program inherits them.
#[test]
fn command_inherits_no_open_descriptors() {
    let user = User::new();
    let home = user.workspace().with_file_name("outside");
    std::fs::create_dir(&home).expect("a folder");
    std::fs::write(home.join("read"), SECRET).expect("a file");
    let left_open = |program: &std::ffi::OsStr, args: &mut dyn Iterator<Item = &std::ffi::OsStr>| {
        std::fs::write(home.join("written"), "").expect("a file");
        let mut shell = std::process::Command::new("sh");
        let lead = format!("exec 7< {0}/read 8>> {0}/written; exec \"$0\" \"$@\"", home.display());
        shell.args(["-c", &lead]).arg(program).args(args).current_dir(user.workspace());
        let like = user.command(&[]);
        shell.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let out = shell.output().expect("run the command").stdout;
        let written = std::fs::read_to_string(home.join("written")).expect("a file");
        (String::from_utf8_lossy(&out).contains(SECRET), written == "spoiled\n")
    };
    let script = "cat <&7; echo spoiled >&8; exit 0";
    let call = json!({"tool": "shell", "args": {"command": script}});
    let steps: [Value; 2] = [json!({"calls": [call]}), json!({"text": "done"})];
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let run =
        ["run", "--json", "--model", &model, "go", "--allow", "shell.run", "--allow", "fs.*", "--allow", "net.fetch"];
    let spelled: Vec<String> = PROTECTED.iter().map(|path| format!("fs.write={path}/**")).collect();
    let lifted: Vec<&str> = spelled.iter().flat_map(|rule| ["--allow", rule]).collect();
    for more in [&lifted[..0], &lifted] {
        let command = user.command(&[&run[..], more].concat());
        assert_eq!(left_open(command.get_program(), &mut command.get_args()), (false, false));
    }
    assert_eq!(left_open("sh".as_ref(), &mut ["-c", script].map(std::ffi::OsStr::new).into_iter()), (true, true));
}

/// Returns a model that runs a command a turn, the first in the background if asked, and then writes the file `end`.
fn model_of_commands(user: &User, commands: &[&str], is_first_in_background: bool) -> String {
    let step = |(at, command): (usize, &&str)| {
        let background = at == 0 && is_first_in_background;
        json!({"calls": call("shell", json!({"command": command, "background": background}))})
    };
    let ending = [json!({"calls": call("write", json!({"path": "end", "content": ""}))}), json!({"text": "done"})];
    let steps: Vec<Value> = commands.iter().enumerate().map(step).chain(ending).collect();
    user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string())
}

const ALLOWED: [&str; 4] = ["--allow", "shell.run", "--allow", "fs.*"];

/// A process of the user, such as a plain shell, replaces the temporary directories of commands by links: no command starts
/// with the rights to what they lead to. The control: an unconfined shell reads and writes there.
#[test]
fn link_in_place_of_scratch_files_grants_no_access() {
    let user = User::new();
    let [outside, temporary] = ["outside", "temporary"].map(|name| user.workspace().with_file_name(name));
    [&outside, &temporary].iter().for_each(|dir| std::fs::create_dir(dir).expect("a directory"));
    std::fs::write(outside.join("private.txt"), SECRET).expect("a file");
    let attack = format!("cat {0}/private.txt; touch {0}/spoiled", outside.display());
    let model = model_of_commands(&user, &[&attack, &attack, &attack, &attack], false);
    let mut command = user.command(&[&["run", "--json", "--model", &model, "go"], &ALLOWED[..]].concat());
    command.env("TMPDIR", &temporary);
    let end = user.workspace().join("end");
    let (dir, moved) =
        (temporary.join(temporary_dir_name(rustix::process::geteuid().as_raw())), temporary.join("moved"));
    let swaps = std::thread::spawn(move || {
        let mut replaced = 0;
        while !end.exists() {
            let found = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            for path in found.filter(|entry| !entry.path().is_symlink()).map(|entry| entry.path()) {
                let is_moved = std::fs::rename(&path, moved.with_extension(replaced.to_string())).is_ok();
                replaced += usize::from(is_moved && symlink(&outside, &path).is_ok());
            }
        }
        (replaced, outside)
    });
    let done = RunningCommand::start(command, "").done();
    std::fs::write(user.workspace().join("end"), "").expect("a file");
    let (replaced, outside) = swaps.join().expect("no panic");
    // The commands themselves contain the path, but not the secret.
    assert!(!done.out.contains(SECRET) && !outside.join("spoiled").exists(), "{done:?}");
    assert!(replaced > 1 || !can_confine(), "{replaced} were replaced: {done:?}");
    assert!(run_unconfined(&user, &attack).contains(SECRET) && outside.join("spoiled").exists());
}

/// Where the program lies in the workspace, a command replaces it: the next command has the running program as its guard,
/// not the new one, which no sandbox would hold. The control: the new one runs under its name.
#[test]
fn replaced_program_guards_no_command() {
    let user = User::new();
    let (program, mark) = (user.workspace().join("subtend"), user.workspace().with_file_name("mark"));
    let like = user.command(&[]);
    if std::fs::hard_link(like.get_program(), &program).is_err() {
        std::fs::copy(like.get_program(), &program).expect("a copy");
    }
    let replace = format!("printf '#!/bin/sh\\ntouch {}\\n' > new; chmod +x new; mv -f new subtend", mark.display());
    let model = model_of_commands(&user, &[&replace, "echo second"], false);
    let mut command = Command::new(&program);
    command.args(["run", "--json", "--model", &model, "go"]).args(ALLOWED).current_dir(user.workspace());
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let out = command.output().expect("run the command").stdout;
    let out = String::from_utf8_lossy(&out);
    assert!(!mark.exists(), "{out}");
    assert_eq!(out.contains("\"content\":\"second\\n"), can_confine(), "{out}");
    if can_confine() {
        assert!(Command::new(&program).status().expect("run the new program").success());
        assert!(mark.exists());
    }
}

/// A session of the parent directory replaces a workspace with a link. No session of that workspace continues in the
/// target, and no merge writes there. The control: the directory itself.
#[test]
fn link_in_place_of_a_workspace_is_not_followed() {
    let user = User::new();
    let outside = user.data().with_file_name("outside");
    let (below, moved) = (user.workspace().join("below"), user.workspace().join("moved"));
    [&outside, &below].iter().for_each(|dir| std::fs::create_dir(dir).expect("a directory"));
    let calls = |tool: &str, args: Value| json!([{"tool": tool, "args": args}]);
    let write = |path: &str| calls("write", json!({"path": path, "content": "made"}));
    let task = json!({"subagent_type": "general", "prompt": "child", "isolation": "worktree"});
    let first =
        json!([{"when": {"prompt_contains": "child"}, "calls": write("merged.txt")}, {"calls": calls("task", task)}]);
    let steps = [first, json!({"text": "done"}), json!({"calls": write("made.txt")}), json!({"text": "made"})];
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let call = |folder: &Path, args: &[&str]| {
        let mut command = user.command(args);
        command.current_dir(folder);
        RunningCommand::start(command, "").done()
    };
    let ran = call(&below, &["run", "--json", "--model", &model, "--allow", "fs.write", "go"]);
    let id = last_event(&ran.out)["session"].as_str().expect("an id").to_owned();
    let worktree = user.json(&["worktree", "list", "--json"])[0]["session"].as_str().expect("an id").to_owned();
    let (send, merge) = (["send", &*id, "again", "--model", &*model], ["worktree", "merge", &*worktree, "--yes"]);
    std::fs::rename(&below, &moved).expect("moved");
    symlink(&outside, &below).expect("a link");
    for (folder, args) in [(user.workspace(), &send[..]), (below.clone(), &send), (user.workspace(), &merge)] {
        let refused = call(&folder, args);
        assert!(refused.code != Some(0) && refused.err.contains("was replaced by a link"), "{refused:?}");
    }
    assert_eq!(std::fs::read_dir(&outside).expect("a directory").count(), 0);
    std::fs::remove_file(&below).expect("removed");
    std::fs::rename(&moved, &below).expect("moved back");
    assert_eq!([&send[..], &merge].map(|args| call(&user.workspace(), args).code), [Some(0); 2]);
    assert!(["made.txt", "merged.txt"].iter().all(|name| below.join(name).exists()));
}

/// A workspace is replaced with a link while its session runs. The worktree of a child contains no files of the target.
/// The control: a link that leads back to the workspace.
#[test]
fn worktree_does_not_follow_a_link_to_another_workspace() {
    for (link, is_read) in [("../../outside", false), ("moved", true)] {
        let user = User::new();
        let outside = user.data().with_file_name("outside");
        let below = user.workspace().join("below");
        for dir in [&outside, &below] {
            std::fs::create_dir(dir).expect("a directory");
            std::fs::write(dir.join("word"), SECRET).expect("a file");
        }
        let swap = format!("mv ../below ../moved && ln -s {link} ../below");
        let steps = [
            json!([{"when": {"prompt_contains": "child"}, "calls": [{"tool": "read", "args": {"path": "word"}}]},
                   {"calls": [{"tool": "shell", "args": {"command": swap}}]}]),
            json!([{"when": {"prompt_contains": "child"}, "text": "child done"},
                   {"calls": [{"tool": "task", "args": {"subagent_type": "general", "prompt": "child", "isolation": "worktree"}}]}]),
            json!({"text": "done"}),
        ];
        let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
        // An unlimited session replaces its own directory, as a session of the parent directory could.
        let spelled: Vec<String> = PROTECTED.iter().map(|path| format!("fs.write={path}/**")).collect();
        let lifted = spelled.iter().flat_map(|rule| ["--allow", rule]);
        let all = [
            "run",
            "--json",
            "--model",
            &model,
            "go",
            "--allow",
            "fs.*",
            "--allow",
            "shell.run",
            "--allow",
            "net.fetch",
        ];
        let mut command = user.command(&all.into_iter().chain(lifted).collect::<Vec<_>>());
        command.current_dir(&below);
        let done = RunningCommand::start(command, "").done();
        assert!(std::fs::symlink_metadata(&below).expect("an entry").is_symlink(), "{done:?}");
        assert_eq!(done.out.contains(SECRET), is_read, "{done:?}");
    }
}
