//! An activation's position in the journal: the stamps of its frames, and its last frame.

use subtend_journal::Appended;
use subtend_session::ids::{Epoch, Lsn};
use subtend_session::index::Stamp;

pub(crate) struct Written {
    pub(crate) epoch: Epoch,
    pub(crate) created_ms: i64,
    pub(crate) opened_lsn: Lsn,
    /// Number of starts of the run in flight without a record in between.
    pub(crate) starts: u32,
    /// True until the first frame of this activation, which writes its epoch to the rows before any effect.
    pub(crate) unmarked: bool,
    pub(crate) last_lsn: Lsn,
}

impl Written {
    pub(crate) fn new(epoch: Epoch, created_ms: i64) -> Self {
        Self { epoch, created_ms, opened_lsn: Lsn(0), starts: 0, unmarked: false, last_lsn: Lsn(0) }
    }

    /// Returns the stamp of the next frame; a frame with records resets the starts.
    pub(crate) fn stamp(&mut self, has_records: bool, opens: bool, now_ms: i64) -> Stamp {
        if has_records {
            self.starts = 0;
        }
        Stamp {
            epoch: self.epoch,
            starts: self.starts,
            opened_lsn: if opens { Lsn(0) } else { self.opened_lsn },
            created_ms: self.created_ms,
            updated_ms: now_ms,
        }
    }

    /// Records the frame; returns whether it is the first frame of the activation.
    pub(crate) fn append(&mut self, at: &Appended, opens: bool) -> bool {
        if opens {
            self.opened_lsn = at.first;
        }
        self.last_lsn = at.last;
        std::mem::take(&mut self.unmarked)
    }
}
