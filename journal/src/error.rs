//! Errors of opening, appending, reading, and of engines.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};

/// Error of an append; the journal is unchanged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// A later activation of the session exists, or none is active.
    #[error("session {session} is fenced: the batch is of activation {epoch}, {}", current_words(*.current))]
    Fenced {
        /// The session.
        session: SessionId,
        /// The epoch of the refused frame.
        epoch: Epoch,
        /// The current epoch; absent when the session is not active.
        current: Option<Epoch>,
    },
    /// The frame does not follow the session's last record.
    #[error("session {session}: a frame starts at record {found}, but record {expected} comes next")]
    SeqConflict {
        /// The session.
        session: SessionId,
        /// The next record.
        expected: Seq,
        /// The first record of the frame.
        found: Seq,
    },
    /// An earlier write or sync failed; the store must be reopened.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// A frame exceeds the engine's limit.
    #[error(
        "a frame of session {session} has {bytes} bytes, and the store takes at most {limit}: split it or bound its inputs"
    )]
    TooLarge {
        /// The session.
        session: SessionId,
        /// Size of its encoded frame.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The queue is full; see `Journal::room`.
    #[error("{queued} bytes wait for the store, of at most {limit}: wait for room")]
    Full {
        /// Queued bytes.
        queued: u64,
        /// The limit.
        limit: u64,
    },
    /// A record has no JSON form.
    #[error("a record of session {session} cannot be encoded: {why}")]
    Encode {
        /// The session.
        session: SessionId,
        /// The encoder's error.
        why: Arc<str>,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

fn current_words(current: Option<Epoch>) -> String {
    current.map_or_else(|| "and the session is not active".to_owned(), |epoch| format!("the current one is {epoch}"))
}

/// A write or sync failed: nothing more is acknowledged until the store is reopened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal is poisoned, open the store again: {0}")]
pub struct Poisoned(pub Arc<EngineError>);

/// Error of an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Input or output failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The store's own error.
    #[error("{what}: {why}")]
    Store {
        /// The operation.
        what: &'static str,
        /// The store's message.
        why: String,
    },
    /// The store's code panicked: its file is damaged, or it has a bug.
    #[error("{what}: the store's code panicked: {why}")]
    Panicked {
        /// The operation.
        what: &'static str,
        /// The panic message.
        why: String,
    },
    /// A row is damaged.
    #[error("table `{table}` is corrupt at {at}: {why}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The key.
        at: String,
        /// The damage.
        why: String,
    },
    /// A frame would overwrite another one.
    #[error("session {session} has a record {seq} already: two writers, or a birth of a session that exists")]
    Overwrite {
        /// The session.
        session: SessionId,
        /// The first record of the refused frame.
        seq: Seq,
    },
    /// An injected fault.
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

/// Messages of a full disk, where an engine gives text alone.
const FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

fn is_full(error: &std::io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) || says_full(&error.to_string())
}

fn says_full(words: &str) -> bool {
    FULL.iter().any(|full| words.contains(full))
}

impl EngineError {
    /// Whether the disk or the quota is full; stored data is fine.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Store { why, .. } | Self::Panicked { why, .. } => says_full(why),
            Self::Corrupt { .. } | Self::Overwrite { .. } | Self::Injected(_) => false,
        }
    }
}

impl OpenError {
    /// Whether the disk or the quota is full; stored data is fine.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Engine(error) => error.is_full(),
            Self::BadSpec { .. }
            | Self::InUse { .. }
            | Self::OtherEngine { .. }
            | Self::Newer { .. }
            | Self::Behind { .. }
            | Self::Watermark { .. }
            | Self::Thread(_) => false,
        }
    }
}

/// Error of a read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The session does not exist.
    #[error("there is no session {0} in this store")]
    NoSuchSession(SessionId),
    /// The session's journal is damaged; other sessions are not affected.
    #[error("session {session} is damaged at record {seq} (lsn {lsn}): {why}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The first unreadable record.
        seq: Seq,
        /// The frame; 0 if unknown.
        lsn: Lsn,
        /// The damage.
        why: String,
    },
    /// A newer version wrote the session's journal.
    #[error("session {session} holds a newer format at record {seq}: {why}; use a newer version of subtend")]
    Newer {
        /// The session.
        session: SessionId,
        /// The first record of the frame.
        seq: Seq,
        /// The unknown part.
        why: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

/// Error of opening a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The specification is invalid.
    #[error("`{spec}` names no store: {why}; possible are {possible}")]
    BadSpec {
        /// The specification.
        spec: String,
        /// The problem.
        why: &'static str,
        /// The valid forms.
        possible: String,
    },
    /// Another process uses it.
    #[error("{} is in use by process {pid} (boot {boot}): stop it, or choose another store", .path.display())]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process id from the lock file; `unknown` if unreadable.
        pid: String,
        /// The boot in which that process started.
        boot: String,
    },
    /// The directory belongs to another engine.
    #[error("{} is a store of {found}, not of {wanted}: name it `{found}:PATH`, or choose another directory", .path.display())]
    OtherEngine {
        /// The store.
        path: PathBuf,
        /// The requested engine.
        wanted: &'static str,
        /// The engine of the store.
        found: &'static str,
    },
    /// A file operation failed.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The engine failed.
    #[error("the store cannot be opened: {0}")]
    Engine(#[from] EngineError),
    /// A newer version of subtend wrote it.
    #[error("the store has format {found}, and this version knows {known}: use a newer version of subtend")]
    Newer {
        /// Its format.
        found: u64,
        /// The newest known format.
        known: u64,
    },
    /// Acknowledged frames are missing at the end.
    #[error(
        "the store ends at lsn {found}, but {watermark} was acknowledged: an old copy or a lost tail; open it with --accept-loss (`Options::accept_loss`) to continue without it"
    )]
    Behind {
        /// Its last LSN.
        found: Lsn,
        /// The acknowledged LSN.
        watermark: Lsn,
    },
    /// The watermark is missing or unreadable, although the store holds frames.
    #[error("{} {state}, so a lost tail would go unnoticed: restore it, or open the store with --accept-loss (`Options::accept_loss`) to rewrite it", .path.display())]
    Watermark {
        /// The file.
        path: PathBuf,
        /// The problem.
        state: &'static str,
    },
    /// The writer thread cannot start.
    #[error("the writer thread cannot start: {0}")]
    Thread(std::io::Error),
}
