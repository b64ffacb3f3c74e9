//! One command in a process group of its own: bounded output, and a kill of everything that it started.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use subtend_session::authority::Authority;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio_util::sync::CancellationToken;

use super::environment;
use crate::bounded::len;
use crate::commands::Commands;
use crate::guard::{Guard, LIMITS};
use crate::sandbox;
use crate::workspace::Workspace;

/// Time for a killed command to exit, and for its last output.
const GRACE: Duration = Duration::from_millis(1500);

#[derive(Debug)]
pub(super) enum CommandEnd {
    Exited(ExitStatus),
    TimedOut,
    Cancelled,
}

#[derive(Debug)]
pub(super) struct Finished {
    pub(super) end: CommandEnd,
    pub(super) output: Ends,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Over<'a> {
    Nobody,
    Guard(&'a Guard),
    Sandbox(&'a Guard, &'a Authority),
}

impl<'a> Over<'a> {
    fn guard(self) -> Option<&'a Guard> {
        match self {
            Self::Nobody => None,
            Self::Guard(guard) | Self::Sandbox(guard, _) => Some(guard),
        }
    }
}

/// Runs `sh -c command` in the workspace.
///
/// # Cancel safety
/// When the future is dropped, the command is killed with its group; with a guard, with all its descendants.
pub(super) async fn run(
    script: &str,
    workspace: &Workspace,
    (over, commands): (Over<'_>, &Commands),
    limit: Option<Duration>,
    max_bytes: u64,
    cancel: &CancellationToken,
) -> io::Result<Finished> {
    let guard = over.guard();
    let mut command = command(script, workspace, over, commands);
    let mut child = command.spawn()?;
    let mut leash = Leash { pipe: child.stdin.take(), group: child.id().filter(|_| guard.is_none()) };
    if let (Over::Sandbox(_, authority), Some(pipe)) = (over, &mut leash.pipe) {
        let mut line = serde_json::to_vec(authority)?;
        line.push(b'\n');
        // A guard that fails to read has said why; after a partial line it runs nothing.
        drop(pipe.write_all(&line).await);
    }
    let output = Mutex::new(Ends::new(usize::try_from(max_bytes).unwrap_or(usize::MAX)));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reading = futures_util::future::join(drain(stdout, &output), drain(stderr, &output));
    tokio::pin!(reading);
    let timer = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(timer);
    let mut read = false;
    let end = loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => break CommandEnd::Cancelled,
            () = &mut timer => break CommandEnd::TimedOut,
            status = child.wait() => break CommandEnd::Exited(status?),
            _ = &mut reading, if !read => read = true,
        }
    };
    leash.pull();
    if !matches!(end, CommandEnd::Exited(_)) {
        reap(&mut child).await;
    }
    if !read {
        // Without a guard, a process that left the group may hold the pipe forever.
        drop(tokio::time::timeout(GRACE, reading).await);
    }
    let output = std::mem::take(&mut *output.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Finished { end, output })
}

async fn reap(child: &mut Child) {
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        // Even a guard may hang.
        drop(child.start_kill());
        drop(tokio::time::timeout(GRACE, child.wait()).await);
    }
}

fn command(script: &str, workspace: &Workspace, over: Over<'_>, commands: &Commands) -> Command {
    let guard = over.guard();
    let argv: [OsString; 4] = [sandbox::HELD.into(), "sh".into(), "-c".into(), script.into()];
    let [_, free @ ..] = &argv;
    let mut command = match over {
        Over::Sandbox(guard, _) => Command::from(guard.command(&argv)),
        Over::Guard(guard) => Command::from(guard.command(free)),
        Over::Nobody => {
            let [shell, rest @ ..] = free;
            let mut command = Command::new(shell);
            command.args(rest);
            command
        }
    };
    // A guard must outlive the future to end what it guards: the closed pipe tells it.
    command.kill_on_drop(guard.is_none());
    command.stdin(if guard.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    command.process_group(0);
    command.current_dir(directory(workspace));
    // For the guard too: commands can read the environment of their user's processes.
    command.env_clear().envs(environment::of(std::env::vars_os(), &commands.environment));
    if guard.is_some()
        && let Ok(limits) = serde_json::to_string(&commands.limits)
    {
        command.env(LIMITS, limits);
    }
    // No terminal is attached: prompts must not block.
    command.env("TERM", "dumb").env("PAGER", "cat").env("GIT_PAGER", "cat").env("GIT_TERMINAL_PROMPT", "0");
    command
}

/// Returns the workspace by its handle where possible: its name may now mean another directory.
fn directory(workspace: &Workspace) -> PathBuf {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        let handle = PathBuf::from(format!("/proc/self/fd/{}", workspace.dir().as_raw_fd()));
        if handle.exists() {
            return handle;
        }
    }
    workspace.path().into()
}

/// Kills a command's group when dropped.
struct Leash {
    pipe: Option<ChildStdin>,
    group: Option<u32>,
}

impl Leash {
    fn pull(&mut self) {
        self.pipe = None;
        #[cfg(unix)]
        if let Some(group) = self.group.take().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
            // The group may be gone already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.pull();
    }
}

async fn drain(from: Option<impl AsyncRead + Unpin>, into: &Mutex<Ends>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        into.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

#[derive(Debug, Default)]
pub(super) struct Ends {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl Ends {
    fn new(max_bytes: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: max_bytes / 2, total: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(len(bytes.len()));
        let room = self.half.saturating_sub(self.head.len());
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = rest.get(rest.len().saturating_sub(self.half)..).unwrap_or_default();
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..over);
    }

    /// Returns the total bytes.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the bytes that were dropped.
    pub(super) fn cut(&self) -> u64 {
        self.total.saturating_sub(len(self.head.len().saturating_add(self.tail.len())))
    }

    pub(super) fn text(mut self) -> String {
        let cut = self.cut();
        if cut == 0 {
            self.head.extend(self.tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let tail: Vec<u8> = self.tail.into();
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n[... {cut} bytes left out ...]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(max: usize, pieces: &[&str]) -> Ends {
        let mut ends = Ends::new(max);
        for piece in pieces {
            ends.push(piece.as_bytes());
        }
        ends
    }

    #[test]
    fn short_output_is_complete_in_any_chunks() {
        assert_eq!(ends(8, &["abcdefgh"]).text(), "abcdefgh");
        assert_eq!(ends(8, &["a", "bcd", "efg", "h"]).text(), "abcdefgh");
        assert_eq!(ends(8, &[]).text(), "");
    }

    #[test]
    fn the_middle_is_left_out_and_said() {
        let all = ends(8, &["abcdefghij", "klm", "nop"]);
        assert_eq!((all.total(), all.cut()), (16, 8));
        assert_eq!(all.text(), "abcd\n[... 8 bytes left out ...]\nmnop");
        assert_eq!(ends(0, &["abc"]).text(), "\n[... 3 bytes left out ...]\n");
    }
}
