//! The engine trait.

use std::borrow::Cow;
use std::ops::ControlFlow;

use subtend_session::ids::{Epoch, Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Changes, Head, Inflight, Row};
use subtend_session::record::Record;

use crate::codec::{self, Decoded};
use crate::error::EngineError;

pub type Result<T> = std::result::Result<T, EngineError>;

pub type ScanFlow = ControlFlow<()>;

/// Maximum bytes of an encoded frame, in any store and in an export. A model's answer has at most 4 MiB, a branch inherits 16 MiB by
/// default, and a character takes at most six bytes as JSON. A reader needs about three times as much memory.
pub(crate) const MAX_FRAME: u64 = 64 << 20;

/// Frames that become durable together, in LSN order.
///
/// LSNs of a group have no gaps. A frame without records uses an LSN but has no row in the log. An import also adds index rows for
/// frames that it wrote in earlier groups: by frames with those LSNs and without records, never as the last frame of a group.
#[derive(Debug)]
pub struct Group {
    pub frames: Vec<GroupFrame>,
}

impl Group {
    pub fn last(&self) -> Option<Lsn> {
        self.frames.last().map(|frame| frame.lsn)
    }
}

#[derive(Clone, Debug)]
pub struct GroupFrame {
    pub lsn: Lsn,
    pub session: SessionId,
    pub first_seq: Seq,
    pub count: u32,
    pub epoch: Epoch,
    pub at_ms: i64,
    pub payload: Payload,
    /// The frame's index changes, with `Inflight::opened_lsn` filled in.
    pub changes: Changes,
}

/// Records of a frame, in the engine's form.
#[derive(Clone, Debug)]
pub enum Payload {
    /// No records: only index rows change, not `log` and `ev`.
    Nothing,
    /// An encoded frame with its header (see `codec`).
    Bytes(Vec<u8>),
    Records(Vec<Record>),
}

/// Estimated bytes of a record without its texts.
const BYTES_PER_RECORD: u64 = 256;

/// Frame as the engine stored it.
#[derive(Clone, Debug)]
pub enum StoredFrame {
    /// An encoded frame, which the reader checks.
    Bytes(Vec<u8>),
    /// A frame that was never encoded.
    Records(Box<Decoded>),
    /// The frame is damaged; holds the reason.
    Damaged(String),
}

impl StoredFrame {
    /// Returns the frame with its first record alone. One that cannot be decoded stays, for the reader to report.
    pub(crate) fn first(self) -> Self {
        match self {
            Self::Bytes(bytes) => match codec::decode_first(&bytes) {
                Ok(first) => Self::Records(Box::new(first)),
                Err(_) => Self::Bytes(bytes),
            },
            Self::Records(mut of) => {
                of.records.truncate(1);
                Self::Records(of)
            }
            Self::Damaged(why) => Self::Damaged(why),
        }
    }

    /// Returns the session of the frame; `None` for damaged bytes. Decodes no record.
    fn session(&self) -> Option<SessionId> {
        match self {
            Self::Bytes(bytes) => codec::session_of(bytes),
            Self::Records(of) => Some(of.session),
            Self::Damaged(_) => None,
        }
    }

    /// Returns the size of the content; for records that were never encoded, an estimate.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Records(of) => bytes_of_records(&of.records),
            Self::Damaged(_) => 0,
        }
    }
}

/// Estimates the size of records that were never encoded.
pub(crate) fn bytes_of_records(records: &[Record]) -> u64 {
    let bytes = |record: &Record| record.heap_bytes().saturating_add(BYTES_PER_RECORD);
    records.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Returns the size of the content of frames.
pub(crate) fn bytes_of(frames: &[IndexedFrame]) -> u64 {
    frames.iter().filter_map(|(.., frame)| frame.as_ref()).map(StoredFrame::bytes).fold(0, u64::saturating_add)
}

/// A session's rows and a part of its frames, read in one round trip.
#[derive(Debug)]
pub struct Range {
    /// [`EngineError::Corrupt`] for a damaged row.
    pub head: Result<Option<Head>>,
    pub inflight: Result<Option<Inflight>>,
    pub frames: Vec<IndexedFrame>,
}

/// A frame named by the index: its first record, its position, and its content, or `None` if it is missing in the log.
pub type IndexedFrame = (Seq, Lsn, Option<StoredFrame>);

/// A store with the tables `log`, `ev`, `head`, `inflight`, `kid`, `outbox`, `def` and `meta`. One thread writes it; all may read it.
///
/// The journal orders, fences, encodes and checks frames; an engine stores whole groups. Every method returns the store's errors.
/// # Visibility
/// Reads see every group whose [`Engine::write`] has returned, and no part of any other.
pub trait Engine: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// Describes for an operator the failures that a completed [`Engine::write`] survives.
    fn durability(&self) -> Cow<'static, str>;

    /// Writes a group atomically. It is durable on return. Puts and takes of one outbox row take effect in frame order; taking a missing
    /// row does nothing.
    /// # Errors
    /// [`EngineError::Overwrite`] if a frame would replace another one. After any error the caller must not write again, because it is
    /// unknown whether the group was stored.
    fn write(&self, group: Group) -> Result<()>;

    /// Returns whether frames are passed as bytes. If not, they are passed as records, and `append` writes directly, without a thread.
    fn wants_bytes(&self) -> bool;

    /// Returns the maximum size of an encoded frame or a `def` body, in bytes.
    fn max_body(&self) -> u64;

    /// Returns the number of durable commits, each of which may need several syncs.
    fn syncs(&self) -> u64;

    /// Returns the LSN of the last durable frame, or 0 for an empty store.
    fn last_lsn(&self) -> Result<Lsn>;

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>>;

    /// Returns the frame as [`Engine::frame`] does, or `None` if `is_wanted` excludes it by its session. `is_wanted` also gets the
    /// bytes that were read, which for a body in a file are only those of its row.
    fn frame_of(&self, lsn: Lsn, is_wanted: &mut dyn FnMut(SessionId, u64) -> bool) -> Result<Option<StoredFrame>> {
        let is_wanted = |kept: &StoredFrame| kept.session().is_none_or(|session| is_wanted(session, kept.bytes()));
        Ok(self.frame(lsn)?.filter(is_wanted))
    }

    /// Visits all frames from `from` on, in LSN order.
    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()>;

    /// Returns the positions of the session's frames, ordered by first record.
    fn positions(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>>;

    /// Returns the session's rows, and its frames from the one with record `from` to the last one that starts before `until`,
    /// or to the first with which they have `max_bytes`. The rows are not newer than the frames.
    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<Range>;

    /// Returns the size of the content of the frames that [`Engine::range`] would return, from `from` on. The default reads
    /// them; an engine that has their lengths in rows should not.
    fn bytes(&self, session: SessionId, from: Seq, max_bytes: u64) -> Result<u64> {
        Ok(bytes_of(&self.range(session, from, Seq(u64::MAX), max_bytes)?.frames))
    }

    /// Visits all rows of `ev`: session, first record, frame.
    fn all_positions(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> ScanFlow) -> Result<()>;

    /// Returns the session's head, or [`EngineError::Corrupt`].
    fn head(&self, session: SessionId) -> Result<Option<Head>>;

    /// Visits all heads by session. A corrupt row is passed as an error and does not end the scan.
    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> ScanFlow) -> Result<()>;

    /// Returns the session's row of the boot scan, or [`EngineError::Corrupt`].
    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>>;

    /// Visits the rows of the boot scan by session. A corrupt row is passed as an error and does not end the scan.
    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> ScanFlow) -> Result<()>;

    /// Returns the children of a session, ordered by id.
    fn children(&self, parent: SessionId) -> Result<Vec<SessionId>>;

    /// Visits all rows of `kid`: parent, child.
    fn all_children(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> ScanFlow) -> Result<()>;

    /// Visits obligations with the LSN of the frame that created them: all, or those to one session, in any order. A corrupt row is passed
    /// as an error and does not end the scan.
    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> ScanFlow) -> Result<()>;

    /// Returns the body with this hash, as JSON.
    fn def(&self, hash: Hash) -> Result<Option<Text>>;

    /// Returns the size of the body with this hash; 0 if it is missing. The default reads it; an engine that has the lengths of
    /// large bodies in rows should not.
    fn def_bytes(&self, hash: Hash) -> Result<u64> {
        Ok(self.def(hash)?.map_or(0, |text| text.len() as u64))
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()>;
}

/// Implements reads of index rows by delegation to the engine `$inner`.
macro_rules! delegate {
    ($inner:ident: $($name:ident($($arg:ident: $of:ty),*) -> $out:ty;)*) => {$(
        fn $name(&self, $($arg: $of),*) -> $out {
            self.$inner.$name($($arg),*)
        }
    )*};
    ($inner:ident) => {
        crate::engine::delegate! { $inner:
            wants_bytes() -> bool;
            syncs() -> u64;
            last_lsn() -> Result<Lsn>;
            positions(session: SessionId) -> Result<Vec<(Seq, Lsn)>>;
            bytes(session: SessionId, from: Seq, max_bytes: u64) -> Result<u64>;
            all_positions(visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> ScanFlow) -> Result<()>;
            heads(visit: &mut dyn FnMut(SessionId, Result<Head>) -> ScanFlow) -> Result<()>;
            inflight(session: SessionId) -> Result<Option<Inflight>>;
            inflights(visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> ScanFlow) -> Result<()>;
            all_children(visit: &mut dyn FnMut(SessionId, SessionId) -> ScanFlow) -> Result<()>;
            outbox(to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> ScanFlow) -> Result<()>;
        }
    };
}
pub(crate) use delegate;
