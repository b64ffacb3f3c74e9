//! What a command may take of the machine, and what a held one may not ask of the kernel, as the superuser and as another user.
//!
//! The runtime is this test program, started again in that role; so is the guard.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "all of this file is a test")]

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::ids::{CallId, RunNo, TurnNo};
use subtend_tools::commands::{CommandLimits, Commands};
use subtend_tools::guard::{self, Guard};
use subtend_tools::registry::Registry;
use subtend_tools::sandbox::{self, Strength};
use subtend_tools::tool::{Progress, ToolCall, ToolKey};
use subtend_tools::workspace::Workspace;
use tokio_util::sync::CancellationToken;

const ROLE: &str = "SUBTEND_TEST_ROLE";
const GUARDED: &str = "SUBTEND_TEST_GUARDED";
/// What the runtime's role runs.
const SCRIPT: &str = "SUBTEND_TEST_SCRIPT";
/// Whether it is held, and its limits.
const CASE: &str = "SUBTEND_TEST_CASE";
/// "Nobody", where this test runs as the superuser.
const ORDINARY: u32 = 65_534;

const MIB: u64 = 1 << 20;

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
        let (held, limits) = serde_json::from_str(&std::env::var(CASE).unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        println!("{}", runtime.block_on(run(&std::env::var(SCRIPT).unwrap(), held, limits)));
        return;
    }
    let command = ["sh".into(), "-c".into(), std::env::var_os(GUARDED).unwrap()] as [OsString; 3];
    let held = (role == "holder").then(|| OsString::from("--held"));
    std::process::exit(guard::main(held.into_iter().chain(command)));
}

async fn run(script: &str, held: bool, limits: CommandLimits) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "text").unwrap();
    let tools = Registry::workspace_tools_with(Some(guard()), Commands { limits, ..Commands::default() });
    let registry = Registry::builder().tools(tools).unwrap().build();
    let denied = Rule { action: "fs.*".into(), resource: "secret/**".into(), verdict: Verdict::Deny };
    let rules = if held { vec![denied] } else { Vec::new() };
    let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let call = ToolCall {
        key: ToolKey { session, run: RunNo(1), call: CallId { turn: TurnNo(1), ix: 0 } },
        args: json!({"command": script}),
        options: Default::default(),
        workspace: Arc::new(Workspace::open(dir.path()).unwrap()),
        authority: Arc::new(Authority::of(RuleSet { default: Verdict::Allow, rules })),
        cancel: CancellationToken::new(),
        max_bytes: 100_000,
        progress: Progress::none(),
    };
    registry.get("shell").unwrap().run(call).await.unwrap().content.to_string()
}

/// What a script says under a runtime of the superuser, or of an ordinary user.
fn said(script: &str, held: bool, limits: CommandLimits, ordinary: bool) -> String {
    // The user must be able to start the program, and to make directories.
    let id = format!("{:?}", std::thread::current().id()).replace(|c: char| !c.is_ascii_digit(), "");
    let program = std::env::temp_dir().join(format!("subtend-limits-{}-{id}", std::process::id()));
    // Another process copies it: a file that this one had open for writing may still be open in a fork of another test, and
    // then it cannot be started ("text file busy").
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success(), "{}", program.display());
    let case = serde_json::to_string(&(held, limits)).unwrap();
    let mut command = Command::new(&program);
    command.args(["--exact", "role", "--nocapture"]).env(ROLE, "runtime").env(SCRIPT, script).env(CASE, case);
    command.env("HOME", "/nonexistent");
    if ordinary && is_root() {
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

/// Under these limits a script does not come to its end; under the usual ones it does.
fn holds(script: &str, limits: &CommandLimits) {
    let script = format!("{script}; echo come to the $((1 + 1))nd end");
    for ordinary in [false, true] {
        for held in [false, sandbox::probe() == Ok(Strength::FilesAndNetwork)] {
            let limited = said(&script, held, limits.clone(), ordinary);
            assert!(!limited.contains("the 2nd end"), "held {held}, ordinary {ordinary}: {limited}");
            let free = said(&script, held, CommandLimits::default(), ordinary);
            assert!(free.contains("the 2nd end"), "the control, held {held}, ordinary {ordinary}: {free}");
        }
    }
}

#[test]
fn a_command_has_a_limit_of_processes() {
    let groups = std::path::Path::new("/sys/fs/cgroup/pids").exists();
    if is_root() && !groups {
        println!("not tried: the superuser's processes are counted by control groups, of which there are none");
        return;
    }
    let script = "n=0; while [ $n -lt 100 ]; do sleep 3 & n=$((n + 1)); done || exit 1";
    holds(script, &CommandLimits { processes: 40, ..CommandLimits::default() });
}

#[test]
fn a_command_has_a_limit_of_memory() {
    let script = "head -c 300000000 /dev/zero | tail -c 300000000 | wc -c | grep -q 300000000 || exit 1";
    holds(script, &CommandLimits { memory_bytes: 100 * MIB, ..CommandLimits::default() });
}

#[test]
fn a_command_has_a_limit_of_file_size() {
    let script = "f=${TMPDIR:-/tmp}/big-$$; head -c 3000000 /dev/zero > $f; made=$?; rm $f; test $made = 0 || exit 1";
    holds(script, &CommandLimits { file_bytes: MIB, ..CommandLimits::default() });
}

#[test]
fn a_command_has_a_limit_of_open_files() {
    let script = "exec 9< a.txt || exit 1; test $(ulimit -n) -gt 100 || exit 1";
    holds(script, &CommandLimits { open_files: 50, ..CommandLimits::default() });
}

#[test]
fn a_command_has_a_limit_of_cpu_time() {
    if Command::new("python3").arg("-V").output().is_err() {
        println!("not tried: there is no python3 to measure CPU time with");
        return;
    }
    let script = "python3 -c 'import time\nwhile time.process_time() < 2: pass' || exit 1";
    holds(script, &CommandLimits { cpu_seconds: 1, ..CommandLimits::default() });
}

/// Asks the kernel for what a held command may not have, each with a name.
const ASKS: &str = "for ask in 'unshare -U true' 'unshare -r true' 'chown 65534 a.txt' 'python3 attribute'; do
    case $ask in python3*) python3 -c 'import os; os.setxattr(\"a.txt\", \"user.a\", b\"b\")';; *) $ask;; esac 2>/dev/null \
    && echo \"granted: $ask\"; done; true";

#[test]
fn a_held_command_makes_no_namespace_and_gives_no_file_away() {
    if sandbox::probe() != Ok(Strength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let held = said(ASKS, true, CommandLimits::default(), ordinary);
        assert!(!held.contains("granted"), "ordinary {ordinary}: {held}");
    }
    // Threads and processes are made as ever.
    let script =
        "python3 -c 'import threading; t = threading.Thread(target=print, args=(1 + 1,)); t.start(); t.join()'";
    assert!(said(script, true, CommandLimits::default(), false).contains("2\n[exit code 0]"));
    let free = said(ASKS, false, CommandLimits::default(), false);
    println!("the control: {free}");
    assert!(!is_root() || free.contains("granted: chown 65534 a.txt"), "{free}");
    assert!(free.contains("granted: unshare") || free.contains("granted: python3"), "{free}");
}
