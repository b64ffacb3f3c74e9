//! The guard: a small process between the runtime and a command. It ensures that all descendants of the command end with the runtime.
//!
//! The runtime holds the guard's standard input open. When the runtime ends, the system closes that pipe. The guard then kills
//! the command's process group and, on Linux, all descendants: as a subreaper it inherits daemons.
//!
//! The guard applies resource limits to itself, and its children inherit them ([`CommandLimits`]), except that of CPU time of a
//! sandboxed command. The session's rules do not apply to the guard. A restricted command runs
//! in a sandbox ([`crate::sandbox`]) that the guard creates. It reads the command's authority from the first line of its input.
//!
//! A command that reads its input gets the rest of the guard's input (`PIPED`): for example an MCP server or a background process.
//! When that input ends, the command has time to exit. Then the guard sends SIGTERM, and at last kills the command. A NUL byte
//! closes the input of a background process and leaves the process running (`TYPED_FLAG`).
//! A command that takes its arguments on standard input gets one line, followed by the end of input ([`Guard::with_input`]).

#[cfg(unix)]
mod limits;
#[cfg(unix)]
mod piped;
#[cfg(unix)]
pub(crate) mod reap;

#[cfg(unix)]
pub(crate) use reap::kill_with_descendants;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
#[cfg(unix)]
use std::process::Stdio;

#[cfg(unix)]
use crate::commands::CommandLimits;
#[cfg(unix)]
use crate::sandbox::{self, HELD, NOT_RUN, NOT_RUN_PREFIX, SandboxedCommand};

/// Environment variable that passes the limits of a command from the runtime to the guard.
pub(crate) const LIMITS: &str = "SUBTEND_COMMAND_LIMITS";

/// First argument of a guard that passes its input on to the command.
pub(crate) const PIPED: &str = "--piped";

/// Like [`PIPED`], but [`CLOSE`] closes the command's input and leaves the command running.
pub(crate) const TYPED_FLAG: &str = "--typed";

/// The byte that closes the input of a command started with [`TYPED_FLAG`]. Typed text never contains it.
pub(crate) const CLOSE: u8 = 0;

/// First argument of a guard that passes the first line of its input to the command.
const LINE: &str = "--line";

/// The program that runs as a guard by calling [`main`], and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The program, usually the current executable: on Linux `/proc/self/exe`, which no session can replace.
    pub program: PathBuf,
    /// Arguments that precede the arguments of the guarded command.
    pub args: Vec<OsString>,
}

impl Guard {
    pub(crate) fn command(&self, argv: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).args(argv);
        command
    }

    /// Returns a command that runs `argv` with the first line of the guard's standard input as its input. When the guard's input is
    /// closed, `argv` and all its descendants are killed.
    pub fn with_input(&self, argv: &[OsString]) -> Command {
        let mut command = self.command(&[LINE.into()]);
        command.args(argv);
        command
    }
}

/// Runs the command `args` until it ends or standard input closes, then kills all its descendants.
///
/// Returns the command's exit code, or 128 plus the signal that ended it. Other codes are 127 if the command could not start,
/// 137 if standard input closed first, and 125 if the sandbox cannot be set up. Call this function before any other setup,
/// because it starts threads and waits for children.
#[cfg(unix)]
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    use std::io::Read as _;

    let mut args = args.into_iter().peekable();
    let sandboxed = args.next_if(|first| first == HELD).is_some();
    let typed = args.next_if(|first| first == TYPED_FLAG).is_some();
    let piped = typed || args.next_if(|first| first == PIPED).is_some();
    let lined = args.next_if(|first| first == LINE).is_some();
    let Some(program) = args.next() else {
        eprintln!("guard: missing command");
        return 127;
    };
    let apply = |limits: CommandLimits| limits::apply(&limits, sandboxed);
    let counted = match limits::from_environment().and_then(|limits| limits.map(apply).transpose()) {
        Ok(counted) => counted,
        Err(why) => {
            eprintln!("{NOT_RUN_PREFIX}cannot set the limits of the command: {why}");
            return NOT_RUN;
        }
    };
    // Rules do not apply to files, pipes and sockets that the embedding program left open.
    close_fds::set_fds_cloexec(3, &[]);
    // Before the command starts, so that no descendant escapes.
    reap::adopt();
    let reads = piped || lined;
    let started = if sandboxed { start_sandboxed(program, args, reads) } else { start_plain(program, args, reads) };
    // A sandboxed command waits for this line; see `sandbox::behind_gate`.
    let prefix: &'static [u8] = if sandboxed { b"\n" } else { b"" };
    let (id, input, sandbox) = match started {
        Ok(started) => started,
        Err((code, why)) => {
            eprintln!("{why}");
            return code;
        }
    };
    let Some(leader) = reap::pid(id) else { return 127 };
    // The thread that finishes first also removes the sandbox's leftovers.
    let leftovers = std::sync::Arc::new(std::sync::Mutex::new((sandbox, counted)));
    let of_watcher = std::sync::Arc::clone(&leftovers);
    let watcher = std::thread::Builder::new().spawn(move || {
        match input {
            Some(input) if piped => piped::pass(input, prefix, typed, leader),
            input => {
                input.into_iter().for_each(|input| piped::feed(input, prefix, lined));
                let mut byte = [0];
                // The runtime writes nothing more, so this waits for the end of the pipe. An error counts as the end.
                while matches!(std::io::stdin().read(&mut byte), Ok(read) if read > 0) {}
            }
        }
        kill_sandboxed(&of_watcher);
        let is_ended = reap::end(Some(leader));
        remove_leftovers(&of_watcher);
        if is_ended { std::process::exit(137) } else { reap::give_up() }
    });
    // A command that no thread watches would outlive the runtime.
    let unwatched = watcher.err().map(|error| eprintln!("guard: cannot watch for the end of the runtime: {error}"));
    let code = if unwatched.is_some() { 127 } else { reap::wait(leader) };
    kill_sandboxed(&leftovers);
    let is_ended = reap::end(unwatched.map(|()| leader));
    remove_leftovers(&leftovers);
    if is_ended { code } else { reap::give_up() }
}

/// Resources to remove after a command: its sandbox and its process counter.
#[cfg(unix)]
type Leftovers = (Option<SandboxedCommand>, Option<limits::Counted>);

/// The process id, input and sandbox of a command; or the exit code of the guard and its reason.
#[cfg(unix)]
type StartedCommand = Result<(u32, Option<std::process::ChildStdin>, Option<SandboxedCommand>), (i32, String)>;

#[cfg(unix)]
fn start_plain(program: OsString, args: impl Iterator<Item = OsString>, reads: bool) -> StartedCommand {
    let mut command = Command::new(program);
    command.args(args).stdin(if reads { Stdio::piped() } else { Stdio::null() });
    match in_group(&mut command).spawn() {
        Ok(mut child) => Ok((child.id(), child.stdin.take(), None)),
        Err(error) => Err((127, format!("guard: cannot start {}: {error}", command.get_program().display()))),
    }
}

#[cfg(unix)]
fn in_group(command: &mut Command) -> &mut Command {
    std::os::unix::process::CommandExt::process_group(command.env_remove(LIMITS), 0)
}

/// Starts a command under the authority read from standard input. The command waits for a line of its input before it runs.
#[cfg(unix)]
fn start_sandboxed(program: OsString, args: impl Iterator<Item = OsString>, reads: bool) -> StartedCommand {
    let mut command = sandbox::behind_gate(program, args, reads);
    in_group(&mut command);
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).map_err(|error| error.to_string());
    let authority = read.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
    let started = authority
        .map_err(|error| format!("cannot read the authority: {error}"))
        .and_then(|authority| sandbox::start(command, authority))
        // After an error the command reads the end of its input instead of the line that it waits for.
        .and_then(|sandboxed| limits::limit_cpu(sandboxed.child.id()).map(|()| sandboxed));
    match started {
        Ok(mut sandboxed) => Ok((sandboxed.child.id(), sandboxed.child.stdin.take(), Some(sandboxed))),
        Err(why) => Err((NOT_RUN, format!("{NOT_RUN_PREFIX}{why}"))),
    }
}

/// Kills the processes in the sandbox, if there is one. A process that forks in a loop can outrun the kills of [`reap::end`].
#[cfg(unix)]
fn kill_sandboxed(leftovers: &std::sync::Mutex<Leftovers>) {
    let leftovers = leftovers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    leftovers.0.iter().for_each(SandboxedCommand::kill);
}

#[cfg(unix)]
fn remove_leftovers(leftovers: &std::sync::Mutex<Leftovers>) {
    let mut leftovers = leftovers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    drop((leftovers.0.take(), leftovers.1.take()));
}

/// Returns an error, because guards need process groups.
#[cfg(not(unix))]
pub fn main(_: impl IntoIterator<Item = OsString>) -> i32 {
    eprintln!("guard: not supported on this system");
    127
}
