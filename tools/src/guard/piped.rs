//! Passes input to a command until the runtime closes that input or ends.

use std::io::{self, BufRead as _, Write as _};
use std::process::ChildStdin;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::CLOSE;

/// Time for a command to exit after its input has ended.
const GRACE: Duration = Duration::from_millis(500);

/// Time for a command to exit after SIGTERM.
const TERM_GRACE: Duration = Duration::from_millis(250);

/// Writes `prefix` to the command's input, then, with `first_line`, the first line of standard input, and closes the command's input.
/// A thread does this, so that a command that does not read cannot block the guard.
pub(super) fn feed(mut input: ChildStdin, prefix: &[u8], first_line: bool) {
    let mut line = prefix.to_vec();
    if first_line {
        // The caller's next read detects an error or the end of the runtime.
        drop(io::stdin().lock().read_until(b'\n', &mut line));
    }
    report(std::thread::Builder::new().spawn(move || drop(input.write_all(&line))));
}

/// Passes `prefix` and standard input to the command; with `until_close`, only up to [`CLOSE`]. After the end of standard input,
/// gives the group of `leader` time to exit, sends SIGTERM, and waits again.
///
/// A second thread copies: that blocks if the command does not read. This one watches for the runtime's end.
pub(super) fn pass(mut input: ChildStdin, prefix: &'static [u8], until_close: bool, leader: Pid) {
    let copying = std::thread::Builder::new().spawn(move || {
        // Ignore errors: other code detects the end of the command or the runtime. The end of the copy closes the pipe.
        drop(input.write_all(prefix).and_then(|()| {
            if until_close {
                copy_until_close(&mut input)
            } else {
                io::copy(&mut io::stdin().lock(), &mut input).map(drop)
            }
        }));
    });
    report(copying);
    // With no requested events, poll reports only the end of the pipe.
    let stdin = rustix::stdio::stdin();
    loop {
        match poll(&mut [PollFd::new(&stdin, PollFlags::empty())], None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                eprintln!("guard: cannot watch for the end of the runtime: {error}");
                break;
            }
        }
    }
    // If the command exits meanwhile, the main thread ends this process.
    std::thread::sleep(GRACE);
    // An error means that the group has already ended.
    let _ = kill_process_group(leader, Signal::TERM);
    std::thread::sleep(TERM_GRACE);
}

/// Reports that the system refused a thread. Then the input of the command is closed, and its end is still watched.
fn report(thread: io::Result<std::thread::JoinHandle<()>>) {
    if let Err(error) = thread {
        eprintln!("guard: cannot pass input to the command: {error}");
    }
}

/// Copies standard input to `input` until [`CLOSE`] or the end.
fn copy_until_close(input: &mut ChildStdin) -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    loop {
        let bytes = stdin.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == CLOSE);
        let copied = end.unwrap_or(bytes.len());
        input.write_all(bytes.get(..copied).unwrap_or_default())?;
        if copied == 0 || end.is_some() {
            return Ok(());
        }
        stdin.consume(copied);
    }
}
