//! An export: a tree or the whole store as lines of JSON, the same bytes from whichever engine.
//!
//! One line says what it is, one each definition and frame follows in the order of the log, a last one counts and sums them up.
//! Each line has its number and a checksum over its bytes (see `line`). Index rows are no part of it: they follow from the
//! records, so an import makes them anew. LSNs are none either: a frame's place is its line. Of a deleted session there is a line
//! without any of its text, so that an import knows whom the others name (J-10).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde::{Deserialize, Serialize};
use subtend_session::ids::{Epoch, Hash, Interned, Lsn, Seq, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::record::{Record, SessionCreated};

use crate::codec::Decoded;
use crate::compact;
use crate::engine::{Engine, Go, Kept};
use crate::error::ReadError;
use crate::journal::Journal;
use crate::read;
use crate::verify::Progress;
use line::{Def, Deleted, End, FrameLine, Header, Writer};

pub(crate) mod line;
mod sound;

pub use sound::Skipped;

/// The version of exports that is written, and the newest that is read.
pub const FORMAT: u32 = 1;

/// What an export holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All sessions.
    Store,
    /// One whole tree: that of this session, whose root an export then names. Less would leave notices without a receiver.
    Tree(SessionId),
}

/// What an export wrote, or an import took in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Sessions.
    pub sessions: u64,
    /// Frames.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bodies that births name.
    pub defs: u64,
}

/// Why there is no export; what was written of it lacks its last line, and no import takes it.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be read, or something that was to be exported is damaged: nothing is left out.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The export cannot be written.
    #[error("the export cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

impl Journal {
    /// Writes a tree or the whole store as lines of JSON, with bounded memory: a few dozen bytes for each session, and for each
    /// frame of a tree. To be run while nothing is appended.
    ///
    /// # Errors
    /// [`ExportError::Read`] at the first thing that is damaged; the other trees can still be exported one by one.
    ///
    /// # Durability
    /// Only what is durable is read. Whether `out` is, is its own business.
    pub fn export(
        &self,
        scope: Scope,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tally, ExportError> {
        let engine = self.shared().engine()?;
        let (scope, heads) = sessions(&*engine, scope)?;
        let mut work = Work::new(&*engine, out, scope, heads)?;
        match scope {
            Scope::Store => work.log(progress)?,
            Scope::Tree(_) => work.places(progress)?,
        }
        work.end()
    }

    /// Writes all trees in which nothing is damaged, and tells what is: the way on where [`Journal::export`] refuses a store.
    /// For one without damage it writes the same. Reads everything twice.
    ///
    /// # Errors
    /// When the engine fails as a whole, or `out` does.
    ///
    /// # Durability
    /// As for [`Journal::export`].
    pub fn export_sound(
        &self,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Tally, Vec<Skipped>), ExportError> {
        let engine = self.shared().engine()?;
        let (heads, skipped) = sound::trees(&*engine, progress)?;
        let mut work = Work::new(&*engine, out, Scope::Store, heads)?;
        work.places(progress)?;
        Ok((work.end()?, skipped))
    }
}

/// How far a session was written.
struct Told {
    /// The last record, as its head says.
    last: Seq,
    next: Seq,
    epoch: Epoch,
    lsn: Lsn,
}

impl Told {
    fn of(head: &Head) -> Self {
        Self { last: head.last_seq, next: Seq(1), epoch: Epoch(0), lsn: Lsn(0) }
    }
}

/// The sessions that are to be written. One without a head is none: an import that did not finish has left it.
fn sessions(engine: &dyn Engine, scope: Scope) -> Result<(Scope, BTreeMap<SessionId, Head>), ReadError> {
    let mut heads = BTreeMap::new();
    let session = match scope {
        Scope::Store => {
            let mut damaged = None;
            engine.heads(&mut |session, head| match head {
                Ok(head) => {
                    heads.insert(session, head);
                    Go::Continue(())
                }
                Err(error) => {
                    damaged = Some(error);
                    Go::Break(())
                }
            })?;
            return damaged.map_or(Ok((scope, heads)), |error| Err(error.into()));
        }
        Scope::Tree(session) => session,
    };
    let root = engine.head(session)?.ok_or(ReadError::NoSuchSession(session))?.root;
    // An erased session is in no row of `kid`.
    engine.heads(&mut |session, head| {
        heads.extend(head.ok().filter(|head| head.root == root && head.is_erased()).map(|head| (session, head)));
        Go::Continue(())
    })?;
    let mut open = vec![root];
    while let Some(session) = open.pop() {
        let head = engine.head(session)?.ok_or_else(|| ReadError::Damaged {
            session,
            seq: Seq(1),
            lsn: Lsn(0),
            why: format!("it stands in the tree of {root}, and has no head"),
        })?;
        // A damaged store may hold a ring.
        if heads.insert(session, head).is_none() {
            open.extend(engine.kids(session)?);
        }
    }
    if compact::deleted(&heads).contains_key(&session) {
        return Err(ReadError::NoSuchSession(session));
    }
    Ok((Scope::Tree(root), heads))
}

struct Work<'a> {
    engine: &'a dyn Engine,
    out: Writer<'a>,
    told: BTreeMap<SessionId, Told>,
    /// Bodies that are written.
    defs: BTreeSet<Hash>,
    tally: Tally,
}

impl<'a> Work<'a> {
    fn new(
        engine: &'a dyn Engine,
        out: &'a mut dyn Write,
        scope: Scope,
        mut heads: BTreeMap<SessionId, Head>,
    ) -> Result<Self, ExportError> {
        let mut out = Writer::new(out);
        out.line("export", &Header { format: FORMAT, frames: crate::codec::VERSION, what: scope })?;
        for session in compact::deleted(&heads).into_keys() {
            if let Some(head) = heads.remove(&session) {
                out.line("deleted", &Deleted { session, head: head.erased() })?;
            }
        }
        let told = heads.iter().map(|(session, head)| (*session, Told::of(head))).collect();
        Ok(Self { engine, out, told, defs: BTreeSet::new(), tally: Tally::default() })
    }
}

impl Work<'_> {
    /// All of the log, as it stands.
    fn log(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ExportError> {
        let engine = self.engine;
        let mut failed = None;
        engine
            .frames(Lsn(0), &mut |lsn, kept| match self.frame(None, lsn, kept, progress) {
                Ok(()) => Go::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    Go::Break(())
                }
            })
            .map_err(ReadError::from)?;
        failed.map_or(Ok(()), Err)
    }

    /// The frames of the sessions alone, in the order of the log: others may be damaged.
    fn places(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ExportError> {
        let mut places: Vec<(Lsn, SessionId)> = Vec::new();
        for session in self.told.keys() {
            let of = self.engine.places(*session).map_err(ReadError::from)?;
            places.extend(of.into_iter().map(|(_, lsn)| (lsn, *session)));
        }
        places.sort_unstable();
        for (lsn, session) in places {
            let kept = self.engine.frame(lsn).map_err(ReadError::from)?;
            let kept = kept.ok_or_else(|| self.bad(session, lsn, "its frame is not in the log".into()))?;
            self.frame(Some(session), lsn, kept, progress)?;
        }
        Ok(())
    }

    fn frame(
        &mut self,
        expected: Option<SessionId>,
        lsn: Lsn,
        kept: Kept,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ExportError> {
        let mut frame = match read::open_frame(kept) {
            Ok(frame) => frame,
            Err(error) => {
                // The frame itself would say whose it is.
                let owner = read::owner(self.engine, lsn)?.filter(|(owner, _)| self.told.contains_key(owner));
                let owner = expected.map(|session| (session, self.next(session))).or(owner);
                // One of nobody is missing from somebody, or was never there to be seen: the end tells.
                return owner.map_or(Ok(()), |(session, seq)| Err(read::damaged(session, seq, lsn, error).into()));
            }
        };
        let session = frame.session;
        if let Some(expected) = expected.filter(|expected| *expected != session) {
            return Err(self.bad(expected, lsn, format!("its frame is of session {session}")).into());
        }
        let Some(told) = self.told.get_mut(&session) else { return Ok(()) };
        let why = if frame.first_seq != told.next {
            Some(format!("the next frame starts at record {}", frame.first_seq))
        } else if frame.epoch < told.epoch {
            Some(format!("activation {} wrote it after activation {}", frame.epoch, told.epoch))
        } else if lsn <= told.lsn {
            Some(format!("its frame stands before that of the records before it, {}", told.lsn))
        } else {
            None
        };
        if let Some(why) = why {
            return Err(self.bad(session, lsn, why).into());
        }
        let count = frame.records.len() as u64;
        told.next = Seq(told.next.0.saturating_add(count));
        told.epoch = frame.epoch;
        told.lsn = lsn;
        self.births(&mut frame, lsn)?;
        let Decoded { session, first_seq, epoch, at_ms, records } = frame;
        self.out.line("frame", &FrameLine { session, first_seq, epoch, at_ms, records })?;
        self.tally.frames = self.tally.frames.saturating_add(1);
        self.tally.records = self.tally.records.saturating_add(count);
        self.tally.sessions = self.tally.sessions.saturating_add(u64::from(first_seq == Seq(1)));
        progress(Progress { frames: self.tally.frames, sessions: self.tally.sessions });
        Ok(())
    }

    /// Takes the bodies out of the births, and writes those that were not written yet. Where a store keeps a body, in the frame
    /// or beside it, is its own business.
    fn births(&mut self, frame: &mut Decoded, lsn: Lsn) -> Result<(), ExportError> {
        let session = frame.session;
        for record in &mut frame.records {
            let Record::SessionCreated(created) = record else { continue };
            let created: &mut SessionCreated = created;
            self.body(session, lsn, &mut created.system)?;
            self.body(session, lsn, &mut created.ceiling)?;
            self.body(session, lsn, &mut created.limits)?;
        }
        Ok(())
    }

    fn body<T: Serialize + ?Sized>(
        &mut self,
        session: SessionId,
        lsn: Lsn,
        named: &mut Interned<T>,
    ) -> Result<(), ExportError> {
        let (hash, inline) = (named.hash, named.body.take());
        if !self.defs.insert(hash) {
            return Ok(());
        }
        let damaged = |why| self.bad(session, lsn, why);
        let sound = |body: &Text| Hash::of(body.as_bytes()) == hash;
        let kept = match self.engine.def(hash).map_err(|error| read::unread(error, &damaged)) {
            Ok(Some(kept)) if sound(&kept) => Ok(kept),
            Ok(Some(_)) => Err(damaged(format!("the body {hash} is not what was written"))),
            Ok(None) => Err(damaged(format!("the body {hash} is not in the store"))),
            Err(error) => Err(error),
        };
        let body = match (kept, inline) {
            (Ok(kept), _) => kept,
            // What is damaged beside the frame may be sound in it.
            (Err(error), Some(inline)) => {
                let body: Text = serde_json::to_string(&*inline).map_err(std::io::Error::from)?.into();
                if sound(&body) { body } else { return Err(error.into()) }
            }
            (Err(error), None) => return Err(error.into()),
        };
        self.tally.defs = self.tally.defs.saturating_add(1);
        Ok(self.out.line("def", &Def { hash, body })?)
    }

    fn bad(&self, session: SessionId, lsn: Lsn, why: String) -> ReadError {
        ReadError::Damaged { session, seq: self.next(session), lsn, why }
    }

    /// The record that comes next.
    fn next(&self, session: SessionId) -> Seq {
        self.told.get(&session).map_or(Seq(1), |told| told.next)
    }

    fn end(mut self) -> Result<Tally, ExportError> {
        for (session, told) in &self.told {
            if told.next != told.last.next() {
                let why = format!("the session's head says that it ends with record {}", told.last);
                return Err(self.bad(*session, told.lsn, why).into());
            }
        }
        let sum = self.out.sum();
        self.out.line("end", &End { tally: self.tally, sum })?;
        self.out.flush()?;
        Ok(self.tally)
    }
}
