//! The guard: a small process between the runtime and a command, so that nothing that the command starts outlives the runtime.
//!
//! The runtime holds the guard's standard input and never writes to it. When the runtime ends, however it ends, the system
//! closes that pipe; the guard then kills the command's process group and, on Linux, everything that ever descended from it:
//! as a subreaper it inherits what daemonised.

#[cfg(unix)]
mod reap;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

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
/// input ended first. Call it before anything else is set up: it starts a thread and waits for children.
#[cfg(unix)]
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::Stdio;

    let mut args = args.into_iter();
    let Some(program) = args.next() else {
        eprintln!("guard: no command is given");
        return 127;
    };
    // Before the command exists, so that nothing that it starts slips by.
    reap::adopt();
    let started = Command::new(&program).args(args).stdin(Stdio::null()).process_group(0).spawn();
    let leader = match started.map(|child| reap::pid(child.id())) {
        Ok(Some(leader)) => leader,
        Ok(None) => return 127,
        Err(error) => {
            eprintln!("guard: cannot start {}: {error}", program.display());
            return 127;
        }
    };
    std::thread::spawn(move || {
        let mut byte = [0];
        // Nothing is ever written: what ends the read is the end of the pipe, or an error, which is taken for one.
        while matches!(std::io::stdin().read(&mut byte), Ok(read) if read > 0) {}
        reap::end(Some(leader));
        std::process::exit(137);
    });
    let code = reap::wait(leader);
    reap::end(None);
    code
}

/// Guards need a system with process groups.
#[cfg(not(unix))]
pub fn main(_: impl IntoIterator<Item = OsString>) -> i32 {
    eprintln!("guard: not supported on this system");
    127
}
