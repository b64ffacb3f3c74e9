//! Reading a store through the process that has it.
//!
//! A store has one process. What that process reads of its engine it can read for others: [`Journal::read`] answers a [`Read`], and
//! [`Remote`] is the engine of a journal whose reads are answered so. Every view works on such a journal as on the store itself.
//! Both ends are of one version: rows are in the on-disk format.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::codec;
use crate::engine::{Engine, Go, Group, Result, StoredFrame};
use crate::error::{EngineError, ReadError};
use crate::frame::Frame;
use crate::journal::Journal;

/// Frames of one answer at most.
const FRAMES: usize = 256;
/// Tables of a store.
const TABLES: [&str; 8] = ["log", "ev", "head", "inflight", "kid", "outbox", "def", "meta"];

/// One read of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "snake_case")]
pub enum Read {
    /// [`Engine::last_lsn`].
    LastLsn,
    /// [`Engine::frame`].
    Frame {
        /// Its place in the log.
        lsn: Lsn,
    },
    /// The first frames of [`Engine::frames`].
    Frames {
        /// The first one.
        from: Lsn,
    },
    /// [`Engine::places`].
    Places {
        /// The session.
        session: SessionId,
    },
    /// [`Engine::places_from`].
    PlacesFrom {
        /// The session.
        session: SessionId,
        /// The first record.
        from: Seq,
        /// Places at most.
        most: usize,
    },
    /// [`Engine::last_place`].
    LastPlace {
        /// The session.
        session: SessionId,
    },
    /// [`Engine::all_places`].
    AllPlaces,
    /// [`Engine::head`].
    Head {
        /// The session.
        session: SessionId,
    },
    /// [`Engine::heads`].
    Heads,
    /// [`Engine::inflight`].
    Inflight {
        /// The session.
        session: SessionId,
    },
    /// [`Engine::inflights`].
    Inflights,
    /// [`Engine::kids`].
    Kids {
        /// The parent.
        session: SessionId,
    },
    /// [`Engine::all_kids`].
    AllKids,
    /// [`Engine::outbox`].
    Outbox {
        /// Only rows to this session.
        to: Option<SessionId>,
    },
    /// [`Engine::def`].
    Def {
        /// The hash of its text.
        hash: Hash,
    },
    /// [`Engine::defs`].
    Defs,
}

/// A frame on its way.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sent {
    /// The encoded frame, two hexadecimal digits a byte.
    Bytes(String),
    Damaged(String),
}

/// A row that cannot be read.
#[derive(Serialize, Deserialize)]
struct Damage {
    table: Option<String>,
    at: String,
    why: String,
}

impl Journal {
    /// Answers `read` from the engine: durable rows alone, in the on-disk format.
    ///
    /// # Errors
    /// The engine's.
    pub fn read(&self, read: &Read) -> std::result::Result<Value, ReadError> {
        let engine = self.shared().engine()?;
        Ok(answered(&*engine, read)?)
    }
}

fn answered(engine: &dyn Engine, read: &Read) -> Result<Value> {
    match *read {
        Read::LastLsn => json(engine.last_lsn()?),
        Read::Frame { lsn } => json(engine.frame(lsn)?.map(sent).transpose()?),
        Read::Frames { from } => {
            let (mut frames, mut failed) = (Vec::new(), None);
            engine.frames(from, &mut |lsn, frame| match sent(frame) {
                Ok(frame) => {
                    frames.push((lsn, frame));
                    if frames.len() < FRAMES { Go::Continue(()) } else { Go::Break(()) }
                }
                Err(error) => {
                    failed = Some(error);
                    Go::Break(())
                }
            })?;
            failed.map_or_else(|| json(frames), Err)
        }
        Read::Places { session } => json(engine.places(session)?),
        Read::PlacesFrom { session, from, most } => json(engine.places_from(session, from, most)?),
        Read::LastPlace { session } => json(engine.last_place(session)?),
        Read::AllPlaces => {
            let mut all = Vec::new();
            engine.all_places(&mut |session, seq, lsn| {
                all.push((session, seq, lsn));
                Go::Continue(())
            })?;
            json(all)
        }
        Read::Head { session } => json(engine.head(session).map(Ok).or_else(damaged)?),
        Read::Heads => keyed(|visit| engine.heads(visit)),
        Read::Inflight { session } => json(engine.inflight(session).map(Ok).or_else(damaged)?),
        Read::Inflights => keyed(|visit| engine.inflights(visit)),
        Read::Kids { session } => json(engine.kids(session)?),
        Read::AllKids => {
            let mut all = Vec::new();
            engine.all_kids(&mut |parent, kid| {
                all.push((parent, kid));
                Go::Continue(())
            })?;
            json(all)
        }
        Read::Outbox { to } => {
            let mut rows = Vec::new();
            engine.outbox(to, &mut |found| {
                rows.push(found.map_err(damage));
                Go::Continue(())
            })?;
            json(rows)
        }
        Read::Def { hash } => json(engine.def(hash).map(Ok).or_else(damaged)?),
        Read::Defs => keyed(|visit| engine.defs(visit)),
    }
}

/// Rows with their keys.
fn keyed<K: Serialize, T: Serialize>(
    scan: impl FnOnce(&mut dyn FnMut(K, Result<T>) -> Go) -> Result<()>,
) -> Result<Value> {
    let mut rows = Vec::new();
    scan(&mut |key, found| {
        rows.push((key, found.map_err(damage)));
        Go::Continue(())
    })?;
    json(rows)
}

fn json(value: impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| failed(error.to_string()))
}

fn failed(why: String) -> EngineError {
    EngineError::Store { what: "read through the host", why }
}

/// Why one row cannot be read: it hides no other.
fn damage(error: EngineError) -> Damage {
    if let EngineError::Corrupt { table, at, why } = error {
        return Damage { table: Some(table.to_owned()), at, why };
    }
    Damage { table: None, at: String::new(), why: error.to_string() }
}

/// A damaged row is an answer; any other error fails the read.
fn damaged<T>(error: EngineError) -> Result<std::result::Result<T, Damage>> {
    if matches!(error, EngineError::Corrupt { .. }) { Ok(Err(damage(error))) } else { Err(error) }
}

impl From<Damage> for EngineError {
    fn from(of: Damage) -> Self {
        match of.table.and_then(|table| TABLES.into_iter().find(|known| *known == table)) {
            Some(table) => Self::Corrupt { table, at: of.at, why: of.why },
            None => failed(of.why),
        }
    }
}

fn sent(frame: StoredFrame) -> Result<Sent> {
    let bytes = match frame {
        StoredFrame::Bytes(bytes) => bytes,
        StoredFrame::Records(of) => {
            let (session, first_seq, epoch) = (of.session, of.first_seq, of.epoch);
            let frame =
                Frame { session, first_seq, epoch, at_ms: of.at_ms, records: of.records, changes: Default::default() };
            codec::encode(&frame).map_err(|error| failed(error.to_string()))?
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
                bytes.map_or_else(|| StoredFrame::Damaged("the host sent no bytes".to_owned()), StoredFrame::Bytes)
            }
        }
    }
}

/// The engine of a store that another process has: it reads through that process, and writes nothing.
pub struct Remote<A> {
    ask: A,
}

impl<A> Remote<A>
where
    A: Fn(&Read) -> std::result::Result<Value, String> + Send + Sync + 'static,
{
    /// An engine whose reads `ask` answers; its error says why it could not.
    pub fn new(ask: A) -> Self {
        Self { ask }
    }

    fn get<T: DeserializeOwned>(&self, read: Read) -> Result<T> {
        let value = (self.ask)(&read).map_err(failed)?;
        serde_json::from_value(value).map_err(|error| failed(format!("the host answers otherwise: {error}")))
    }

    fn row<T: DeserializeOwned>(&self, read: Read) -> Result<T> {
        Ok(self.get::<std::result::Result<T, Damage>>(read)??)
    }

    fn scan<K: DeserializeOwned, T: DeserializeOwned>(
        &self,
        read: Read,
        visit: &mut dyn FnMut(K, Result<T>) -> Go,
    ) -> Result<()> {
        for (key, found) in self.get::<Vec<(K, std::result::Result<T, Damage>)>>(read)? {
            if visit(key, found.map_err(EngineError::from)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl<A> Engine for Remote<A>
where
    A: Fn(&Read) -> std::result::Result<Value, String> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        "remote"
    }

    fn durability(&self) -> &'static str {
        "the host's: nothing is written here"
    }

    fn write(&self, _: Group) -> Result<()> {
        Err(EngineError::Store { what: "write", why: "the store is read through its host".to_owned() })
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

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> Go) -> Result<()> {
        let mut from = from;
        loop {
            let frames: Vec<(Lsn, Sent)> = self.get(Read::Frames { from })?;
            let Some((last, _)) = frames.last() else { return Ok(()) };
            let (more, next) = (frames.len() == FRAMES, Lsn(last.0.saturating_add(1)));
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

    fn places(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        self.get(Read::Places { session })
    }

    fn places_from(&self, session: SessionId, from: Seq, most: usize) -> Result<Vec<(Seq, Lsn)>> {
        self.get(Read::PlacesFrom { session, from, most })
    }

    fn last_place(&self, session: SessionId) -> Result<Option<(Seq, Lsn)>> {
        self.get(Read::LastPlace { session })
    }

    fn all_places(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> Go) -> Result<()> {
        for (session, seq, lsn) in self.get::<Vec<(SessionId, Seq, Lsn)>>(Read::AllPlaces)? {
            if visit(session, seq, lsn).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        self.row(Read::Head { session })
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> Go) -> Result<()> {
        self.scan(Read::Heads, visit)
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        self.row(Read::Inflight { session })
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> Go) -> Result<()> {
        self.scan(Read::Inflights, visit)
    }

    fn kids(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        self.get(Read::Kids { session: parent })
    }

    fn all_kids(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> Go) -> Result<()> {
        for (parent, kid) in self.get::<Vec<(SessionId, SessionId)>>(Read::AllKids)? {
            if visit(parent, kid).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> Go) -> Result<()> {
        for found in self.get::<Vec<std::result::Result<(Row, Lsn), Damage>>>(Read::Outbox { to })? {
            if visit(found.map_err(EngineError::from)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.row(Read::Def { hash })
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> Go) -> Result<()> {
        self.scan(Read::Defs, visit)
    }
}
