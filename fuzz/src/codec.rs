//! Fuzzes journal frames.

use subtend_journal::Frame;
use subtend_journal::codec::{self, Decoded, FrameError, HEADER};
use subtend_session::ids::{Epoch, Seq};
use subtend_session::index::{self, Changes};
use subtend_session::record::Record;

use super::{InputResult, tape};

const LEN_AT: usize = 44;
const CRC_AT: usize = 48;

/// Decodes the bytes unchanged, then with a correct length and checksum. Also derives records from the bytes, encodes
/// and decodes them, and corrupts the frame.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let result = decode(bytes);
    let sealed = with_valid_checksum(bytes).map_or(InputResult::Refused, |sealed| decode(&sealed));
    let (session, records) = tape::records(bytes);
    if !records.is_empty() {
        let drawn = Decoded { session, first_seq: Seq(1), epoch: Epoch(1), at_ms: -1, records };
        assert_eq!(reencode(&to_frame(drawn.clone())), drawn, "the decoded frame differs");
    }
    result.max(sealed)
}

fn decode(bytes: &[u8]) -> InputResult {
    match codec::decode(bytes) {
        Ok(decoded) => {
            // Two encodings of the same records may differ, but must decode to the same records.
            assert_eq!(reencode(&to_frame(decoded.clone())), decoded, "the second decoding differs");
            check_damaged(bytes);
            InputResult::Accepted
        }
        Err(error) => {
            assert_clear(&error);
            InputResult::Refused
        }
    }
}

fn to_frame(decoded: Decoded) -> Frame {
    let Decoded { session, first_seq, epoch, at_ms, records } = decoded;
    let mut changes = Changes::default();
    for record in &records {
        if let Record::SessionCreated(created) = record {
            changes.defs.extend(index::defs(created).into_iter().flatten());
        }
    }
    Frame { session, first_seq, epoch, at_ms, records, changes }
}

fn reencode(frame: &Frame) -> Decoded {
    let encoded = codec::encode(frame);
    assert!(encoded.is_ok(), "a record cannot be encoded: {encoded:?}");
    let bytes = encoded.unwrap_or_default();
    check_damaged(&bytes);
    let decoded = codec::decode(&bytes);
    assert!(decoded.is_ok(), "an encoded frame is refused: {decoded:?}");
    decoded.unwrap_or(Decoded {
        session: frame.session,
        first_seq: Seq(0),
        epoch: Epoch(0),
        at_ms: 0,
        records: Vec::new(),
    })
}

/// Checks that a truncated, longer or bit-flipped frame is reported as damage.
fn check_damaged(sound: &[u8]) {
    let at = crc32c::crc32c(sound) as usize % sound.len().max(1);
    let mut flipped = sound.to_vec();
    if let Some(byte) = flipped.get_mut(at) {
        *byte ^= 1 << (at % 8);
    }
    let longer: Vec<u8> = sound.iter().copied().chain([b' ']).collect();
    for bad in [sound.get(..at).unwrap_or_default(), &flipped, &longer] {
        let refused = codec::decode(bad);
        assert!(matches!(refused, Err(FrameError::Corrupt(_))), "damage at byte {at} is not reported: {refused:?}");
    }
}

fn assert_clear(error: &FrameError) {
    let message = error.to_string();
    let is_framed = message.split_once(": ").is_some_and(|(what, why)| what.contains("frame") && !why.is_empty());
    assert!(is_framed, "an error without a reason: {message:?}");
}

/// Returns the bytes with a correct length and checksum. `None` if they are too short.
pub fn with_valid_checksum(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = bytes.to_vec();
    let len = u32::try_from(out.len().checked_sub(HEADER)?).ok()?;
    out.get_mut(..2)?.copy_from_slice(&[0x5b, 0x7d]);
    out.get_mut(LEN_AT..CRC_AT)?.copy_from_slice(&len.to_be_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(out.get(..CRC_AT)?), out.get(HEADER..)?);
    out.get_mut(CRC_AT..HEADER)?.copy_from_slice(&sum.to_be_bytes());
    Some(out)
}
