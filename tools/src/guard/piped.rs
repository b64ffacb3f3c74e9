//! The input of a command that reads: it is passed on until the runtime closes it or ends.

use std::io::{self, BufRead as _, Write as _};
use std::process::ChildStdin;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// Time for a command to end by itself after its input has ended.
const GRACE: Duration = Duration::from_millis(500);

/// Time after SIGTERM.
const LAST: Duration = Duration::from_millis(250);

/// Gives the command `opens`, with `lined` the first line of standard input, and the end of its input. A command that does not read
/// holds nothing up.
pub(super) fn feed(mut input: ChildStdin, opens: &[u8], lined: bool) {
    let mut line = opens.to_vec();
    if lined {
        // An error, like the end of the runtime, is noticed with the next read.
        drop(io::stdin().lock().read_until(b'\n', &mut line));
    }
    std::thread::spawn(move || drop(input.write_all(&line)));
}

/// Passes `opens` and standard input on; returns when it has ended and the group of `leader` had time to end by itself, then by SIGTERM.
///
/// The command may never read: its full pipe must not hide that the runtime has ended, so the end is watched apart.
pub(super) fn pass(mut input: ChildStdin, opens: &'static [u8], leader: Pid) {
    std::thread::spawn(move || {
        // An error is the end of the command or of the runtime; each is noticed elsewhere. The end of the copy closes the pipe.
        drop(input.write_all(opens).and_then(|()| io::copy(&mut io::stdin().lock(), &mut input)));
    });
    // Without events, only the end of the pipe is reported.
    let stdin = rustix::stdio::stdin();
    loop {
        match poll(&mut [PollFd::new(&stdin, PollFlags::empty())], None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                eprintln!("guard: the end of the runtime cannot be watched: {error}");
                break;
            }
        }
    }
    // The exit of the command ends this process meanwhile.
    std::thread::sleep(GRACE);
    // It may have ended meanwhile.
    let _ = kill_process_group(leader, Signal::TERM);
    std::thread::sleep(LAST);
}
