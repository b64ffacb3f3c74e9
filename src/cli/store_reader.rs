//! Read access to a store for commands that do not change it.

use std::collections::BTreeSet;

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::index::RowKind;
use subtend_session::record::{Record, SessionCreated};

use super::client;
use super::damaged_sessions::DamagedSessions;
use super::data::StoreArgs;
use super::fail::Fail;
use super::find::{Heads, find};

pub(crate) struct StoreReader {
    journal: Journal,
    heads: Heads,
    damaged: DamagedSessions,
    hosted: bool,
}

impl StoreReader {
    /// Opens an existing store; returns `None` if none exists.
    pub(crate) fn open(args: &StoreArgs) -> Result<Option<Self>, Fail> {
        let place = args.place()?;
        if !place.exists()? {
            return Ok(None);
        }
        let (journal, hosted) = client::connect_or_open(&place)?.into_journal(place)?;
        let (heads, damaged) = DamagedSessions::read(&journal)?;
        Ok(Some(Self { journal, heads, damaged, hosted }))
    }

    /// As [`StoreReader::open`], for commands that need an existing store.
    pub(crate) fn open_existing(args: &StoreArgs) -> Result<Self, Fail> {
        match Self::open(args)? {
            Some(reader) => Ok(reader),
            None => Err(args.place()?.missing_store()),
        }
    }

    /// Returns whether another process hosts the store, so that runs in flight are active.
    pub(crate) fn is_hosted(&self) -> bool {
        self.hosted
    }

    pub(crate) fn damaged(&self) -> &DamagedSessions {
        &self.damaged
    }

    /// Returns the heads of sessions that are not deleted. That of a damaged row is derived from the session's records.
    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    pub(crate) fn find(&self, name: &str) -> Result<SessionId, Fail> {
        find(&self.heads, name).map_err(|none| self.damaged.with_skipped(name, none))
    }

    pub(crate) fn sessions_waiting_for_approval(&self) -> Result<BTreeSet<SessionId>, Fail> {
        let asks = self.journal.outbox()?.into_iter().filter(|(row, _)| row.kind == RowKind::Ask);
        Ok(asks.map(|(row, _)| row.from).collect())
    }

    pub(crate) fn records(&self, session: SessionId) -> Result<Vec<Stored>, Fail> {
        let damaged = self.damaged.reason(session).is_some();
        Ok(if damaged { self.journal.salvage(session) } else { self.journal.records(session) }?)
    }

    /// Returns a session's creation record; `None` if its journal cannot be read.
    pub(crate) fn creation(&self, session: SessionId) -> Result<Option<SessionCreated>, Fail> {
        let first = match self.journal.records_from(session, Seq(1), 1) {
            Ok(first) => first,
            Err(ReadError::NoSuchSession(_) | ReadError::Damaged { .. } | ReadError::Newer { .. }) => return Ok(None),
            Err(error @ (ReadError::Engine(_) | ReadError::Closed)) => return Err(error.into()),
        };
        Ok(first.into_iter().find_map(|stored| {
            let Record::SessionCreated(created) = stored.record else { return None };
            Some(*created)
        }))
    }

    /// Releases the store for other commands. Call this before printing: a reader of the output, a pager, may be slow.
    pub(crate) fn release(self) {
        drop(self);
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }
}
