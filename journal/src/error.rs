//! Errors of opening, appending, reading, and of engines.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};

/// Error of an append; the journal is unchanged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    #[error("session {session} is fenced: the batch belongs to activation {epoch}, {}", current_text(*.current))]
    Fenced {
        session: SessionId,
        epoch: Epoch,
        /// The current epoch, or `None` if the session is not active.
        current: Option<Epoch>,
    },
    #[error("session {session}: a frame starts at record {found}, but record {expected} comes next")]
    SeqConflict { session: SessionId, expected: Seq, found: Seq },
    /// An earlier write or sync failed; the store must be reopened.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    #[error(
        "a frame of session {session} has {bytes} bytes, but the store's limit is {limit}: split it or bound its inputs"
    )]
    TooLarge { session: SessionId, bytes: u64, limit: u64 },
    #[error("{queued} bytes are queued, the limit is {limit}: wait until the queue is shorter")]
    Full {
        /// Queued bytes.
        queued: u64,
        limit: u64,
    },
    /// A record has no JSON form.
    #[error("a record of session {session} cannot be encoded: {why}")]
    Encode { session: SessionId, why: Arc<str> },
    #[error("the journal is closed")]
    Closed,
}

fn current_text(current: Option<Epoch>) -> String {
    current.map_or_else(|| "and the session is not active".to_owned(), |epoch| format!("the current one is {epoch}"))
}

/// A write or sync failed. Further frames are not acknowledged until the store is reopened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal is poisoned, open the store again: {0}")]
pub struct Poisoned(pub Arc<EngineError>);

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    #[error("{what}: {why}")]
    Store { what: &'static str, why: String },
    #[error("{what}: the store's code panicked: {why}")]
    Panicked { what: &'static str, why: String },
    #[error("table `{table}` is corrupt at {at}: {why}")]
    Corrupt { table: &'static str, at: String, why: String },
    #[error(
        "session {session} already has a record {seq}: there are two writers, or an existing session was created again"
    )]
    Overwrite { session: SessionId, seq: Seq },
    #[error("shard {shard} was claimed by another process: this one no longer writes to it")]
    Fenced { shard: String },
    #[error(
        "the server has {setting} = {value}: {risk}. Set it to on, or accept it with `accept_weak={setting}` in the address of the store"
    )]
    Weak { setting: &'static str, value: String, risk: &'static str },
    /// The process that owns the store does not answer.
    #[error("cannot read through the host: {0}")]
    Unreachable(String),
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

/// Messages of a full disk, for engines that report errors as text.
const FULL_MESSAGES: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

fn is_full(error: &std::io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) || is_full_message(&error.to_string())
}

fn is_full_message(text: &str) -> bool {
    FULL_MESSAGES.iter().any(|full| text.contains(full))
}

impl EngineError {
    /// Returns whether the disk or the quota is full. Stored data is unaffected.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Store { why, .. } | Self::Panicked { why, .. } => is_full_message(why),
            Self::Corrupt { .. }
            | Self::Overwrite { .. }
            | Self::Fenced { .. }
            | Self::Weak { .. }
            | Self::Unreachable(_)
            | Self::Injected(_) => false,
        }
    }
}

impl OpenError {
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Engine(error) => error.is_full(),
            Self::BadSpec { .. }
            | Self::InUse { .. }
            | Self::ClaimedElsewhere { .. }
            | Self::Missing { .. }
            | Self::Unreachable { .. }
            | Self::OtherEngine { .. }
            | Self::Newer { .. }
            | Self::Behind { .. }
            | Self::Watermark { .. }
            | Self::Irregular { .. }
            | Self::Thread(_) => false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no session {0} in this store")]
    NoSuchSession(SessionId),
    #[error("session {session} is damaged at record {seq} (lsn {lsn}): {why}")]
    Damaged {
        session: SessionId,
        seq: Seq,
        /// The frame; 0 if unknown.
        lsn: Lsn,
        why: String,
    },
    #[error("session {session} holds a newer format at record {seq}: {why}; use a newer version of subtend")]
    Newer { session: SessionId, seq: Seq, why: String },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the journal is closed")]
    Closed,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("`{spec}` is not a store: {why}. Write {possible}")]
    BadSpec {
        spec: String,
        why: &'static str,
        /// The valid forms.
        possible: String,
    },
    #[error("{} is in use by process {pid} (boot {boot}): wait for its end, stop it, or choose another store", .path.display())]
    InUse {
        path: PathBuf,
        /// The process id from the lock file; `unknown` if unreadable.
        pid: String,
        /// The boot in which that process started.
        boot: String,
    },
    /// Another process owns the shard of a database.
    #[error("{store} is in use by {holder}: stop it, or choose another shard (`shard=NAME` in the address)")]
    ClaimedElsewhere {
        /// The store, without its password.
        store: String,
        holder: String,
    },
    /// The shard to read does not exist.
    #[error("{store} does not exist: create it with `subtend run`, or choose another shard")]
    Missing { store: String },
    #[error("{store} cannot be reached: {why}. Check the address, and that the server runs and admits this user")]
    Unreachable { store: String, why: String },
    /// The directory belongs to another engine.
    #[error("{} is a store of the engine {found}, not {wanted}: name it `{found}:PATH`, or choose another directory", .path.display())]
    OtherEngine {
        path: PathBuf,
        wanted: &'static str,
        /// The engine of the store.
        found: &'static str,
    },
    #[error("cannot {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the store cannot be opened: {0}")]
    Engine(#[from] EngineError),
    #[error("the store has format {found}, and this version knows {known}: use a newer version of subtend")]
    Newer { found: u64, known: u64 },
    #[error(
        "the store ends at lsn {found}, but {watermark} was acknowledged: an old copy or a lost tail; open it with --accept-loss to continue without the lost part"
    )]
    Behind {
        /// The last LSN of the store.
        found: Lsn,
        /// The acknowledged LSN.
        watermark: Lsn,
    },
    /// The watermark is missing or unreadable, although the store holds frames.
    #[error("{} {state}, so a lost tail would go unnoticed: restore it, or open the store with --accept-loss to rewrite it", .path.display())]
    Watermark { path: PathBuf, state: &'static str },
    /// An entry of the store could lead out of it, or block.
    #[error(
        "{} is {found}, but a store has only regular files and directories: do not use such a store of others; in your own, put the file or directory itself there", .path.display()
    )]
    Irregular { path: PathBuf, found: &'static str },
    /// The writer thread cannot start.
    #[error("the writer thread cannot start: {0}")]
    Thread(std::io::Error),
}

/// Names the operation and the file of an I/O error.
#[cfg_attr(not(feature = "disk"), allow(dead_code, reason = "only a store in a directory needs it"))]
pub(crate) fn io(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> OpenError + use<> {
    let path = path.to_owned();
    move |source| OpenError::Io { what, path: path.clone(), source }
}
