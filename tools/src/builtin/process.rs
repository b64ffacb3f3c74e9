//! Runs one command in its own process group, with bounded output, and kills everything that it started.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use subtend_session::authority::Authority;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::bounded::len;
use crate::commands::Commands;
use crate::guard::{CLOSE, Guard, LIMITS, TYPED_FLAG};
#[cfg(unix)]
use crate::memory_threads::spawn_with_memory;
use crate::processes::TypedText;
use crate::sandbox;
use crate::workspace::Workspace;

/// Time for a killed command to exit, and for its last output to arrive.
const GRACE: Duration = Duration::from_millis(1500);

/// Time for a guard to kill the processes that it guards.
const GUARD_GRACE: Duration = Duration::from_secs(10);

/// Number of bytes after which the output of a background process is read at a limited rate.
const MAX_UNPACED: u64 = 1 << 20;

#[derive(Debug)]
pub(super) enum CommandEnd {
    Exited(ExitStatus),
    TimedOut(Leftovers),
    Cancelled(Leftovers),
    /// The guard of the command was killed. The exit status usually shows the signal.
    GuardKilled(ExitStatus, Leftovers),
}

/// What may remain of a command that was stopped, or whose guard was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers {
    pub(super) processes: bool,
    /// Its temporary directories.
    pub(super) files: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Finished {
    pub(super) end: CommandEnd,
    pub(super) output: HeadAndTail,
}

/// The confinement of a command: its guard, and the authority that a sandbox enforces.
#[derive(Clone, Copy, Debug)]
pub(super) enum Confinement<'a> {
    Unguarded,
    Guard(&'a Guard),
    Sandbox(&'a Guard, &'a Authority),
}

impl<'a> Confinement<'a> {
    fn guard(self) -> Option<&'a Guard> {
        match self {
            Self::Unguarded => None,
            Self::Guard(guard) | Self::Sandbox(guard, _) => Some(guard),
        }
    }
}

/// Runs `sh -c script` in the workspace.
///
/// # Cancel safety
/// When the future is dropped, the command's process group is killed. With a guard, all descendants are killed.
pub(super) async fn run(
    script: &str,
    workspace: &Workspace,
    confinement: (Confinement<'_>, &Commands),
    limit: Option<Duration>,
    max_bytes: u64,
    cancel: &CancellationToken,
) -> io::Result<Finished> {
    let running = RunningCommand::start(script, workspace, confinement, None).await?;
    let output = Mutex::new(HeadAndTail::new(usize::try_from(max_bytes).unwrap_or(usize::MAX)));
    let push = |bytes: &[u8]| output.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    let end = running.finish([&push, &push], limit, cancel).await?;
    let output = std::mem::take(&mut *output.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Finished { end, output })
}

/// Receives the bytes of standard output or standard error.
pub(super) type Sink<'a> = &'a (dyn Fn(&[u8]) + Sync);

/// A started command. Dropping it kills the command as described at [`run`].
pub(super) struct RunningCommand {
    child: Child,
    killer: GroupKiller,
    /// The input of the command. Closing this pipe also ends the guard.
    pipe: Option<ChildStdin>,
    typed: Option<mpsc::Receiver<TypedText>>,
}

impl RunningCommand {
    /// Starts `sh -c script` in the workspace. Without `typed`, the input of the command is empty.
    pub(super) async fn start(
        script: &str,
        workspace: &Workspace,
        (confinement, commands): (Confinement<'_>, &Commands),
        typed: Option<mpsc::Receiver<TypedText>>,
    ) -> io::Result<Self> {
        let unguarded = confinement.guard().is_none();
        if let Confinement::Sandbox(..) = confinement {
            sandbox::sweep_once();
        }
        let mut child = command(script, workspace, (confinement, commands), typed.is_some()).spawn()?;
        let (pipe, killer) = (child.stdin.take(), GroupKiller { group: child.id().filter(|_| unguarded) });
        let mut running = Self { child, killer, pipe, typed };
        if let (Confinement::Sandbox(_, authority), Some(pipe)) = (confinement, &mut running.pipe) {
            let mut line = serde_json::to_vec(authority)?;
            line.push(b'\n');
            // A guard that receives no complete line does not start the command, and reports the reason itself.
            drop(pipe.write_all(&line).await);
        }
        Ok(running)
    }

    /// Waits for the end of the command, up to `limit`, and kills its remaining processes.
    pub(super) async fn finish(
        self,
        [out, err]: [Sink<'_>; 2],
        limit: Option<Duration>,
        cancel: &CancellationToken,
    ) -> io::Result<CommandEnd> {
        let Self { mut child, killer, pipe, typed } = self;
        let (paced, id) = (typed.is_some(), child.id());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let reading = futures_util::future::join(drain(stdout, out, paced), drain(stderr, err, paced));
        tokio::pin!(reading);
        let timer = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let mut read = false;
        let end = {
            // Dropped at the end of this block, which closes the input.
            let typing = type_in(pipe, typed, killer.group.is_none());
            tokio::pin!(timer, typing);
            loop {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => break CommandEnd::Cancelled(Leftovers::default()),
                    () = &mut timer => break CommandEnd::TimedOut(Leftovers::default()),
                    status = child.wait() => break CommandEnd::Exited(status?),
                    _ = &mut reading, if !read => read = true,
                    never = &mut typing => match never {},
                }
            }
        };
        let is_guarded = killer.group.is_none();
        drop(killer);
        let end = match end {
            // A guard reports a signal of its command as an exit code, so a signal here killed the guard itself.
            CommandEnd::Exited(status) if is_guarded && status.code().is_none() => {
                CommandEnd::GuardKilled(status, Leftovers { processes: true, files: files_left(id).await })
            }
            CommandEnd::TimedOut(_) => CommandEnd::TimedOut(reap(&mut child, is_guarded).await),
            CommandEnd::Cancelled(_) => CommandEnd::Cancelled(reap(&mut child, is_guarded).await),
            CommandEnd::Exited(_) | CommandEnd::GuardKilled(..) => end,
        };
        if !read {
            // Without a guard, a process that left the group may hold the pipe forever.
            drop(tokio::time::timeout(GRACE, reading).await);
        }
        Ok(end)
    }
}

/// Writes typed text to the input until a text closes it. The pipe of a guard stays open until this future is dropped.
async fn type_in(
    mut pipe: Option<ChildStdin>,
    typed: Option<mpsc::Receiver<TypedText>>,
    is_guarded: bool,
) -> Infallible {
    let mut typed = typed;
    while let (Some(input), Some(texts)) = (&mut pipe, &mut typed) {
        let Some(TypedText { text, close, reply }) = texts.recv().await else { break };
        let mut bytes = text.into_bytes();
        if close && is_guarded {
            bytes.push(CLOSE);
        }
        let written = input.write_all(&bytes).await;
        if close {
            typed = None;
            if !is_guarded {
                pipe = None;
            }
        }
        // An error means that the caller no longer waits.
        let _ = reply.send(written);
    }
    std::future::pending().await
}

async fn reap(child: &mut Child, is_guard: bool) -> Leftovers {
    // On a busy machine, a guard needs time to find all processes. Killing it too early would leave some of them running.
    let (grace, id) = (if is_guard { GUARD_GRACE } else { GRACE }, child.id());
    let processes = match tokio::time::timeout(grace, child.wait()).await {
        // The guard was killed, so it did not end its processes.
        Ok(Ok(status)) if is_guard && status.code().is_none() => true,
        Ok(_) => return Leftovers::default(),
        Err(_) => {
            let processes = is_guard && kill_with_descendants(child).await;
            drop(child.start_kill());
            drop(tokio::time::timeout(GRACE, child.wait()).await);
            processes
        }
    };
    Leftovers { processes, files: if is_guard { files_left(id).await } else { Vec::new() } }
}

/// Removes the files of a guard that was killed. Returns what remains.
async fn files_left(guard: Option<u32>) -> Vec<PathBuf> {
    match guard {
        Some(guard) => sandbox::remove_leftovers(guard, GRACE).await,
        None => Vec::new(),
    }
}

/// Kills a guard that does not respond, and its processes. An unconfined command can stop its guard with a signal. Returns whether
/// processes may remain.
#[cfg(unix)]
async fn kill_with_descendants(guard: &Child) -> bool {
    let Some(id) = guard.id() else { return true };
    !matches!(spawn_with_memory(move || crate::guard::kill_with_descendants(id)).await, Ok(true))
}

#[cfg(not(unix))]
async fn kill_with_descendants(_: &Child) -> bool {
    true
}

fn command(
    script: &str,
    workspace: &Workspace,
    (confinement, commands): (Confinement<'_>, &Commands),
    typed: bool,
) -> Command {
    let guard = confinement.guard();
    let mut command = match guard {
        Some(guard) => {
            let held = matches!(confinement, Confinement::Sandbox(..)).then_some(sandbox::HELD);
            let how = held.into_iter().chain(typed.then_some(TYPED_FLAG));
            let argv: Vec<OsString> = how.chain(["sh", "-c", script]).map(OsString::from).collect();
            Command::from(guard.command(&argv))
        }
        None => {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        }
    };
    // A guard must outlive the future, because it kills its processes when the pipe closes.
    command.kill_on_drop(guard.is_none());
    command.stdin(if guard.is_some() || typed { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    command.process_group(0);
    command.current_dir(directory(workspace));
    // The guard gets the same variables: commands can read the environment of all processes of their user.
    command.env_clear().envs(commands.variables());
    if guard.is_some()
        && let Ok(limits) = serde_json::to_string(&commands.limits)
    {
        command.env(LIMITS, limits);
    }
    // Omits workspaces that a list of paths cannot name.
    let others = workspace.made_for().unwrap_or_default().iter().filter(|other| std::env::join_paths([other]).is_ok());
    if let Ok(others) = std::env::join_paths(others)
        && !others.is_empty()
    {
        command.env(sandbox::OTHERS, others);
    }
    // There is no terminal, so pagers and prompts would block.
    command.env("TERM", "dumb").env("PAGER", "cat").env("GIT_PAGER", "cat").env("GIT_TERMINAL_PROMPT", "0");
    command
}

/// Returns a path to the workspace, by its open handle if possible: its name may now refer to another directory.
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

/// Kills the process group of an unguarded command when dropped.
struct GroupKiller {
    group: Option<u32>,
}

impl Drop for GroupKiller {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.group.take().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
            // An error means that the group has already ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

async fn drain(from: Option<impl AsyncRead + Unpin>, into: Sink<'_>, paced: bool) {
    let Some(mut from) = from else { return };
    let (mut buffer, mut total) = (vec![0; 16 << 10], 0_u64);
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        into(buffer.get(..read).unwrap_or_default());
        total = total.saturating_add(len(read));
        if paced && total > MAX_UNPACED {
            // A process that writes endlessly must not keep a CPU of the host busy.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[derive(Debug, Default)]
/// The first and the last bytes of an output; the middle is dropped.
pub(super) struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl HeadAndTail {
    fn new(max_bytes: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: max_bytes / 2, total: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(len(bytes.len()));
        let budget = self.half.saturating_sub(self.head.len());
        let (head, rest) = bytes.split_at(budget.min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = rest.get(rest.len().saturating_sub(self.half)..).unwrap_or_default();
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..excess);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn dropped_bytes(&self) -> u64 {
        self.total.saturating_sub(len(self.head.len().saturating_add(self.tail.len())))
    }

    pub(super) fn text(mut self) -> String {
        let cut = self.dropped_bytes();
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

    fn collect(max: usize, pieces: &[&str]) -> HeadAndTail {
        let mut ends = HeadAndTail::new(max);
        for piece in pieces {
            ends.push(piece.as_bytes());
        }
        ends
    }

    #[test]
    fn short_output_is_complete_however_it_is_split() {
        assert_eq!(collect(8, &["abcdefgh"]).text(), "abcdefgh");
        assert_eq!(collect(8, &["a", "bcd", "efg", "h"]).text(), "abcdefgh");
        assert_eq!(collect(8, &[]).text(), "");
    }

    #[test]
    fn long_output_names_the_omitted_bytes() {
        let all = collect(8, &["abcdefghij", "klm", "nop"]);
        assert_eq!((all.total(), all.dropped_bytes()), (16, 8));
        assert_eq!(all.text(), "abcd\n[... 8 bytes left out ...]\nmnop");
        assert_eq!(collect(0, &["abc"]).text(), "\n[... 3 bytes left out ...]\n");
    }
}
