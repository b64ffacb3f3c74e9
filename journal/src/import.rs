//! Imports an export, completely or not at all.
//!
//! The file is read three times. The first reading checks every line (`survey`). The second folds each session and
//! derives its index rows (`plan`). The third writes the frames without rows, invisible to listings, boot and delivery.
//! One last batch writes all rows. After a crash before that batch, a repeated import continues after the frames that
//! are already written.

use std::collections::BTreeSet;
use std::io::{BufRead, Seek};

use subtend_session::authority::Authority;
use subtend_session::ids::{Lsn, SessionId};
use subtend_session::index::Inflight;
use subtend_session::limits::Limits;

use self::budget::Budget;
use crate::error::{AppendError, Poisoned, ReadError};
use crate::export::Tally;
use crate::journal::Journal;
use crate::verify::Progress;

mod budget;
mod fields;
mod fold;
mod lines;
mod plan;
mod survey;
mod write;

/// Limits for imported sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportBounds {
    /// Their maximum permissions.
    pub rights: Authority,
    /// Their maximum limits; `None` keeps those of the export.
    pub limits: Option<Limits>,
    /// Maximum bytes of memory for what is kept of all lines. One line and one session come on top. A session may have
    /// 128 MiB, or as many bytes as this limit if it is above its default.
    pub memory: usize,
}

impl ImportBounds {
    /// The default of `memory`, which fits for some 100,000 sessions.
    pub const MEMORY: usize = 176 << 20;

    /// Returns bounds without restrictions, for a file that this host wrote itself.
    pub fn none() -> Self {
        Self { rights: Authority::allow_all(), limits: None, memory: usize::MAX }
    }
}

/// Error of an import; nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the export cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A line is damaged or contradicts others.
    #[error("line {line} of the export is damaged: {why}; nothing was imported. Export again")]
    Damaged {
        /// The line, from 1.
        line: u64,
        why: String,
    },
    #[error(
        "the export is truncated in or after line {line}: its last line is missing; nothing was imported. Copy it again"
    )]
    Truncated {
        /// The last complete line.
        line: u64,
    },
    #[error("line {line} of the export is of a newer format: {why}; use a newer version of subtend")]
    Newer {
        line: u64,
        /// The unknown part.
        why: String,
    },
    /// The store has one of the sessions.
    #[error("session {0} exists in this store; nothing was imported. Import into another store (--data DIR)")]
    Exists(SessionId),
    #[error(
        "session {0} was deleted in this store, and a deletion is final; nothing was imported. Import into another store (--data DIR)"
    )]
    Deleted(SessionId),
    #[error(
        "session {session} belongs to an unfinished import, and line {line} differs from it: repeat that import with its own file and options, or choose another store"
    )]
    Leftover { session: SessionId, line: u64 },
    #[error(
        "line {line} of the export is a frame of {bytes} bytes, but this store's limit is {limit}; nothing was imported. Export the other trees one by one"
    )]
    TooLarge { line: u64, bytes: u64, limit: u64 },
    #[error(
        "the export has too many sessions, frames or messages between sessions from line {line} on: they need more than {limit_mib} MiB of memory; nothing was imported. Allow more with --max-memory, or export its trees one by one"
    )]
    TooMany { line: u64, limit_mib: usize },
    #[error(
        "line {line} of the export changed while it was read; repeat the import when no process writes to the file"
    )]
    Changed { line: u64 },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// An import whose frames are written but not visible ([`Journal::write_import`]). Dropped, it stays invisible.
#[derive(Debug)]
pub struct WrittenImport {
    tally: Tally,
    planned: plan::Planned,
}

impl WrittenImport {
    /// Returns the runs that were in flight in the export.
    pub fn in_flight(&self) -> Vec<(SessionId, Inflight)> {
        let row = |rows: &fold::Rows| Some((rows.session, rows.inflight.as_deref()?.clone()));
        self.planned.sessions.iter().filter_map(row).collect()
    }

    /// Returns the sessions to which others owe a message.
    pub fn unsent_receivers(&self) -> BTreeSet<SessionId> {
        self.planned.owed.iter().map(|(_, row)| row.to).collect()
    }
}

impl Journal {
    /// Imports all sessions of an export or none, into a store without active sessions. Blocks its thread while it
    /// reads.
    ///
    /// The imported sessions are limited to `within`. Each of them records its bounds (`SessionCreated::imported` and
    /// its limits). [`ImportBounds::none`] is for a file that this host wrote itself. Needs memory for one session at a
    /// time and, within a limit, for a few dozen bytes per frame and a few hundred per session.
    /// # Errors
    /// [`ImportError`]. An invalid file is refused before anything is written. After a failure of the store, nothing is
    /// visible.
    /// # Cancel safety
    /// If the future is dropped or the process killed, nothing is visible. Another import of the same file continues.
    /// # Durability
    /// Everything is durable when this returns without an error.
    pub async fn import<R: BufRead + Seek>(
        &self,
        file: &mut R,
        within: &ImportBounds,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tally, ImportError> {
        let written = self.write_import(file, within, progress).await?;
        self.publish_import(written).await
    }

    /// Writes the frames of an import, which stay invisible until [`Journal::publish_import`]. Other sessions may be active meanwhile, but
    /// only one import may run at a time. Blocks its thread while it reads.
    /// # Errors
    /// As [`Journal::import`].
    pub async fn write_import<R: BufRead + Seek>(
        &self,
        file: &mut R,
        within: &ImportBounds,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<WrittenImport, ImportError> {
        self.settled().await?;
        let max_body = self.shared().engine()?.max_body();
        let survey = survey::survey(file, max_body, Budget::new(within.memory))?;
        let mut planned = {
            let engine = self.shared().engine()?;
            plan::plan(&*engine, file, &survey, within, progress)?
        };
        write::write(self, file, (&survey, within), &mut planned, progress).await?;
        let deleted = planned.sessions.iter().filter(|rows| rows.head.is_erased()).count() as u64;
        Ok(WrittenImport { tally: Tally { deleted, ..survey.tally }, planned })
    }

    /// Makes all sessions of an import visible at once.
    /// # Errors
    /// When the store fails.
    /// # Durability
    /// Everything is durable when this returns without an error.
    pub async fn publish_import(&self, written: WrittenImport) -> Result<Tally, ImportError> {
        write::finish(self, written.planned).await?;
        Ok(written.tally)
    }
}

/// LSNs of the frames of the export, with `Lsn(0)` for frames that are not written yet.
type Positions = Vec<Lsn>;
