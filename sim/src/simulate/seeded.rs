//! Seeded bugs that the simulator must notice.

use std::fmt;
use std::str::FromStr;

use subtend_actors::faults::RuntimeBug;
use subtend_invariants::bugs::Bug;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreBug {
    /// Outbox rows are not stored.
    RowsLost,
    /// Outbox rows that were taken are not removed.
    RowsStay,
    /// Runs in flight are not found at the next start.
    InflightLost,
    /// Only the first frame of some batches is stored.
    BatchTorn,
    /// Some acknowledged writes are lost.
    TailLost,
    /// A failed sync is reported as a success.
    FailureHidden,
    /// A deletion is missing from the index.
    DeletionLost,
    /// A compaction of the store erases nothing.
    ErasedStays,
}

impl StoreBug {
    pub const ALL: [Self; 8] = [
        Self::RowsLost,
        Self::RowsStay,
        Self::InflightLost,
        Self::BatchTorn,
        Self::TailLost,
        Self::FailureHidden,
        Self::DeletionLost,
        Self::ErasedStays,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seeded {
    /// A rule of sessions is switched off.
    Heart(Bug),
    Disk(StoreBug),
    Hub(RuntimeBug),
}

impl Seeded {
    /// Bugs that 400 seeds of the simulator did not notice (1,000 seeds for `OwnerNotChecked`). The model notices them.
    ///
    /// - `CancelReachesNextRun`: presumably, a late `cancel` row is recorded before the run's token fires.
    /// - `SlotKeptWhileAsking`: presumably, a slot that is kept during an approval only delays other runs.
    /// - `AlternativeOverwrites`: presumably, an answer that a switch overwrites in memory is correct again after the next
    ///   fold.
    /// - `ClosedTakesContinue`: the runtime sends no continue to a closed session. The rule applies only if the session is
    ///   closed while the continue is in flight.
    /// - `ResetTwice`: presumably, because the runtime has one timer for a reset, which fires once.
    /// - `OwnerNotChecked`: an owner ends the runs that it started before they are admitted, except in a race.
    const HIDDEN: [Bug; 6] = [
        Bug::CancelReachesNextRun,
        Bug::SlotKeptWhileAsking,
        Bug::AlternativeOverwrites,
        Bug::ClosedTakesContinue,
        Bug::ResetTwice,
        Bug::OwnerNotChecked,
    ];

    pub fn all() -> impl Iterator<Item = Self> {
        let shown = Bug::ALL.into_iter().filter(|bug| !Self::HIDDEN.contains(bug));
        shown.map(Self::Heart).chain(StoreBug::ALL.map(Self::Disk)).chain(RuntimeBug::ALL.map(Self::Hub))
    }
}

impl fmt::Display for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heart(bug) => write!(f, "{bug:?}"),
            Self::Disk(store_bug) => write!(f, "{store_bug:?}"),
            Self::Hub(runtime_bug) => write!(f, "{runtime_bug:?}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown seeded bug {0:?}; `subtend-sim controls --list` lists all")]
pub struct NoSuchBug(String);

impl FromStr for Seeded {
    type Err = NoSuchBug;

    fn from_str(name: &str) -> Result<Self, NoSuchBug> {
        Self::all().find(|bug| bug.to_string() == name).ok_or_else(|| NoSuchBug(name.to_owned()))
    }
}
