//! Reads a store through the process that owns it.
//!
//! Only one process can open a store, but it can read for others: [`Journal::read`] answers a [`Read`], and [`Remote`] is an engine that
//! sends its reads to that process. All views work on such a journal. Both processes must have the same version, because rows are sent in
//! the on-disk format.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::codec::{self, Decoded};
use crate::engine::{Engine, Group, Range, Result, ScanFlow, StoredFrame, bytes_of};
use crate::error::{EngineError, ReadError};
use crate::frame::Frame;
use crate::journal::Journal;

/// Maximum number of frames in one answer.
const MAX_FRAMES: usize = 256;
const TABLES: [&str; 8] = ["log", "ev", "head", "inflight", "kid", "outbox", "def", "meta"];

/// One read of an engine, named like its method. Frames are returned in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "snake_case")]
pub enum Read {
    LastLsn,
    Frame {
        lsn: Lsn,
    },
    Frames {
        from: Lsn,
    },
    #[serde(rename = "places")]
    Positions {
        session: SessionId,
    },
    Range {
        session: SessionId,
        from: Seq,
        until: Seq,
        /// The part ends with the first frame with which it has so many bytes.
        #[serde(default = "no_limit")]
        max_bytes: u64,
    },
    #[serde(rename = "all_places")]
    AllPositions,
    Head {
        session: SessionId,
    },
    Heads,
    Inflight {
        session: SessionId,
    },
    Inflights,
    #[serde(rename = "kids")]
    Children {
        session: SessionId,
    },
    #[serde(rename = "all_kids")]
    AllChildren,
    Outbox {
        to: Option<SessionId>,
    },
    Def {
        hash: Hash,
    },
    Defs,
}

fn no_limit() -> u64 {
    u64::MAX
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sent {
    /// The encoded frame in hexadecimal.
    Bytes(String),
    Damaged(String),
}

/// The first [`MAX_FRAMES`] frames of a range, and whether there are more.
#[derive(Serialize, Deserialize)]
struct Ranged {
    head: std::result::Result<Option<Head>, Damage>,
    inflight: std::result::Result<Option<Inflight>, Damage>,
    frames: Vec<(Seq, Lsn, Option<Sent>)>,
    more: bool,
}

#[derive(Serialize, Deserialize)]
struct Damage {
    table: Option<String>,
    at: String,
    why: String,
}

impl Journal {
    /// Answers `read` from the engine, with durable rows in the on-disk format.
    /// # Errors
    /// If the engine cannot read.
    pub fn read(&self, read: &Read) -> std::result::Result<Value, ReadError> {
        let engine = self.shared().engine()?;
        Ok(answer_read(&*engine, read)?)
    }
}

fn answer_read(engine: &dyn Engine, read: &Read) -> Result<Value> {
    match *read {
        Read::LastLsn => json(engine.last_lsn()?),
        Read::Frame { lsn } => json(engine.frame(lsn)?.map(to_sent).transpose()?),
        Read::Frames { from } => {
            let (mut frames, mut failed) = (Vec::new(), None);
            engine.frames(from, &mut |lsn, frame| match to_sent(frame) {
                Ok(frame) => {
                    frames.push((lsn, frame));
                    if frames.len() < MAX_FRAMES { ScanFlow::Continue(()) } else { ScanFlow::Break(()) }
                }
                Err(error) => {
                    failed = Some(error);
                    ScanFlow::Break(())
                }
            })?;
            failed.map_or_else(|| json(frames), Err)
        }
        Read::Positions { session } => json(engine.positions(session)?),
        Read::Range { session, from, until, max_bytes } => {
            // An engine of records counts other bytes than those that are sent, so its reader limits the parts.
            let max_bytes = if engine.wants_bytes() { max_bytes } else { u64::MAX };
            json(to_ranged(engine.range(session, from, until, max_bytes)?)?)
        }
        Read::AllPositions => list(|push| engine.all_positions(&mut |session, seq, lsn| push((session, seq, lsn)))),
        Read::Head { session } => json(engine.head(session).map(Ok).or_else(as_damage)?),
        Read::Heads => list(|push| engine.heads(&mut |key, found| push((key, found.map_err(damage))))),
        Read::Inflight { session } => json(engine.inflight(session).map(Ok).or_else(as_damage)?),
        Read::Inflights => list(|push| engine.inflights(&mut |key, found| push((key, found.map_err(damage))))),
        Read::Children { session } => json(engine.children(session)?),
        Read::AllChildren => list(|push| engine.all_children(&mut |parent, child| push((parent, child)))),
        Read::Outbox { to } => list(|push| engine.outbox(to, &mut |found| push(found.map_err(damage)))),
        Read::Def { hash } => json(engine.def(hash).map(Ok).or_else(as_damage)?),
        Read::Defs => list(|push| engine.defs(&mut |key, found| push((key, found.map_err(damage))))),
    }
}

fn list<T: Serialize>(scan: impl FnOnce(&mut dyn FnMut(T) -> ScanFlow) -> Result<()>) -> Result<Value> {
    let mut rows = Vec::new();
    scan(&mut |row| {
        rows.push(row);
        ScanFlow::Continue(())
    })?;
    json(rows)
}

fn json(value: impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| read_failure(error.to_string()))
}

fn read_failure(why: String) -> EngineError {
    EngineError::Store { what: "read through the host", why }
}

/// Converts the error of one row, so that other rows can still be read.
fn damage(error: EngineError) -> Damage {
    if let EngineError::Corrupt { table, at, why } = error {
        return Damage { table: Some(table.to_owned()), at, why };
    }
    Damage { table: None, at: String::new(), why: error.to_string() }
}

/// Returns a damaged row as an answer; any other error fails the read.
fn as_damage<T>(error: EngineError) -> Result<std::result::Result<T, Damage>> {
    if matches!(error, EngineError::Corrupt { .. }) { Ok(Err(damage(error))) } else { Err(error) }
}

impl From<Damage> for EngineError {
    fn from(of: Damage) -> Self {
        match of.table.and_then(|table| TABLES.into_iter().find(|known| *known == table)) {
            Some(table) => Self::Corrupt { table, at: of.at, why: of.why },
            None => read_failure(of.why),
        }
    }
}

fn to_ranged(range: Range) -> Result<Ranged> {
    let Range { head, inflight, mut frames } = range;
    let more = frames.len() > MAX_FRAMES;
    frames.truncate(MAX_FRAMES);
    let frames = frames.into_iter().map(|(seq, lsn, frame)| Ok((seq, lsn, frame.map(to_sent).transpose()?)));
    Ok(Ranged {
        head: head.map(Ok).or_else(as_damage)?,
        inflight: inflight.map(Ok).or_else(as_damage)?,
        frames: frames.collect::<Result<_>>()?,
        more,
    })
}

fn to_sent(frame: StoredFrame) -> Result<Sent> {
    let bytes = match frame {
        StoredFrame::Bytes(bytes) => bytes,
        StoredFrame::Records(of) => {
            let Decoded { session, first_seq, epoch, at_ms, records } = *of;
            let frame = Frame { session, first_seq, epoch, at_ms, records, changes: Default::default() };
            codec::encode(&frame).map_err(|error| read_failure(error.to_string()))?
        }
        StoredFrame::Damaged(why) => return Ok(Sent::Damaged(why)),
    };
    let mut hex = String::with_capacity(bytes.len().saturating_mul(2));
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    for byte in bytes {
        hex.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    Ok(Sent::Bytes(hex))
}

impl Sent {
    fn frame(self) -> StoredFrame {
        match self {
            Self::Damaged(why) => StoredFrame::Damaged(why),
            Self::Bytes(hex) => {
                let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let pair = |pair: &[u8]| match pair {
                    [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                    _ => None,
                };
                let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(pair).collect();
                bytes.map_or_else(
                    || StoredFrame::Damaged("the host sent an invalid frame".to_owned()),
                    StoredFrame::Bytes,
                )
            }
        }
    }
}

/// Refuses keys that do not ascend from `from`, because a reader that continues after the last key would never end.
fn check_ascending<'a, K: Ord + Copy + 'a>(from: &K, keys: impl Iterator<Item = &'a K>) -> Result<()> {
    let mut last = None;
    for key in keys {
        if key < from || last.is_some_and(|last| key <= last) {
            return Err(read_failure("unexpected answer of the host: its rows are not in order".to_owned()));
        }
        last = Some(key);
    }
    Ok(())
}

/// The engine of a store that another process owns. It reads through that process, and refuses writes.
pub struct Remote<A> {
    ask: A,
}

impl<A> Remote<A>
where
    A: Fn(&Read) -> std::result::Result<Value, String> + Send + Sync + 'static,
{
    /// Returns an engine whose reads are answered by `ask`.
    pub fn new(ask: A) -> Self {
        Self { ask }
    }

    fn get<T: DeserializeOwned>(&self, read: Read) -> Result<T> {
        let value = (self.ask)(&read).map_err(EngineError::Unreachable)?;
        serde_json::from_value(value).map_err(|error| read_failure(format!("unexpected answer of the host: {error}")))
    }

    fn row<T: DeserializeOwned>(&self, read: Read) -> Result<T> {
        Ok(self.get::<std::result::Result<T, Damage>>(read)??)
    }

    fn visit_parts<T: DeserializeOwned>(&self, read: Read, visit: impl FnMut(T) -> ScanFlow) -> Result<()> {
        let _ = self.get::<Vec<T>>(read)?.into_iter().try_for_each(visit);
        Ok(())
    }

    fn scan<K: DeserializeOwned, T: DeserializeOwned>(
        &self,
        read: Read,
        visit: &mut dyn FnMut(K, Result<T>) -> ScanFlow,
    ) -> Result<()> {
        self.visit_parts(read, |(key, found): (K, std::result::Result<T, Damage>)| {
            visit(key, found.map_err(EngineError::from))
        })
    }
}

impl<A> Engine for Remote<A>
where
    A: Fn(&Read) -> std::result::Result<Value, String> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        "remote"
    }

    fn durability(&self) -> Cow<'static, str> {
        "decided by the host, because this process does not write".into()
    }

    fn write(&self, _: Group) -> Result<()> {
        Err(EngineError::Store {
            what: "write",
            why: "another process owns the store, and this one only reads".to_owned(),
        })
    }

    fn wants_bytes(&self) -> bool {
        false
    }

    fn max_body(&self) -> u64 {
        u64::MAX
    }

    fn syncs(&self) -> u64 {
        0
    }

    fn last_lsn(&self) -> Result<Lsn> {
        self.get(Read::LastLsn)
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        Ok(self.get::<Option<Sent>>(Read::Frame { lsn })?.map(Sent::frame))
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()> {
        let mut from = from;
        loop {
            let frames: Vec<(Lsn, Sent)> = self.get(Read::Frames { from })?;
            check_ascending(&from, frames.iter().map(|(lsn, _)| lsn))?;
            let Some((last, _)) = frames.last() else { return Ok(()) };
            let (more, next) = (frames.len() == MAX_FRAMES, Lsn(last.0.saturating_add(1)));
            for (lsn, frame) in frames {
                if visit(lsn, frame.frame()).is_break() {
                    return Ok(());
                }
            }
            if !more {
                return Ok(());
            }
            from = next;
        }
    }

    fn positions(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        self.get(Read::Positions { session })
    }

    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<Range> {
        let part = |from, max_bytes| self.get::<Ranged>(Read::Range { session, from, until, max_bytes });
        let mut last = part(from, max_bytes)?;
        let mut range = Range {
            head: last.head.map_err(EngineError::from),
            inflight: last.inflight.map_err(EngineError::from),
            frames: Vec::new(),
        };
        loop {
            let frames = std::mem::take(&mut last.frames);
            // A later part repeats the last known frame. The first frame of the first part may start before `from`.
            let last_seq = range.frames.last().map_or(Seq(0), |(seq, ..)| *seq);
            let repeated = frames.first().is_some_and(|(seq, ..)| *seq == last_seq);
            let new = frames.into_iter().skip(usize::from(repeated && !range.frames.is_empty())).collect::<Vec<_>>();
            check_ascending(&last_seq, new.iter().map(|(seq, ..)| seq))?;
            if last.more && new.is_empty() {
                return Err(read_failure(
                    "unexpected answer of the host: it announced more frames, but sent none".to_owned(),
                ));
            }
            range.frames.extend(new.into_iter().map(|(seq, lsn, frame)| (seq, lsn, frame.map(Sent::frame))));
            let left = max_bytes.saturating_sub(bytes_of(&range.frames));
            let is_complete = !last.more || left == 0;
            let Some(repeated) = range.frames.last().filter(|_| !is_complete) else { return Ok(range) };
            last = part(repeated.0, left.saturating_add(bytes_of(std::slice::from_ref(repeated))))?;
        }
    }

    fn all_positions(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> ScanFlow) -> Result<()> {
        self.visit_parts(Read::AllPositions, |(session, seq, lsn)| visit(session, seq, lsn))
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        self.row(Read::Head { session })
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> ScanFlow) -> Result<()> {
        self.scan(Read::Heads, visit)
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        self.row(Read::Inflight { session })
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> ScanFlow) -> Result<()> {
        self.scan(Read::Inflights, visit)
    }

    fn children(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        self.get(Read::Children { session: parent })
    }

    fn all_children(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> ScanFlow) -> Result<()> {
        self.visit_parts(Read::AllChildren, |(parent, child)| visit(parent, child))
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> ScanFlow) -> Result<()> {
        self.visit_parts(Read::Outbox { to }, |found: std::result::Result<(Row, Lsn), Damage>| {
            visit(found.map_err(EngineError::from))
        })
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.row(Read::Def { hash })
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()> {
        self.scan(Read::Defs, visit)
    }
}
