//! What can go wrong: at the opening, in an append, in a read, in an engine.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};

/// Why a batch was not appended: the journal is as it was.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// A later activation of the session exists, or none is active (J-6).
    #[error("session {session} is fenced: the batch is of activation {epoch}, {}", current_words(*.current))]
    Fenced {
        /// The session.
        session: SessionId,
        /// The epoch of the refused frame.
        epoch: Epoch,
        /// The epoch of the activation that may append; absent when the session is not active.
        current: Option<Epoch>,
    },
    /// The frame does not follow the session's last record.
    #[error("session {session}: a frame starts at record {found}, but record {expected} comes next")]
    SeqConflict {
        /// The session.
        session: SessionId,
        /// The record that comes next.
        expected: Seq,
        /// The record that the frame starts with.
        found: Seq,
    },
    /// A write or sync failed before; nothing is appended any more until the store is opened again (J-9).
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// One frame is larger than the engine takes.
    #[error(
        "a frame of session {session} has {bytes} bytes, and the store takes at most {limit}: split it or bound its inputs"
    )]
    TooLarge {
        /// The session.
        session: SessionId,
        /// Size of its encoded frame.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// So much waits for the disk that no more is taken; see `Journal::room`.
    #[error("{queued} bytes wait for the store, of at most {limit}: wait for room")]
    Full {
        /// Bytes that wait.
        queued: u64,
        /// The bound.
        limit: u64,
    },
    /// A record cannot be written as JSON.
    #[error("a record of session {session} cannot be encoded: {why}")]
    Encode {
        /// The session.
        session: SessionId,
        /// The encoder's words.
        why: Arc<str>,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

fn current_words(current: Option<Epoch>) -> String {
    current.map_or_else(|| "and the session is not active".to_owned(), |epoch| format!("the current one is {epoch}"))
}

/// A write or sync failed: nothing more is acknowledged until the store is opened again (J-9).
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal is poisoned, open the store again: {0}")]
pub struct Poisoned(pub Arc<EngineError>);

/// What an engine reports.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Input or output failed.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The store's own error.
    #[error("{what}: {why}")]
    Store {
        /// What was done.
        what: &'static str,
        /// The store's words.
        why: String,
    },
    /// The store's code panicked: its file is damaged, or it has a bug.
    #[error("{what}: the store's code panicked: {why}")]
    Panicked {
        /// What was done.
        what: &'static str,
        /// The panic's words.
        why: String,
    },
    /// A row is not what was written.
    #[error("table `{table}` is corrupt at {at}: {why}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The key, in words.
        at: String,
        /// What is wrong.
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
    /// A fault that was asked for.
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

/// Words of a full disk, where an engine gives words alone.
const FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

fn is_full(error: &std::io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) || says_full(&error.to_string())
}

fn says_full(words: &str) -> bool {
    FULL.iter().any(|full| words.contains(full))
}

impl EngineError {
    /// Whether the disk has no room left, or its user no quota: nothing is wrong with what is there.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Store { why, .. } | Self::Panicked { why, .. } => says_full(why),
            Self::Corrupt { .. } | Self::Overwrite { .. } | Self::Injected(_) => false,
        }
    }
}

impl OpenError {
    /// Whether the disk has no room left, or its user no quota: nothing is wrong with what is there.
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

/// Why a read gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The session does not exist.
    #[error("there is no session {0} in this store")]
    NoSuchSession(SessionId),
    /// The session's journal is damaged: it is quarantined, the others are not concerned (J-8).
    #[error("session {session} is damaged at record {seq} (lsn {lsn}): {why}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The first record that cannot be had.
        seq: Seq,
        /// The frame, 0 if there is none.
        lsn: Lsn,
        /// What is wrong.
        why: String,
    },
    /// The session's journal was written by a newer version.
    #[error("session {session} holds a newer format at record {seq}: {why}; use a newer version of subtend")]
    Newer {
        /// The session.
        session: SessionId,
        /// The first record of the frame.
        seq: Seq,
        /// What is not known.
        why: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

/// Why a store does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The specification names no store.
    #[error("`{spec}` names no store: {why}; possible are {possible}")]
    BadSpec {
        /// What was given.
        spec: String,
        /// What is wrong with it.
        why: &'static str,
        /// What is possible.
        possible: String,
    },
    /// Another process has it.
    #[error("{} is in use by process {pid} (boot {boot}): stop it, or choose another store", .path.display())]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process, as its lock file names it; `unknown` if that cannot be read.
        pid: String,
        /// The boot of the machine in which it started.
        boot: String,
    },
    /// The directory is the store of another engine.
    #[error("{} is a store of {found}, not of {wanted}: name it `{found}:PATH`, or choose another directory", .path.display())]
    OtherEngine {
        /// The store.
        path: PathBuf,
        /// The engine that was asked for.
        wanted: &'static str,
        /// The engine whose store it is.
        found: &'static str,
    },
    /// A file or directory cannot be had.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// What was done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The engine refuses.
    #[error("the store cannot be opened: {0}")]
    Engine(#[from] EngineError),
    /// A newer version of subtend wrote it.
    #[error("the store has format {found}, and this version knows {known}: use a newer version of subtend")]
    Newer {
        /// Its format.
        found: u64,
        /// The newest that is known.
        known: u64,
    },
    /// Acknowledged frames are missing at the end.
    #[error(
        "the store ends at lsn {found}, but {watermark} was acknowledged: an old copy or a lost tail; open it with --accept-loss (`Options::accept_loss`) to go on without"
    )]
    Behind {
        /// Its last LSN.
        found: Lsn,
        /// The acknowledged LSN.
        watermark: Lsn,
    },
    /// The file that remembers the last acknowledged LSN says nothing, although the store holds something.
    #[error("{} {state}, so a lost tail would not be noticed: put it back, or open the store with --accept-loss (`Options::accept_loss`) to write it anew", .path.display())]
    Watermark {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, in words.
        state: &'static str,
    },
    /// The writer thread cannot start.
    #[error("the writer thread cannot start: {0}")]
    Thread(std::io::Error),
}
