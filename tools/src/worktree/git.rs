//! Runs git with limits, and prevents a repository from executing programs.
//!
//! The configuration of a repository can name programs (filters, `core.fsmonitor`, hooks), so git must not read it. Each command takes
//! its settings from a plain repository of the host, and only the refs or objects from the user's repository. Settings that would execute
//! programs are also overridden.
//!
//! A session may write to the `.git` of its workspace, even while git runs. Links, alternates and `commondir` in it can point to any
//! repository or file of the user. If the system has a sandbox, git can reach only the repository and the worktree. It cannot reach
//! records of the host or worktrees of other sessions.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use super::room::Room;
use super::turns::GitTurns;
use super::{WorktreeError, blocking};
use crate::commands::CommandLimits;
use crate::guard::{Guard, LIMITS};
#[cfg(target_os = "linux")]
use crate::sandbox;
use crate::sandbox::path_outside;

/// Maximum bytes of git's output. Larger files are not merged.
pub(super) const MAX_OUTPUT: u64 = 64 << 20;
/// Maximum bytes of error output.
const MAX_ERROR_OUTPUT: u64 = 4 << 10;
/// Time until the first check whether a command waits for a pipe. The time doubles with each check.
const FIRST_SEARCH: Duration = Duration::from_secs(2);
/// Time between two checks of free space.
const SPACE_CHECK: Duration = Duration::from_millis(20);
/// Time limit of one command.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Resource limits of one command, because a repository can make git read endless files, and objects of any size. Mapped packs do not count
/// as memory.
const RESOURCE_LIMITS: CommandLimits = CommandLimits {
    processes: 2048,
    memory_bytes: 384 << 20,
    file_bytes: 8 << 30,
    open_files: 4096,
    // Meanwhile no other session takes this turn.
    cpu_seconds: 120,
};
/// Commands of this process that run at the same time, in different repositories: each may take its whole memory.
const CONCURRENT: usize = 2;
static TURNS: GitTurns = GitTurns::new(CONCURRENT);
/// Maximum bytes of paths in one command, with their pointers. Linux permits 2 MiB and macOS 1 MiB.
const MAX_ARGUMENT_BYTES: usize = 512 << 10;
/// Bytes of an argument in addition to its text: its end and a pointer.
const ARGUMENT_BYTES: usize = 1 + size_of::<usize>();
/// Overrides of settings that would execute programs or start background work.
const CONFIG_OVERRIDES: [(&str, &str); 13] = [
    // Worktrees of many sessions change the references of one repository at the same time.
    ("core.packedRefsTimeout", "30000"),
    // Larger files are written and added in pieces, and compared as binary ones.
    ("core.bigFileThreshold", "64m"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.sshCommand", "false"),
    ("core.pager", "cat"),
    ("core.editor", "true"),
    ("commit.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("protocol.allow", "never"),
];

/// Runs git, under a guard if there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct Git {
    guard: Option<Guard>,
    /// The directory from which git is never taken, also where `PATH` leads there: the current one if `None`.
    pub(super) outside: Option<PathBuf>,
    /// The workspaces of the worktrees in use, from which git is never taken either.
    workspaces: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// Directories that git can reach in addition to those of the system. Their paths contain no links.
#[derive(Clone, Debug, Default)]
pub(super) struct GitReach {
    /// Directories to which git can write. The first is the repository or a copy.
    pub(super) written: Vec<PathBuf>,
    pub(super) read: Vec<PathBuf>,
}

/// The environment of a command, without the user's git settings.
#[derive(Clone, Debug, Default)]
pub(super) struct GitPlace {
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// The directory in which git starts. Empty means the root of the file system.
    pub(super) start: PathBuf,
    pub(super) reach: GitReach,
    /// The file system on which the command must leave space.
    pub(super) room: Option<Room>,
}

pub(super) struct GitAnswer {
    pub(super) status: ExitStatus,
    pub(super) out: Vec<u8>,
    error_output: Vec<u8>,
}

impl Git {
    pub(super) fn new(guard: Option<Guard>) -> Self {
        Self { guard, ..Self::default() }
    }

    /// Returns the directories from which git is never taken.
    pub(super) fn outside(&self) -> Vec<PathBuf> {
        let own = self.outside.clone().or_else(|| std::env::current_dir().ok());
        let workspaces = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        own.into_iter().chain(workspaces.iter().cloned()).collect()
    }

    /// Takes git from no directory of `workspace` from now on.
    pub(super) fn avoid(&self, workspace: &Path) {
        let mut workspaces = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if !workspaces.contains(workspace) {
            workspaces.insert(workspace.to_owned());
        }
    }

    /// Runs a command that must succeed, and returns its output.
    pub(super) fn run<A: AsRef<OsStr>>(&self, at: &GitPlace, args: &[A]) -> Result<Vec<u8>, WorktreeError> {
        succeeded(args, self.run_for_output(at, args)?)
    }

    /// Runs a command like [`Git::run`], and returns at most `most` bytes of its output.
    pub(super) fn run_for_start<A: AsRef<OsStr>>(
        &self,
        at: &GitPlace,
        args: &[A],
        most: u64,
    ) -> Result<Vec<u8>, WorktreeError> {
        succeeded(args, self.output(at, args, move |out| read(out, most))?.0)
    }

    /// Runs a command whose output may be endless. `scan` reads it, and returns whether it is whole; else git ends at its next write.
    pub(super) fn run_scanned<A: AsRef<OsStr>>(
        &self,
        at: &GitPlace,
        args: &[A],
        scan: impl FnOnce(&mut dyn BufRead) -> io::Result<bool> + Send + 'static,
    ) -> Result<bool, WorktreeError> {
        let read = |out: Option<ChildStdout>| {
            let is_whole = out.is_none_or(|out| scan(&mut BufReader::new(out)).unwrap_or(false));
            (Vec::new(), is_whole)
        };
        match self.output(at, args, read)? {
            (answer, true) => succeeded(args, answer).map(|_| true),
            (_, false) => Ok(false),
        }
    }

    /// Runs a command like [`Git::run`] and returns its one line of output.
    pub(super) fn run_for_line<A: AsRef<OsStr>>(&self, at: &GitPlace, args: &[A]) -> Result<String, WorktreeError> {
        let out = self.run(at, args)?;
        let text = String::from_utf8(out).map_err(|_| command_error(args, "its output is not UTF-8 text"))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Runs a command for `paths`, in several calls if necessary.
    pub(super) fn run_for(&self, at: &GitPlace, args: &[&str], paths: &[Vec<u8>]) -> Result<(), WorktreeError> {
        let mut rest = paths.iter().peekable();
        while rest.peek().is_some() {
            let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
            let mut bytes = 0_usize;
            while let Some(path) =
                rest.next_if(|path| bytes == 0 || bytes.saturating_add(path.len()) < MAX_ARGUMENT_BYTES)
            {
                bytes = bytes.saturating_add(path.len()).saturating_add(ARGUMENT_BYTES);
                all.push(os(path)?);
            }
            self.run(at, &all)?;
        }
        Ok(())
    }

    pub(super) fn run_for_output<A: AsRef<OsStr>>(
        &self,
        at: &GitPlace,
        args: &[A],
    ) -> Result<GitAnswer, WorktreeError> {
        let (answer, whole) = self.output(at, args, |out| read(out, MAX_OUTPUT))?;
        if whole { Ok(answer) } else { Err(WorktreeError::TooLong { verb: verb(args) }) }
    }

    /// Runs a command. Returns what `read_out` keeps of its output, and whether this is the whole.
    fn output<A: AsRef<OsStr>>(
        &self,
        at: &GitPlace,
        args: &[A],
        read_out: impl FnOnce(Option<ChildStdout>) -> (Vec<u8>, bool) + Send + 'static,
    ) -> Result<(GitAnswer, bool), WorktreeError> {
        let start_error = |error: io::Error| {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let why = if is_missing { "git is not on PATH; install it".to_owned() } else { error.to_string() };
            command_error(args, &why)
        };
        let _turn = TURNS.take(at.reach.written.first());
        let mut command = self.command(at, args);
        let program = PathBuf::from(command.get_program());
        let mut child = run_confined(&at.reach, &program, &self.outside(), || command.spawn()).map_err(start_error)?;
        // The guard kills git when this pipe closes, even if this process is killed.
        let guard_pipe = child.stdin.take();
        let (send, answers) = mpsc::channel();
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        let sent = send.clone();
        let thread = || std::thread::Builder::new().name("subtend-git".to_owned());
        let readers = thread()
            .spawn(move || drop(sent.send((true, read_out(out)))))
            .and_then(|_| thread().spawn(move || drop(send.send((false, read(errors, MAX_ERROR_OUTPUT))))));
        let (mut whole, mut out, mut error_output) = (true, Vec::new(), Vec::new());
        let mut patience = FIRST_SEARCH;
        for _ in 0..2 {
            let received = match &readers {
                Ok(_) => receive(&answers, &mut patience, (child.id(), at)),
                Err(error) => Err(format!("its output cannot be read: {error}")),
            };
            let (is_out, (bytes, is_whole)) = match received {
                Ok(received) => received,
                Err(why) => {
                    drop(guard_pipe);
                    kill(&mut child, self.guard.is_none());
                    return Err(command_error(args, &why));
                }
            };
            if is_out {
                (out, whole) = (bytes, is_whole);
            } else {
                error_output = bytes;
            }
        }
        let status = child.wait().map_err(|error| command_error(args, &error.to_string()))?;
        drop(guard_pipe);
        Ok((GitAnswer { status, out, error_output }, whole))
    }

    fn command<A: AsRef<OsStr>>(&self, at: &GitPlace, args: &[A]) -> Command {
        let args = args.iter().map(|arg| arg.as_ref().to_owned());
        let mut command = match &self.guard {
            Some(guard) => {
                let argv: Vec<OsString> = std::iter::once("git".into()).chain(args).collect();
                let mut command = guard.command(&argv);
                command.stdin(Stdio::piped());
                command
            }
            None => {
                let mut command = Command::new("git");
                command.args(args).stdin(Stdio::null());
                command
            }
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.current_dir(if at.start.as_os_str().is_empty() { Path::new("/") } else { &at.start });
        command.env_clear().env("PATH", path_outside(&self.outside()));
        for name in ["HOME", "XDG_CONFIG_HOME", "TMPDIR"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            // A replaced object would be checked in place of the one that is written to the disk.
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_AUTHOR_NAME", "subtend"),
            ("GIT_AUTHOR_EMAIL", "subtend@localhost"),
            ("GIT_COMMITTER_NAME", "subtend"),
            ("GIT_COMMITTER_EMAIL", "subtend@localhost"),
        ] {
            command.env(name, value);
        }
        command.env("GIT_CONFIG_COUNT", CONFIG_OVERRIDES.len().to_string());
        for (ix, (key, value)) in CONFIG_OVERRIDES.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{ix}"), key).env(format!("GIT_CONFIG_VALUE_{ix}"), value);
        }
        command.envs(at.variables.iter().map(|(name, value)| (name, value)));
        // The guard has the limits of its command. The allocator of `subtend` would reserve 1 GiB, which counts as memory.
        command.env("MIMALLOC_ARENA_RESERVE", "16MiB");
        if self.guard.is_some()
            && let Ok(limits) = serde_json::to_string(&RESOURCE_LIMITS)
        {
            command.env(LIMITS, limits);
        }
        command
    }
}

impl GitAnswer {
    /// Returns whether git failed without a message. With `--quiet`, this means that the requested object does not exist.
    pub(super) fn is_silent(&self) -> bool {
        self.error_output.trim_ascii().is_empty()
    }

    pub(super) fn why(&self) -> String {
        let text = String::from_utf8_lossy(&self.error_output);
        let text = text.trim().replace('\n', "; ");
        if text.is_empty() { self.status.to_string() } else { text }
    }
}

/// Returns the next answer, or the reason why it is missing.
///
/// A command that sleeps at two checks without using CPU time between them waits for a pipe: git uses no network here, and a process that
/// waits for a disk does not count as asleep.
fn receive<T>(
    answers: &mpsc::Receiver<T>,
    patience: &mut Duration,
    (process, at): (u32, &GitPlace),
) -> Result<T, String> {
    let (mut asleep, reach) = (None, &at.reach);
    loop {
        if let Some(answer) = wait(answers, *patience, at.room.as_ref())? {
            return Ok(answer);
        }
        if let Some(path) = blocking::pipe(&reach.written, &reach.read) {
            return Err(format!("it waits for `{}`, which is not a regular file: remove it", path.display()));
        }
        let was_asleep = std::mem::replace(&mut asleep, blocking::asleep(process));
        if asleep.is_some() && asleep == was_asleep {
            return Err(match blocking::any_pipe(&reach.written, &reach.read) {
                Some(path) => {
                    format!("it waits, probably for `{}`, which is not a regular file: remove it", path.display())
                }
                None => "it waits for a file that another process replaced with a pipe meanwhile: try again".to_owned(),
            });
        }
        if *patience >= TIMEOUT {
            return Err(format!("it did not end within {} s", TIMEOUT.as_secs()));
        }
        *patience = patience.saturating_mul(2).min(TIMEOUT);
    }
}

/// Waits for an answer. Fails as soon as too little space is left in `room`.
fn wait<T>(answers: &mpsc::Receiver<T>, patience: Duration, room: Option<&Room>) -> Result<Option<T>, String> {
    let Some(room) = room else { return Ok(answers.recv_timeout(patience).ok()) };
    let mut waited = Duration::ZERO;
    while waited < patience {
        if let Ok(answer) = answers.recv_timeout(SPACE_CHECK) {
            return Ok(Some(answer));
        }
        room.check(0).map_err(|error| error.to_string())?;
        waited = waited.saturating_add(SPACE_CHECK);
    }
    Ok(None)
}

/// Runs `act` in a sandbox, if the system has one. Then `act` and its child processes can reach only files of `reach` and of the system,
/// also where links in `workspaces` lead elsewhere.
#[cfg(target_os = "linux")]
pub(super) fn run_confined<T: Send>(
    reach: &GitReach,
    program: &Path,
    workspaces: &[PathBuf],
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    if sandbox::probe().is_err() {
        return act();
    }
    // A sandbox applies to the thread that enters it and to the processes that the thread starts.
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().spawn_scoped(scope, || {
            sandbox::enter_within(&reach.written, &reach.read, program, workspaces).map_err(io::Error::other)?;
            act()
        })?;
        started.join().unwrap_or_else(|_| Err(io::Error::other("the sandbox panicked")))
    })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn run_confined<T>(
    _: &GitReach,
    _: &Path,
    _: &[PathBuf],
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    act()
}

/// Reads to the end. Returns at most `most` bytes, and whether these are all bytes.
fn read(from: Option<impl io::Read>, most: u64) -> (Vec<u8>, bool) {
    let (Some(mut from), mut bytes) = (from, Vec::new()) else { return (Vec::new(), true) };
    let read = from.by_ref().take(most).read_to_end(&mut bytes);
    let rest = io::copy(&mut from, &mut io::sink());
    (bytes, read.is_ok() && rest.is_ok_and(|rest| rest == 0))
}

fn kill(child: &mut Child, is_group: bool) {
    #[cfg(unix)]
    if is_group && let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        // An error means that the group has already ended.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    #[cfg(not(unix))]
    if is_group {
        drop(child.kill());
    }
    drop(child.wait());
}

fn succeeded<A: AsRef<OsStr>>(args: &[A], answer: GitAnswer) -> Result<Vec<u8>, WorktreeError> {
    if answer.status.success() { Ok(answer.out) } else { Err(command_error(args, &answer.why())) }
}

fn command_error<A: AsRef<OsStr>>(args: &[A], why: &str) -> WorktreeError {
    WorktreeError::Git { verb: verb(args), why: why.to_owned() }
}

fn verb<A: AsRef<OsStr>>(args: &[A]) -> String {
    let verb = args.iter().map(|arg| arg.as_ref().to_string_lossy()).find(|arg| !arg.starts_with('-'));
    verb.unwrap_or_default().into_owned()
}

/// Splits a list of git that ends each path with NUL. Returns at most `most` paths, and the number of all: a path in git's output may take
/// 2 bytes, but many times as much in a set. Git lists a path twice in a row that is in two states.
pub(super) fn split_paths(out: &[u8], most: usize) -> (BTreeSet<Vec<u8>>, usize) {
    let (mut paths, mut count, mut last) = (BTreeSet::new(), 0_usize, [].as_slice());
    for path in out.split(|byte| *byte == 0) {
        if path.is_empty() || std::mem::replace(&mut last, path) == path {
            continue;
        }
        if count < most {
            paths.insert(path.to_vec());
        }
        count = count.saturating_add(1);
    }
    (paths, count)
}

#[cfg(unix)]
pub(super) fn os(bytes: &[u8]) -> Result<OsString, WorktreeError> {
    Ok(std::os::unix::ffi::OsStrExt::from_bytes(bytes)).map(|name: &OsStr| name.to_owned())
}

#[cfg(not(unix))]
pub(super) fn os(bytes: &[u8]) -> Result<OsString, WorktreeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| command_error(&["ls-files"], "a path is not UTF-8"))?;
    Ok(text.into())
}
