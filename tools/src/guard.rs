//! The guard: a small process between the runtime and a command, so that nothing that the command starts outlives the runtime.
//!
//! The runtime holds the guard's standard input open. When the runtime ends, however it ends, the system
//! closes that pipe; the guard then kills the command's process group and, on Linux, everything that ever descended from it:
//! as a subreaper it inherits what daemonised.
//!
//! The guard takes the limits of the machine on itself, and its children inherit them ([`CommandLimits`](crate::commands::CommandLimits)).
//! Of the rules of a session it is bound by none. A command that is to be held runs in a sandbox ([`crate::sandbox`]) that the guard
//! makes for it; what it may do is then the first line of the guard's input.

#[cfg(unix)]
mod limits;
#[cfg(unix)]
mod reap;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

#[cfg(unix)]
use crate::sandbox::{self, HELD, Held, NOT_RUN, WHY};

/// Carries the limits of a command from the runtime to the guard.
pub(crate) const LIMITS: &str = "SUBTEND_COMMAND_LIMITS";

/// How to start a guard: a program that ends in [`main`], and the arguments that lead there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The program: as a rule the running one.
    pub program: PathBuf,
    /// Its arguments before those of the guarded command.
    pub args: Vec<OsString>,
}

impl Guard {
    /// The command that runs `argv` under this guard.
    pub(crate) fn command(&self, argv: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).args(argv);
        command
    }
}

/// The guard: runs the command `args` until it ends or standard input does, then ends all that it started.
///
/// Gives the command's exit code, 128 and the signal when one ended it, 127 when it could not be started, 137 when standard
/// input ended first, and 125 when it was to be held by a sandbox that there is not. Call it before anything else is set up:
/// it starts threads and waits for children.
#[cfg(unix)]
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    use std::io::Read as _;
    use std::process::Stdio;

    let mut args = args.into_iter().peekable();
    let held = args.next_if(|first| first == HELD).is_some();
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
    // Before the command exists, so that nothing that it starts slips by.
    reap::adopt();
    let mut command = Command::new(&program);
    std::os::unix::process::CommandExt::process_group(command.args(args).stdin(Stdio::null()).env_remove(LIMITS), 0);
    let started = if held { hold(command) } else { free(command) };
    let (id, held) = match started {
        Ok(started) => started,
        Err((code, why)) => {
            eprintln!("{why}");
            return code;
        }
    };
    let Some(leader) = reap::pid(id) else { return 127 };
    // Whichever of the two threads ends it all takes what the sandbox left with it.
    let held = std::sync::Arc::new(std::sync::Mutex::new((held, counted)));
    let left = std::sync::Arc::clone(&held);
    std::thread::spawn(move || {
        let mut byte = [0];
        // Nothing more is ever written: what ends the read is the end of the pipe, or an error, which is taken for one.
        while matches!(std::io::stdin().read(&mut byte), Ok(read) if read > 0) {}
        reap::end(Some(leader));
        forget(&left);
        std::process::exit(137);
    });
    let code = reap::wait(leader);
    reap::end(None);
    forget(&held);
    code
}

/// What must be removed behind a command: its sandbox, and what counts its processes.
#[cfg(unix)]
type Left = (Option<Held>, Option<limits::Counted>);

/// A command's process, with the sandbox that it runs in, if it does; or the guard's exit code, and why.
#[cfg(unix)]
type Started = Result<(u32, Option<Held>), (i32, String)>;

#[cfg(unix)]
fn free(mut command: Command) -> Started {
    match command.spawn() {
        Ok(child) => Ok((child.id(), None)),
        Err(error) => Err((127, format!("guard: cannot start {}: {error}", command.get_program().display()))),
    }
}

/// Starts a command under the authority that standard input names.
#[cfg(unix)]
fn hold(command: Command) -> Started {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).map_err(|error| error.to_string());
    let authority = read.and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()));
    let held = authority
        .map_err(|error| format!("what it may do is not told: {error}"))
        .and_then(|authority| sandbox::start(command, authority));
    match held {
        Ok(held) => Ok((held.child.id(), Some(held))),
        Err(why) => Err((NOT_RUN, format!("{WHY}{why}"))),
    }
}

#[cfg(unix)]
fn forget(left: &std::sync::Mutex<Left>) {
    let mut left = left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    drop((left.0.take(), left.1.take()));
}

/// Guards need a system with process groups.
#[cfg(not(unix))]
pub fn main(_: impl IntoIterator<Item = OsString>) -> i32 {
    eprintln!("guard: not supported on this system");
    127
}
