//! The program of one call. It runs under a guard, which kills it and its child processes when the worker ends.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use subtend_tools::commands::Commands;
use subtend_tools::guard::Guard;
use subtend_tools::memory_budget::{MemoryBudget, ReservedMemory};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::host::{LeasedCall, SMALL_BYTES, WorkerResult};

/// Maximum size in bytes of the kept error output, and of an error message.
const MAX_ERROR_BYTES: usize = 4_000;

/// Maximum size in bytes of a progress line. The host truncates longer ones, and refuses large requests.
const MAX_PROGRESS_BYTES: usize = 200;

/// Bytes reserved for the line that reports truncation.
const FOOTER_BYTES: usize = 80;

/// Time to wait for a guard to kill a program.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Memory of all large results. It is not that of the arguments, for which calls would wait that hold them.
static RESULTS: MemoryBudget = MemoryBudget::of_mib(64);

/// Copies of a result while it is sent: its text, and JSON with up to six bytes for each of it.
const COPIES: usize = 7;

pub(super) struct Program {
    child: Child,
    /// Stdin of the guard; closing it kills the program.
    stdin: Option<ChildStdin>,
    output: Option<JoinHandle<Output>>,
    /// The memory of the result, if it is large.
    held: Option<ReservedMemory>,
    tail: Arc<Mutex<VecDeque<u8>>>,
    shown: String,
}

#[derive(Default)]
struct Output {
    kept: Vec<u8>,
    total: u64,
    held: Option<ReservedMemory>,
}

impl Program {
    /// Starts `command` with the arguments of a call on its stdin.
    pub(super) async fn start(
        (guard, environment): (&Guard, &Commands),
        command: &str,
        call: &LeasedCall,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the program of `{}` cannot be started: {error}", call.tool);
        let mut process = Command::from(guard.with_input(&["/bin/sh".into(), "-c".into(), command.into()]));
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        process.env_clear().envs(environment.variables());
        process.env("SUBTEND_WORKER_CALL", &call.call).env("SUBTEND_WORKER_TOOL", &call.tool);
        process.env("SUBTEND_WORKER_ATTEMPT", call.attempt.to_string());
        // Signals of the terminal must reach only the worker.
        #[cfg(unix)]
        process.process_group(0);
        let mut child = process.spawn().map_err(failed)?;
        let most = usize::try_from(call.max_bytes).unwrap_or(usize::MAX);
        let output = child.stdout.take().map(|stdout| tokio::spawn(start_of(stdout, most)));
        let tail = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(read_tail(stderr, Arc::clone(&tail)));
        }
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            // The error is ignored: a program may end without reading its arguments.
            drop(stdin.write_all(call.args.as_bytes()).await.and(stdin.write_all(b"\n").await));
        }
        Ok(Self { child, stdin, output, held: None, tail, shown: String::new() })
    }

    /// Waits for the end of the program.
    ///
    /// # Cancel safety
    /// No output is lost when the future is dropped.
    pub(super) async fn wait_for_end(&mut self, max_bytes: u64) -> WorkerResult {
        let status = self.child.wait().await;
        let Output { kept, total, held } = match &mut self.output {
            Some(output) => output.await.unwrap_or_default(),
            None => Output::default(),
        };
        self.held = held;
        match status {
            Ok(status) if status.success() => result(kept, total, max_bytes),
            Ok(status) => {
                let code = status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
                let text = match self.errors() {
                    text if text.is_empty() => String::from_utf8_lossy(&kept).trim().to_owned(),
                    text => text,
                };
                let text = text.get(..text.floor_char_boundary(MAX_ERROR_BYTES)).unwrap_or_default();
                WorkerResult::error(if text.is_empty() { code } else { format!("{code}: {text}") })
            }
            Err(error) => WorkerResult::error(format!("the program cannot be waited for: {error}")),
        }
    }

    /// Kills the program with its child processes.
    pub(super) async fn kill(&mut self) {
        self.stdin = None;
        // Even after this time limit, the guard kills the program.
        drop(timeout(KILL_TIMEOUT, self.child.wait()).await);
    }

    /// Returns the start of the last line of the error output if it has changed.
    pub(super) fn progress(&mut self) -> Option<String> {
        let errors = self.errors();
        let line = progress_line(&errors);
        if line == self.shown {
            return None;
        }
        line.clone_into(&mut self.shown);
        Some(line.to_owned())
    }

    /// Returns the end of the error output.
    fn errors(&self) -> String {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).trim().to_owned()
    }
}

fn progress_line(errors: &str) -> &str {
    let line = errors.lines().next_back().unwrap_or_default();
    line.get(..line.floor_char_boundary(MAX_PROGRESS_BYTES)).unwrap_or_default()
}

/// Reads to the end, and keeps the first `most` bytes. While large output waits for memory, the program waits for its pipe.
async fn start_of(mut from: impl AsyncRead + Unpin, most: usize) -> Output {
    let (mut output, mut buffer) = (Output::default(), vec![0; 16 << 10]);
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            break;
        }
        output.total = output.total.saturating_add(read as u64);
        let free = most.saturating_sub(output.kept.len());
        let kept_now = free.min(read);
        if output.held.is_none() && output.kept.len().saturating_add(kept_now) > SMALL_BYTES {
            output.held = RESULTS.reserve(most.saturating_mul(COPIES)).await;
            output.kept.reserve_exact(free);
        }
        output.kept.extend_from_slice(buffer.get(..kept_now).unwrap_or_default());
    }
    output
}

/// Reads to the end, and keeps the last bytes.
async fn read_tail(mut from: impl AsyncRead + Unpin, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = vec![0; 4 << 10];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(buffer.get(..read).unwrap_or_default());
        let excess = tail.len().saturating_sub(MAX_ERROR_BYTES);
        drop(tail.drain(..excess));
    }
}

fn result(bytes: Vec<u8>, total: u64, max_bytes: u64) -> WorkerResult {
    let text = String::from_utf8(bytes);
    let mut content = text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    if total <= max_bytes && content.len() <= most {
        content.truncate(content.trim_end_matches('\n').len());
        if content.is_empty() {
            content.push_str("[the program printed nothing]");
        }
        return WorkerResult::Ok { content, truncated_from: None };
    }
    content.truncate(content.floor_char_boundary(most.saturating_sub(FOOTER_BYTES)));
    content.push_str(&format!("\n[truncated: {} of {total} bytes]", content.len()));
    WorkerResult::Ok { content, truncated_from: Some(total) }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;

    /// The arguments exceed a pipe's buffer, and the program closes its stdin. The control: one that cannot be started.
    #[cfg(unix)]
    #[tokio::test]
    async fn d6_program_may_end_without_reading_its_arguments() {
        let call = LeasedCall {
            call: "one".to_owned(),
            tool: "pay".to_owned(),
            args: json!({"of": "x".repeat(1 << 20)}).to_string(),
            token: String::new(),
            lease_ms: 1_000,
            attempt: 1,
            max_bytes: 1_000,
            held: None,
        };
        let started = async |program: &str, script: &str| {
            let guard = Guard { program: program.into(), args: vec!["-c".into(), script.into()] };
            Program::start((&guard, &Commands::default()), "true", &call).await
        };
        let mut program = started("sh", "exec <&-; echo paid").await.expect("started");
        let paid = program.wait_for_end(1_000).await;
        assert!(matches!(&paid, WorkerResult::Ok { content, .. } if content == "paid"), "{}", paid.as_str());
        let mut program = started("sh", "exec <&-; exit 3").await.expect("started");
        assert!(
            matches!(program.wait_for_end(1_000).await, WorkerResult::Error { message } if message == "exit code 3")
        );
        let missing = started("/no/such/program", "").await.err().expect("an error");
        assert!(missing.starts_with("the program of `pay` cannot be started: "), "{missing}");
    }

    /// A hostile host could otherwise use up memory or block the worker. The control: numbers within the bounds.
    #[test]
    fn d6_numbers_of_a_host_are_bounded() {
        let leased = |ms: u64, bytes: u64| {
            let call = json!({"call": "c", "tool": "t", "args": {}, "token": "x", "lease_ms": ms, "attempt": 1, "max_bytes": bytes});
            let call: LeasedCall = serde_json::from_value(call).expect("a call");
            (call.lease_ms, call.max_bytes)
        };
        assert_eq!(leased(u64::MAX, u64::MAX), (600_000, 4 << 20));
        assert_eq!(leased(30_000, 200_000), (30_000, 200_000));
    }

    /// Each control character takes six bytes of JSON. The control: a short line is sent in full.
    #[test]
    fn d6_progress_line_is_truncated_before_it_is_sent() {
        assert_eq!(progress_line("one\ntwo"), "two");
        let long = format!("one\n{}", "\u{1}".repeat(4_000));
        assert_eq!(progress_line(&long), "\u{1}".repeat(200));
        assert_eq!(progress_line(&"ü".repeat(4_000)).len(), 200);
    }

    #[test]
    fn d6_long_output_of_a_program_is_truncated_with_a_note() {
        let of = |bytes: &[u8], total, most| {
            let WorkerResult::Ok { content, truncated_from } = result(bytes.to_vec(), total, most) else {
                panic!("no result")
            };
            (content, truncated_from)
        };
        assert_eq!(of(b"one\ntwo\n", 8, 100), ("one\ntwo".to_owned(), None));
        assert_eq!(of(b"", 0, 100), ("[the program printed nothing]".to_owned(), None));
        let (content, from) = of(&"ü".repeat(100).into_bytes(), 1_000, 200);
        assert_eq!((content.len() <= 200, from), (true, Some(1_000)));
        assert!(content.ends_with("ü\n[truncated: 120 of 1000 bytes]"), "{content}");
    }

    /// Attack: each slot of a worker has a program that prints much. The controls: a small output does not wait,
    /// and a large one only until there is memory.
    #[tokio::test]
    async fn large_results_share_the_memory_of_a_worker() {
        const LARGE: usize = 2 << 20;
        let print = |size: usize| start_of(std::io::Cursor::new(vec![b'x'; size]), LARGE);
        let mut large = Vec::new();
        while large.len() < 4 {
            large.push(print(LARGE + 1).await);
        }
        assert_eq!(RESULTS.reserved(), 4 * COPIES * LARGE);
        assert!(print(SMALL_BYTES).await.held.is_none());
        let mut last = std::pin::pin!(print(LARGE + 1));
        assert!(last.as_mut().now_or_never().is_none());
        drop(large);
        let last = last.await;
        assert_eq!((last.kept.len(), last.kept.capacity(), last.total), (LARGE, LARGE, LARGE as u64 + 1));
        drop(last);
        assert_eq!(RESULTS.reserved(), 0);
    }
}
