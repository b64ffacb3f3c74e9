//! The process of a server. With a guard, the process and all its descendants end when this process ends.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use subtend_session::values::{MAX_VALUES, ValueCount};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::Sleep;

use crate::commands::{CommandLimits, Commands};
use crate::guard::{Guard, LIMITS, PIPED};

/// Maximum bytes of the server's error output in an error.
const MAX_TAIL: usize = 1_000;
/// Maximum bytes of one message.
const MAX_MESSAGE: usize = 16 << 20;
/// Maximum rate at which messages are read: a server can write them without end. A pause follows each of these numbers of bytes.
const BYTES_PER_MICROSECOND: u64 = 32;
const PACED_BYTES: u64 = 64 << 10;
/// Maximum bytes of output that is not a message, during a connection.
const MAX_NOISE: usize = 1 << 20;

/// Time for the process to exit after it has closed its output.
const EXIT_GRACE: Duration = Duration::from_millis(500);

pub(super) struct Process {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: BoundedOutput,
    pub(super) life: ServerLife,
}

/// Handle of the process. The drop of this handle kills an unguarded process. A guarded process ends when its input is closed.
pub(super) struct ServerLife {
    child: tokio::sync::Mutex<Child>,
    #[cfg_attr(not(unix), expect(dead_code, reason = "process groups exist only on Unix"))]
    group: Option<u32>,
    tail: Arc<Mutex<VecDeque<u8>>>,
    fault: Arc<Mutex<Option<String>>>,
}

/// Starts `command` in `directory`. Its environment has the variables that every command gets, and `env`.
pub(super) fn start(
    (command, args): (&str, &[String]),
    env: impl Iterator<Item = (OsString, OsString)>,
    directory: &Path,
    (guard, commands): (Option<&Guard>, &Commands),
) -> io::Result<Process> {
    let mut process = match guard {
        Some(guard) => {
            let argv: Vec<OsString> =
                [PIPED, command].into_iter().chain(args.iter().map(String::as_str)).map(OsString::from).collect();
            Command::from(guard.command(&argv))
        }
        None => {
            let mut process = Command::new(command);
            process.args(args);
            process
        }
    };
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(directory);
    #[cfg(unix)]
    process.process_group(0);
    process.kill_on_drop(guard.is_none());
    process.env_clear().envs(commands.variables()).envs(env);
    if guard.is_some()
        // Do not limit the CPU time: a server runs as long as its host.
        && let Ok(limits) = serde_json::to_string(&CommandLimits { cpu_seconds: u64::MAX >> 1, ..commands.limits.clone() })
    {
        process.env(LIMITS, limits);
    }
    let mut child = process.spawn()?;
    let missing = || io::Error::other("a pipe is missing");
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let (tail, fault) = (Arc::default(), Arc::default());
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(keep_tail(stderr, Arc::clone(&tail)));
    }
    let group = child.id().filter(|_| guard.is_none());
    let life = ServerLife { child: tokio::sync::Mutex::new(child), group, tail, fault: Arc::clone(&fault) };
    Ok(Process { stdin, stdout: BoundedOutput::new(stdout, fault), life })
}

async fn keep_tail(mut from: impl AsyncRead + Unpin, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = vec![0; 4 << 10];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(buffer.get(..read).unwrap_or_default());
        let excess = tail.len().saturating_sub(MAX_TAIL);
        drop(tail.drain(..excess));
    }
}

impl ServerLife {
    /// Returns the reason why the connection ended, with the end of the server's error output.
    pub(super) async fn close_reason(&self) -> String {
        // The output is closed shortly before the process exits.
        let status = tokio::time::timeout(EXIT_GRACE, async { self.child.lock().await.wait().await }).await;
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let end = fault.unwrap_or_else(|| match status {
            Ok(Ok(status)) => format!("its process ended ({status})"),
            Ok(Err(_)) | Err(_) => "it closed its output".to_owned(),
        });
        let tail: Vec<u8> = self.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let cut = if tail.len() < MAX_TAIL { "" } else { "…" };
        let tail = crate::escape::harmless(String::from_utf8_lossy(&tail).trim());
        if tail.is_empty() { end } else { format!("{end}; the end of its error output: {cut}{tail}") }
    }
}

impl Drop for ServerLife {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.group.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
            // An error means that the group has already ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Reader of a server's output. Fails at a message that is too long, and after too much other output.
pub(super) struct BoundedOutput {
    from: ChildStdout,
    /// Number of bytes of the current line.
    line: usize,
    values: ValueCount,
    is_message: bool,
    noise: usize,
    fault: Arc<Mutex<Option<String>>>,
    /// Bytes that were read since the last pause.
    unpaced: u64,
    pause: Option<Pin<Box<Sleep>>>,
}

impl BoundedOutput {
    fn new(from: ChildStdout, fault: Arc<Mutex<Option<String>>>) -> Self {
        let values = ValueCount::default();
        Self { from, line: 0, values, is_message: false, noise: 0, fault, unpaced: 0, pause: None }
    }

    /// Counts the bytes that were read, and pauses the next read after some.
    fn pace(&mut self, read: usize) {
        self.unpaced = self.unpaced.saturating_add(read as u64);
        if self.unpaced >= PACED_BYTES {
            let pause = Duration::from_micros(self.unpaced / BYTES_PER_MICROSECOND);
            (self.unpaced, self.pause) = (0, Some(Box::pin(tokio::time::sleep(pause))));
        }
    }

    fn count(&mut self, bytes: &[u8]) -> Result<(), String> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line == 0 {
                self.is_message = piece.first() == Some(&b'{');
            }
            self.line = self.line.saturating_add(piece.len());
            let values = self.values.add(piece);
            if !self.is_message {
                self.noise = self.noise.saturating_add(piece.len());
            }
            if piece.ends_with(b"\n") {
                self.line = 0;
                self.values = ValueCount::default();
            }
            if self.line > MAX_MESSAGE {
                return Err(format!("it sent a message of more than {MAX_MESSAGE} bytes"));
            }
            if values > MAX_VALUES {
                return Err(format!("it sent a message of more than {MAX_VALUES} JSON values"));
            }
            if self.noise > MAX_NOISE {
                return Err(format!("it wrote more than {MAX_NOISE} bytes to its output that are not messages"));
            }
        }
        Ok(())
    }
}

impl AsyncRead for BoundedOutput {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(pause) = &mut self.pause {
            std::task::ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.from).poll_read(cx, buf))?;
        let read = buf.filled().get(before..).unwrap_or_default().to_vec();
        self.pace(read.len());
        Poll::Ready(self.count(&read).map_err(|why| {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
            io::Error::other(why)
        }))
    }
}
