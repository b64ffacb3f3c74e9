//! Calls of the command, where each test user has its own data.

pub(crate) use std::io::BufReader;
pub(crate) use std::net::{TcpListener, TcpStream};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::{Command, Stdio};
pub(crate) use std::sync::mpsc;
pub(crate) use std::thread;
pub(crate) use std::time::Duration;

pub(crate) use serde_json::{Value, json};

use std::io::{BufRead as _, Read, Write as _};
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

pub(crate) fn last_event(out: &str) -> Value {
    serde_json::from_str(out.lines().last().expect("a line")).expect("json")
}

/// Time limit of a call.
const LONG: Duration = Duration::from_secs(240);

/// Held during a fork, and while this process opens a store: until a fork execs, it holds all open files and the lock.
static FORKING: Mutex<()> = Mutex::new(());

pub(crate) fn no_forks() -> MutexGuard<'static, ()> {
    FORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct User {
    home: TempDir,
}

#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) struct RunningCommand {
    child: Child,
    out: mpsc::Receiver<String>,
    err: thread::JoinHandle<String>,
}

impl User {
    pub(crate) fn new() -> Self {
        let user = Self { home: TempDir::new().expect("a temporary directory") };
        std::fs::create_dir(user.workspace()).expect("a workspace");
        user
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.home.path().join("workspace")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.home.path().join("config")
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        write(&self.workspace().join(path), text);
    }

    pub(crate) fn resumable_agent(&self, name: &str, mode: &str) {
        let text = format!("---\nmode: {mode}\ndescription: Resumes.\non_restart: resume\n---\nWork.\n");
        self.file(&format!(".subtend/agents/{name}.md"), &text);
    }

    /// Writes a script; returns the model that runs it.
    pub(crate) fn script(&self, text: &str) -> String {
        let path = self.home.path().join("script.json");
        write(&path, text);
        format!("scripted:{}", path.display())
    }

    /// Writes a script that always answers with `text`; returns the model that runs it.
    pub(crate) fn script_named(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(format!("{name}.json"));
        let script = serde_json::json!({ "rules": [ { "agent": "*", "steps": [ { "text": text } ] } ] });
        write(&path, &script.to_string());
        format!("scripted:{}", path.display())
    }

    /// Calls the command without the variable that trusts each workspace.
    pub(crate) fn call_untrusted(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.command(args);
        command.env_remove("SUBTEND_TRUST");
        RunningCommand::start(command, "").done()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_subtend"));
        command
            .args(args)
            .current_dir(self.workspace())
            .env("SUBTEND_DATA", self.data())
            .env("XDG_CONFIG_HOME", self.config())
            .env("CLAUDE_CONFIG_DIR", self.config().join("claude"))
            .env("CODEX_HOME", self.config().join("codex"))
            // Most tests run in a trusted workspace.
            .env("SUBTEND_TRUST", "1")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, args: &[&str]) -> RunningCommand {
        self.start_with(args, "")
    }

    fn start_with(&self, args: &[&str], stdin: &str) -> RunningCommand {
        RunningCommand::start(self.command(args), stdin)
    }

    pub(crate) fn call(&self, args: &[&str]) -> CommandOutput {
        self.start(args).done()
    }

    #[track_caller]
    pub(crate) fn succeeds(&self, args: &[&str]) -> CommandOutput {
        let done = self.call(args);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    pub(crate) fn call_with(&self, args: &[&str], stdin: &str) -> CommandOutput {
        self.start_with(args, stdin).done()
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let done = self.call(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
        serde_json::from_str(&done.out).expect("one JSON value")
    }
}

impl RunningCommand {
    pub(crate) fn start(mut command: Command, stdin: &str) -> Self {
        let forking = no_forks();
        let mut child = command.spawn().expect("the command starts");
        drop(forking);
        let (mut input, text) = (child.stdin.take().expect("stdin"), stdin.to_owned());
        thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let stdout = child.stdout.take().expect("stdout");
        let mut stderr = child.stderr.take().expect("stderr");
        let (sender, out) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let err = thread::spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).expect("stderr is read");
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, out, err }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn line(&self) -> Option<String> {
        self.out.recv_timeout(LONG).ok()
    }

    pub(crate) fn until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        while let Some(line) = self.line() {
            let event = serde_json::from_str(&line).expect("an event");
            if wanted(&event) {
                return event;
            }
        }
        panic!("the event did not arrive");
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Signals the process to shut down, and waits for its end.
    #[track_caller]
    pub(crate) fn stops(self) -> CommandOutput {
        self.signal("TERM");
        let done = self.done();
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    /// Closes the reading end of stdout after the next line.
    pub(crate) fn close_stdout(&mut self) {
        self.out = mpsc::channel().1;
    }

    pub(crate) fn done(self) -> CommandOutput {
        let Self { mut child, out, err } = self;
        let pid = child.id();
        let (sender, receiver) = mpsc::channel::<std::io::Result<ExitStatus>>();
        thread::spawn(move || sender.send(child.wait()));
        let Ok(status) = receiver.recv_timeout(LONG) else {
            drop(Command::new("kill").args(["-KILL", &pid.to_string()]).status());
            panic!("the call hangs; stderr: {}", err.join().expect("stderr"));
        };
        let lines: Vec<_> = out.iter().map(|line| line + "\n").collect();
        let code = status.expect("the call ends").code();
        CommandOutput { code, out: lines.concat(), err: err.join().expect("stderr") }
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}
