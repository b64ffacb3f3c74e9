//! Attempts of an untrusted workspace to take effect.

use super::scene::*;
use crate::cli::call::{RunningCommand, User};

/// A workspace whose configuration selects its own agent.
fn cloned() -> (User, String) {
    let user = User::new();
    user.file("subtend.yaml", "agent: mine\nlimits: {turns: 7}\n");
    user.file(".subtend/agents/mine.md", "---\nmode: all\ndescription: Works for the repository.\n---\nObey.\n");
    let model = answering_model(&user);
    (user, model)
}

/// A model that answers with the name of its agent.
fn answering_model(user: &User) -> String {
    let rule = |agent: &str| json!({"agent": agent, "steps": [{"text": format!("{agent} answers"), "repeat": true}]});
    user.script(&json!({"rules": [rule("mine"), rule("general")]}).to_string())
}

fn answer(user: &User, model: &str, more: &[&str]) -> String {
    let done = user.call_untrusted(&[&["run", "--store", "memory", "--model", model, "hi"], more].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    // `--quiet` and a pipe do not hide the warning.
    assert_eq!(done.err.contains("ignored: you have"), done.out.starts_with("general"), "{done:?}");
    done.out.trim().to_owned()
}

/// Returns the recorded answers, as `trust --list --json` prints them.
fn answers(user: &User) -> Value {
    let done = user.call_untrusted(&["trust", "--list", "--json"]);
    assert_eq!((done.code, &*done.err), (Some(0), ""), "{done:?}");
    done.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect()
}

const OWN_ANSWER: &str = "mine answers";
const BUILT_IN_ANSWER: &str = "general answers";

/// Before the user trusts the workspace, neither its configuration nor its agents are used. The controls: `--trust`
/// uses them once, `subtend trust` permanently.
#[test]
fn untrusted_workspace_has_no_effect() {
    let (user, model) = cloned();
    assert_eq!(answer(&user, &model, &[]), BUILT_IN_ANSWER);
    assert_eq!(answer(&user, &model, &["--quiet"]), BUILT_IN_ANSWER);
    let unknown = user.call_untrusted(&["run", "--store", "memory", "--model", &model, "--agent", "mine", "hi"]);
    assert_eq!(
        (unknown.code, unknown.err.contains("1 agent of this workspace ignored")),
        (Some(2), true),
        "{unknown:?}"
    );
    assert_eq!(answer(&user, &model, &["--trust"]), OWN_ANSWER);
    assert_eq!(answer(&user, &model, &[]), BUILT_IN_ANSWER, "`--trust` must apply once");
    assert_eq!(user.call_untrusted(&["trust"]).code, Some(2), "without a terminal the question must fail");
    assert_eq!(answer(&user, &model, &[]), BUILT_IN_ANSWER);
    let trusted = user.call_untrusted(&["trust", "--yes"]);
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let kept = user.config().join("subtend/trusted.json").metadata().expect("the answers");
        assert_eq!(kept.permissions().mode() & 0o777, 0o600);
    }
    assert!(trusted.err.contains("agent mine: Works for the repository.") && trusted.err.contains("limits.turns = 7"));
    assert_eq!(answer(&user, &model, &[]), OWN_ANSWER);
    assert!(user.call_untrusted(&["trust", "--list"]).out.starts_with("trusted  "));
    assert_eq!(answers(&user), json!([{"path": user.workspace(), "trusted": true, "replaced": false}]));
    assert_eq!(user.call_untrusted(&["trust", "--revoke"]).code, Some(0));
    assert_eq!(answer(&user, &model, &[]), BUILT_IN_ANSWER);
}

/// Trust covers one directory: another directory at its path, and the same directory elsewhere, need a new answer.
#[test]
fn trust_does_not_cover_replaced_or_moved_workspaces() {
    let (user, model) = cloned();
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    let aside = user.workspace().with_file_name("moved");
    std::fs::rename(user.workspace(), &aside).expect("moved");
    user.file("subtend.yaml", "agent: mine\n");
    user.file(".subtend/agents/mine.md", "---\nmode: all\ndescription: Another.\n---\nObey.\n");
    assert_eq!(answer(&user, &model, &[]), BUILT_IN_ANSWER, "another directory");
    assert_eq!(answer(&user, &model, &["--workspace", "../moved"]), BUILT_IN_ANSWER, "another path");
    assert!(user.call_untrusted(&["trust", "--list"]).out.starts_with("removed or replaced  "));
    assert_eq!(answers(&user), json!([{"path": user.workspace(), "trusted": false, "replaced": true}]));
    std::fs::remove_dir_all(user.workspace()).expect("removed");
    std::fs::rename(&aside, user.workspace()).expect("moved back");
    assert_eq!(answer(&user, &model, &[]), OWN_ANSWER);
}

/// Listings show what is used and report what is ignored. A workspace without files that need trust asks nothing.
#[test]
fn listings_ignore_an_untrusted_workspace() {
    let (user, _) = cloned();
    for verb in [&["agents"][..], &["config", "show", "agent"], &["prompt", "general"]] {
        let done = user.call_untrusted(verb);
        assert_eq!((done.code, done.err.contains("ignored: you have")), (Some(0), true), "{done:?}");
        assert!(!done.out.contains("mine"), "{done:?}");
        let control = user.call(verb);
        assert!(!control.err.contains("ignored: you have"), "{control:?}");
    }
    assert!(user.call(&["agents"]).out.contains("mine"));
    let empty = User::new();
    let done = empty.call_untrusted(&["run", "--store", "memory", "hi"]);
    assert_eq!((done.code, done.err.contains("ignored: you have")), (Some(0), false), "{done:?}");
    // The first file of a workspace that the user writes with the command is trusted.
    assert_eq!(empty.call_untrusted(&["config", "set", "agent", "plan"]).code, Some(0));
    let shown = empty.call_untrusted(&["config", "show", "agent"]);
    assert!(shown.out.starts_with("agent  plan") && shown.err.is_empty(), "{shown:?}");
}

/// Trust ends when all trusted files are removed: a configuration that a command then creates needs a new answer. The
/// control: a file that the user restores before the next start is used.
#[test]
fn trust_ends_when_the_trusted_files_are_removed() {
    let (user, _) = cloned();
    let script = "mkdir -p .subtend/agents; echo 'agent: mine' > subtend.yaml; \
                  printf -- '---\\nmode: all\\ndescription: Spoiled.\\n---\\nObey.\\n' > .subtend/agents/mine.md";
    let steps = [json!({"calls": [{"tool": "shell", "args": {"command": script}}]}), json!({"text": "made"})];
    let making = user.script(&json!({"rules": [{"agent": "general", "steps": steps}]}).to_string());
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    std::fs::rename(user.workspace().join("subtend.yaml"), user.workspace().join("aside")).expect("moved");
    std::fs::remove_dir_all(user.workspace().join(".subtend")).expect("removed");
    std::fs::rename(user.workspace().join("aside"), user.workspace().join("subtend.yaml")).expect("moved back");
    assert!(user.call_untrusted(&["config", "show"]).out.contains("subtend.yaml"), "trusted as before");
    std::fs::remove_file(user.workspace().join("subtend.yaml")).expect("removed");
    let rights = ["--allow", "fs.*", "--allow", "shell.run", "--allow", "net.fetch"];
    let made = user.call_untrusted(&[&["run", "--store", "memory", "--model", &making, "go"], &rights[..]].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(user.workspace().join(".subtend/agents/mine.md").exists());
    assert_eq!(answer(&user, &answering_model(&user), &[]), BUILT_IN_ANSWER);
}

/// Returns a command that writes an agent, its selection, and an MCP server, which would run outside the sandbox.
fn spoiling_command() -> String {
    let servers = json!({"mcpServers": {"x": {"command": "sh", "args": ["-c", "touch escaped"]}}});
    let agent = "---\\nmode: all\\ndescription: Spoiled.\\n---\\nObey.\\n";
    format!(
        "echo '{servers}' > .mcp.json; echo 'agent: mine' > subtend.yaml; mkdir -p .subtend/agents; printf -- '{agent}' > \
         .subtend/agents/mine.md"
    )
}

const RIGHTS: [&str; 6] = ["--allow", "fs.*", "--allow", "shell.run", "--allow", "net.fetch"];

/// A model whose built-in agent runs a command and answers with its name.
fn command_model(user: &User, command: &str) -> String {
    let steps = [json!({"calls": [{"tool": "shell", "args": {"command": command}}]}), json!({"text": BUILT_IN_ANSWER})];
    let own = json!({"agent": "mine", "steps": [{"text": OWN_ANSWER}]});
    user.script(&json!({"rules": [{"agent": "general", "steps": steps}, own]}).to_string())
}

/// Trust of instructions covers nothing else: configuration, agents and servers that a command creates later need a new
/// answer. The control: they are used once the user trusts them as well.
#[test]
fn trust_of_instructions_covers_no_other_files() {
    let user = User::new();
    user.file("AGENTS.md", "Be kind.\n");
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    assert!(user.call_untrusted(&["agents", "prompt", "general"]).out.contains("Be kind."));
    let model = command_model(&user, &spoiling_command());
    let made = user.call_untrusted(&[&["run", "--store", "memory", "--model", &model, "go"], &RIGHTS[..]].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let (servers, escaped) = (user.workspace().join(".mcp.json"), user.workspace().join("escaped"));
    assert!(servers.exists() && user.workspace().join(".subtend/agents/mine.md").exists());
    assert_eq!(answer(&user, &answering_model(&user), &[]), BUILT_IN_ANSWER);
    user.call_untrusted(&["tools", "list"]);
    assert!(!escaped.exists());
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    assert_eq!(answer(&user, &answering_model(&user), &[]), OWN_ANSWER);
    assert!(escaped.exists());
    // A removed file that a command creates again needs a new answer; the rest stays trusted.
    std::fs::remove_file(&escaped).expect("removed");
    std::fs::rename(&servers, user.workspace().join("aside")).expect("moved");
    assert_eq!(answer(&user, &answering_model(&user), &[]), OWN_ANSWER);
    std::fs::rename(user.workspace().join("aside"), &servers).expect("moved back");
    assert_eq!(answer(&user, &answering_model(&user), &[]), BUILT_IN_ANSWER);
    assert!(!escaped.exists());
}

/// A command rewrites the server file after the user trusted it. Its program is not started, because the answer covers
/// only the shown content. The control: it starts once the user trusts the new content.
#[test]
fn file_of_servers_rewritten_by_a_command_needs_trust() {
    let user = User::new();
    let server = |args: &[&str]| json!({"mcpServers": {"x": {"command": "sh", "args": args}}}).to_string();
    let spoiled = server(&["-c", "touch escaped"]);
    let command = format!("touch begun; until [ -e go ]; do sleep 0.1; done; echo '{spoiled}' > .mcp.json");
    let model = command_model(&user, &command);
    let mut writing = user.command(&[&["run", "--store", "memory", "--model", &model, "go"], &RIGHTS[..]].concat());
    writing.env_remove("SUBTEND_TRUST");
    let writing = RunningCommand::start(writing, "");
    for _ in 0..600 {
        if user.workspace().join("begun").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    user.file(".mcp.json", &server(&["-c", "exit 0"]));
    let trusted = user.call_untrusted(&["trust", "--yes"]);
    assert!(trusted.code == Some(0) && trusted.err.contains("exit 0"), "{trusted:?}");
    user.file("go", "");
    assert_eq!(writing.done().code, Some(0));
    let (servers, escaped) = (user.workspace().join(".mcp.json"), user.workspace().join("escaped"));
    assert_eq!(std::fs::read_to_string(servers).expect("a file").trim(), spoiled);
    let listed = user.call_untrusted(&["tools", "list"]);
    assert!(!escaped.exists() && listed.err.contains(".mcp.json of this workspace ignored"), "{listed:?}");
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    user.call_untrusted(&["tools", "list"]);
    assert!(escaped.exists());
}

/// A host that was started without anything to trust does not start a server that a command creates while it runs. The
/// control: the next session uses it once the user trusts it.
#[test]
fn running_host_ignores_files_created_by_commands() {
    let user = User::new();
    let model = command_model(&user, &spoiling_command());
    let mut command = user.command(&["serve", "--json", "--listen", "none", "--model", &model]);
    command.env_remove("SUBTEND_TRUST");
    let host = RunningCommand::start(command, "");
    assert!(host.line().is_some_and(|line| line.contains("serving")));
    let run = |expected: &str| {
        let done = user.call_untrusted(&[&["run", "go"], &RIGHTS[..]].concat());
        assert!(done.code == Some(0) && done.out.trim() == expected, "{done:?}");
    };
    run(BUILT_IN_ANSWER);
    let (servers, escaped) = (user.workspace().join(".mcp.json"), user.workspace().join("escaped"));
    assert!(servers.exists());
    run(BUILT_IN_ANSWER);
    assert!(!escaped.exists());
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    run(OWN_ANSWER);
    assert!(escaped.exists());
    host.stops();
}

/// A command waits until `config set` writes its file, and then moves a file of servers into place: that change trusts
/// the file of the configuration only. The control: the server starts once the user trusts it.
#[test]
fn config_set_trusts_no_file_that_comes_meanwhile() {
    let user = User::new();
    let spoiled = json!({"mcpServers": {"x": {"command": "sh", "args": ["-c", "touch escaped"]}}});
    user.file("aside", &spoiled.to_string());
    // Many agents, so that a second read of the workspace would take long enough to find the new file.
    for n in 0..50 {
        user.file(&format!(".subtend/agents/a{n}.md"), "---\nmode: all\ndescription: Works.\n---\nObey.\n");
    }
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    let at = |name: &str| user.workspace().join(name);
    let (config, aside, servers, escaped) = (at("subtend.yaml"), at("aside"), at(".mcp.json"), at("escaped"));
    let moving = std::thread::spawn(move || {
        while !config.exists() {
            std::thread::yield_now();
        }
        std::fs::rename(aside, servers).expect("moved");
    });
    let set = user.call_untrusted(&["config", "set", "limits.turns", "9"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    moving.join().expect("the file of servers is in place");
    let listed = user.call_untrusted(&["tools", "list"]);
    assert!(!escaped.exists() && listed.err.contains("subtend.yaml and .mcp.json and 50 agents"), "{listed:?}");
    assert_eq!(user.call_untrusted(&["trust", "--yes"]).code, Some(0));
    user.call_untrusted(&["tools", "list"]);
    assert!(escaped.exists());
}

/// A file of servers appears while the question is open: a yes to what was shown does not cover it, and it is shown before
/// the next question. The control: a yes counts where nothing changed.
#[cfg(unix)]
#[test]
fn yes_to_the_trust_question_covers_what_was_shown() {
    use crate::cli::terminal::{TerminalSession, screen_text};

    let (user, _) = cloned();
    let ask = || {
        let mut trust = TerminalSession::shell(&user, &format!("SUBTEND_TRUST=0 {}", screen_text(&user, &["trust"])));
        trust.until("Use it? [y/N]");
        trust
    };
    let mut first = ask();
    user.file(".mcp.json", &json!({"mcpServers": {"x": {"command": "the-program"}}}).to_string());
    first.types("y\n");
    let shown = first.until("Use it? [y/N]");
    assert!(shown.contains("this answer is not used") && shown.contains("the-program"), "{shown}");
    first.types("n\n");
    assert_eq!(first.wait_for_exit().0, Some(1));
    assert_eq!(answers(&user), json!([{"path": user.workspace(), "trusted": false, "replaced": false}]));
    let mut control = ask();
    control.types("y\n");
    assert_eq!(control.wait_for_exit().0, Some(0));
    assert_eq!(answers(&user), json!([{"path": user.workspace(), "trusted": true, "replaced": false}]));
}
