//! Export of a tree or of the whole store as lines of JSON, identical for every engine.
//!
//! An export has a header line, then definitions and frames in log order, then a line with counts and a checksum of the whole. Each line
//! has a number and a checksum (see `line`). Index rows and LSNs are left out, because an import derives them. A deleted session becomes a
//! line without text, because other sessions refer to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde::{Deserialize, Serialize};
use subtend_session::ids::{Epoch, Hash, Interned, Lsn, Seq, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::record::{Record, SessionCreated};

use crate::codec::Decoded;
use crate::compact;
use crate::engine::{Engine, ScanFlow, StoredFrame};
use crate::error::ReadError;
use crate::journal::Journal;
use crate::read;
use crate::verify::Progress;
use line::{Def, Deleted, End, FrameLine, Header, Writer};

pub(crate) mod line;
mod undamaged;

pub use undamaged::Skipped;

/// The written version of exports, and the newest readable one.
pub const FORMAT: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Store,
    /// The whole tree of this session: a part would leave notices without a receiver.
    Tree(SessionId),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub sessions: u64,
    pub frames: u64,
    pub records: u64,
    pub defs: u64,
    /// Number of deleted sessions whose rows an import brought. 0 in exports.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deleted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Error of an export. The written part lacks the last line, so imports refuse it.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be read, or part of it is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the export cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

impl Journal {
    /// Writes a tree or the whole store as lines of JSON. Needs a few dozen bytes of memory per session and per frame of a tree. Do not
    /// append meanwhile. Only durable frames are read. The caller syncs `out`.
    /// # Errors
    /// [`ExportError::Read`] at the first damage. Undamaged trees can still be exported one by one.
    pub fn export(
        &self,
        scope: Scope,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tally, ExportError> {
        let engine = self.shared().engine()?;
        let (scope, heads) = sessions(&*engine, scope)?;
        let mut work = ExportJob::new(&*engine, out, scope, heads)?;
        match scope {
            Scope::Store => work.log(progress)?,
            Scope::Tree(_) => work.positions(progress)?,
        }
        work.end()
    }

    /// Writes all undamaged trees, and returns the damaged ones. Reads everything twice. Without damage, the output equals that of
    /// [`Journal::export`].
    /// # Errors
    /// If the engine fails as a whole, or `out` fails.
    pub fn export_sound(
        &self,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Tally, Vec<Skipped>), ExportError> {
        let engine = self.shared().engine()?;
        let (heads, skipped) = undamaged::trees(&*engine, progress)?;
        let mut work = ExportJob::new(&*engine, out, Scope::Store, heads)?;
        work.positions(progress)?;
        Ok((work.end()?, skipped))
    }
}

struct SessionProgress {
    /// The last record of its head.
    last: Seq,
    next: Seq,
    epoch: Epoch,
    lsn: Lsn,
}

impl SessionProgress {
    fn of(head: &Head) -> Self {
        Self { last: head.last_seq, next: Seq(1), epoch: Epoch(0), lsn: Lsn(0) }
    }
}

/// Returns the sessions to write. Sessions without a head belong to an unfinished import and are skipped.
fn sessions(engine: &dyn Engine, scope: Scope) -> Result<(Scope, BTreeMap<SessionId, Head>), ReadError> {
    let mut heads = BTreeMap::new();
    let session = match scope {
        Scope::Store => {
            let mut damaged = None;
            engine.heads(&mut |session, head| match head {
                Ok(head) => {
                    heads.insert(session, head);
                    ScanFlow::Continue(())
                }
                Err(error) => {
                    damaged = Some(error);
                    ScanFlow::Break(())
                }
            })?;
            return damaged.map_or(Ok((scope, heads)), |error| Err(error.into()));
        }
        Scope::Tree(session) => session,
    };
    let root = engine.head(session)?.ok_or(ReadError::NoSuchSession(session))?.root;
    // An erased session has no row in `kid`.
    engine.heads(&mut |session, head| {
        heads.extend(head.ok().filter(|head| head.root == root && head.is_erased()).map(|head| (session, head)));
        ScanFlow::Continue(())
    })?;
    let mut open = vec![root];
    while let Some(session) = open.pop() {
        let head = engine.head(session)?.ok_or_else(|| ReadError::Damaged {
            session,
            seq: Seq(1),
            lsn: Lsn(0),
            why: format!("it is in the tree of {root}, but has no head"),
        })?;
        // A damaged store may contain a cycle.
        if heads.insert(session, head).is_none() {
            open.extend(engine.children(session)?);
        }
    }
    if compact::deleted_roots(&heads).contains_key(&session) {
        return Err(ReadError::NoSuchSession(session));
    }
    Ok((Scope::Tree(root), heads))
}

struct ExportJob<'a> {
    engine: &'a dyn Engine,
    out: Writer<'a>,
    written: BTreeMap<SessionId, SessionProgress>,
    defs: BTreeSet<Hash>,
    tally: Tally,
}

impl<'a> ExportJob<'a> {
    fn new(
        engine: &'a dyn Engine,
        out: &'a mut dyn Write,
        scope: Scope,
        mut heads: BTreeMap<SessionId, Head>,
    ) -> Result<Self, ExportError> {
        let mut out = Writer::new(out);
        out.write_line("export", &Header { format: FORMAT, frames: crate::codec::VERSION, what: scope })?;
        for session in compact::deleted_roots(&heads).into_keys() {
            if let Some(head) = heads.remove(&session) {
                let head = Head { imported: false, ..head.erased() };
                out.write_line("deleted", &Deleted { session, head })?;
            }
        }
        let written = heads.iter().map(|(session, head)| (*session, SessionProgress::of(head))).collect();
        Ok(Self { engine, out, written, defs: BTreeSet::new(), tally: Tally::default() })
    }
}

impl ExportJob<'_> {
    fn log(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ExportError> {
        let engine = self.engine;
        let mut failed = None;
        engine
            .frames(Lsn(0), &mut |lsn, kept| match self.frame(None, lsn, kept, progress) {
                Ok(()) => ScanFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ScanFlow::Break(())
                }
            })
            .map_err(ReadError::from)?;
        failed.map_or(Ok(()), Err)
    }

    /// Writes the frames of the chosen sessions in log order. Frames of other sessions may be damaged.
    fn positions(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ExportError> {
        let mut positions: Vec<(Lsn, SessionId)> = Vec::new();
        for session in self.written.keys() {
            let of = self.engine.positions(*session).map_err(ReadError::from)?;
            positions.extend(of.into_iter().map(|(_, lsn)| (lsn, *session)));
        }
        positions.sort_unstable();
        for (lsn, session) in positions {
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
        kept: StoredFrame,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ExportError> {
        let mut frame = match read::open_frame(kept) {
            Ok(frame) => frame,
            Err(error) => {
                // The damaged frame cannot name its session, so the index is used.
                let owner = read::owner(self.engine, lsn)?.filter(|(owner, _)| self.written.contains_key(owner));
                let owner = expected.map(|session| (session, self.next(session))).or(owner);
                // If no written session owns the frame, it was never visible, or its absence is reported at the end.
                return owner.map_or(Ok(()), |(session, seq)| Err(read::damage_error(session, seq, lsn, error).into()));
            }
        };
        let session = frame.session;
        if let Some(expected) = expected.filter(|expected| *expected != session) {
            return Err(self.bad(expected, lsn, format!("its frame is of session {session}")).into());
        }
        let Some(written) = self.written.get_mut(&session) else { return Ok(()) };
        let why = if frame.first_seq != written.next {
            Some(format!("the next frame starts at record {}", frame.first_seq))
        } else if frame.epoch < written.epoch {
            Some(format!("activation {} wrote it after activation {}", frame.epoch, written.epoch))
        } else if lsn <= written.lsn {
            Some(format!("its frame precedes frame {}, which has earlier records", written.lsn))
        } else {
            None
        };
        if let Some(why) = why {
            return Err(self.bad(session, lsn, why).into());
        }
        let count = frame.records.len() as u64;
        written.next = Seq(written.next.0.saturating_add(count));
        written.epoch = frame.epoch;
        written.lsn = lsn;
        self.creations(&mut frame, lsn)?;
        let Decoded { session, first_seq, epoch, at_ms, records } = frame;
        self.out.write_line("frame", &FrameLine { session, first_seq, epoch, at_ms, records })?;
        self.tally.frames = self.tally.frames.saturating_add(1);
        self.tally.records = self.tally.records.saturating_add(count);
        self.tally.sessions = self.tally.sessions.saturating_add(u64::from(first_seq == Seq(1)));
        progress(Progress { frames: self.tally.frames, sessions: self.tally.sessions });
        Ok(())
    }

    /// Moves the bodies of new sessions into definitions. The output does not depend on where a store keeps a body.
    fn creations(&mut self, frame: &mut Decoded, lsn: Lsn) -> Result<(), ExportError> {
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
        let kept = match self.engine.def(hash).map_err(|error| read::as_damage(error, &damaged)) {
            Ok(Some(kept)) if sound(&kept) => Ok(kept),
            Ok(Some(_)) => Err(damaged(format!("the body {hash} does not match its hash"))),
            Ok(None) => Err(damaged(format!("the body {hash} is not in the store"))),
            Err(error) => Err(error),
        };
        let body = match (kept, inline) {
            (Ok(kept), _) => kept,
            // A body in `def` may be damaged while its copy in the frame is sound.
            (Err(error), Some(inline)) => {
                let body: Text = serde_json::to_string(&*inline).map_err(std::io::Error::from)?.into();
                if sound(&body) { body } else { return Err(error.into()) }
            }
            (Err(error), None) => return Err(error.into()),
        };
        self.tally.defs = self.tally.defs.saturating_add(1);
        Ok(self.out.write_line("def", &Def { hash, body })?)
    }

    fn bad(&self, session: SessionId, lsn: Lsn, why: String) -> ReadError {
        ReadError::Damaged { session, seq: self.next(session), lsn, why }
    }

    fn next(&self, session: SessionId) -> Seq {
        self.written.get(&session).map_or(Seq(1), |written| written.next)
    }

    fn end(mut self) -> Result<Tally, ExportError> {
        for (session, written) in &self.written {
            if written.next != written.last.next() {
                let why = format!("the session's head ends with record {}", written.last);
                return Err(self.bad(*session, written.lsn, why).into());
            }
        }
        let sum = self.out.sum();
        self.out.write_line("end", &End { tally: self.tally, sum })?;
        self.out.flush()?;
        Ok(self.tally)
    }
}
