//! Verifies a whole store.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{Hash, Lsn, Seq, SessionId};
use subtend_session::index::Row;
use subtend_session::state::State;

use crate::bodies::Bodies;
use crate::engine::{Engine, ScanFlow, StoredFrame};
use crate::error::{EngineError, ReadError};
use crate::frame::Stored;
use crate::read;

mod rows;

/// Advice about an unfinished import.
pub const UNFINISHED: &str = "repeat it with its own file to complete it; until then its sessions are not listed, and an export \
                              of the store omits them";

/// Progress of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub frames: u64,
    pub sessions: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub session: Option<SessionId>,
    pub lsn: Option<Lsn>,
    pub seq: Option<Seq>,
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(session) = self.session {
            write!(f, "session {session}: ")?;
        }
        if let Some(seq) = self.seq {
            write!(f, "record {seq}: ")?;
        }
        if let Some(lsn) = self.lsn {
            write!(f, "lsn {lsn}: ")?;
        }
        f.write_str(&self.what)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub frames: u64,
    pub records: u64,
    pub sessions: u64,
    /// Bytes of encoded frames.
    pub bytes: u64,
    /// Bytes of each session.
    pub sizes: BTreeMap<SessionId, u64>,
    /// Violations; empty for an undamaged store.
    pub problems: Vec<Problem>,
    /// Apparent violations in a store that is being written. They were found only in the last reading, so they may be false.
    pub unsettled: Vec<Problem>,
}

struct Check<'a> {
    engine: &'a dyn Engine,
    report: Report,
    /// Number of frames of each session in the log.
    in_log: BTreeMap<SessionId, u64>,
    /// Sessions with unreadable records, whose rows cannot be checked.
    damaged: BTreeSet<SessionId>,
    sound: BTreeSet<SessionId>,
    /// Erased sessions, which only have heads.
    erased: BTreeSet<SessionId>,
    /// Sessions with records but without rows, from an unfinished import.
    left: BTreeSet<SessionId>,
    children: BTreeSet<(SessionId, SessionId)>,
    /// Obligations created (first) and taken, with the LSN of the frame.
    obligations: Vec<(Lsn, bool, Row)>,
}

const CONTINUE: ScanFlow = ScanFlow::Continue(());

/// Maximum number of readings of a store that is written meanwhile.
const MAX_READINGS: u32 = 5;

/// Verifies the store. If another process writes it meanwhile, rows and records are read at different moments and can seem inconsistent.
/// The store is then read again, and only violations found by two consecutive readings are reported.
pub(crate) fn verify(engine: &dyn Engine, progress: &mut dyn FnMut(Progress)) -> Result<Report, ReadError> {
    let mut end = engine.last_lsn()?;
    let mut report = read_once(engine, progress)?;
    for _ in 1..MAX_READINGS {
        let before = std::mem::replace(&mut end, engine.last_lsn()?);
        if end == before || report.problems.is_empty() {
            return Ok(Report { unsettled: Vec::new(), ..report });
        }
        let found = std::mem::replace(&mut report, read_once(engine, progress)?).problems;
        report.unsettled = report.problems.iter().filter(|problem| !found.contains(problem)).cloned().collect();
        if report.unsettled.is_empty() {
            return Ok(report);
        }
    }
    let unsettled = std::mem::take(&mut report.unsettled);
    report.problems.retain(|problem| !unsettled.contains(problem));
    Ok(Report { unsettled, ..report })
}

fn read_once(engine: &dyn Engine, progress: &mut dyn FnMut(Progress)) -> Result<Report, ReadError> {
    let mut check = Check {
        engine,
        report: Report::default(),
        in_log: BTreeMap::new(),
        damaged: BTreeSet::new(),
        sound: BTreeSet::new(),
        erased: BTreeSet::new(),
        left: BTreeSet::new(),
        children: BTreeSet::new(),
        obligations: Vec::new(),
    };
    check.log(progress)?;
    check.check_bodies()?;
    check.sessions(progress)?;
    check.rows()?;
    Ok(check.report)
}

impl Check<'_> {
    fn report(&mut self, session: Option<SessionId>, lsn: Option<Lsn>, what: String) {
        self.report.problems.push(Problem { session, lsn, seq: None, what });
    }

    /// Reports damage to one row as a problem. A failure of the engine ends the verification.
    fn row<T>(&mut self, session: SessionId, row: Result<Option<T>, EngineError>) -> Result<Option<T>, ReadError> {
        match row {
            Ok(row) => Ok(row),
            Err(error @ EngineError::Corrupt { .. }) => {
                self.report(Some(session), None, error.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Checks the log: every frame's bytes, and the order.
    fn log(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ReadError> {
        let end = self.engine.last_lsn()?;
        let engine = self.engine;
        let mut last = Lsn(0);
        engine.frames(Lsn(0), &mut |lsn, kept| {
            self.report.frames = self.report.frames.saturating_add(1);
            let size = if let StoredFrame::Bytes(bytes) = &kept { bytes.len() as u64 } else { 0 };
            self.report.bytes = self.report.bytes.saturating_add(size);
            if lsn <= last || lsn > end {
                self.report(None, Some(lsn), format!("the frame follows {last}, in a log that ends at {end}"));
            }
            last = lsn;
            match read::open_frame(kept) {
                Ok(frame) => {
                    *self.in_log.entry(frame.session).or_default() += 1;
                    let of = self.report.sizes.entry(frame.session).or_default();
                    *of = of.saturating_add(size);
                }
                Err(error) => self.report(None, Some(lsn), error.to_string()),
            }
            if self.report.frames.is_multiple_of(1024) {
                progress(Progress { frames: self.report.frames, sessions: 0 });
            }
            CONTINUE
        })?;
        Ok(())
    }

    fn check_bodies(&mut self) -> Result<(), ReadError> {
        let engine = self.engine;
        engine.defs(&mut |hash, text| {
            match text {
                Ok(text) if Hash::of(text.as_bytes()) == hash => {}
                Ok(_) => self.report(None, None, format!("table `def`: the body {hash} does not match its hash")),
                Err(error) => self.report(None, None, error.to_string()),
            }
            CONTINUE
        })?;
        Ok(())
    }

    /// Checks each session: gaps, order, fold; then its rows.
    fn sessions(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ReadError> {
        let mut positions: BTreeMap<SessionId, u64> = BTreeMap::new();
        self.engine.all_positions(&mut |session, _, _| {
            *positions.entry(session).or_default() += 1;
            CONTINUE
        })?;
        for session in self.in_log.keys() {
            positions.entry(*session).or_default();
        }
        for (session, found) in positions {
            let expected = self.in_log.get(&session).copied().unwrap_or(0);
            if found != expected {
                self.report(Some(session), None, format!("`ev` names {found} frames, the log holds {expected}"));
            }
            self.session(session)?;
            self.report.sessions = self.report.sessions.saturating_add(1);
            progress(Progress { frames: self.report.frames, sessions: self.report.sessions });
        }
        Ok(())
    }

    fn session(&mut self, session: SessionId) -> Result<(), ReadError> {
        // Without a cache, so that each session's own bodies are read.
        let records = match read::records(self.engine, &Bodies::default(), session) {
            Ok(records) => records,
            Err(error) => {
                let (lsn, seq) = match &error {
                    ReadError::Damaged { lsn, seq, .. } => (Some(*lsn), Some(*seq)),
                    ReadError::Newer { seq, .. } => (None, Some(*seq)),
                    ReadError::NoSuchSession(_) | ReadError::Engine(EngineError::Corrupt { .. }) => (None, None),
                    ReadError::Engine(_) | ReadError::Closed => return Err(error),
                };
                self.damaged.insert(session);
                self.report.problems.push(Problem { session: Some(session), lsn, seq, what: error.to_string() });
                return Ok(());
            }
        };
        self.report.records = self.report.records.saturating_add(records.len() as u64);
        let state = match State::fold(session, records.iter().map(|stored| &stored.record)) {
            Ok(state) => state,
            Err(error) => {
                self.damaged.insert(session);
                self.report(Some(session), None, error.to_string());
                return Ok(());
            }
        };
        self.sound.insert(session);
        self.rows_of(session, &records, &state)
    }
}

fn frames(positions: &[(Seq, Lsn)], records: &[Stored]) -> Vec<(Lsn, Vec<Stored>)> {
    let mut frames = Vec::with_capacity(positions.len());
    let mut rest = records;
    for (ix, (_, lsn)) in positions.iter().enumerate() {
        let end = positions.get(ix.saturating_add(1)).map(|(seq, _)| *seq);
        let count = rest.iter().take_while(|stored| end.is_none_or(|end| stored.seq < end)).count();
        let (frame, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        frames.push((*lsn, frame.to_vec()));
        rest = later;
    }
    frames
}
