//! Keys of the runtime's environment do not reach commands, and their values do not reach results.
//!
//! The runtime is this test program, started again with a key in its environment; so is the guard.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "all of this file is a test")]

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::ids::{CallId, RunNo, TurnNo};
use subtend_tools::commands::{Commands, hide_this_process};
use subtend_tools::guard::{self, Guard};
use subtend_tools::registry::Registry;
use subtend_tools::sandbox::{self, Strength};
use subtend_tools::secrets::Secrets;
use subtend_tools::tool::{Progress, ToolCall, ToolKey};
use subtend_tools::workspace::Workspace;
use tokio_util::sync::CancellationToken;

const ROLE: &str = "SUBTEND_TEST_ROLE";
const GUARDED: &str = "SUBTEND_TEST_GUARDED";
/// What the runtime's role runs: a case of [`Case::of`].
const CASE: &str = "SUBTEND_TEST_CASE";
const VARIABLE: &str = "OPENAI_API_KEY";
const KEY: &str = "sk-test-0123456789";
/// "Nobody", where this test runs as the superuser.
const ORDINARY: u32 = 65_534;

/// Looks for the key where a command can.
const HUNT: &str = "env; echo '= others'; for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep sk-test; true";

/// How a command is run.
#[derive(Clone, Copy)]
struct Case {
    held: bool,
    all_variables: bool,
    redacted: bool,
    hidden: bool,
}

const SAFE: Case = Case { held: false, all_variables: false, redacted: false, hidden: true };

impl Case {
    fn text(self) -> String {
        [self.held, self.all_variables, self.redacted, self.hidden].map(|flag| if flag { "y" } else { "n" }).concat()
    }

    fn of(text: &str) -> Self {
        let flag = |ix: usize| text.as_bytes().get(ix) == Some(&b'y');
        Self { held: flag(0), all_variables: flag(1), redacted: flag(2), hidden: flag(3) }
    }
}

fn guard() -> Guard {
    let lead = format!(
        "export {ROLE}=guard; if [ \"$1\" = --held ]; then export {ROLE}=holder; shift; fi; export {GUARDED}=\"$3\"; \
         exec \"$0\" --exact role --nocapture"
    );
    let program = std::env::current_exe().unwrap();
    Guard { program: "sh".into(), args: vec!["-c".into(), lead.into(), program.into()] }
}

/// Not a test of its own: what this program does when it is started in a role.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "runtime" {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        println!("{}", runtime.block_on(hunt(Case::of(&std::env::var(CASE).unwrap()))));
        return;
    }
    let command = ["sh".into(), "-c".into(), std::env::var_os(GUARDED).unwrap()] as [OsString; 3];
    let held = (role == "holder").then(|| OsString::from("--held"));
    std::process::exit(guard::main(held.into_iter().chain(command)));
}

async fn hunt(case: Case) -> String {
    if case.hidden {
        hide_this_process().unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let environment = if case.all_variables { vec!["*".into()] } else { Vec::new() };
    let secrets = if case.redacted { Secrets::of([(VARIABLE, KEY)]) } else { Secrets::default() };
    let tools = Registry::workspace_tools_with(Some(guard()), Commands { environment, ..Commands::default() });
    let registry = Registry::builder().secrets(secrets).tools(tools).unwrap().build();
    let denied = Rule { action: "fs.*".into(), resource: "secret/**".into(), verdict: Verdict::Deny };
    let rules = if case.held { vec![denied] } else { Vec::new() };
    let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let call = ToolCall {
        key: ToolKey { session, run: RunNo(1), call: CallId { turn: TurnNo(1), ix: 0 } },
        args: json!({"command": HUNT}),
        options: Default::default(),
        workspace: Arc::new(Workspace::open(dir.path()).unwrap()),
        authority: Arc::new(Authority::of(RuleSet { default: Verdict::Allow, rules })),
        cancel: CancellationToken::new(),
        max_bytes: 100_000,
        progress: Progress::none(),
    };
    registry.get("shell").unwrap().run(call).await.unwrap().content.to_string()
}

/// The output of a runtime whose environment has the key, of an ordinary user where `ordinary` says so.
fn output(case: Case, ordinary: bool) -> String {
    // The user must be able to start the program, and to make directories.
    let program = std::env::temp_dir().join(format!("subtend-secrets-{}-{}", std::process::id(), case.text()));
    // Another process copies it: a file that this one had open for writing may still be open in a fork of another test, and
    // then it cannot be started ("text file busy").
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success(), "{}", program.display());
    let mut command = Command::new(&program);
    command.args(["--exact", "role", "--nocapture"]).env(ROLE, "runtime").env(CASE, case.text()).env(VARIABLE, KEY);
    command.env("HOME", "/nonexistent");
    if ordinary {
        command.uid(ORDINARY).gid(ORDINARY).current_dir("/");
    }
    let output = command.output().unwrap();
    std::fs::remove_file(program).unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_command_finds_no_key_in_its_own_environment() {
    let said = output(Case { redacted: true, ..SAFE }, false);
    let (own, others) = said.split_once("= others").unwrap();
    assert!(own.contains("PATH=") && !own.contains(&format!("{VARIABLE}=")), "{said}");
    // The superuser's commands find it in other processes, and the result does not show it.
    assert!(!others.contains(KEY), "{said}");
}

#[test]
fn an_ordinary_users_command_finds_no_key_elsewhere() {
    let said = output(SAFE, is_root());
    assert!(said.contains("PATH=") && !said.contains(KEY), "{said}");
}

#[test]
fn a_held_command_finds_no_key_in_other_processes() {
    if sandbox::probe() != Ok(Strength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, is_root()] {
        let said = output(Case { held: true, hidden: false, ..SAFE }, ordinary);
        assert!(said.contains("PATH=") && !said.contains(KEY), "{said}");
    }
}

#[test]
fn a_key_that_the_person_passes_on_is_redacted_in_results() {
    let said = output(Case { all_variables: true, redacted: true, ..SAFE }, false);
    assert!(said.contains(&format!("{VARIABLE}=[{VARIABLE} redacted]")) && !said.contains(KEY), "{said}");
}

/// The controls: each guard off, the key is found.
#[test]
fn without_each_guard_the_key_is_found() {
    let passed_on = output(Case { all_variables: true, ..SAFE }, false);
    assert!(passed_on.contains(&format!("{VARIABLE}={KEY}")), "{passed_on}");
    let shown = output(Case { hidden: false, ..SAFE }, is_root());
    assert!(shown.contains(KEY), "{shown}");
}
