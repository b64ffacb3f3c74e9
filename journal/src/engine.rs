//! The engine trait: what a store must do, and no more.

use std::ops::ControlFlow;

use subtend_session::ids::{Epoch, Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Changes, Head, Inflight, Row};
use subtend_session::record::Record;

use crate::error::EngineError;

/// What an engine returns.
pub type Result<T> = std::result::Result<T, EngineError>;

/// The order to go on with a scan, or to stop it.
pub type Go = ControlFlow<()>;

/// Frames that become durable together, in LSN order.
///
/// LSNs within a group have no holes; a frame without records is not kept in the log, so the log has. Before the last frame of a
/// group there may also be frames without records that stand at an earlier LSN: an import makes good the rows of frames that it
/// wrote before.
#[derive(Debug)]
pub struct Group {
    /// The frames.
    pub frames: Vec<Placed>,
}

impl Group {
    /// LSN of the last frame.
    pub fn last(&self) -> Option<Lsn> {
        self.frames.last().map(|frame| frame.lsn)
    }
}

/// A frame with its place in the log.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its place.
    pub lsn: Lsn,
    /// The session.
    pub session: SessionId,
    /// The sequence number of the first record.
    pub first_seq: Seq,
    /// How many records it holds.
    pub count: u32,
    /// The activation that writes it.
    pub epoch: Epoch,
    /// Wall clock; informative.
    pub at_ms: i64,
    /// The records.
    pub payload: Payload,
    /// What they change in the index; `Inflight::opened_lsn` is filled in.
    pub changes: Changes,
}

/// The records of a frame, in the form that the engine asked for.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Only rows change: nothing is written to `log` and `ev`.
    Nothing,
    /// An encoded frame, header included (see `codec`).
    Bytes(Vec<u8>),
    /// Records as they are.
    Records(Vec<Record>),
}

/// A frame as the engine kept it.
#[derive(Clone, Debug)]
pub enum Kept {
    /// An encoded frame, to be checked by the reader.
    Bytes(Vec<u8>),
    /// Records as they were given.
    Records(Box<KeptRecords>),
    /// The frame is there, but not all of it can be had; why, in words.
    Damaged(String),
}

/// A frame that was never encoded.
#[derive(Clone, Debug)]
pub struct KeptRecords {
    /// The session.
    pub session: SessionId,
    /// The sequence number of the first record.
    pub first_seq: Seq,
    /// The activation that wrote it.
    pub epoch: Epoch,
    /// Wall clock; informative.
    pub at_ms: i64,
    /// The records.
    pub records: Vec<Record>,
}

/// A store: tables `log`, `ev`, `head`, `inflight`, `kid`, `outbox`, `def` and `meta`, written by one thread, read by any.
///
/// An engine never orders, fences, encodes or checks frames; the journal does. It keeps what it is given, whole groups only.
///
/// # Durability
/// Reads see every group whose [`Engine::write`] has returned, and no part of any other.
pub trait Engine: Send + Sync + 'static {
    /// The engine's name, as a store specification spells it.
    fn name(&self) -> &'static str;

    /// What a returned [`Engine::write`] has survived, in words for an operator.
    fn durability(&self) -> &'static str;

    /// Writes a group: all of it or nothing.
    ///
    /// Puts and takes of one outbox row within the group happen in frame order. A take of a row that is not there does nothing.
    ///
    /// # Errors
    /// Whatever the store reports, and [`EngineError::Overwrite`] where a frame would replace another one. The caller must not
    /// write again: whether the group is in the store is not known (J-9).
    ///
    /// # Durability
    /// The group is on stable media when this returns.
    fn write(&self, group: Group) -> Result<()>;

    /// Whether frames are to be given as bytes. If not, they are given as records, and `write` is so fast that the caller of
    /// `append` performs it: no thread is started.
    fn wants_bytes(&self) -> bool;

    /// The largest encoded frame that it takes, in bytes.
    fn max_body(&self) -> u64;

    /// How many groups it has committed to stable media, however many syncs it makes of one.
    fn syncs(&self) -> u64;

    /// LSN of the last frame of the last group; 0 for an empty store.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// What it names is durable.
    fn last_lsn(&self) -> Result<Lsn>;

    /// The frame at `lsn`.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable frames are seen.
    fn frame(&self, lsn: Lsn) -> Result<Option<Kept>>;

    /// All frames from `from` on, in LSN order.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable frames are seen.
    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, Kept) -> Go) -> Result<()>;

    /// Where the session's frames are, in order of their first record.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable frames are seen.
    fn places(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>>;

    /// Where the session's frames are from the one that holds record `from` on, `most` of them at most.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable frames are seen.
    fn places_from(&self, session: SessionId, from: Seq, most: usize) -> Result<Vec<(Seq, Lsn)>> {
        let mut places = self.places(session)?;
        let at = places.partition_point(|(seq, _)| *seq <= from).saturating_sub(1);
        let mut places = places.split_off(at);
        places.truncate(most);
        Ok(places)
    }

    /// Where the session's last frame is.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable frames are seen.
    fn last_place(&self, session: SessionId) -> Result<Option<(Seq, Lsn)>>;

    /// All of `ev`: session, first record, frame.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn all_places(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> Go) -> Result<()>;

    /// The session's head.
    ///
    /// # Errors
    /// Whatever the store reports, and [`EngineError::Corrupt`] where the row is not what was written.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn head(&self, session: SessionId) -> Result<Option<Head>>;

    /// All heads, by session. A row that is not what was written is given as an error and does not end the scan.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> Go) -> Result<()>;

    /// The session's row of the boot scan.
    ///
    /// # Errors
    /// Whatever the store reports, and [`EngineError::Corrupt`] where the row is not what was written.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>>;

    /// The boot scan, by session. A row that is not what was written is given as an error and does not end the scan.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> Go) -> Result<()>;

    /// The children of a session, in the order of their ids.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn kids(&self, parent: SessionId) -> Result<Vec<SessionId>>;

    /// All of `kid`: parent, child.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn all_kids(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> Go) -> Result<()>;

    /// Obligations with the LSN of the frame that made them: all, or those to one session; in no particular order. A row that
    /// is not what was written is given as an error and does not end the scan.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> Go) -> Result<()>;

    /// The body that a hash names, as JSON.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn def(&self, hash: Hash) -> Result<Option<Text>>;

    /// All bodies.
    ///
    /// # Errors
    /// Whatever the store reports.
    ///
    /// # Durability
    /// Only durable rows are seen.
    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> Go) -> Result<()>;
}
