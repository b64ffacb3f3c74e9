//! The sandbox: the operating system enforces a session's limits on files and network for its commands.
//!
//! The guard (see [`guard`](crate::guard)) starts such a command in a domain that neither the command nor its descendants can leave,
//! daemons included. The domain combines Linux's Landlock with a system call filter. If it cannot be set up, the command does not run.
//!
//! # What is enforced
//!
//! * **Workspace files.** A directory is granted as a whole if the authority allows all paths in it, including future ones. In a partly
//!   allowed directory, the existing allowed files and directories are granted. Commands cannot create, rename or remove entries of such a
//!   directory, even if only some reads are denied: the next command could read a renamed file. A file with several names (hard links) is
//!   granted only if no name is denied, and only if each directory that may hold denied names can be listed. `Ask` counts as denied, because the kernel cannot ask.
//! * **Other files** ([`places()`]). Commands can read and execute files of the system (`/usr`, and world-readable files of `/etc`).
//!   The same applies to directories on `PATH` with neighbouring libraries (but only to programs behind links), to programs and libraries of
//!   toolchains such as rustup, pyenv, nvm and the cargo registry, and to those of their settings that have no secrets. A place to which a link in the workspace leads is not granted. Commands can write to a private directory, set as
//!   `TMPDIR` and `HOME`. All other files are denied, notably keys and credentials in the home directory, even if they are on `PATH`.
//! * **Network**, unless `net.fetch` is allowed without restriction: sockets of every kind are denied; Landlock also denies TCP. Unix
//!   sockets are always denied, because a service such as a container engine or a key agent could act for the command.
//! * **Open descriptors**: a command does not inherit files, pipes or sockets that the embedding program left open.
//! * **Modes**: `chmod` changes only what the command may read and write, and files that have no name any more. Where the kernel cannot pass these
//!   calls to the guard (another program listens already, such as the sandbox of a surrounding session, or `/proc/PID/mem` is closed to
//!   it), they are denied.
//! * **The kernel**: a command has no capabilities. It cannot enter user namespaces, create setuid programs, take leases of files, or
//!   use key rings. It cannot change owners, extended attributes or flags of files. It cannot change limits, priorities or scheduling of
//!   other processes, or join their process groups. It cannot use System V memory, semaphores and queues, or open POSIX queues.
//!
//! # What is not enforced
//!
//! * Names, sizes and times of files are visible, and a command can change times if its user may.
//! * Names and arguments of other processes are visible; their environment, memory and files are not.
//! * The names in a partly allowed directory can be listed, unless a directory below it is denied. inotify reveals the names of files that
//!   other processes use, in any directory.
//! * Before Linux 6.12, a command can send signals to other processes, including the guard.
//!
//! The filter also refuses some harmless calls: scheduling calls with the number of the caller's own thread, and process groups given by
//! number, as shells with job control (`set -m`) do.

#[cfg(target_os = "linux")]
mod domain;
#[cfg(target_os = "linux")]
mod modes;
mod outside;
mod places;
#[cfg(target_os = "linux")]
mod scratch;
#[cfg(target_os = "linux")]
mod settings;
#[cfg(target_os = "linux")]
mod survey;
#[cfg(target_os = "linux")]
mod syscalls;
mod toolchains;
mod versions;

#[cfg(target_os = "linux")]
pub(crate) use survey::unread;

#[cfg(unix)]
use std::ffi::OsString;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
#[cfg(unix)]
use std::process::Stdio;
use std::process::{Child, Command};
#[cfg(target_os = "linux")]
use std::sync::mpsc;

use subtend_session::authority::Authority;
use subtend_session::ids::Text;

#[cfg(target_os = "linux")]
use crate::memory_threads::spawn_with_memory;
#[cfg(target_os = "linux")]
use crate::policy::HostPolicy;

pub use places::Places;
pub(crate) use places::path_outside;

/// The argument before a sandboxed command; the authority is then the first line of input.
pub(crate) const HELD: &str = "--held";
/// Environment variable that passes the workspaces of other sessions to the guard of a command in a worktree, as in `PATH`.
pub(crate) const OTHERS: &str = "SUBTEND_OTHER_WORKSPACES";
/// The guard's exit code when the command was not run.
pub(crate) const NOT_RUN: i32 = 125;
/// The prefix of the guard's last message in that case. A command that prints this prefix itself counts as not run.
pub(crate) const NOT_RUN_PREFIX: &str = "guard: not run: ";

/// File actions that an unsandboxed command can always do.
const FILES: [&str; 2] = ["fs.read", "fs.write"];
/// Network action that an unsandboxed command can always do.
const NET: &str = "net.fetch";

/// The restrictions that this system's sandbox can enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxStrength {
    /// Files: Linux 6.2 and later.
    Files,
    /// Files and the network: Linux 6.7 and later.
    FilesAndNetwork,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unsupported {
    pub why: Text,
}

/// Returns the restrictions that this system can enforce. Does not restrict anything.
///
/// # Errors
/// If the system cannot enforce anything. The error names the missing part.
pub fn probe() -> Result<SandboxStrength, Unsupported> {
    #[cfg(target_os = "linux")]
    let found = domain::probe();
    #[cfg(not(target_os = "linux"))]
    let found = Err("this system has no Landlock: it is a part of Linux".to_owned());
    found.map_err(|why| Unsupported { why: why.into() })
}

/// Returns the locations outside `workspace` that a sandboxed command can use, derived from this process's environment.
pub fn places(workspace: &Path) -> Places {
    Places::of_process(workspace, &[])
}

/// Returns whether `authority` limits commands. If it does, they need a sandbox.
pub fn is_needed(authority: &Authority) -> bool {
    !authority.unrestricted(&FILES) || limits_network(authority)
}

pub(crate) fn limits_network(authority: &Authority) -> bool {
    !authority.unrestricted(&[NET])
}

/// A command started in a sandbox. The drop of this value removes the sandbox's files.
pub(crate) struct SandboxedCommand {
    pub(crate) child: Child,
    #[cfg(target_os = "linux")]
    killer: mpsc::Sender<mpsc::Sender<()>>,
    #[cfg(target_os = "linux")]
    _scratch: scratch::Scratch,
}

/// Removes the files of commands whose guards were killed, in this process or an earlier one, off the threads of the runtime.
///
/// The first call in a process begins this. [`remove_leftovers`] begins it again.
pub(crate) fn sweep_once() {
    static BEGUN: std::sync::Once = std::sync::Once::new();
    BEGUN.call_once(|| drop(sweep()));
}

/// Removes the files of the killed `guard`. Returns what remains after `limit`: the removal continues, and is repeated by the next process.
#[cfg(target_os = "linux")]
pub(crate) async fn remove_leftovers(guard: u32, limit: std::time::Duration) -> Vec<PathBuf> {
    // An error means that the removal still runs.
    let _ = tokio::time::timeout(limit, sweep()).await;
    spawn_with_memory(move || scratch::left_by(guard)).await.unwrap_or_default()
}

/// Begins a sweep after those that are running, so that many killed guards do not take many threads.
#[cfg(target_os = "linux")]
fn sweep() -> tokio::task::JoinHandle<()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    tokio::spawn(async {
        let _turn = TURN.lock().await;
        let (done, ended) = tokio::sync::oneshot::channel::<()>();
        // Not a thread of the runtime, whose end would wait for it.
        let thread = std::thread::Builder::new().name("subtend-sweep".into()).spawn(move || {
            scratch::sweep();
            drop(done);
        });
        if thread.is_ok() {
            // The sender is dropped at the end of the thread.
            let _ = ended.await;
        }
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) async fn remove_leftovers(_: u32, _: std::time::Duration) -> Vec<std::path::PathBuf> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn sweep() {}

impl SandboxedCommand {
    /// Kills all processes of the sandbox in one step, if the system supports this. Then no process can fork meanwhile.
    pub(crate) fn kill(&self) {
        #[cfg(target_os = "linux")]
        {
            let (done, doing) = mpsc::channel();
            if self.killer.send(done).is_ok() {
                // An error means that the thread has ended. Then the caller kills the processes one by one.
                let _ = doing.recv();
            }
        }
    }
}

/// Starts a command restricted to `authority`, with the current directory as its workspace.
///
/// The command must come from [`behind_gate`].
///
/// # Errors
/// If the sandbox cannot be set up completely. Then no process was started.
#[cfg(target_os = "linux")]
pub(crate) fn start(mut command: Command, authority: Authority) -> Result<SandboxedCommand, String> {
    let scratch =
        scratch::Scratch::create().map_err(|error| format!("cannot create its private directory: {error}"))?;
    let here = std::env::current_dir()
        .map_err(|error| format!("cannot find the workspace, which may have been removed: {error}"))?;
    let others: Vec<PathBuf> = std::env::var_os(OTHERS).iter().flat_map(std::env::split_paths).collect();
    let places = Places::of_process(&here, &others);
    command.env_remove(OTHERS).envs(places.variables.iter().map(|(name, path)| (name, path)));
    command.env("TMPDIR", scratch.path()).env("HOME", scratch.path());
    let path = scratch.path().to_owned();
    // The recorded rules of a session may be older than the place of temporary files.
    let denied = HostPolicy::denied_temporary_files(&here).map_err(|error| error.to_string())?;
    let authority = authority.meet(&Authority::of(denied));
    // A domain restricts the thread that enters it, and its descendants. The guard stays outside, so that it can find and kill all of them.
    let (start, started) = mpsc::channel();
    let (killer, stop_requests) = mpsc::channel::<mpsc::Sender<()>>();
    let thread = std::thread::Builder::new().spawn(move || {
        let entered = domain::enter(&authority, &path, &places);
        let child = entered.and_then(|(filter, granted)| spawn_within(command, filter, granted));
        if start.send(child).is_err() {
            return;
        }
        // A signal from this thread reaches exactly the processes of its domain.
        while let Ok(done) = stop_requests.recv() {
            let _ = domain::kill();
            drop(done);
        }
    });
    thread.map_err(|error| no_thread(&error))?;
    let child = started.recv().map_err(|_| "the sandbox panicked".to_owned())??;
    Ok(SandboxedCommand { child, killer, _scratch: scratch })
}

#[cfg(target_os = "linux")]
fn no_thread(error: &std::io::Error) -> String {
    format!("cannot start its threads: {error}")
}

/// Starts a command in a nested domain, so that it cannot signal threads of the guard.
#[cfg(target_os = "linux")]
fn spawn_within(
    mut command: Command,
    filter: domain::CommandFilter,
    granted: modes::GrantedPlaces,
) -> Result<Child, String> {
    let started = std::thread::Builder::new().spawn(move || {
        domain::enter_inner()?;
        let listener = filter.apply()?;
        let child = command.spawn();
        let child = child.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
        Ok::<_, String>((child, listener))
    });
    // The join guarantees that no thread of the guard remains in the command's own domain.
    let started = started.map_err(|error| no_thread(&error))?;
    let (child, listener) = started.join().map_err(|_| "the sandbox panicked".to_owned())??;
    if let Some(listener) = listener {
        // This thread is in the outer domain, and without the filter, whose calls it makes itself.
        let answering = std::thread::Builder::new().spawn(move || granted.answer_calls(&listener));
        // Without its input, the command ends before it becomes the program.
        answering.map_err(|error| no_thread(&error))?;
    }
    Ok(child)
}

/// Returns a command that waits for a line of input before it becomes `program`.
///
/// Without this wait, the command could send signals to the thread that started it, which may still exist. Without `reads`, the input of
/// the program is empty.
#[cfg(unix)]
pub(crate) fn behind_gate(program: OsString, args: impl Iterator<Item = OsString>, reads: bool) -> Command {
    let input = if reads { "" } else { " < /dev/null" };
    // An absolute path: a session may be allowed to write to a directory on `PATH`.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("read -r SUBTEND_GATE && exec \"$@\"{input}"), "sh"]).arg(program).args(args);
    command.stdin(Stdio::piped());
    command
}

/// Restricts this thread and all its later children. They can use only the directories `written` and `read`, `program`, and the
/// files that system programs need and to which no link in `workspaces` leads. As for a command, the system call filter applies, and sockets and most capabilities are denied.
///
/// # Errors
/// If the thread cannot be restricted, or a directory is missing or lies behind a link.
#[cfg(target_os = "linux")]
pub(crate) fn enter_within(
    written: &[PathBuf],
    read: &[PathBuf],
    program: &Path,
    workspaces: &[PathBuf],
) -> Result<(), String> {
    // The first directory is the repository, usually inside a workspace too. Links in a workspace must not add grants.
    let repository = written.first().and_then(|repository| repository.parent()).unwrap_or(Path::new("/"));
    let mut places = Places::of_program("git", repository, workspaces);
    // Git needs only two devices. A link to another one, such as `/dev/zero`, would make git read until its memory limit.
    places.devices.retain(|device| ["/dev/null", "/dev/urandom"].map(Path::new).contains(&&**device));
    domain::enter_within((written, read), program, &places)
}

/// Returns an error, because this system has no sandbox.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub(crate) fn start(_: Command, _: Authority) -> Result<SandboxedCommand, String> {
    Err("this system has no sandbox".to_owned())
}
