//! Background processes of a runtime: their output, input and end.
//!
//! Each process has its own child session. The process runs as long as calls of this session attend it. The session that started the
//! process is its owner: the owner reads the output and writes to the input.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_session::authority::Authority;
use subtend_session::ids::SessionId;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bounded::len;
use crate::secrets::{RedactedStream, Secrets};

/// Maximum number of ended processes whose output can still be read.
const MAX_ENDED: usize = 32;

/// Time after which an unattended process is stopped.
const UNATTENDED_LIMIT: Duration = Duration::from_secs(30);

/// Time limit for a process to read typed text.
const TYPING_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of queued texts for the input of a process.
pub(crate) const MAX_QUEUED_TEXTS: usize = 8;

#[derive(Debug)]
pub(crate) struct TypedText {
    pub(crate) text: String,
    /// True if the input closes after the text.
    pub(crate) close: bool,
    pub(crate) reply: oneshot::Sender<io::Result<()>>,
}

/// The background processes of a runtime, as seen by one call. Cheap to clone.
#[derive(Clone, Default)]
pub struct Processes {
    shared: Arc<SharedProcesses>,
    child: Option<SessionId>,
    secrets: Secrets,
}

#[derive(Default)]
struct SharedProcesses {
    all: Mutex<BTreeMap<SessionId, Arc<BackgroundProcess>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Processes {
    /// Returns a view for a call that uses the process of `child`, a child of the caller.
    #[must_use]
    pub fn for_child(&self, child: Option<SessionId>) -> Self {
        Self { child, ..self.clone() }
    }

    /// Stops all processes, including those that are started later.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Waits until all stopped processes have ended.
    pub async fn wait_until_ended(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    pub fn running(&self) -> usize {
        self.lock_all().values().filter(|process| process.end().is_none()).count()
    }

    pub(crate) fn with_secrets(&self, secrets: &Secrets) -> Self {
        Self { secrets: secrets.clone(), ..self.clone() }
    }

    /// Returns the child session named by the call, if any.
    pub(crate) fn child(&self) -> Option<SessionId> {
        self.child
    }

    pub(crate) fn of(&self, session: SessionId) -> Option<Arc<BackgroundProcess>> {
        self.lock_all().get(&session).cloned()
    }

    /// Adds the process of `session`, which keeps the last `most` bytes of output. Returns `None` if the session already runs one.
    pub(crate) fn add(
        &self,
        session: SessionId,
        authority: &Arc<Authority>,
        typed: mpsc::Sender<TypedText>,
        most: usize,
    ) -> Option<Arc<BackgroundProcess>> {
        let mut all = self.lock_all();
        if all.get(&session).is_some_and(|process| process.end().is_none()) {
            return None;
        }
        let ended: Vec<SessionId> =
            all.iter().filter(|(_, process)| process.end().is_some()).map(|(session, _)| *session).collect();
        // Session ids are ordered by time, so the oldest processes come first.
        for old in ended.iter().take(ended.len().saturating_sub(MAX_ENDED)) {
            all.remove(old);
        }
        let process = Arc::new(BackgroundProcess {
            state: Mutex::new(ProcessState::new(&self.secrets, most)),
            authority: Arc::clone(authority),
            changed: Notify::new(),
            stop: self.shared.stop.child_token(),
            typed,
            started: Instant::now(),
        });
        all.insert(session, Arc::clone(&process));
        Some(process)
    }

    /// Runs a process until it ends. Stops the process when no call attends it any more.
    pub(crate) fn spawn(
        &self,
        process: Arc<BackgroundProcess>,
        running: impl Future<Output = String> + Send + 'static,
    ) {
        self.shared.tasks.spawn(async move {
            tokio::pin!(running);
            let end = tokio::select! {
                biased;
                end = &mut running => end,
                () = process.wait_until_unattended() => {
                    process.stop.cancel();
                    running.await
                }
            };
            process.record_end(end);
        });
    }

    fn lock_all(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<BackgroundProcess>>> {
        self.shared.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processes").field("child", &self.child).finish_non_exhaustive()
    }
}

pub(crate) struct BackgroundProcess {
    state: Mutex<ProcessState>,
    /// The permissions at the start of the process.
    authority: Arc<Authority>,
    /// Notified on output and on the end.
    changed: Notify,
    stop: CancellationToken,
    typed: mpsc::Sender<TypedText>,
    started: Instant,
}

struct ProcessState {
    /// The latest output, redacted.
    kept: VecDeque<u8>,
    most: usize,
    total: u64,
    streams: [RedactedStream; 2],
    /// The end of the last read by the owner, and by the process's own session.
    read: [u64; 2],
    attending: usize,
    /// Time at which the last attending call ended.
    attended: Instant,
    /// Whether a call has closed the input, or its close is queued.
    input_closed: bool,
    end: Option<String>,
}

impl ProcessState {
    fn new(secrets: &Secrets, most: usize) -> Self {
        let streams = [(); 2].map(|()| RedactedStream::new(secrets.clone()));
        let kept = VecDeque::new();
        let attended = Instant::now();
        Self { kept, most, total: 0, streams, read: [0; 2], attending: 0, attended, input_closed: false, end: None }
    }

    fn push(&mut self, stream: usize, bytes: &[u8]) {
        let before = self.kept.len();
        for (at, redacting) in self.streams.iter_mut().enumerate() {
            // What one stream holds back comes before the later output of the other one.
            if at == stream { redacting.push(bytes, &mut self.kept) } else { redacting.flush(&mut self.kept) }
        }
        self.count_added(before);
    }

    /// Shows all output that is held back; with `due_at`, only what is due then.
    fn flush(&mut self, due_at: Option<Instant>) {
        let before = self.kept.len();
        for redacting in &mut self.streams {
            if due_at.is_none_or(|now| redacting.due().is_some_and(|due| due <= now)) {
                redacting.flush(&mut self.kept);
            }
        }
        self.count_added(before);
    }

    fn count_added(&mut self, before: usize) {
        self.total = self.total.saturating_add(len(self.kept.len().saturating_sub(before)));
        let excess = self.kept.len().saturating_sub(self.most);
        drop(self.kept.drain(..excess));
    }

    /// Returns when output that is held back is due.
    fn due(&self) -> Option<Instant> {
        self.streams.iter().filter_map(RedactedStream::due).min()
    }

    /// Returns the position of the first kept byte.
    fn first(&self) -> u64 {
        self.total.saturating_sub(len(self.kept.len()))
    }

    fn window(&self, from: u64, most: u64) -> OutputWindow {
        let (first, total) = (self.first(), self.total);
        let start = self.boundary(from.clamp(first, total));
        let end = start.saturating_add(most).min(total);
        // End at a character boundary if possible.
        let boundary = (0..4).map(|back| end.saturating_sub(back)).find(|end| self.is_boundary(*end));
        let end = boundary.filter(|end| *end > start).unwrap_or(end);
        let index = |at: u64| usize::try_from(at.saturating_sub(first)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = self.kept.range(index(start)..index(end)).copied().collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        OutputWindow { text, skipped: start.saturating_sub(from), start, end, total }
    }

    /// Returns the next character boundary.
    fn boundary(&self, at: u64) -> u64 {
        (0..4).map(|offset| at.saturating_add(offset)).find(|at| self.is_boundary(*at)).unwrap_or(at)
    }

    fn is_boundary(&self, at: u64) -> bool {
        let index = usize::try_from(at.saturating_sub(self.first())).unwrap_or(usize::MAX);
        self.kept.get(index).is_none_or(|byte| byte & 0xc0 != 0x80)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputWindow {
    pub(crate) text: String,
    /// Number of requested bytes before `start` that were dropped.
    pub(crate) skipped: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) total: u64,
}

/// The session that reads output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputReader {
    Owner,
    Own,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputError {
    /// The process has ended, or no longer reads its input.
    Ended,
    /// An earlier call has closed the input.
    Closed,
    /// The process has not read earlier texts.
    Full,
    /// The process did not read the text in time. It may still read it.
    Slow,
}

impl BackgroundProcess {
    pub(crate) fn push(&self, stream: usize, bytes: &[u8]) {
        self.state().push(stream, bytes);
        self.changed.notify_waiters();
    }

    fn record_end(&self, end: String) {
        let mut state = self.state();
        state.flush(None);
        state.end = Some(end);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns a description of how the process ended, or `None` while it runs.
    pub(crate) fn end(&self) -> Option<String> {
        self.state().end.clone()
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns whether the permissions of the process do not exceed `present`.
    pub(crate) fn is_within(&self, present: &Authority) -> bool {
        self.authority.within(present)
    }

    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns at most `most` bytes of output from `from`, which defaults to the end of the last read by `reader`.
    pub(crate) fn read(&self, reader: OutputReader, from: Option<u64>, most: u64) -> OutputWindow {
        let mut state = self.shown();
        let from = from.unwrap_or(*position(&mut state, reader));
        let window = state.window(from, most);
        *position(&mut state, reader) = window.end;
        window
    }

    pub(crate) fn tail(&self, most: u64) -> OutputWindow {
        let state = self.shown();
        let window = state.window(state.total.saturating_sub(most), most);
        OutputWindow { skipped: window.start, ..window }
    }

    /// Returns the number of bytes that `reader` has not read, and the total.
    pub(crate) fn unread(&self, reader: OutputReader) -> (u64, u64) {
        let mut state = self.shown();
        let read = *position(&mut state, reader);
        (state.total.saturating_sub(read), state.total)
    }

    /// Waits up to `limit` for the end of the process or, with a `reader`, for output that this reader has not read.
    pub(crate) async fn wait(&self, reader: Option<OutputReader>, limit: Duration) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let due = self.shown().due();
                if self.end().is_some() || reader.is_some_and(|reader| self.unread(reader).0 > 0) {
                    return;
                }
                match due {
                    Some(due) => drop(tokio::time::timeout_at(due, changed).await),
                    None => changed.await,
                }
            }
        };
        let _ = tokio::time::timeout(limit, waiting).await;
    }

    /// Writes `text` to the input, and then closes the input if `close` is set.
    pub(crate) async fn type_in(&self, text: String, close: bool) -> Result<(), InputError> {
        let written = self.queue_text(text, close)?;
        match tokio::time::timeout(TYPING_TIMEOUT, written).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(_)) | Err(_)) => Err(InputError::Ended),
            Err(_) => Err(InputError::Slow),
        }
    }

    /// Queues a text. Of several calls that close the input, only the first succeeds.
    fn queue_text(&self, text: String, close: bool) -> Result<oneshot::Receiver<io::Result<()>>, InputError> {
        let mut state = self.state();
        if state.input_closed && state.end.is_none() {
            return Err(InputError::Closed);
        }
        let (reply, written) = oneshot::channel();
        match self.typed.try_send(TypedText { text, close, reply }) {
            Ok(()) => state.input_closed |= close,
            Err(mpsc::error::TrySendError::Full(_)) => return Err(InputError::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(InputError::Ended),
        }
        Ok(written)
    }

    /// Keeps the process alive until the returned guard is dropped. Dropping the guard without releasing it stops the process.
    pub(crate) fn keep_alive(self: &Arc<Self>) -> AttendedCall {
        let mut state = self.state();
        state.attending = state.attending.saturating_add(1);
        drop(state);
        AttendedCall { process: Arc::clone(self), released: false }
    }

    async fn wait_until_unattended(&self) {
        loop {
            let remaining = {
                let state = self.state();
                let idle = if state.attending > 0 { Duration::ZERO } else { state.attended.elapsed() };
                UNATTENDED_LIMIT.saturating_sub(idle)
            };
            if remaining.is_zero() {
                return;
            }
            tokio::time::sleep(remaining).await;
        }
    }

    /// Returns the state, with the output that is due.
    fn shown(&self) -> MutexGuard<'_, ProcessState> {
        let mut state = self.state();
        state.flush(Some(Instant::now()));
        state
    }

    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn position(state: &mut ProcessState, reader: OutputReader) -> &mut u64 {
    let [owner, own] = &mut state.read;
    match reader {
        OutputReader::Owner => owner,
        OutputReader::Own => own,
    }
}

/// A call that keeps a process alive.
pub(crate) struct AttendedCall {
    process: Arc<BackgroundProcess>,
    released: bool,
}

impl AttendedCall {
    /// Keeps the process running for the next attending call.
    pub(crate) fn release(mut self) {
        self.released = true;
    }
}

impl Drop for AttendedCall {
    fn drop(&mut self) {
        let mut state = self.process.state();
        state.attending = state.attending.saturating_sub(1);
        state.attended = Instant::now();
        drop(state);
        if !self.released {
            self.process.stop.cancel();
        }
    }
}

#[cfg(test)]
mod guesses;

#[cfg(test)]
mod tests {
    use super::*;

    fn state(most: usize, written: &[&str]) -> ProcessState {
        let mut state = ProcessState::new(&Secrets::of([("KEY", "sk-0123456789")]), most);
        written.iter().for_each(|text| state.push(0, text.as_bytes()));
        state.flush(None);
        state
    }

    #[test]
    fn r9_windows_continue_and_report_dropped_bytes() {
        let state = state(8, &["abcdef", "ghijkl"]);
        let window = |from, most| {
            let window = state.window(from, most);
            (window.text, window.skipped, window.start, window.end)
        };
        assert_eq!(window(0, 4), ("efgh".to_owned(), 4, 4, 8));
        assert_eq!(window(8, 100), ("ijkl".to_owned(), 0, 8, 12));
        assert_eq!(window(12, 4), (String::new(), 0, 12, 12));
        assert_eq!(window(99, 4), (String::new(), 0, 12, 12), "a position that does not exist yet");
    }

    #[test]
    fn r9_windows_do_not_split_characters() {
        let state = state(100, &["aü€b"]);
        let mut at = 0;
        let mut all = String::new();
        while at < state.total {
            let window = state.window(at, 3);
            assert!(window.end > at && !window.text.contains('\u{fffd}'), "{window:?}");
            all.push_str(&window.text);
            at = window.end;
        }
        assert_eq!(all, "aü€b");
    }

    /// A secret is split across writes and windows.
    #[test]
    fn r9_windows_do_not_show_parts_of_a_key() {
        let state = state(1_000, &["key: sk-01", "23456", "789 end"]);
        for from in 0..state.total {
            let text = state.window(from, 5).text;
            assert!(!text.contains("sk-") && !text.contains("345"), "{from}: {text}");
        }
        assert_eq!(state.window(0, 100).text, "key: [KEY redacted] end");
    }
}
