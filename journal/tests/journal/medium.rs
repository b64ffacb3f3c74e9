//! A medium that loses power, and with it some of the writes since its last sync.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use redb::StorageBackend;

/// Size of an atomic write. Larger writes may be torn between two sectors.
const SECTOR: usize = 512;

/// In memory; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Medium {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Content for reads.
    live: Vec<u8>,
    synced: Vec<u8>,
    /// Changes since the last sync, in order.
    since: Vec<Change>,
    /// Writes, resizes and syncs so far.
    steps: u64,
    /// Step of the power loss. This step and all later ones fail.
    dies_at: Option<u64>,
    /// Syncs report success and do nothing.
    ignores_syncs: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Resize(usize),
}

/// Changes since the last sync that survive, in order. A lost change before a kept one models a reordering disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivors {
    Nothing,
    All,
    /// All before a random one.
    First,
    /// A random subset.
    Some,
    /// All except the end of the last.
    Torn,
}

impl Survivors {
    pub(crate) const ALL: [Self; 5] = [Self::Nothing, Self::All, Self::First, Self::Some, Self::Torn];

    fn of(self, changes: &[Change], rng: &mut Rng) -> Vec<Change> {
        match self {
            Self::Nothing => Vec::new(),
            Self::All => changes.to_vec(),
            Self::First => changes[..rng.usize(..=changes.len())].to_vec(),
            Self::Some => changes.iter().filter(|_| rng.bool()).cloned().collect(),
            Self::Torn => {
                let mut kept = changes.to_vec();
                if let Some(Change::Write(_, bytes)) = kept.last_mut() {
                    bytes.truncate(rng.usize(..=bytes.len() / SECTOR) * SECTOR);
                }
                kept
            }
        }
    }
}

fn apply(to: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Resize(len) => to.resize(*len, 0),
        Change::Write(at, bytes) => {
            // The preceding resize may be lost; a write beyond the end extends a file.
            if to.len() < at + bytes.len() {
                to.resize(at + bytes.len(), 0);
            }
            to[*at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Medium {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn copy(&self) -> Self {
        let synced = self.state().synced.clone();
        Self::with_image(synced)
    }

    fn with_image(image: Vec<u8>) -> Self {
        let state = State { live: image.clone(), synced: image, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn with_power_loss_at(self, step: u64) -> Self {
        self.state().dies_at = Some(step);
        self
    }

    pub(crate) fn with_ignored_syncs(self) -> Self {
        self.state().ignores_syncs = true;
        self
    }

    pub(crate) fn steps(&self) -> u64 {
        self.state().steps
    }

    pub(crate) fn has_unsynced_writes(&self) -> bool {
        !self.state().since.is_empty()
    }

    pub(crate) fn after_power_cut(&self, kept: Survivors, rng: &mut Rng) -> Self {
        let state = self.state();
        let mut image = state.synced.clone();
        for change in kept.of(&state.since, rng) {
            apply(&mut image, &change);
        }
        Self::with_image(image)
    }
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        if self.dies_at.is_some_and(|at| self.steps >= at) { Err(power_lost_error()) } else { Ok(()) }
    }

    /// The change during which power is lost may be kept or not.
    fn change(&mut self, change: Change) -> io::Result<()> {
        let dead = self.dies_at.is_some_and(|at| self.steps >= at);
        let stepped = self.step();
        if !dead {
            apply(&mut self.live, &change);
            self.since.push(change);
        }
        stepped
    }
}

fn power_lost_error() -> io::Error {
    io::Error::other("the power is lost")
}

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let state = self.state();
        let found = state.live.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Change::Resize(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        if !state.ignores_syncs {
            let since = std::mem::take(&mut state.since);
            for change in &since {
                apply(&mut state.synced, change);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Change::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}
