//! The second reading: folds each session as the store would, and derives index rows.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Seek};
use std::sync::Arc;

use subtend_session::authority::Authority;
use subtend_session::ids::{Hash, Interned, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Changes, Head, Row};
use subtend_session::limits::{Limits, MAX_DEPTH};
use subtend_session::place::{BranchKind, Place, Worktree};
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::State;

use super::budget::{self, Budget};
use super::fields;
use super::fold::{Fold, Rows};
use super::lines::Lines;
use super::survey::{LinePosition, Session, Survey};
use super::{ImportBounds, ImportError, Positions};
use crate::bodies::Bodies;
use crate::codec::{self, Decoded};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::export::Scope;
use crate::export::line::{Count, FrameLine};
use crate::frame::Frame;
use crate::read;
use crate::verify::Progress;

/// Average number of bytes of bodies that the import may read again for each session.
const REREAD_BODIES: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Planned {
    /// LSNs of frames that an unfinished import has written.
    pub(super) positions: Positions,
    /// Rows of each session, as a frame without records.
    pub(super) sessions: Vec<Rows>,
    /// Limits after applying the bounds, by the hash of the exported limits.
    pub(super) limits: BTreeMap<Hash, Interned<Limits>>,
    /// Obligations, with the frame that creates them.
    pub(super) owed: Vec<(usize, Row)>,
}

/// Frames in which an obligation was last created and last taken.
#[derive(Clone, Copy, Debug, Default)]
struct RowLifetime {
    put: Option<usize>,
    taken: Option<usize>,
}

struct ImportPlan<'a, R> {
    engine: &'a dyn Engine,
    lines: Lines<'a, R>,
    survey: &'a Survey,
    bounds: &'a ImportBounds,
    bodies: Bodies,
    /// Bytes of bodies that may still be read: sessions that alternate between large bodies would each read one.
    remaining_bodies: u64,
    planned: Planned,
    lifetimes: BTreeMap<Row, RowLifetime>,
    budget: Budget,
    /// Position and line of each session.
    positions: BTreeMap<SessionId, (LinePosition, Place, Option<Worktree>)>,
    /// Deleted sessions that a record of a living one names.
    needed: BTreeSet<SessionId>,
    /// The first record that names a session outside of the export. Reported last: other checks name a more exact cause.
    outside: Option<ImportError>,
}

pub(super) fn plan<R: BufRead + Seek>(
    engine: &dyn Engine,
    file: &mut R,
    survey: &Survey,
    bounds: &ImportBounds,
    progress: &mut dyn FnMut(Progress),
) -> Result<Planned, ImportError> {
    // Checked first, because an existing session is the most likely reason for a refusal.
    refuse_known(engine, survey.sessions.keys())?;
    let planned = Planned {
        positions: vec![Lsn(0); survey.frames.len()],
        sessions: Vec::new(),
        limits: BTreeMap::new(),
        owed: Vec::new(),
    };
    let lines = Lines::new(file, survey.most)?;
    let sizes = survey.defs.values().map(|(_, bytes)| *bytes as u64).fold(0, u64::saturating_add);
    let rereads = REREAD_BODIES.saturating_mul(survey.sessions.len() as u64);
    let mut plan = ImportPlan {
        engine,
        lines,
        survey,
        bounds,
        bodies: Bodies::default(),
        remaining_bodies: sizes.saturating_mul(4).saturating_add(rereads),
        planned,
        lifetimes: BTreeMap::new(),
        budget: survey.budget,
        positions: BTreeMap::new(),
        needed: BTreeSet::new(),
        outside: None,
    };
    let mut done = Progress::default();
    for (id, session) in &survey.sessions {
        plan.session(*id, session)?;
        done.sessions = done.sessions.saturating_add(1);
        done.frames = done.frames.saturating_add(session.frames.len() as u64);
        progress(done);
    }
    plan.trees()?;
    plan.check_ancestors()?;
    plan.check_left_frames()?;
    plan.check_names()?;
    plan.plan_deletions()?;
    plan.plan_rows()
}

impl<R: BufRead + Seek> ImportPlan<'_, R> {
    fn session(&mut self, id: SessionId, session: &Session) -> Result<(), ImportError> {
        let left = self.engine.positions(id).map_err(ReadError::from)?;
        let mut left = left.into_iter();
        let mut fold = Fold::new(id, self.bounds.memory);
        let (mut last, mut created_ms) = (None, None);
        for ix in &session.frames {
            let Some(at) = self.survey.frames.get(*ix).copied() else { continue };
            let mut frame = self.frame(at)?;
            created_ms.get_or_insert(frame.at_ms);
            let bytes = self.lines.bytes().len();
            self.fill_bodies(id, at, &mut frame.records)?;
            match left.next() {
                Some((seq, lsn)) => self.check_imported(*ix, at, lsn, seq, &frame)?,
                None => self.check_size(at, &frame, bytes)?,
            }
            self.note_names(id, at, &frame.records);
            let changes = fold.fold_frame(*ix, at, &frame.records)?;
            self.note_obligations(*ix, at.line, changes)?;
            last = Some((at, frame.epoch, frame.at_ms));
        }
        let Some((at, epoch, at_ms)) = last else { return Ok(()) };
        if left.next().is_some() {
            return Err(ImportError::Leftover { session: id, line: at.line });
        }
        self.check_parent(id, at, fold.state.as_ref())?;
        let rows = fold.rows(epoch, created_ms.unwrap_or(at_ms), at_ms);
        if let Some(rows) = rows {
            // The rows of all sessions are written at once: planned, encoded, and twice in the engine's pages.
            let texts = rows.head.title.len().saturating_add(rows.head.agent.len());
            self.budget.take(at.line, texts.saturating_mul(4))?;
            self.planned.sessions.push(rows);
        }
        Ok(())
    }

    fn frame(&mut self, at: LinePosition) -> Result<FrameLine<Vec<Record>>, ImportError> {
        self.lines.seek_line(at.line, at.offset)?;
        self.lines.read().map_err(|_| ImportError::Changed { line: at.line })?;
        let mut frame = self.lines.parse::<Vec<Record>>()?.frame.ok_or(ImportError::Changed { line: at.line })?;
        fields::admit(&mut frame.records, frame.session, self.bounds)
            .map_err(|why| ImportError::Damaged { line: at.line, why })?;
        Ok(frame)
    }

    fn check_size(&self, at: LinePosition, frame: &FrameLine<Vec<Record>>, line: usize) -> Result<(), ImportError> {
        let limit = self.engine.max_body();
        // A line is at least as long as its frame's body.
        if !self.engine.wants_bytes() || (line.saturating_add(codec::HEADER) as u64) <= limit {
            return Ok(());
        }
        let damaged = |why| ImportError::Damaged { line: at.line, why };
        let bytes = codec::encode(&to_frame(frame.clone())).map_err(|error| damaged(error.to_string()))?.len() as u64;
        if bytes > limit {
            return Err(ImportError::TooLarge { line: at.line, bytes, limit });
        }
        Ok(())
    }

    /// Checks that a stored frame equals this one. Otherwise another import wrote it.
    fn check_imported(
        &mut self,
        ix: usize,
        at: LinePosition,
        lsn: Lsn,
        seq: Seq,
        frame: &FrameLine<Vec<Record>>,
    ) -> Result<(), ImportError> {
        let other = || ImportError::Leftover { session: frame.session, line: at.line };
        let kept = self.engine.frame(lsn).map_err(ReadError::from)?.ok_or_else(other)?;
        let Decoded { session, first_seq, epoch, at_ms, records } =
            read::open_frame(kept).map_err(|error| read::damage_error(frame.session, seq, lsn, error))?;
        let same = (session, first_seq, epoch, at_ms) == (frame.session, frame.first_seq, frame.epoch, frame.at_ms);
        if !same || records != frame.records {
            return Err(other());
        }
        if let Some(place) = self.planned.positions.get_mut(ix) {
            *place = lsn;
        }
        Ok(())
    }

    /// Restores the bodies of a new session from earlier lines.
    fn fill_bodies(&mut self, session: SessionId, at: LinePosition, records: &mut [Record]) -> Result<(), ImportError> {
        let damaged = |why: String| ImportError::Damaged { line: at.line, why };
        for record in records {
            if let Record::SessionCreated(created) = &*record {
                if created.system.body.is_some() || created.ceiling.body.is_some() || created.limits.body.is_some() {
                    return Err(damaged(format!(
                        "`session_created` of session {session} has a body: bodies have their own lines"
                    )));
                }
                // Sessions are read in the order of their ids, so the cache may contain bodies of later lines.
                let hashes = [created.system.hash, created.ceiling.hash, created.limits.hash];
                if let Some(hash) = hashes.into_iter().find(|hash| self.def_before(*hash, at).is_none()) {
                    return Err(damaged(format!("the body {hash} is not in the store")));
                }
            }
            let bodies = std::mem::take(&mut self.bodies);
            let filled = bodies.fill(record, &mut |hash| self.def(hash, at), &damaged);
            self.bodies = bodies;
            filled?;
            if let Record::SessionCreated(created) = record {
                created.ceiling.body.iter().try_for_each(|ceiling| fields::check_rules(ceiling)).map_err(&damaged)?;
                self.lower_limits(created).map_err(|error| damaged(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Lowers the limits of a new session to those of the importer.
    fn lower_limits(&mut self, created: &mut SessionCreated) -> Result<(), serde_json::Error> {
        let (Some(bound), Some(own)) = (&self.bounds.limits, &created.limits.body) else { return Ok(()) };
        let met = match self.planned.limits.get(&created.limits.hash) {
            Some(met) => met.clone(),
            None => {
                let met = Interned::new(Arc::new(own.lowered(bound)))?;
                self.planned.limits.insert(created.limits.hash, met.clone());
                met
            }
        };
        created.limits = met;
        Ok(())
    }

    /// Returns the position and size of a body that an earlier line defines.
    fn def_before(&self, hash: Hash, before: LinePosition) -> Option<(LinePosition, usize)> {
        self.survey.defs.get(&hash).copied().filter(|(at, _)| at.line < before.line)
    }

    fn def(&mut self, hash: Hash, before: LinePosition) -> Result<Option<Text>, ImportError> {
        let Some((at, bytes)) = self.def_before(hash, before) else { return Ok(None) };
        self.remaining_bodies = self.remaining_bodies.checked_sub(bytes as u64).ok_or_else(|| {
            let why = format!("its sessions use large bodies in turns, such as {hash} of {bytes} bytes");
            ImportError::Damaged { line: before.line, why }
        })?;
        self.lines.seek_line(at.line, at.offset)?;
        self.lines.read().map_err(|_| ImportError::Changed { line: at.line })?;
        Ok(self.lines.parse::<Count>()?.def.map(|def| def.body))
    }

    /// Finds names of sessions that are not in the export. A record with such a name would act on a session of this
    /// store, now or after a later import: its run would adopt, cancel or notify that session.
    fn note_names(&mut self, id: SessionId, at: LinePosition, records: &[Record]) {
        let Self { survey, outside, needed, .. } = self;
        for record in records {
            record.named_sessions(&mut |named| {
                if outside.is_none() && !survey.has(named) {
                    let kind = record.kind();
                    let why = format!("`{kind}` of session {id} names session {named}, which is not in the export");
                    *outside = Some(ImportError::Damaged { line: at.line, why });
                }
                if survey.deleted.contains_key(&named) {
                    needed.insert(named);
                }
            });
        }
    }

    fn check_names(&mut self) -> Result<(), ImportError> {
        for (session, (line, head)) in &self.survey.deleted {
            for named in [Some(head.root), head.parent].into_iter().flatten() {
                if !self.survey.has(named) {
                    let why = format!("deleted session {session} names session {named}, which is not in the export");
                    return Err(ImportError::Damaged { line: *line, why });
                }
            }
        }
        self.outside.take().map_or(Ok(()), Err)
    }

    /// Records the obligations that a frame creates and takes.
    fn note_obligations(&mut self, ix: usize, line: u64, mut changes: Changes) -> Result<(), ImportError> {
        // Obligations of a deleted session are void.
        let stays = |row: &Row| [row.to, row.from].iter().all(|end| !self.survey.deleted.contains_key(end));
        changes.put.retain(stays);
        changes.take.retain(stays);
        let before = self.lifetimes.len();
        for row in changes.put {
            let fate = self.lifetimes.entry(row).or_default();
            fate.put = fate.put.max(Some(ix));
        }
        for row in changes.take {
            let fate = self.lifetimes.entry(row).or_default();
            fate.taken = fate.taken.max(Some(ix));
        }
        let noted = self.lifetimes.len().saturating_sub(before);
        self.budget.take(line, noted.saturating_mul(budget::OBLIGATION))
    }

    /// Checks that the parent of a session is in the file, since trees must be complete.
    fn check_parent(&mut self, id: SessionId, at: LinePosition, state: Option<&State>) -> Result<(), ImportError> {
        let damaged = |why| ImportError::Damaged { line: at.line, why };
        let Some(created) = state.map(|state| &state.created) else { return Ok(()) };
        let (place, worktree) = (&created.place, created.worktree);
        let root = place.root(id);
        for above in [Some(root), place.parent()].into_iter().flatten() {
            if !self.survey.sessions.contains_key(&above) {
                return Err(damaged(format!("session {id} is a child of {above}, which is not in the export")));
            }
        }
        if let Scope::Tree(tree) = self.survey.what
            && tree != root
        {
            return Err(damaged(format!(
                "session {id} belongs to the tree of {root}, but the export has the tree of {tree}"
            )));
        }
        self.positions.insert(id, (at, place.clone(), worktree));
        Ok(())
    }

    fn trees(&self) -> Result<(), ImportError> {
        for (id, (at, place, worktree)) in &self.positions {
            let damaged = |why| Err(ImportError::Damaged { line: at.line, why });
            let of_parent = place.parent().and_then(|parent| self.positions.get(&parent)).and_then(|above| above.2);
            if !Worktree::fits(*worktree, *id, of_parent) {
                return damaged(format!("session {id} works in the worktree of another session than its parent"));
            }
            let Place::Child { parent, root, kind, depth, .. } = place else { continue };
            let Some((_, above, _)) = self.positions.get(parent) else { continue };
            let tree = above.root(*parent);
            if tree != *root {
                return damaged(format!(
                    "session {id} belongs to the tree of {root}, but its parent to that of {tree}"
                ));
            }
            let right = above.depth().saturating_add(u32::from(*kind == BranchKind::Subagent));
            if *depth != right {
                return damaged(format!("session {id} has depth {depth}, expected {right}"));
            }
        }
        Ok(())
    }

    /// Checks that no session is its own ancestor or has too many, whatever its depth: views visit trees by level.
    fn check_ancestors(&self) -> Result<(), ImportError> {
        let parent_of = |session: SessionId| match self.positions.get(&session) {
            Some((_, place, _)) => place.parent(),
            None => self.survey.deleted.get(&session).and_then(|(_, head)| head.parent),
        };
        let positions = self.positions.iter().map(|(id, (at, ..))| (*id, at.line));
        let deleted = self.survey.deleted.iter().map(|(id, (line, _))| (*id, *line));
        let mut levels: BTreeMap<SessionId, u32> = BTreeMap::new();
        let limit = MAX_DEPTH.saturating_add(1);
        for (id, line) in positions.chain(deleted) {
            let (mut chain, mut next) = (Vec::new(), Some(id));
            while let Some(session) = next.filter(|session| !levels.contains_key(session))
                && chain.len() <= limit as usize
            {
                chain.push(session);
                next = parent_of(session);
            }
            let above = next.and_then(|session| levels.get(&session).copied());
            let first = above.map_or(0, |above| above.saturating_add(1));
            if chain.len().saturating_add(first as usize) > limit as usize {
                let why = format!("session {id} is below itself, or more than {MAX_DEPTH} sessions are above it");
                return Err(ImportError::Damaged { line, why });
            }
            levels.extend(chain.into_iter().rev().zip(first..));
        }
        Ok(())
    }

    /// Plans the rows of deleted sessions that others name, and of those above them. A row that no session needs would only
    /// take an id: the session of a command with an idempotency key could not be created, and the import of another
    /// export with that session would be refused forever.
    fn plan_deletions(&mut self) -> Result<(), ImportError> {
        let mut open: Vec<SessionId> = self.needed.iter().copied().collect();
        while let Some((_, head)) = open.pop().and_then(|session| self.survey.deleted.get(&session)) {
            let above = [Some(head.root), head.parent].into_iter().flatten();
            open.extend(above.filter(|above| self.survey.deleted.contains_key(above) && self.needed.insert(*above)));
        }
        refuse_known(self.engine, self.needed.iter())?;
        let imported = self.bounds.rights != Authority::allow_all();
        for session in &self.needed {
            let Some((_, head)) = self.survey.deleted.get(session) else { continue };
            let head = Box::new(Head { imported, ..head.clone() });
            self.planned.sessions.push(Rows { session: *session, head, inflight: None, opened: None });
        }
        Ok(())
    }

    /// Checks that the frames of an unfinished import are the start of each tree, in file order.
    fn check_left_frames(&self) -> Result<(), ImportError> {
        if self.planned.positions.iter().all(|lsn| *lsn == Lsn(0)) {
            return Ok(());
        }
        let mut roots: BTreeMap<usize, SessionId> = BTreeMap::new();
        for (id, session) in &self.survey.sessions {
            let root = self.positions.get(id).map_or(*id, |(_, place, _)| place.root(*id));
            roots.extend(session.frames.iter().map(|ix| (*ix, root)));
        }
        let mut trees: BTreeMap<SessionId, Option<Lsn>> = BTreeMap::new();
        for (ix, lsn) in self.planned.positions.iter().enumerate() {
            let Some(root) = roots.get(&ix) else { continue };
            let last = trees.entry(*root).or_insert(Some(Lsn(0)));
            match (*last, *lsn) {
                (_, Lsn(0)) => *last = None,
                (Some(before), lsn) if before < lsn => *last = Some(lsn),
                (Some(_) | None, _) => {
                    let line = self.survey.frames.get(ix).map_or(0, |at| at.line);
                    return Err(ImportError::Leftover { session: *root, line });
                }
            }
        }
        Ok(())
    }

    fn plan_rows(mut self) -> Result<Planned, ImportError> {
        // Within a frame, creations come first, as in engines.
        let owed = self.lifetimes.iter().filter_map(|(row, fate)| {
            let put = fate.put?;
            fate.taken.is_none_or(|taken| taken < put).then_some((put, *row))
        });
        self.planned.owed = owed.collect();
        self.budget.take(self.survey.last_line(), self.planned.owed.len().saturating_mul(budget::OWED))?;
        Ok(self.planned)
    }
}

fn refuse_known<'a>(engine: &dyn Engine, mut sessions: impl Iterator<Item = &'a SessionId>) -> Result<(), ImportError> {
    sessions.try_for_each(|session| match engine.head(*session).map_err(ReadError::from)? {
        Some(head) if head.deleted => Err(ImportError::Deleted(*session)),
        Some(_) => Err(ImportError::Exists(*session)),
        None => Ok(()),
    })
}

pub(super) fn to_frame(frame: FrameLine<Vec<Record>>) -> Frame {
    let FrameLine { session, first_seq, epoch, at_ms, records } = frame;
    Frame { session, first_seq, epoch, at_ms, records, changes: Changes::default() }
}
