//! The first reading: checks every line and records its position.

use std::collections::BTreeMap;
use std::io::{BufRead, Seek};

use subtend_session::ids::{Epoch, Hash, Seq, SessionId, Text};
use subtend_session::index::Head;

use super::ImportError;
use super::budget::{self, Budget};
use super::fields;
use super::lines::Lines;
use crate::codec;
use crate::engine::MAX_FRAME;
use crate::export::line::{AnyHeader, Count, Def, Deleted, End, FrameLine, LINE_ROOM};
use crate::export::{FORMAT, Scope, Tally};

/// Maximum number of JSON values in the records of a frame. A value of three bytes can need fifty bytes of memory.
const MAX_VALUES: u64 = 2 << 20;
/// Maximum number of bodies before the frame that needs them and is written with them. Exports have at most three.
const MAX_BODIES_AHEAD: usize = 4_096;
/// Maximum bytes of these bodies.
const MAX_BYTES_AHEAD: usize = 32 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct LinePosition {
    pub(super) line: u64,
    pub(super) offset: u64,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) frames: Vec<usize>,
    next: Seq,
    epoch: Epoch,
}

#[derive(Debug)]
pub(super) struct Survey {
    pub(super) what: Scope,
    /// Sessions deleted before the export, as heads without text, with their lines.
    pub(super) deleted: BTreeMap<SessionId, (u64, Head)>,
    /// Bodies and their sizes.
    pub(super) defs: BTreeMap<Hash, (LinePosition, usize)>,
    /// Number and bytes of the bodies since the last frame.
    ahead: (usize, usize),
    pub(super) frames: Vec<LinePosition>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) tally: Tally,
    /// Hash of all bytes before the last line.
    pub(super) sum: Text,
    pub(super) most: u64,
    pub(super) budget: Budget,
}

/// Reads all lines, and checks their order and the counts of the last line.
pub(super) fn survey<R: BufRead + Seek>(file: &mut R, max_body: u64, budget: Budget) -> Result<Survey, ImportError> {
    let most = max_body.min(MAX_FRAME).saturating_add(LINE_ROOM);
    let mut lines = Lines::new(file, most)?;
    let mut sum = blake3::Hasher::new();
    sum.update(lines.read().map_err(no_export)?);
    let mut found = Survey {
        what: header(&lines)?,
        deleted: BTreeMap::new(),
        defs: BTreeMap::new(),
        ahead: (0, 0),
        frames: Vec::new(),
        sessions: BTreeMap::new(),
        tally: Tally::default(),
        sum: Text::default(),
        most,
        budget,
    };
    loop {
        lines.read()?;
        let line = lines.parse::<Count>()?;
        match (line.export, line.deleted, line.def, line.frame, line.end) {
            (None, Some(deleted), None, None, None) => found.read_deleted(&lines, deleted)?,
            (None, None, Some(def), None, None) => found.read_body(&lines, &def)?,
            (None, None, None, Some(frame), None) => found.frame(&lines, &frame)?,
            (None, None, None, None, Some(end)) => {
                found.sum = sum.finalize().to_hex().as_str().into();
                found.end(&mut lines, &end)?;
                return Ok(found);
            }
            _ => {
                return Err(
                    lines.damage_error("it is neither a deleted session, nor a definition, nor a frame, nor the end")
                );
            }
        }
        sum.update(lines.bytes());
    }
}

/// Returns the error for a first line without a checksum: the file is more likely of another kind than damaged.
fn no_export(error: ImportError) -> ImportError {
    if let ImportError::Damaged { line, why } = error {
        return ImportError::Damaged { line, why: format!("{why}: this may not be an export of subtend") };
    }
    error
}

fn header<R: BufRead + Seek>(lines: &Lines<'_, R>) -> Result<Scope, ImportError> {
    let AnyHeader { export } = lines.json().map_err(no_export)?;
    if export.format > FORMAT || export.frames > codec::VERSION {
        let why = format!(
            "export {}, frames {}; known are export {FORMAT} and frames {}",
            export.format,
            export.frames,
            codec::VERSION
        );
        return Err(ImportError::Newer { line: lines.n, why });
    }
    let line = lines.parse::<Count>()?;
    match (line.export, line.deleted, line.def, line.frame, line.end) {
        (Some(header), None, None, None, None) if header.format == FORMAT && header.frames == codec::VERSION => {
            Ok(header.what)
        }
        (Some(header), None, None, None, None) => {
            let (format, frames) = (header.format, header.frames);
            Err(lines.damage_error(format!("export {format} with frames {frames} was never a format")))
        }
        _ => Err(lines.damage_error("it is more than the header of an export")),
    }
}

impl Survey {
    /// Returns the number of the last frame's line.
    pub(super) fn last_line(&self) -> u64 {
        self.frames.last().map_or(0, |at| at.line)
    }

    /// Returns whether the export contains the session, also as a deleted one.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session) || self.deleted.contains_key(&session)
    }

    fn read_deleted<R: BufRead + Seek>(&mut self, lines: &Lines<'_, R>, deleted: Deleted) -> Result<(), ImportError> {
        let Deleted { session, head } = deleted;
        self.budget.take(lines.n, budget::DELETED)?;
        // Other text would appear in listings.
        if !head.is_erased() || head != head.erased() {
            return Err(
                lines.damage_error(format!("session {session} is deleted, but the line has more than its position"))
            );
        }
        fields::check_short(&head.short, session).map_err(|why| lines.damage_error(why))?;
        let tree = if let Scope::Tree(root) = self.what { root } else { head.root };
        if head.root != tree
            || self.deleted.insert(session, (lines.n, head)).is_some()
            || self.sessions.contains_key(&session)
        {
            return Err(lines.damage_error(format!(
                "session {session} is deleted, but it belongs to another tree or appeared before"
            )));
        }
        Ok(())
    }

    fn read_body<R: BufRead + Seek>(&mut self, lines: &Lines<'_, R>, def: &Def) -> Result<(), ImportError> {
        if Hash::of(def.body.as_bytes()) != def.hash {
            return Err(lines.damage_error(format!("the body does not match the hash {}", def.hash)));
        }
        if self.defs.insert(def.hash, (LinePosition { line: lines.n, offset: lines.offset }, def.body.len())).is_some()
        {
            return Err(lines.damage_error(format!("the body {} was defined before", def.hash)));
        }
        self.budget.take(lines.n, budget::BODY)?;
        let (bodies, bytes) = self.ahead;
        self.ahead = (bodies.saturating_add(1), bytes.saturating_add(def.body.len()));
        if self.ahead.0 > MAX_BODIES_AHEAD || self.ahead.1 > MAX_BYTES_AHEAD {
            let most = MAX_BYTES_AHEAD >> 20;
            let why = format!("more than {MAX_BODIES_AHEAD} bodies, or {most} MiB of them, are before one frame");
            return Err(lines.damage_error(why));
        }
        self.tally.defs = self.tally.defs.saturating_add(1);
        Ok(())
    }

    fn frame<R: BufRead + Seek>(&mut self, lines: &Lines<'_, R>, frame: &FrameLine<Count>) -> Result<(), ImportError> {
        let FrameLine { session: id, first_seq, epoch, at_ms, records: Count { records: count, values } } = *frame;
        let session = self.sessions.entry(id).or_insert_with(|| Session { next: Seq(1), ..Session::default() });
        if count == 0 {
            return Err(lines.damage_error(format!("a frame of session {id} without records")));
        }
        if values > MAX_VALUES {
            return Err(
                lines.damage_error(format!("a frame of session {id} has {values} values, the limit is {MAX_VALUES}"))
            );
        }
        if !(0..=fields::LATEST).contains(&at_ms) {
            return Err(lines.damage_error(format!(
                "a frame of session {id} is of {at_ms} ms, which is before 1970 or after the year 9999"
            )));
        }
        if self.deleted.contains_key(&id) {
            return Err(lines.damage_error(format!("a frame of session {id}, which is deleted")));
        }
        if first_seq != session.next {
            let next = session.next;
            return Err(lines.damage_error(format!(
                "a frame of session {id} starts at record {first_seq}, but record {next} comes next"
            )));
        }
        if epoch < session.epoch {
            let earlier = session.epoch;
            return Err(
                lines.damage_error(format!("session {id}: activation {epoch} wrote it after activation {earlier}"))
            );
        }
        let is_new = first_seq == Seq(1);
        self.budget.take(lines.n, if is_new { budget::SESSION } else { budget::FRAME })?;
        self.ahead = (0, 0);
        session.next = Seq(first_seq.0.saturating_add(count));
        session.epoch = epoch;
        session.frames.push(self.frames.len());
        self.frames.push(LinePosition { line: lines.n, offset: lines.offset });
        self.tally.frames = self.tally.frames.saturating_add(1);
        self.tally.records = self.tally.records.saturating_add(count);
        self.tally.sessions = self.sessions.len() as u64;
        Ok(())
    }

    fn end<R: BufRead + Seek>(&self, lines: &mut Lines<'_, R>, end: &End) -> Result<(), ImportError> {
        if end.tally != self.tally {
            return Err(
                lines.damage_error(format!("it counts {:?}, but the lines before it have {:?}", end.tally, self.tally))
            );
        }
        if end.sum != self.sum {
            return Err(lines
                .damage_error(format!("the checksum of the lines before it is {}, but it has {}", self.sum, end.sum)));
        }
        if !lines.is_at_end()? {
            return Err(lines.damage_error("it is the last line of an export, but more lines follow"));
        }
        Ok(())
    }
}
