//! A medium of redb that gets the pages of a commit in the order of their offsets, and neighbours at once.
//!
//! redb writes each page with a call of its own, in no order. Between two syncs the order is free, because a crash may lose each of these
//! writes.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

/// The largest write of neighbours, and the most that waits for the next sync.
const MAX_RUN: usize = 1 << 20;
const MAX_WAITING: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct OrderedWrites<B> {
    medium: B,
    waiting: Mutex<WaitingWrites>,
}

#[derive(Debug, Default)]
struct WaitingWrites {
    /// Writes by their place. No two of them overlap.
    writes: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
    /// Whether writes are lost, since the medium refused one of them.
    failed: bool,
}

impl WaitingWrites {
    /// Adds a write, unless a part of its place is taken by another one.
    fn add(&mut self, offset: u64, data: &[u8]) -> bool {
        let end = offset.saturating_add(data.len() as u64);
        match self.writes.range_mut(..end).next_back() {
            Some((at, same)) if *at == offset && same.len() == data.len() => {
                same.copy_from_slice(data);
                return true;
            }
            Some((at, before)) if at.saturating_add(before.len() as u64) > offset => return false,
            _ => {}
        }
        self.writes.insert(offset, data.to_vec());
        self.bytes = self.bytes.saturating_add(data.len());
        true
    }
}

impl<B: StorageBackend> OrderedWrites<B> {
    pub(super) fn to(medium: B) -> Self {
        Self { medium, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingWrites> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn perform(&self, waiting: &mut WaitingWrites) -> io::Result<()> {
        // A reader performs writes too, and a sync that waits for it must not take what it lost for written.
        if std::mem::replace(&mut waiting.failed, true) {
            return Err(io::Error::other("an earlier write failed"));
        }
        waiting.bytes = 0;
        let mut writes = std::mem::take(&mut waiting.writes).into_iter();
        if let Some((mut at, mut run)) = writes.next() {
            for (offset, data) in writes {
                if at.saturating_add(run.len() as u64) == offset && run.len() < MAX_RUN {
                    run.extend_from_slice(&data);
                    continue;
                }
                self.medium.write(at, &run)?;
                (at, run) = (offset, data);
            }
            self.medium.write(at, &run)?;
        }
        waiting.failed = false;
        Ok(())
    }

    /// Returns the medium after all writes.
    fn written(&self) -> io::Result<&B> {
        self.perform(&mut self.waiting())?;
        Ok(&self.medium)
    }
}

impl<B: StorageBackend> StorageBackend for OrderedWrites<B> {
    fn len(&self) -> io::Result<u64> {
        self.written()?.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.written()?.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written()?.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.written()?.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut waiting = self.waiting();
        if !waiting.add(offset, data) {
            self.perform(&mut waiting)?;
            waiting.add(offset, data);
        }
        if waiting.bytes > MAX_WAITING { self.perform(&mut waiting) } else { Ok(()) }
    }

    fn close(&self) -> io::Result<()> {
        self.written()?.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.medium.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.medium.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.medium.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.medium.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.medium.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.medium.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    use super::*;

    #[derive(Clone, Debug)]
    enum MediumStep {
        /// Writes a byte to some neighbouring places of 16 bytes.
        Write(u64, u64, u8),
        Grow(u64),
        Read(u64),
        Sync,
    }

    fn step() -> impl Strategy<Value = MediumStep> {
        prop_oneof![
            6 => (0_u64..32, 1_u64..4, 1_u8..).prop_map(|(at, places, byte)| MediumStep::Write(at, places, byte)),
            1 => (0_u64..64).prop_map(MediumStep::Grow),
            1 => (0_u64..32).prop_map(MediumStep::Read),
            1 => Just(MediumStep::Sync),
        ]
    }

    fn all(medium: &impl StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(medium.len().unwrap()).unwrap()];
        medium.read(0, &mut bytes).unwrap();
        bytes
    }

    /// Notes the writes, and refuses the one after this number of them.
    #[derive(Debug)]
    struct CountedWrites(InMemoryBackend, Mutex<Vec<(u64, usize)>>, usize);

    fn counted(refused: usize) -> OrderedWrites<CountedWrites> {
        let ordered = OrderedWrites::to(CountedWrites(InMemoryBackend::new(), Mutex::default(), refused));
        ordered.set_len(64).unwrap();
        ordered
    }

    impl StorageBackend for CountedWrites {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let mut calls = self.1.lock().unwrap();
            calls.push((offset, data.len()));
            if calls.len() == self.2 + 1 {
                return Err(io::Error::other("the medium is full"));
            }
            self.0.write(offset, data)
        }
    }

    #[test]
    fn neighbours_are_written_at_once_before_a_sync() {
        let ordered = counted(10);
        for at in [32, 0, 48, 8] {
            ordered.write(at, &[1; 8]).unwrap();
        }
        assert_eq!(*ordered.medium.1.lock().unwrap(), []);
        ordered.sync_data().unwrap();
        assert_eq!(*ordered.medium.1.lock().unwrap(), [(0, 16), (32, 8), (48, 8)]);
    }

    /// A reader gets the error of a write, and the commit that waits for it must not succeed. The control: no write fails.
    #[test]
    fn sync_after_lost_writes_fails() {
        for (refused, expected) in [(0, [false; 3]), (1, [true; 3])] {
            let ordered = counted(refused);
            ordered.write(0, &[1; 8]).unwrap();
            let results = [ordered.read(32, &mut [0; 8]), ordered.sync_data(), ordered.close()];
            assert_eq!(results.map(|result| result.is_ok()), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn ordered_writes_act_like_their_medium(steps in vec(step(), 0..40)) {
            let (ordered, plain) = (OrderedWrites::to(InMemoryBackend::new()), InMemoryBackend::new());
            for medium in [&ordered as &dyn StorageBackend, &plain] {
                medium.set_len(35 * 16).unwrap();
            }
            for step in steps {
                match step {
                    MediumStep::Write(at, places, byte) => {
                        let bytes = vec![byte; usize::try_from(places * 16).unwrap()];
                        ordered.write(at * 16, &bytes).unwrap();
                        plain.write(at * 16, &bytes).unwrap();
                    }
                    MediumStep::Grow(by) => {
                        ordered.set_len(plain.len().unwrap() + by).unwrap();
                        plain.set_len(plain.len().unwrap() + by).unwrap();
                    }
                    MediumStep::Read(at) => {
                        let (mut found, mut expected) = ([0; 40], [0; 40]);
                        ordered.read(at * 16, &mut found).unwrap();
                        plain.read(at * 16, &mut expected).unwrap();
                        prop_assert_eq!(found, expected);
                    }
                    MediumStep::Sync => {
                        ordered.sync_data().unwrap();
                        prop_assert_eq!(all(&ordered.medium), all(&plain));
                    }
                }
            }
            prop_assert_eq!(all(&ordered), all(&plain));
        }
    }
}
