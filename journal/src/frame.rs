//! What is appended and what is read back.

use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::Changes;
use subtend_session::record::Record;

/// The records of one session that one batch appends, and what they change in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The session.
    pub session: SessionId,
    /// The sequence number of the first record; of the next one, where there are no records.
    pub first_seq: Seq,
    /// The activation that writes it.
    pub epoch: Epoch,
    /// Wall clock in milliseconds since the epoch; informative.
    pub at_ms: i64,
    /// The records; empty where only rows change (the epoch and starts of an activation), and then nothing enters the log.
    pub records: Vec<Record>,
    /// What they change in the index.
    pub changes: Changes,
}

/// Frames that are appended together: all of them or none (J-3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The frames, in their order in the log.
    pub frames: Vec<Frame>,
}

/// Where a batch stands in the log: its frame `i` has the LSN `first + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// LSN of the first frame.
    pub first: Lsn,
    /// LSN of the last frame; for an empty batch, that of the last frame appended before.
    pub last: Lsn,
}

/// A record as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the session.
    pub seq: Seq,
    /// Wall clock of its frame; informative.
    pub at_ms: i64,
    /// The activation that wrote it.
    pub epoch: Epoch,
    /// The record.
    pub record: Record,
}
