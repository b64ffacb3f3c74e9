//! Attacks on files that a rule for all files does not cover: agent configuration and the host's own files.

use super::scene::*;
use subtend_tools::policy::PROTECTED;
use subtend_tools::sandbox::{self, SandboxStrength};

use crate::cli::call::{CommandOutput, RunningCommand, User};
use crate::cli::serve::serve_with;

const ALLOW_ALL: [&str; 6] = ["--allow", "fs.*", "--allow", "shell.run", "--allow", "net.fetch"];

/// Runs a model that makes these calls; each event is on stdout.
fn run_calls(user: &User, calls: &[Value], more: &[&str]) -> CommandOutput {
    let mut steps: Vec<Value> = calls.iter().map(|call| json!({"calls": [call]})).collect();
    steps.push(json!({"text": "done"}));
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    user.succeeds(&[&["run", "--json", "--model", &model, "go"], &ALLOW_ALL[..], more].concat())
}

fn write(path: &str) -> Value {
    json!({"tool": "write", "args": {"path": path, "content": "spoiled"}})
}

fn sh(command: &str) -> Value {
    json!({"tool": "shell", "args": {"command": command}})
}

fn is_spoiled(user: &User, path: &str) -> bool {
    std::fs::read_to_string(user.workspace().join(path)).is_ok_and(|text| text.contains("spoiled"))
}

fn can_confine() -> bool {
    sandbox::probe().is_ok_and(|strength| strength == SandboxStrength::FilesAndNetwork)
}

const FILES: [&str; 4] = ["subtend.yaml", ".subtend/agents/general.md", ".claude/settings.json", ".mcp.json"];

/// A rule for all files does not allow writing agent configuration. The control: a rule that names the path does.
#[test]
fn rule_for_all_files_excludes_agent_configuration() {
    let user = User::new();
    std::fs::create_dir(user.workspace().join("src")).expect("a folder");
    #[cfg(unix)]
    std::os::unix::fs::symlink("../subtend.yaml", user.workspace().join("src/link")).expect("a link");
    let calls: Vec<Value> = FILES.iter().chain(&["src/link", "src/a.rs"]).map(|path| write(path)).collect();
    run_calls(&user, &calls, &[]);
    assert_eq!(FILES.map(|path| is_spoiled(&user, path)), [false; 4]);
    assert!(is_spoiled(&user, "src/a.rs"));
    run_calls(&user, &calls, &["--allow", "fs.write=.subtend/**", "--allow", "fs.write=subtend.yaml"]);
    assert_eq!(FILES.map(|path| is_spoiled(&user, path)), [true, true, false, false]);
}

/// Where a file system ignores case or invisible characters, a new file with such a name is configuration of agents. The control: other names.
#[test]
fn new_file_with_another_case_of_a_protected_name_is_refused() {
    const ATTACKS: [&str; 8] = [
        "Subtend.yaml",
        "SUBTEND.YAML",
        "\u{17f}ubtend.yaml",
        ".Claude/settings.json",
        ".MCP.json",
        "subtend\u{ad}.yaml",
        ".g\u{200b}emini/settings.json",
        "subtend.yaml.",
    ];
    let user = User::new();
    run_calls(&user, &ATTACKS.map(write), &[]);
    assert_eq!(ATTACKS.map(|path| is_spoiled(&user, path)), [false; 8]);
    // A file that exists under such a name is one of these files there.
    user.file(".Claude/settings.json", "{}\n");
    run_calls(&user, &[write(".Claude/settings.json")], &[]);
    assert!(!is_spoiled(&user, ".Claude/settings.json"));
    let controls = ["subtend.yml", "src/Subtend.yaml"];
    run_calls(&user, &controls.map(write), &[]);
    assert_eq!(controls.map(|path| is_spoiled(&user, path)), [true; 2]);
}

/// Commands cannot write it either; without a sandbox no command is offered.
#[test]
fn command_cannot_write_agent_configuration() {
    const ATTACKS: [&str; 6] = [
        "echo spoiled > subtend.yaml",
        "mkdir -p .subtend/agents; echo spoiled > .subtend/agents/general.md",
        "mkdir .claude; echo spoiled > .claude/settings.json",
        "echo spoiled > src/x; mv src/x .mcp.json; ln src/x .mcp.json; ln -s src/x .mcp.json",
        "mkdir -p src/d/agents; echo spoiled > src/d/agents/general.md; rm -rf .subtend; mv src/d .subtend",
        "cd src; echo spoiled > ../subtend.yaml; echo spoiled > made",
    ];
    let calls = ATTACKS.map(sh);
    let user = User::new();
    std::fs::create_dir(user.workspace().join("src")).expect("a folder");
    FILES.iter().for_each(|path| user.file(path, "{}\n"));
    user.file(".subtend/agents/general.md", "---\nmode: all\n---\nWork.\n");
    user.file("subtend.yaml", "");
    run_calls(&user, &calls, &[]);
    assert_eq!(FILES.map(|path| is_spoiled(&user, path)), [false; 4]);
    assert_eq!(is_spoiled(&user, "src/made"), can_confine());
    let user = User::new();
    std::fs::create_dir(user.workspace().join("src")).expect("a folder");
    let spelled: Vec<String> = PROTECTED.iter().map(|path| format!("fs.write={path}/**")).collect();
    let lifted: Vec<&str> = spelled.iter().flat_map(|rule| ["--allow", rule]).collect();
    run_calls(&user, &calls[..3], &lifted);
    assert_eq!(FILES.map(|path| is_spoiled(&user, path)), [true, true, true, false]);
}

/// Hard links to configuration, made before the run or by commands, do not let it be written. The control: another file
/// is written through its hard link.
#[cfg(unix)]
#[test]
fn hard_link_of_a_protected_file_cannot_be_written() {
    let user = User::new();
    user.file("subtend.yaml", "limits: {turns: 9}\n");
    user.file(".subtend/agents/mine.md", "---\nmode: all\ndescription: Works.\n---\nWork.\n");
    for (path, text) in [("src/plain", "plain"), ("lib/a", "a")] {
        user.file(path, text);
    }
    let at = |path: &str| user.workspace().join(path);
    for (of, name) in [("subtend.yaml", "src/x"), (".subtend/agents/mine.md", "src/y"), ("src/plain", "lib/z")] {
        std::fs::hard_link(at(of), at(name)).expect("a hard link");
    }
    let edit = json!({"tool": "edit", "args": {"path": "src/x", "old": "turns", "new": "spoiled"}});
    let attacks = [
        sh("echo spoiled > src/x; echo spoiled > src/y"),
        sh("ln subtend.yaml lib/n; echo spoiled > lib/n; ln .subtend/agents/mine.md lib/m; echo spoiled > lib/m"),
        sh("cp -l subtend.yaml lib/c && echo spoiled > lib/c; mv lib/a subtend.yaml"),
        edit,
        write("src/y"),
    ];
    run_calls(&user, &attacks, &[]);
    let kept = ["subtend.yaml", ".subtend/agents/mine.md"];
    assert_eq!(kept.map(|path| is_spoiled(&user, path)), [false, false]);
    run_calls(&user, &[sh("echo spoiled > lib/z")], &[]);
    assert_eq!(is_spoiled(&user, "src/plain"), can_confine());
}

/// If no configuration exists, a command can create some. The next start ignores it until the user trusts it.
#[test]
fn configuration_created_by_a_command_is_not_used() {
    let user = User::new();
    let agent = "printf -- '---\\nmode: all\\ndescription: Spoiled.\\n---\\nWork.\\n' > .subtend/agents/spoiled.md";
    let script = format!("mkdir target; echo made > target/a; mkdir -p .subtend/agents; {agent}");
    // The host's files outside, the store and the trust records, cannot be reached either.
    let (config, data) = (user.config().join("subtend"), user.data());
    std::fs::create_dir_all(&config).expect("a folder");
    let outside = format!(
        "cat {0}/redb/*; echo spoiled > {0}/x; echo spoiled > {1}/trusted.json",
        data.display(),
        config.display()
    );
    run_calls(&user, &[sh(&script), sh(&outside)], &[]);
    if can_confine() {
        assert!(!config.join("trusted.json").exists() && !data.join("x").exists());
    }
    assert_eq!(std::fs::read_to_string(user.workspace().join("target/a")).ok().as_deref(), Some("made\n"));
    assert!(user.workspace().join(".subtend/agents/spoiled.md").exists());
    let listed = |trust: &str| {
        let mut command = user.command(&["agents"]);
        command.env("SUBTEND_TRUST", trust);
        RunningCommand::start(command, "").done().out.contains("spoiled")
    };
    assert_eq!((listed("0"), listed("1")), (false, true));
}

fn plant(path: &Path) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, format!("# {SECRET}\n")).expect("a file");
}

/// A data directory in the workspace can be neither read nor written by any tool.
#[test]
fn store_in_the_workspace_is_out_of_reach() {
    let user = User::new();
    plant(&user.workspace().join("data/planted"));
    plant(&user.workspace().join("data2/planted"));
    let calls = |dir: &str| {
        let path = format!("{dir}/planted");
        vec![
            json!({"tool": "read", "args": {"path": &path}}),
            json!({"tool": "search", "args": {"pattern": "hidden"}}),
            json!({"tool": "search", "args": {"pattern": "hidden", "path": dir}}),
            sh(&format!(
                "cat {path}; cp {path} found; cat found; ln {path} found; cat found; ln -s {path} found; cat found"
            )),
            sh(&format!("echo spoiled > {path}; rm -rf {dir}; mv {dir} moved")),
            write(&path),
            write(&format!("{dir}/redb/LOCK")),
        ]
    };
    std::fs::remove_dir_all(user.workspace().join("data2")).expect("removed");
    let done = run_calls(&user, &calls("data"), &["--data", "data"]);
    assert!(!done.out.contains(SECRET), "{}", done.out);
    assert!(!is_spoiled(&user, "data/planted") && !is_spoiled(&user, "data/redb/LOCK"));
    assert_eq!(user.call(&["verify", "--data", "data"]).code, Some(0));
    plant(&user.workspace().join("data2/planted"));
    let control = run_calls(&user, &calls("data2"), &["--data", "data"]);
    assert!(control.out.contains(SECRET) && is_spoiled(&user, "data2/planted"), "{}", control.out);
}

/// The user keeps the tokens in the workspace. A model that could write the file would create a token, and one that
/// could hold its lock would prevent a revocation. The control: another file in the same directory.
#[test]
fn tokens_in_the_workspace_are_out_of_reach() {
    let user = User::new();
    user.succeeds(&["token", "--tokens", "tokens.json", "create", "phone"]);
    let attacks: [Value; 5] = [
        write("tokens.json"),
        write("tokens.json.lock"),
        sh("echo spoiled > tokens.json; rm tokens.json; mv other.json tokens.json"),
        sh("echo spoiled > tokens.json.lock"),
        json!({"tool": "read", "args": {"path": "tokens.json"}}),
    ];
    let mut steps = vec![json!({"calls": [write("other.json")]})];
    steps.extend(attacks.iter().map(|call| json!({"calls": [call]})));
    steps.push(json!({"text": "done"}));
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let host = serve_with(&user, &[&["--model", &model, "--tokens", "tokens.json"], &ALLOW_ALL[..]].concat());
    let id = host.completed_session("go");
    let records = host.unix(&format!("GET /v1/sessions/{id}/records"), "").json().to_string();
    host.host.stops();
    assert!(!is_spoiled(&user, "tokens.json") && !is_spoiled(&user, "tokens.json.lock"), "{records}");
    assert!(!records.contains("phone"), "{records}");
    assert!(is_spoiled(&user, "other.json"), "{records}");
    assert_eq!(user.call(&["token", "--tokens", "tokens.json", "revoke", "phone"]).code, Some(0));
}

/// A workspace that contains the user's data and configuration cannot reach them; a workspace within them is refused.
#[test]
fn workspace_above_the_store_cannot_reach_it() {
    let user = User::new();
    plant(&user.config().join("subtend/subtend.yaml"));
    plant(&user.config().join("other/planted"));
    let calls = |path: &str| {
        let file = format!("config/{path}");
        [
            json!({"tool": "read", "args": {"path": &file}}),
            json!({"tool": "write", "args": {"path": &file, "content": "# spoiled"}}),
            sh(&format!("cat {file}; echo '# spoiled' > {file}; ls data/redb && echo 'store'$((1+1))'seen'")),
        ]
    };
    let done = run_calls(&user, &calls("subtend/subtend.yaml"), &["--workspace", ".."]);
    let own = std::fs::read_to_string(user.config().join("subtend/subtend.yaml")).expect("a file");
    assert!(!done.out.contains(SECRET) && !done.out.contains("store2seen") && !own.contains("spoiled"), "{}", done.out);
    let control = run_calls(&user, &calls("other/planted"), &["--workspace", ".."]);
    let other = std::fs::read_to_string(user.config().join("other/planted")).expect("a file");
    assert!(control.out.contains(SECRET) && other.contains("spoiled"), "{}", control.out);
    std::fs::create_dir_all(user.data().join("inside")).expect("a folder");
    for around in ["../data", "../data/inside", "../data/redb", "../config/subtend"] {
        let refused = user.call(&["run", "--workspace", around, "hi"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("which tools may not use"), "{refused:?}");
    }
}

/// The target of a protected link is protected too.
#[cfg(unix)]
#[test]
fn target_of_a_protected_link_is_protected() {
    let user = User::new();
    for dir in ["sub", "other"] {
        user.file(&format!("{dir}/settings.json"), "{}\n");
    }
    std::os::unix::fs::symlink("sub", user.workspace().join(".claude")).expect("a link");
    let tries = [write("sub/settings.json"), write(".claude/settings.json"), sh("echo spoiled > sub/settings.json")];
    run_calls(&user, &tries, &[]);
    assert!(!is_spoiled(&user, "sub/settings.json"));
    // The control: a directory that no protected path leads to.
    run_calls(&user, &[write("other/settings.json")], &[]);
    assert!(is_spoiled(&user, "other/settings.json"));
}

/// No session changes the configuration of a trusted directory below its workspace. The control: an untrusted one.
#[test]
fn trusted_directory_below_is_not_reconfigured() {
    const ATTACKS: [&str; 3] = ["subtend.yaml", ".subtend/agents/mine.md", ".subtend/agents/general.md"];
    let user = User::new();
    for dir in ["trusted", "other"] {
        user.file(&format!("{dir}/subtend.yaml"), "limits: {turns: 7}\n");
        user.file(&format!("{dir}/.subtend/agents/mine.md"), "---\nmode: all\ndescription: Works.\n---\nWork.\n");
    }
    user.succeeds(&["trust", "--yes", "trusted"]);
    let paths = |dir: &str| ATTACKS.map(|path| format!("{dir}/{path}"));
    let command = |path: &String| sh(&format!("echo spoiled > {path}"));
    let all = [paths("trusted"), paths("other")].concat();
    run_calls(&user, &all.iter().flat_map(|path| [write(path), command(path)]).collect::<Vec<_>>(), &[]);
    let spoiled = |dir: &str| paths(dir).map(|path| is_spoiled(&user, &path));
    assert_eq!((spoiled("trusted"), spoiled("other")), ([false; 3], [true; 3]));
}

/// A command cannot list a directory that contains something denied; the error names the tool that can.
#[test]
fn failed_listing_of_a_command_names_the_tool() {
    if !can_confine() {
        return;
    }
    let user = User::new();
    user.file("src/a.rs", "");
    let done = run_calls(&user, &[sh("ls"), sh("ls src")], &["--data", "data"]);
    assert!(done.out.contains("with a denied entry cannot be listed (use the tool list)"), "{}", done.out);
    assert!(done.out.contains("a.rs"), "{}", done.out);
}

/// The user's own files may be links into a workspace, for example one of dotfiles: sessions there can neither write
/// the targets nor put another link in their way. The control: the same files without the links.
#[cfg(unix)]
#[test]
fn own_files_behind_links_are_not_written_in_their_workspace() {
    use std::os::unix::fs::symlink;

    const ATTACKS: [(&str, &str, &str); 8] = [
        ("subtend/subtend.yaml", "dots/subtend.yaml", "dots/subtend.yaml"),
        ("subtend/trusted.json", "dots/trusted.json", "dots/trusted.json"),
        ("subtend/mcp-logins.json", "dots/mcp-logins.json", "dots/mcp-logins.json"),
        ("subtend/AGENTS.md", "dots/AGENTS.md", "dots/AGENTS.md"),
        ("subtend/skills", "dots/skills", "dots/skills/a/SKILL.md"),
        ("claude/CLAUDE.md", "dots/CLAUDE.md", "dots/CLAUDE.md"),
        ("claude/agents", "dots/agents", "dots/agents/general.md"),
        ("codex/prompts", "dots/prompts", "dots/prompts/a.md"),
    ];
    let user = User::new();
    user.file("dots/trusted.json", "[]");
    for path in ["dots/real.yaml", "dots/AGENTS.md", "dots/CLAUDE.md", "dots/agents/x.md", "dots/prompts/x.md"] {
        user.file(path, "");
    }
    user.file("dots/skills/x/SKILL.md", "");
    // Two links in a chain.
    symlink("real.yaml", user.workspace().join("dots/subtend.yaml")).expect("a link");
    for (link, target, _) in ATTACKS {
        let link = user.config().join(link);
        std::fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        symlink(user.workspace().join(target), link).expect("a link");
    }
    let mut calls: Vec<Value> = ATTACKS.iter().map(|(.., written)| write(written)).collect();
    calls.extend(
        ATTACKS.iter().map(|(.., written)| sh(&format!("mkdir -p $(dirname {written}); echo spoiled > {written}"))),
    );
    calls.extend([write("dots/real.yaml"), sh("ln -sf ../other.yaml dots/subtend.yaml"), write("dots/other.txt")]);
    run_calls(&user, &calls, &[]);
    let spoiled = || ATTACKS.map(|(.., written)| is_spoiled(&user, written));
    assert_eq!((spoiled(), is_spoiled(&user, "dots/real.yaml")), ([false; 8], false));
    let kept = std::fs::read_link(user.workspace().join("dots/subtend.yaml")).expect("a link");
    assert_eq!((kept.to_str(), is_spoiled(&user, "dots/other.txt")), (Some("real.yaml"), true));
    ATTACKS.iter().for_each(|(link, ..)| std::fs::remove_file(user.config().join(link)).expect("a link"));
    run_calls(&user, &calls[..8], &[]);
    assert_eq!(spoiled(), [true; 8], "the control");
}

/// Imports of the user's own instructions may lie in a workspace, also those that are missing or cannot be read. The
/// control: a file that is not imported.
#[cfg(unix)]
#[test]
fn imports_of_own_instructions_are_not_written() {
    let user = User::new();
    user.file("dots/AGENTS.md", "@read.md and @missing.md and @unread.md\n");
    user.file("dots/read.md", "Work.\n");
    std::fs::write(user.workspace().join("dots/unread.md"), [0xff]).expect("a file");
    std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
    let link = user.config().join("subtend/AGENTS.md");
    std::os::unix::fs::symlink(user.workspace().join("dots/AGENTS.md"), link).expect("a link");
    let paths = ["read.md", "missing.md", "unread.md", "other.md"].map(|name| format!("dots/{name}"));
    let command = |path: &String| sh(&format!("echo spoiled > {path}"));
    run_calls(&user, &paths.iter().flat_map(|path| [write(path), command(path)]).collect::<Vec<_>>(), &[]);
    assert_eq!(paths.map(|path| is_spoiled(&user, &path)), [false, false, false, true]);
}

/// If the workspace is the home directory, it contains the user's own agents and commands. The control: another folder.
#[test]
fn own_folders_in_the_workspace_are_not_written() {
    const ATTACKS: [&str; 3] =
        [".config/opencode/agents/a.md", ".config/opencode/command/a.md", ".config/opencode/AGENTS.md"];
    let user = User::new();
    let steps = ATTACKS.iter().chain(&[".config/other/a.md"]).map(|path| json!({"calls": [write(path)]}));
    let steps: Vec<Value> = steps.chain([json!({"text": "done"})]).collect();
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string());
    let mut command = user.command(&["run", "--model", &model, "--allow", "fs.*", "go"]);
    command.env("XDG_CONFIG_HOME", user.workspace().join(".config"));
    let done = RunningCommand::start(command, "").done();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(ATTACKS.map(|path| is_spoiled(&user, path)), [false; 3]);
    assert!(is_spoiled(&user, ".config/other/a.md"), "{done:?}");
}
