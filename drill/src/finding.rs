//! What a drill finds.

use serde::Serialize;

/// What was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The store does not open, or is not what it should be.
    Unsound,
    /// Acknowledged, and gone.
    Lost,
    /// Deleted and erased, and still in the files of the store.
    Kept,
    /// An owner heard of an end twice.
    Duplicated,
    /// An owner never heard of an end.
    Missing,
    /// A call has no result at rest.
    Dangling,
    /// A run has not exactly one end at rest.
    Endless,
    /// A side effect happened again.
    Repeated,
    /// A side effect happened that no durable record intends.
    Unintended,
    /// A record of a later process is in the epoch of an earlier one.
    Unfenced,
    /// A process outlived the kill by more than a second.
    Orphaned,
    /// The process ended by itself.
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub kind: Kind,
    /// What is wrong, and where.
    pub what: String,
}
