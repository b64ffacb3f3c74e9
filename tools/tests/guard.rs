//! All processes of a command end with the runtime, even if the runtime is killed.
//!
//! Commands and their descendants hold the writing end of a named pipe, so the reader sees when all have ended. Runtime and guard are this
//! test program, which the tests start again in a role.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::mpsc;

use super::scene::*;
use subtend_tools::guard;
use subtend_tools::tool::ToolOutput;

use super::scene;

/// Script that starts one process in its group, one in its own session, and one orphan, and reports when all exist.
const TREE: &str = "exec 3>pipe; sleep 300 & setsid sleep 300 & (setsid sh -c 'sleep 300 & echo daemon >&3' &) ; \
                    echo leader >&3; sleep 300";

async fn shell(
    dir: &Path,
    guard: Guard,
    args: serde_json::Value,
    cancel: CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let registry = Registry::builder().tools(Registry::workspace_tools(Some(guard))).unwrap().build();
    let call = ToolInvocation { cancel, ..scene::call(dir, Authority::allow_all(), args) };
    registry.get("shell").unwrap().run(call).await
}

/// Not a test: the entry point of this program in a role.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dir = std::env::current_dir().unwrap();
        let run = shell(&dir, guard(), json!({"command": TREE}), CancellationToken::new());
        panic!("the command ended: {:?}", runtime.block_on(run));
    }
}

/// Watches the pipe in `dir`: reports when all processes of the tree exist, and when all have ended.
struct Watch {
    there: mpsc::Receiver<()>,
    gone: mpsc::Receiver<()>,
}

impl Watch {
    fn new(dir: &Path) -> Self {
        assert!(Command::new("mkfifo").arg(dir.join("pipe")).status().unwrap().success());
        let (is_there, there) = mpsc::channel();
        let (is_gone, gone) = mpsc::channel();
        let path = dir.join("pipe");
        std::thread::spawn(move || {
            let mut pipe = BufReader::new(std::fs::File::open(path).unwrap());
            let mut lines = [String::new(), String::new()];
            for line in &mut lines {
                pipe.read_line(line).unwrap();
            }
            lines.sort();
            assert_eq!(lines, ["daemon\n", "leader\n"]);
            is_there.send(()).unwrap();
            pipe.read_to_end(&mut Vec::new()).unwrap();
            is_gone.send(()).unwrap();
        });
        Self { there, gone }
    }

    fn wait_started(&self) {
        self.there.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    /// Waits until all processes have ended. They sleep for five minutes, so an earlier end is a kill.
    fn wait_ended(&self) {
        self.gone.recv_timeout(Duration::from_secs(20)).expect("a process of the command is still running");
    }
}

#[test]
fn killed_runtime_leaves_no_processes() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    let mut runtime = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "guard::role", "--nocapture"])
        .env(ROLE, "runtime")
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    watch.wait_started();
    runtime.kill().unwrap();
    runtime.wait().unwrap();
    watch.wait_ended();
}

#[tokio::test]
async fn cancelled_call_leaves_no_processes() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    let cancel = CancellationToken::new();
    let fire = cancel.clone();
    let watched = tokio::task::spawn_blocking(move || {
        watch.wait_started();
        fire.cancel();
        watch.wait_ended();
    });
    assert_eq!(shell(dir.path(), guard(), json!({"command": TREE}), cancel).await, Err(ToolError::cancelled()));
    watched.await.unwrap();
}

#[tokio::test]
async fn dropped_call_leaves_no_processes() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    let path = dir.path().to_path_buf();
    let call =
        tokio::spawn(async move { shell(&path, guard(), json!({"command": TREE}), CancellationToken::new()).await });
    let watch = tokio::task::spawn_blocking(move || {
        watch.wait_started();
        watch
    });
    let watch = watch.await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    tokio::task::spawn_blocking(move || watch.wait_ended()).await.unwrap();
}

#[tokio::test]
async fn background_process_ends_with_its_command() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    let command = TREE.replace("echo leader >&3; sleep 300", "echo leader >&3; read wait < go; echo bye; exit 7");
    assert!(Command::new("mkfifo").arg(dir.path().join("go")).status().unwrap().success());
    let go = dir.path().join("go");
    let watched = tokio::task::spawn_blocking(move || {
        watch.wait_started();
        std::fs::write(go, "go\n").unwrap();
        watch.wait_ended();
    });
    let output = shell(dir.path(), guard(), json!({"command": command}), CancellationToken::new()).await.unwrap();
    assert!(output.content.ends_with("bye\n[exit code 7]"), "{output:?}");
    watched.await.unwrap();
}

#[tokio::test]
async fn guard_passes_on_exit_codes_and_signals() {
    let dir = tempfile::tempdir().unwrap();
    for (command, code) in [("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143), ("cat", 0)] {
        let output = shell(dir.path(), guard(), json!({"command": command}), CancellationToken::new()).await.unwrap();
        assert!(output.content.ends_with(&format!("[exit code {code}]")), "{command}: {output:?}");
    }
}

#[test]
fn command_that_cannot_start_is_an_error() {
    assert_eq!(guard::main(Vec::<std::ffi::OsString>::new()), 127);
}

/// An unconfined command can stop its guard. The runtime then kills the command's processes itself.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn command_of_a_stopped_guard_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    let (path, cancel) = (dir.path().to_path_buf(), CancellationToken::new());
    let fire = cancel.clone();
    let command = TREE.replace("echo leader", "kill -STOP $PPID; echo leader");
    let call = tokio::spawn(async move { shell(&path, guard(), json!({"command": command}), cancel).await });
    let watch = tokio::task::spawn_blocking(move || {
        watch.wait_started();
        watch
    });
    let watch = watch.await.unwrap();
    // Virtual time skips the grace period for a slow guard.
    tokio::time::pause();
    fire.cancel();
    assert_eq!(call.await.unwrap(), Err(ToolError::cancelled()));
    tokio::time::resume();
    tokio::task::spawn_blocking(move || watch.wait_ended()).await.unwrap();
}

#[tokio::test]
async fn killed_guard_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let command = json!({"command": "echo text; kill -KILL $PPID"});
    let error = shell(dir.path(), guard(), command, CancellationToken::new()).await.unwrap_err();
    assert!(error.message.contains("the guard of the command was killed (signal: 9"), "{error}");
    assert!(error.message.contains("processes that it started may still run; its output until then:"), "{error}");
    assert!(error.message.ends_with("text"), "{error}");
}

/// The system shows such a process as dead. The control: the command waits for this state.
#[tokio::test]
async fn process_without_its_main_thread_is_ended() {
    if Command::new("python3").arg("-V").output().is_err() {
        return println!("not tried: there is no python3 to end a main thread");
    }
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    let exit = if cfg!(target_arch = "x86_64") { 60 } else { 93 };
    let process = format!(
        "import ctypes, os, threading, time; open(\"pid\", \"w\").write(str(os.getpid())); \
         threading.Thread(target=lambda: (os.write(3, b\"daemon\\n\"), time.sleep(300))).start(); \
         ctypes.CDLL(None).syscall({exit}, 0)"
    );
    let command = format!(
        "exec 3>pipe; (setsid python3 -c '{process}' &); \
         until grep -qs 'State:.Z' /proc/$(cat pid 2>&-)/status; do sleep 0.1; done; echo leader >&3"
    );
    let watched = tokio::task::spawn_blocking(move || {
        watch.wait_started();
        watch.wait_ended();
    });
    let output = shell(dir.path(), guard(), json!({"command": command}), CancellationToken::new()).await.unwrap();
    assert!(output.content.contains("exit code 0"), "{output:?}");
    watched.await.unwrap();
}

/// The control: the command waits until the process has this name.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn process_with_a_name_that_is_not_text_is_ended() {
    if Command::new("python3").arg("-V").output().is_err() {
        return println!("not tried: there is no python3 to set a name");
    }
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    // `PR_SET_NAME`
    let process = "import ctypes, os, time; ctypes.CDLL(None).prctl(15, bytes([255])); os.write(3, b\"daemon\\n\"); \
                   open(\"named\", \"w\"); time.sleep(300)";
    let command = format!(
        "exec 3>pipe; (setsid python3 -c '{process}' &); until [ -e named ]; do sleep 0.1; done; echo leader >&3"
    );
    let watched = tokio::task::spawn_blocking(move || {
        watch.wait_started();
        watch.wait_ended();
    });
    let output = shell(dir.path(), guard(), json!({"command": command}), CancellationToken::new()).await.unwrap();
    assert!(output.content.contains("exit code 0"), "{output:?}");
    watched.await.unwrap();
}
