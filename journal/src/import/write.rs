//! Third reading: writes frames without rows, then all rows in one batch.

use std::collections::BTreeSet;
use std::io::{BufRead, Seek};

use subtend_session::ids::{Epoch, Hash, Interned, Lsn, Seq, Text};
use subtend_session::index::{Changes, InflightChange};
use subtend_session::record::Record;

use super::fields;
use super::fold::Rows;
use super::lines::Lines;
use super::plan::{Planned, to_frame};
use super::survey::Survey;
use super::{ImportBounds, ImportError, Positions};
use crate::frame::Frame;
use crate::journal::Journal;
use crate::queue::GROUP_BYTES;
use crate::verify::Progress;

/// Maximum number of frames in one write, which is the work that a crash repeats.
const PENDING_FRAMES: usize = 256;

#[derive(Default)]
struct PendingFrames {
    frames: Vec<(Option<Lsn>, Frame)>,
    at: Vec<usize>,
    bytes: u64,
    /// Bodies for the next frame.
    defs: Vec<(Hash, Text)>,
    /// Bodies that this frame or an earlier one has.
    defined: BTreeSet<Hash>,
}

pub(super) async fn write<R: BufRead + Seek>(
    journal: &Journal,
    file: &mut R,
    (survey, within): (&Survey, &ImportBounds),
    planned: &mut Planned,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), ImportError> {
    let mut lines = Lines::new(file, survey.most)?;
    let mut sum = blake3::Hasher::new();
    let mut pending = PendingFrames::default();
    let Planned { positions, limits, .. } = planned;
    let (mut ix, mut done) = (0_usize, Progress { sessions: survey.tally.sessions, frames: 0 });
    loop {
        let n = lines.n.saturating_add(1);
        lines.read().map_err(|_| ImportError::Changed { line: n })?;
        let line = lines.parse::<Vec<Record>>().map_err(|_| ImportError::Changed { line: n })?;
        if line.end.is_some() {
            break;
        }
        sum.update(lines.bytes());
        // Lowered limits replace those of the export.
        let is_used = |hash: &Hash| limits.get(hash).is_none_or(|here| here.hash == *hash);
        if let Some(def) = line.def.filter(|def| is_used(&def.hash)) {
            pending.define(def.hash, || Ok(def.body))?;
        }
        let Some(mut frame) = line.frame else { continue };
        fields::admit(&mut frame.records, frame.session, within).map_err(|_| ImportError::Changed { line: n })?;
        for record in &mut frame.records {
            let Record::SessionCreated(created) = record else { continue };
            let Some(here) = limits.get(&created.limits.hash) else { continue };
            pending
                .define(here.hash, || Ok(serde_json::to_string(&here.body).map_err(std::io::Error::from)?.into()))?;
            created.limits = Interned { hash: here.hash, body: None };
        }
        if positions.get(ix).is_some_and(|lsn| *lsn == Lsn(0)) {
            pending.take(ix, to_frame(frame), lines.bytes().len() as u64);
        } else {
            // The frame is stored, with the bodies of its creation records.
            pending.defs.clear();
        }
        ix = ix.saturating_add(1);
        done.frames = done.frames.saturating_add(1);
        progress(done);
        if pending.bytes >= GROUP_BYTES || pending.frames.len() >= PENDING_FRAMES {
            pending.write(journal, positions).await?;
        }
    }
    // Nothing is visible yet, so a changed file has no effect.
    if *sum.finalize().to_hex().as_str() != *survey.sum {
        return Err(ImportError::Changed { line: lines.n });
    }
    pending.write(journal, positions).await
}

impl PendingFrames {
    fn define(&mut self, hash: Hash, body: impl FnOnce() -> Result<Text, ImportError>) -> Result<(), ImportError> {
        if self.defined.insert(hash) {
            let body = body()?;
            self.bytes = self.bytes.saturating_add(body.len() as u64);
            self.defs.push((hash, body));
        }
        Ok(())
    }

    fn take(&mut self, ix: usize, mut frame: Frame, bytes: u64) {
        frame.changes.defs = std::mem::take(&mut self.defs);
        self.frames.push((None, frame));
        self.at.push(ix);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    async fn write(&mut self, journal: &Journal, positions: &mut Positions) -> Result<(), ImportError> {
        self.bytes = 0;
        if self.frames.is_empty() {
            return Ok(());
        }
        let appended = journal.shared().append_imported(std::mem::take(&mut self.frames).into_iter())?;
        for (ix, lsn) in self.at.drain(..).zip(appended.first.0..) {
            if let Some(place) = positions.get_mut(ix) {
                *place = Lsn(lsn);
            }
        }
        Ok(journal.wait(appended.last).await?)
    }
}

/// Writes all rows in one batch: the sessions become visible.
pub(super) async fn finish(journal: &Journal, planned: Planned) -> Result<(), ImportError> {
    let Planned { positions, sessions, owed, .. } = planned;
    let place = |ix: usize| positions.get(ix).copied().unwrap_or_default();
    let owed = owed.into_iter().map(|(ix, row)| {
        let changes = Changes { put: vec![row], ..Changes::default() };
        // An obligation gets the LSN of the frame with its record, because delivery reads that frame.
        let at = Some(place(ix));
        (at, Frame { session: row.from, first_seq: Seq(0), epoch: Epoch(0), at_ms: 0, records: Vec::new(), changes })
    });
    let sessions = sessions.into_iter().map(|Rows { session, head, mut inflight, opened }| {
        if let (Some(row), Some(ix)) = (&mut inflight, opened) {
            row.opened_lsn = place(ix);
        }
        let (first_seq, epoch, at_ms) = (head.last_seq.next(), head.epoch, head.updated_ms);
        let changes = Changes {
            child_of: head.parent.filter(|_| !head.is_erased()),
            inflight: inflight.map_or(InflightChange::Keep, InflightChange::Put),
            head: Some(head),
            ..Changes::default()
        };
        (None, Frame { session, first_seq, epoch, at_ms, records: Vec::new(), changes })
    });
    let appended = journal.shared().append_imported(owed.chain(sessions))?;
    Ok(journal.wait(appended.last).await?)
}
