//! The guard: a small process between the runtime and a command, so that no descendant of the command outlives the runtime.
//!
//! The runtime holds the guard's standard input open. When the runtime ends, the system closes that pipe. The guard then kills
//! the command's process group and, on Linux, all descendants: as a subreaper it inherits daemons.
//!
//! The guard applies the machine's limits to itself, and its children inherit them
//! ([`CommandLimits`](crate::commands::CommandLimits)). No session rules apply to the guard. A restricted command runs in a
//! sandbox ([`crate::sandbox`]) that the guard creates; its authority is the first line of the guard's input.
//!
//! A command that reads, such as an MCP server or a background process, gets the guard's input (`PIPED`); of a sandboxed one
//! what follows the first line. The end of that input still ends it: it may end by itself, then gets SIGTERM, and is killed.
//! A command that reads its arguments gets one line, and then the end of its input ([`Guard::fed`]).

#[cfg(unix)]
mod limits;
#[cfg(unix)]
mod piped;
#[cfg(unix)]
mod reap;

#[cfg(unix)]
pub(crate) use reap::end_in_place_of;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
#[cfg(unix)]
use std::process::Stdio;

#[cfg(unix)]
use crate::sandbox::{self, HELD, NOT_RUN, SandboxedCommand, WHY};

/// Passes the limits of a command from the runtime to the guard.
pub(crate) const LIMITS: &str = "SUBTEND_COMMAND_LIMITS";

/// The first argument of a guard that passes its input on to the command.
pub(crate) const PIPED: &str = "--piped";

/// The first argument of a guard that gives the command the first line of its input.
const LINE: &str = "--line";

/// How to start a guard: a program that ends in [`main`], and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The program: usually the running one.
    pub program: PathBuf,
    /// Its arguments before those of the guarded command.
    pub args: Vec<OsString>,
}

impl Guard {
    pub(crate) fn command(&self, argv: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).args(argv);
        command
    }

    /// Returns a command that runs `argv` with the first line of the guard's standard input. `argv` and all that it started are killed
    /// when that input is closed.
    pub fn fed(&self, argv: &[OsString]) -> Command {
        let mut command = self.command(&[LINE.into()]);
        command.args(argv);
        command
    }
}

/// Runs the command `args` until it ends or standard input closes, then kills all its descendants.
///
/// Returns the command's exit code, 128 plus a signal, 127 if it could not start, 137 if standard input closed first, or 125 if the
/// sandbox is missing. Call it before any other setup: it starts threads and waits for children.
#[cfg(unix)]
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    use std::io::Read as _;

    let mut args = args.into_iter().peekable();
    let held = args.next_if(|first| first == HELD).is_some();
    let piped = args.next_if(|first| first == PIPED).is_some();
    let lined = args.next_if(|first| first == LINE).is_some();
    let Some(program) = args.next() else {
        eprintln!("guard: no command is given");
        return 127;
    };
    let counted = match limits::of_environment().and_then(|limits| limits.as_ref().map(limits::apply).transpose()) {
        Ok(counted) => counted,
        Err(why) => {
            eprintln!("{WHY}the limits of the command cannot be set: {why}");
            return NOT_RUN;
        }
    };
    // The caller of the runtime may have left files, pipes and sockets open, and no rule applies to an open descriptor.
    close_fds::set_fds_cloexec(3, &[]);
    // Before the command exists, so that no descendant escapes.
    reap::adopt();
    let reads = piped || lined;
    let started = if held { hold(program, args, reads) } else { free(program, args, reads) };
    let opens: &'static [u8] = if held { b"\n" } else { b"" };
    let (id, input, held) = match started {
        Ok(started) => started,
        Err((code, why)) => {
            eprintln!("{why}");
            return code;
        }
    };
    let Some(leader) = reap::pid(id) else { return 127 };
    // Whichever thread finishes first also removes the sandbox's leftovers.
    let held = std::sync::Arc::new(std::sync::Mutex::new((held, counted)));
    let left = std::sync::Arc::clone(&held);
    std::thread::spawn(move || {
        match input {
            Some(input) if piped => piped::pass(input, opens, leader),
            input => {
                input.into_iter().for_each(|input| piped::feed(input, opens, lined));
                let mut byte = [0];
                // Nothing more is written: the read ends at the end of the pipe or with an error, which counts the same.
                while matches!(std::io::stdin().read(&mut byte), Ok(read) if read > 0) {}
            }
        }
        kill(&left);
        reap::end(Some(leader));
        forget(&left);
        std::process::exit(137);
    });
    let code = reap::wait(leader);
    kill(&held);
    reap::end(None);
    forget(&held);
    code
}

/// Things to remove after a command: its sandbox, and its process counter.
#[cfg(unix)]
type Leftovers = (Option<SandboxedCommand>, Option<limits::Counted>);

/// A command's process with its input, if it has one, and its optional sandbox; or the guard's exit code and reason.
#[cfg(unix)]
type Started = Result<(u32, Option<std::process::ChildStdin>, Option<SandboxedCommand>), (i32, String)>;

#[cfg(unix)]
fn free(program: OsString, args: impl Iterator<Item = OsString>, reads: bool) -> Started {
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

/// Starts a command under the authority on standard input; it waits for a line of its input.
#[cfg(unix)]
fn hold(program: OsString, args: impl Iterator<Item = OsString>, reads: bool) -> Started {
    let mut command = sandbox::behind_gate(program, args, reads);
    in_group(&mut command);
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).map_err(|error| error.to_string());
    let authority = read.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
    let held = authority
        .map_err(|error| format!("its authority cannot be read: {error}"))
        .and_then(|authority| sandbox::start(command, authority));
    match held {
        Ok(mut held) => Ok((held.child.id(), held.child.stdin.take(), Some(held))),
        Err(why) => Err((NOT_RUN, format!("{WHY}{why}"))),
    }
}

/// Kills what is in the sandbox, if there is one: a process that forks without end may outrun the kills of [`reap::end`].
#[cfg(unix)]
fn kill(left: &std::sync::Mutex<Leftovers>) {
    let left = left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    left.0.iter().for_each(SandboxedCommand::kill);
}

#[cfg(unix)]
fn forget(left: &std::sync::Mutex<Leftovers>) {
    let mut left = left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    drop((left.0.take(), left.1.take()));
}

/// Returns an error: guards need process groups.
#[cfg(not(unix))]
pub fn main(_: impl IntoIterator<Item = OsString>) -> i32 {
    eprintln!("guard: not supported on this system");
    127
}
