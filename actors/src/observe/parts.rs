//! Limits of the records that a reader of events keeps in memory until its client has received them.

use subtend_journal::Stored;

/// Maximum bytes of records, apart from a single one, that a reader keeps of small frames.
pub const KEPT_BYTES: u64 = 64 << 10;
/// Maximum number of parts in which a large frame is read.
const PARTS: u64 = 16;
/// Estimated bytes of a record without its texts.
const BYTES_PER_RECORD: u64 = 256;

/// Returns the maximum bytes of records, apart from a single one, that a reader keeps of frames with `total` bytes. A frame is decoded again for each
/// of its parts, so these are not many.
pub fn max_kept_bytes(total: u64) -> u64 {
    KEPT_BYTES.max(total / PARTS)
}

pub fn record_bytes(stored: &Stored) -> u64 {
    stored.record.heap_bytes().saturating_add(BYTES_PER_RECORD)
}

pub fn sum_bytes(records: &[Stored]) -> u64 {
    records.iter().map(record_bytes).fold(0, u64::saturating_add)
}
