//! Helpers for tool calls, and for roles of this test program: a guard, or a runtime with a guarded shell command.

pub(crate) use std::path::Path;
pub(crate) use std::process::Command;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use serde_json::{Value, json};
pub(crate) use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
pub(crate) use subtend_tools::commands::Commands;
pub(crate) use subtend_tools::guard::Guard;
pub(crate) use subtend_tools::registry::Registry;
pub(crate) use subtend_tools::secrets::Secrets;
pub(crate) use subtend_tools::tool::{ToolError, ToolInvocation};
pub(crate) use tokio_util::sync::CancellationToken;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use subtend_session::ids::{CallId, RunNo, TurnNo};
use subtend_tools::guard;
use subtend_tools::processes::Processes;
use subtend_tools::tool::{Progress, ToolKey};
use subtend_tools::workspace::Workspace;

/// The role of this program when it is started again.
pub(crate) const ROLE: &str = "SUBTEND_TEST_ROLE";
const GUARDED: &str = "SUBTEND_TEST_GUARDED";
/// The case of a runtime, as JSON.
const CASE: &str = "SUBTEND_TEST_CASE";
/// The user id of `nobody`, for tests that run as the superuser.
const ORDINARY: u32 = 65_534;

pub(crate) fn call(dir: &Path, authority: Authority, args: Value) -> ToolInvocation {
    call_in(Arc::new(Workspace::open(dir).unwrap()), authority, args)
}

pub(crate) fn call_in(workspace: Arc<Workspace>, authority: Authority, args: Value) -> ToolInvocation {
    let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    ToolInvocation {
        key: ToolKey { session, run: RunNo(1), call: CallId { turn: TurnNo(1), ix: 0 } },
        args,
        options: Default::default(),
        workspace,
        authority: Arc::new(authority),
        cancel: CancellationToken::new(),
        max_bytes: 100_000,
        progress: Progress::none(),
        processes: Processes::default(),
        checkpoints: None,
        messenger: None,
        child_tools: None,
        approved: false,
    }
}

/// Returns a guard that is this program in a role.
///
/// The test harness parses the arguments of the program, so the environment passes the arguments of the guard.
pub(crate) fn guard() -> Guard {
    guard_with("")
}

/// Returns a guard. The shell code `setup` runs before it and can change its environment.
pub(crate) fn guard_with(setup: &str) -> Guard {
    let lead = format!(
        "{setup} export {ROLE}=guard; if [ \"$1\" = --held ]; then export {ROLE}=holder; shift; fi; if [ \"$1\" = --piped ]; then export {ROLE}=\"${ROLE}+piper\"; shift; fi; if [ \"$1\" = --typed ]; then export {ROLE}=\"${ROLE}+typer\"; shift; fi; export {GUARDED}=\"$3\"; \
         exec \"$0\" --exact scene::role --nocapture"
    );
    let program = std::env::current_exe().unwrap();
    Guard { program: "sh".into(), args: vec!["-c".into(), lead.into(), program.into()] }
}

/// Not a test: the entry point of this program as a guard.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let command = ["sh".into(), "-c".into(), std::env::var_os(GUARDED).unwrap()] as [OsString; 3];
    let how = [("holder", "--held"), ("piper", "--piped"), ("typer", "--typed")]
        .into_iter()
        .filter(|(part, _)| role.contains(part));
    std::process::exit(guard::main(how.map(|(_, how)| OsString::from(how)).chain(command)));
}

/// Runs a case of [`runtime`] and prints the output. Returns at once in an ordinary test run.
pub(crate) fn run_case<C: serde::de::DeserializeOwned>(run: impl AsyncFnOnce(C) -> String) {
    let Ok(case) = std::env::var(CASE) else { return };
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!("{}", threads.block_on(run(serde_json::from_str(&case).unwrap())));
}

/// Runs `script` in a new workspace with the file `a.txt`. With `held`, the command is sandboxed, and `secret/**` is denied.
pub(crate) async fn shell(script: &str, held: bool, commands: Commands, secrets: Secrets) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "text").unwrap();
    let tools = Registry::workspace_tools_with(Some(guard()), commands);
    let registry = Registry::builder().secrets(secrets).tools(tools).unwrap().build();
    let denied = Rule { action: "fs.*".into(), resource: "secret/**".into(), verdict: Verdict::Deny };
    let rules = if held { vec![denied] } else { Vec::new() };
    let authority = Authority::of(RuleSet { default: Verdict::Allow, rules });
    let call = call(dir.path(), authority, json!({"command": script}));
    registry.get("shell").unwrap().run(call).await.unwrap().content.to_string()
}

/// Starts this program as a runtime, in which the test `role` runs `case`. Returns the output.
///
/// With `ordinary`, the superuser runs it as another user. Adds `variables` to its environment.
pub(crate) fn runtime<C: serde::Serialize>(role: &str, case: &C, ordinary: bool, variables: &[(&str, &str)]) -> String {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    // The user must be able to start the program, and to create directories.
    let name = format!("subtend-runtime-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
    let program = std::env::temp_dir().join(name);
    // Copy the program in another process: a fork of another test could inherit this process's writable descriptor ("text file busy").
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success(), "{}", program.display());
    let mut command = Command::new(&program);
    command.args(["--exact", role, "--nocapture"]);
    command.env(CASE, serde_json::to_string(case).unwrap()).env("HOME", "/nonexistent").envs(variables.iter().copied());
    if ordinary && is_root() {
        command.uid(ORDINARY).gid(ORDINARY).current_dir("/");
    }
    let output = command.output().unwrap();
    std::fs::remove_file(program).unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
