//! An import: an export is taken into a store, all of it or nothing.
//!
//! The file is read three times. First every line is checked, to the last one (`survey`); then each session is folded, and what
//! the index will say of it is made (`plan`). Until then the store was only read. Then the frames are written, without a row: no
//! listing, boot or delivery sees them. The rows follow in one batch, and with it everything is there. Killed before that batch,
//! an import is done again with the same file: it finds the frames that it wrote, and goes on behind them.

use std::io::{BufRead, Seek};

use subtend_session::authority::Authority;
use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::Changes;

use crate::error::{AppendError, Poisoned, ReadError};
use crate::export::Tally;
use crate::frame::Frame;
use crate::journal::Journal;
use crate::verify::Progress;

mod fields;
mod lines;
mod plan;
mod survey;
mod write;

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("the export cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A line is not what was written, or says what cannot be.
    #[error("line {line} of the export is damaged: {why}; nothing was imported, export again")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// The last line is missing.
    #[error("the export is cut in or after line {line}: its last line is missing; nothing was imported, copy it again")]
    Cut {
        /// The last line that is there.
        line: u64,
    },
    /// A newer version wrote it.
    #[error("line {line} of the export is of a newer format: {why}; use a newer version of subtend")]
    Newer {
        /// The line, from 1.
        line: u64,
        /// What is not known.
        why: String,
    },
    /// The store has one of the sessions.
    #[error("session {0} is in the store already; nothing was imported, choose another store")]
    Exists(SessionId),
    /// The store had one of the sessions, and it was deleted there: a deletion is durable.
    #[error(
        "session {0} was deleted in this store, and a deletion is final; nothing was imported, import it into another store (--data DIR)"
    )]
    Deleted(SessionId),
    /// An import that did not finish has left other frames of one of the sessions.
    #[error(
        "session {session} was left half by an import that did not finish, and line {line} goes on otherwise: repeat that import with its own file and options, or choose another store"
    )]
    Leftover {
        /// The session.
        session: SessionId,
        /// The line that differs.
        line: u64,
    },
    /// The store's engine does not take a frame of this size.
    #[error(
        "line {line} of the export is a frame of {bytes} bytes, and this store takes at most {limit}: choose another engine"
    )]
    TooLarge {
        /// The line, from 1.
        line: u64,
        /// Size of its encoded frame.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// The file is not the same any more.
    #[error("line {line} of the export changed while it was read; repeat the import when nobody writes to the file")]
    Changed {
        /// The line, from 1.
        line: u64,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store takes no frames.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The store failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// A frame of `session` that is to bring rows alone.
fn rows_only(session: SessionId, first_seq: Seq) -> Frame {
    Frame { session, first_seq, epoch: Epoch(0), at_ms: 0, records: Vec::new(), changes: Changes::default() }
}

impl Journal {
    /// Takes in an export: all its sessions or nothing (see `ImportError`). To be run while nothing else is appended.
    ///
    /// No session may do more than `within` from now on, whatever the export says: it is recorded with each
    /// (`SessionCreated::imported`). [`Authority::allow_all`] is for a file that this host wrote itself: nothing is bounded or marked.
    ///
    /// Memory is bounded by the number of frames, not by what they hold: some dozen bytes a frame, a row or two a session, and
    /// one session at a time. Blocks its thread while it reads: call it where that is allowed.
    ///
    /// # Errors
    /// [`ImportError`]: for a damaged, cut or newer file and for a session that the store has, nothing was written; after a
    /// failure of the store nothing is to be seen of what was.
    ///
    /// # Cancel safety
    /// Dropped or killed, it leaves nothing that a listing or a boot sees; done again with the same file, it goes on.
    ///
    /// # Durability
    /// Everything is durable when this returns without an error.
    pub async fn import<R: BufRead + Seek>(
        &self,
        file: &mut R,
        within: &Authority,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tally, ImportError> {
        self.settled().await?;
        let survey = survey::survey(file)?;
        let planned = {
            let engine = self.shared().engine()?;
            plan::plan(&*engine, file, &survey, within, progress)?
        };
        write::write(self, file, (&survey, within), planned, progress).await?;
        Ok(survey.tally)
    }
}

/// A place in the log of a frame of the export; `Lsn(0)` for one that is not written yet.
type Places = Vec<Lsn>;
