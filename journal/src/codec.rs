//! Encoding of a frame: a header of 52 bytes, then the records as a JSON array.
//!
//! | at | field | |
//! |---|---|---|
//! | 0 | magic u16 | `0x5b7d` |
//! | 2 | version u8 | 1 |
//! | 3 | flags u8 | 1: the body is in a blob; the others are 0, and reserved |
//! | 4 | session | 16 bytes |
//! | 20 | first_seq u64 | |
//! | 28 | count u32 | 32 bits, since a frame with many new sessions holds more than 65 535 records |
//! | 32 | epoch u32 | |
//! | 36 | at_ms i64 | |
//! | 44 | len u32 | bytes of the body |
//! | 48 | crc32c u32 | over bytes 0..48 and the body |
//!
//! Integers are big-endian. Every version keeps this header, which distinguishes newer frames from damaged ones. The LSN is not part of
//! the frame. If the body is in a blob, its hash (16 bytes) and length (u64) take its place, covered by `len` and the checksum.

use std::borrow::Cow;

use subtend_session::ids::{Epoch, Hash, Interned, Seq, SessionId, Text};
use subtend_session::record::{Record, SessionCreated};
use uuid::Uuid;

use crate::frame::Frame;
use crate::json;

#[cfg(test)]
mod tests;

/// The written version, and the newest readable one.
pub const VERSION: u8 = 1;
/// Bytes before the body.
pub const HEADER: usize = 52;

/// Flag of a frame whose body is in a blob.
const BLOB: u8 = 1;
const FLAGS_AT: usize = 3;
const SESSION_AT: usize = 4;
const MAGIC: u16 = 0x5b7d;
const LEN_AT: usize = 44;
const CRC_AT: usize = 48;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub session: SessionId,
    pub first_seq: Seq,
    pub epoch: Epoch,
    pub at_ms: i64,
    /// The encoded records, without bodies that are stored with other frames.
    pub records: Vec<Record>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes are damaged.
    #[error("corrupt frame: {0}")]
    Corrupt(String),
    #[error("frame of a newer format: {0}")]
    Newer(String),
}

#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a frame of {0} bytes is too long for its length field")]
    TooLong(usize),
}

/// Encodes a frame. Bodies that are not in `changes.defs` are left out, because another frame has put them into `def`.
pub fn encode(frame: &Frame) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(HEADER + 256 * frame.records.len());
    out.extend_from_slice(&MAGIC.to_be_bytes());
    out.extend_from_slice(&[VERSION, 0]);
    out.extend_from_slice(frame.session.0.as_bytes());
    out.extend_from_slice(&frame.first_seq.0.to_be_bytes());
    let count = u32::try_from(frame.records.len()).map_err(|_| EncodeError::TooLong(frame.records.len()))?;
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&frame.epoch.0.to_be_bytes());
    out.extend_from_slice(&frame.at_ms.to_be_bytes());
    out.extend_from_slice(&[0; HEADER - LEN_AT]);
    for (ix, record) in frame.records.iter().enumerate() {
        out.push(if ix == 0 { b'[' } else { b',' });
        json::write(&mut out, &*strip(record, &frame.changes.defs))?;
    }
    out.extend_from_slice(if frame.records.is_empty() { b"[]" } else { b"]" });
    let len = u32::try_from(out.len() - HEADER).map_err(|_| EncodeError::TooLong(out.len()))?;
    put(&mut out, LEN_AT, len);
    let crc = crc(&out);
    put(&mut out, CRC_AT, crc);
    Ok(out)
}

fn put(out: &mut [u8], at: usize, value: u32) {
    if let Some(slot) = out.get_mut(at..at + 4) {
        slot.copy_from_slice(&value.to_be_bytes());
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c(bytes.get(..CRC_AT).unwrap_or_default());
    crc32c::crc32c_append(head, bytes.get(HEADER..).unwrap_or_default())
}

/// The header of a frame.
struct FrameHeader {
    session: SessionId,
    first_seq: Seq,
    count: u32,
    epoch: Epoch,
    at_ms: i64,
}

/// Decodes a frame and checks it completely.
/// # Errors
/// [`FrameError::Corrupt`] for damaged bytes, [`FrameError::Newer`] for undamaged bytes of a newer version.
pub fn decode(bytes: &[u8]) -> Result<Decoded, FrameError> {
    let (FrameHeader { session, first_seq, count, epoch, at_ms }, body) = open(bytes)?;
    let records: Vec<Record> = serde_json::from_slice(body).map_err(|error| classify_json_error(&error))?;
    if u32::try_from(records.len()) != Ok(count) {
        return Err(FrameError::Corrupt(format!("it holds {} records, the header says {count}", records.len())));
    }
    Ok(Decoded { session, first_seq, epoch, at_ms, records })
}

/// Decodes only the first record of a frame: a reader of one record need not pay for thousands.
/// # Errors
/// As for [`decode`].
pub(crate) fn decode_first(bytes: &[u8]) -> Result<Decoded, FrameError> {
    let (FrameHeader { session, first_seq, epoch, at_ms, .. }, body) = open(bytes)?;
    let corrupt = || FrameError::Corrupt("it holds no record".to_owned());
    let list = body.strip_prefix(b"[").ok_or_else(corrupt)?;
    let first = serde_json::Deserializer::from_slice(list).into_iter().next().ok_or_else(corrupt)?;
    let records = vec![first.map_err(|error| classify_json_error(&error))?];
    Ok(Decoded { session, first_seq, epoch, at_ms, records })
}

/// Returns the activation that wrote a frame, and the sequence number of the record after it. Checks everything but the records.
/// # Errors
/// As for [`decode`].
pub(crate) fn end_of(bytes: &[u8]) -> Result<(Epoch, Seq), FrameError> {
    let (header, _) = open(bytes)?;
    Ok((header.epoch, Seq(header.first_seq.0.saturating_add(header.count.into()))))
}

/// Checks the bytes of a frame, and returns its header and its body.
fn open(bytes: &[u8]) -> Result<(FrameHeader, &[u8]), FrameError> {
    let (head, body) = bytes
        .split_first_chunk::<HEADER>()
        .ok_or_else(|| FrameError::Corrupt(format!("{} bytes are shorter than a header", bytes.len())))?;
    let mut head = Reader(head);
    let magic = u16::from_be_bytes(head.take()?);
    let [version, flags] = head.take()?;
    let session = SessionId(Uuid::from_bytes(head.take()?));
    let first_seq = Seq(u64::from_be_bytes(head.take()?));
    let count = u32::from_be_bytes(head.take()?);
    let epoch = Epoch(u32::from_be_bytes(head.take()?));
    let at_ms = i64::from_be_bytes(head.take()?);
    let len = u32::from_be_bytes(head.take()?);
    let sum = u32::from_be_bytes(head.take()?);
    if magic != MAGIC {
        return Err(FrameError::Corrupt(format!("it starts with {magic:#06x}, not {MAGIC:#06x}")));
    }
    if u32::try_from(body.len()) != Ok(len) {
        return Err(FrameError::Corrupt(format!("the body has {} bytes, the header says {len}", body.len())));
    }
    let found = crc(bytes);
    if found != sum {
        return Err(FrameError::Corrupt(format!("the checksum is {found:#010x}, the header says {sum:#010x}")));
    }
    // Checked after the checksum, because a flipped bit in the version is damage.
    if version > VERSION || flags & !BLOB != 0 {
        return Err(FrameError::Newer(format!(
            "version {version}, flags {flags:#04x}; known are version {VERSION} and flag {BLOB:#04x}"
        )));
    }
    if flags == BLOB {
        let named = Reference::of(body).map(|named| named.hash.to_string()).unwrap_or_default();
        return Err(FrameError::Corrupt(format!("its body is in the blob {named}, which was not fetched")));
    }
    Ok((FrameHeader { session, first_seq, count, epoch, at_ms }, body))
}

/// A reference to a body in a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The blob's name: the hash of its content.
    pub(crate) hash: Hash,
    /// Bytes of the content.
    pub(crate) len: u64,
}

impl Reference {
    fn of(body: &[u8]) -> Option<Self> {
        let (hash, len) = body.split_first_chunk::<16>()?;
        Some(Self { hash: Hash(*hash), len: u64::from_be_bytes(len.try_into().ok()?) })
    }

    /// Returns the reference in an undamaged frame. Returns `None` for other bytes, which [`decode`] checks.
    pub(crate) fn in_frame(frame: &[u8]) -> Option<Self> {
        let (head, body) = frame.split_first_chunk::<HEADER>()?;
        let sum = head.get(CRC_AT..)?.first_chunk()?;
        let is_named =
            head.first_chunk() == Some(&MAGIC.to_be_bytes()) && head.get(2..=FLAGS_AT) == Some(&[VERSION, BLOB]);
        // The checksum of another frame, which may be large, is left to the reader.
        (is_named && crc(frame) == u32::from_be_bytes(*sum)).then(|| Self::of(body))?
    }
}

/// Returns the session of an undamaged frame, also if its body is in a blob. Decodes no record.
pub(crate) fn session_of(row: &[u8]) -> Option<SessionId> {
    let sum = row.get(CRC_AT..)?.first_chunk()?;
    let session = row.get(SESSION_AT..)?.first_chunk()?;
    (crc(row) == u32::from_be_bytes(*sum)).then(|| SessionId(Uuid::from_bytes(*session)))
}

/// Returns the bytes of the frame in a row, also if its body is in a blob.
#[cfg_attr(not(feature = "disk"), allow(dead_code, reason = "only a store in a directory measures its rows"))]
pub(crate) fn frame_bytes(row: &[u8]) -> u64 {
    Reference::in_frame(row).map_or(row.len() as u64, |named| named.len.saturating_add(HEADER as u64))
}

/// Splits a frame into one with a reference, and the body for its blob.
pub(crate) fn split(frame: &[u8]) -> (Vec<u8>, Reference, &[u8]) {
    let (head, body) = frame.split_at_checked(HEADER).unwrap_or((frame, &[]));
    let reference = Reference { hash: Hash::of(body), len: body.len() as u64 };
    let mut named = reference.hash.0.to_vec();
    named.extend_from_slice(&reference.len.to_be_bytes());
    (with_flags([head, &named].concat(), BLOB), reference, body)
}

/// Completes a header and the body from its blob to the frame. Takes them together, because a body may be large.
pub(crate) fn join(frame: Vec<u8>) -> Vec<u8> {
    with_flags(frame, 0)
}

/// Returns the frame with `flags` and with the length and checksum of its body.
fn with_flags(mut frame: Vec<u8>, flags: u8) -> Vec<u8> {
    if let Some(slot) = frame.get_mut(FLAGS_AT) {
        *slot = flags;
    }
    // `encode` has refused longer bodies.
    let len = u32::try_from(frame.len().saturating_sub(HEADER)).unwrap_or(u32::MAX);
    put(&mut frame, LEN_AT, len);
    let sum = crc(&frame);
    put(&mut frame, CRC_AT, sum);
    frame
}

/// Classifies a JSON error. The checksum matched, so an unknown variant or field comes from a newer version.
pub(crate) fn classify_json_error(error: &serde_json::Error) -> FrameError {
    let text = error.to_string();
    if text.starts_with("unknown variant") || text.starts_with("unknown field") {
        FrameError::Newer(text)
    } else {
        FrameError::Corrupt(text)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (chunk, rest) =
            self.0.split_first_chunk::<N>().ok_or_else(|| FrameError::Corrupt("short header".into()))?;
        self.0 = rest;
        Ok(*chunk)
    }
}

fn strip<'a>(record: &'a Record, defs: &[(Hash, Text)]) -> Cow<'a, Record> {
    let Record::SessionCreated(created) = record else { return Cow::Borrowed(record) };
    if !(is_omitted(&created.system, defs) || is_omitted(&created.ceiling, defs) || is_omitted(&created.limits, defs)) {
        return Cow::Borrowed(record);
    }
    let mut stripped = SessionCreated::clone(created);
    if is_omitted(&stripped.system, defs) {
        stripped.system.body = None;
    }
    if is_omitted(&stripped.ceiling, defs) {
        stripped.ceiling.body = None;
    }
    if is_omitted(&stripped.limits, defs) {
        stripped.limits.body = None;
    }
    Cow::Owned(Record::SessionCreated(Box::new(stripped)))
}

fn is_omitted<T: ?Sized>(interned: &Interned<T>, defs: &[(Hash, Text)]) -> bool {
    interned.body.is_some() && !defs.iter().any(|(hash, _)| *hash == interned.hash)
}
