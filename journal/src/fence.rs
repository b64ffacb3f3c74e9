//! Fences: decide which activation of a session may append, and which record comes next.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;
use subtend_session::ids::{Epoch, Lsn, Seq, SessionId};
use subtend_session::index::InflightChange;

use crate::engine::GroupFrame;
use crate::error::AppendError;

/// A map with an unkeyed hash, since ids are created by this process.
pub(crate) type IdMap<K, V> = HashMap<K, V, FixedState>;

#[derive(Clone, Copy, Debug)]
struct Fence {
    epoch: Epoch,
    next_seq: Seq,
    /// LSN of the session's last frame.
    last: Lsn,
    /// LSN of the first frame with this epoch, or 0. Without such a frame, a restart would issue the epoch again.
    marked: Lsn,
    active: bool,
}

/// Fences of all sessions that are active or have frames that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    map: IdMap<SessionId, Fence>,
    leaving: BTreeSet<(Lsn, SessionId)>,
    removals: u64,
    /// Seeded bug: an activation reuses the previous epoch.
    same_epoch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) epoch: Epoch,
    pub(crate) next_seq: Seq,
}

impl Fences {
    pub(crate) fn new(same_epoch: bool) -> Self {
        Self { same_epoch, ..Self::default() }
    }

    fn next_epoch(&self, epoch: Epoch) -> Epoch {
        if self.same_epoch { epoch } else { epoch.next() }
    }

    /// Checks the frames and assigns LSNs from `first` on. Admits all frames or none.
    pub(crate) fn admit(&mut self, frames: &mut [GroupFrame], first: Lsn) -> Result<(), AppendError> {
        let mut lsn = first;
        let mut failed = None;
        for (ix, frame) in frames.iter_mut().enumerate() {
            if let Err(error) = self.admit_one(frame, lsn) {
                failed = Some((ix, error));
                break;
            }
            lsn = lsn.next();
        }
        let Some((ix, error)) = failed else { return Ok(()) };
        for frame in frames.iter().take(ix).rev() {
            self.revert(frame);
        }
        Err(error)
    }

    fn admit_one(&mut self, frame: &mut GroupFrame, lsn: Lsn) -> Result<(), AppendError> {
        let session = frame.session;
        let refused = |current| Err(AppendError::Fenced { session, epoch: frame.epoch, current });
        let fence = match self.map.entry(session) {
            Entry::Occupied(fence) => fence.into_mut(),
            Entry::Vacant(_) if frame.first_seq != Seq(1) || frame.count == 0 => return refused(None),
            Entry::Vacant(entry) => {
                entry.insert(Fence { epoch: frame.epoch, next_seq: Seq(1), last: Lsn(0), marked: Lsn(0), active: true })
            }
        };
        if !fence.active {
            return refused(None);
        }
        if fence.epoch != frame.epoch {
            return refused(Some(fence.epoch));
        }
        if fence.next_seq != frame.first_seq {
            return Err(AppendError::SeqConflict { session, expected: fence.next_seq, found: frame.first_seq });
        }
        fence.next_seq = Seq(frame.first_seq.0.saturating_add(u64::from(frame.count)));
        fence.last = lsn;
        frame.lsn = lsn;
        let mut marks = frame.count > 0 || frame.changes.head.is_some();
        if let InflightChange::Put(row) = &mut frame.changes.inflight {
            marks = true;
            if row.opened_lsn == Lsn(0) {
                row.opened_lsn = lsn;
            }
        }
        if marks && fence.marked == Lsn(0) {
            fence.marked = lsn;
        }
        Ok(())
    }

    /// Reverts one admitted frame. Its LSN may remain in `last`, which only keeps the fence longer.
    fn revert(&mut self, frame: &GroupFrame) {
        if frame.first_seq == Seq(1) && frame.count > 0 {
            self.map.remove(&frame.session);
        } else if let Some(fence) = self.map.get_mut(&frame.session) {
            fence.next_seq = frame.first_seq;
            if fence.marked == frame.lsn {
                fence.marked = Lsn(0);
            }
        }
    }

    pub(crate) fn activate(&mut self, session: SessionId) -> Option<Known> {
        let epoch = self.next_epoch(self.map.get(&session)?.epoch);
        let fence = self.map.get_mut(&session)?;
        fence.epoch = epoch;
        fence.marked = Lsn(0);
        fence.active = true;
        Some(Known { epoch: fence.epoch, next_seq: fence.next_seq })
    }

    /// Takes the next epoch of a session that was read from the engine after `removals` fences were removed.
    /// Returns `None` if the session must be read again, because another activation may have started, appended and ended meanwhile.
    pub(crate) fn activate_read(&mut self, session: SessionId, last: Known, removals: u64) -> Option<Known> {
        if let Some(known) = self.activate(session) {
            return Some(known);
        }
        if self.removals != removals {
            return None;
        }
        let epoch = self.next_epoch(last.epoch);
        let fence = Fence { epoch, next_seq: last.next_seq, last: Lsn(0), marked: Lsn(0), active: true };
        self.map.insert(session, fence);
        Some(Known { epoch, next_seq: last.next_seq })
    }

    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// Ends an activation. Its fence is removed when the last frame is durable, so that the next activation reads a complete state. The
    /// fence of an epoch without a frame remains, so that the epoch is never issued again.
    pub(crate) fn deactivate(&mut self, session: SessionId, epoch: Epoch, durable: Lsn) {
        let Some(fence) = self.map.get_mut(&session) else { return };
        if fence.epoch != epoch || !fence.active {
            return;
        }
        fence.active = false;
        if fence.marked == Lsn(0) {
            return;
        }
        let last = fence.last;
        if last <= durable {
            self.map.remove(&session);
            self.removals = self.removals.wrapping_add(1);
        } else {
            self.leaving.insert((last, session));
        }
    }

    /// Removes fences of ended activations whose frames are durable up to `durable`.
    pub(crate) fn release_durable(&mut self, durable: Lsn) {
        while let Some((last, session)) = self.leaving.first().copied() {
            if last > durable {
                return;
            }
            self.leaving.pop_first();
            // The session may be active again.
            if self
                .map
                .get(&session)
                .is_some_and(|fence| !fence.active && fence.marked != Lsn(0) && fence.last <= durable)
            {
                self.map.remove(&session);
                self.removals = self.removals.wrapping_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use subtend_session::index::Changes;
    use uuid::Uuid;

    use super::*;
    use crate::engine::Payload;

    const ONE: SessionId = SessionId(Uuid::from_u128(1));
    const TWO: SessionId = SessionId(Uuid::from_u128(2));

    fn frame(session: SessionId, epoch: u32, first_seq: u64, count: u32) -> GroupFrame {
        let changes = Changes::default();
        let payload = Payload::Nothing;
        let (epoch, first_seq) = (Epoch(epoch), Seq(first_seq));
        GroupFrame { lsn: Lsn(0), session, first_seq, count, epoch, at_ms: 0, payload, changes }
    }

    fn admit(fences: &mut Fences, lsn: u64, frames: &[GroupFrame]) -> Result<Vec<u64>, String> {
        let mut frames = frames.to_vec();
        fences.admit(&mut frames, Lsn(lsn)).map_err(|error| error.to_string())?;
        Ok(frames.iter().map(|frame| frame.lsn.0).collect())
    }

    #[test]
    fn refused_batch_does_not_change_fences() {
        let mut fences = Fences::default();
        assert_eq!(admit(&mut fences, 1, &[frame(ONE, 1, 1, 2)]), Ok(vec![1]));
        // The first frame continues the session, the second creates one, the third has a wrong sequence number.
        let refused = [frame(ONE, 1, 3, 1), frame(TWO, 1, 1, 1), frame(ONE, 1, 3, 1)];
        assert!(admit(&mut fences, 2, &refused).unwrap_err().contains("starts at record 3, but record 4 comes next"));
        assert_eq!(fences.map.len(), 1);
        assert_eq!(admit(&mut fences, 2, &[frame(ONE, 1, 3, 1), frame(TWO, 1, 1, 1)]), Ok(vec![2, 3]));
    }

    #[test]
    fn fence_stays_until_its_last_frame_is_durable() {
        let mut fences = Fences::default();
        admit(&mut fences, 5, &[frame(ONE, 1, 1, 2)]).unwrap();
        fences.deactivate(ONE, Epoch(1), Lsn(4));
        fences.release_durable(Lsn(4));
        assert_eq!(fences.map.len(), 1);
        fences.release_durable(Lsn(5));
        assert_eq!(fences.map.len(), 0);
    }

    #[test]
    fn epoch_without_a_frame_is_not_reused() {
        let mut fences = Fences::default();
        let last = Known { epoch: Epoch(3), next_seq: Seq(9) };
        let taken = fences.activate_read(ONE, last, fences.removals());
        assert_eq!(taken, Some(Known { epoch: Epoch(4), next_seq: Seq(9) }));
        fences.deactivate(ONE, Epoch(4), Lsn(100));
        assert_eq!(fences.activate(ONE), Some(Known { epoch: Epoch(5), next_seq: Seq(9) }));
        assert!(admit(&mut fences, 101, &[frame(ONE, 4, 9, 1)]).unwrap_err().contains("the current one is 5"));
    }

    #[test]
    fn stale_read_is_repeated_after_another_activation() {
        let mut fences = Fences::default();
        let removals = fences.removals();
        admit(&mut fences, 1, &[frame(ONE, 1, 1, 2)]).unwrap();
        fences.deactivate(ONE, Epoch(1), Lsn(1));
        let stale = Known { epoch: Epoch(0), next_seq: Seq(1) };
        assert_eq!(fences.activate_read(ONE, stale, removals), None);
    }
}
