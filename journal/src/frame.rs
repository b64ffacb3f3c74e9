//! Appended frames and stored records.

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::Changes;
use subtend_session::record::Record;

/// Records of one session in a batch, with their index changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub session: SessionId,
    /// The sequence number of the first record, or of the next one if there are no records.
    pub first_seq: Seq,
    /// The activation that writes it.
    pub epoch: Epoch,
    /// Wall clock in Unix milliseconds, for information only.
    pub at_ms: i64,
    /// The records. Empty if only rows change (epoch and start of an activation), in which case the log is unchanged.
    pub records: Vec<Record>,
    pub changes: Changes,
}

/// Frames that are appended atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The frames, in log order.
    pub frames: Vec<Frame>,
}

/// Position of a batch in the log: frame `i` has the LSN `first + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub first: Lsn,
    /// LSN of the last frame, or of the last appended frame for an empty batch.
    pub last: Lsn,
}

/// A record read from the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub seq: Seq,
    pub at_ms: i64,
    pub epoch: Epoch,
    pub record: Record,
}
