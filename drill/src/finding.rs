//! Violations that a drill finds. A store is *at rest* if a recovery has ended and no run is in flight.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The store does not open, or is inconsistent.
    Unsound,
    /// An acknowledged fact is missing.
    Lost,
    /// The files of the store still contain erased text.
    #[serde(rename = "kept")]
    NotErased,
    /// An owner received an end twice.
    Duplicated,
    /// An owner never received an end.
    Missing,
    /// A call has no result at rest.
    Dangling,
    /// A run does not have exactly one end at rest.
    #[serde(rename = "endless")]
    NotEndedOnce,
    /// A side effect was repeated.
    Repeated,
    /// A side effect happened without a durable intent record.
    Unintended,
    /// A later process wrote a record in an epoch that an earlier process used.
    Unfenced,
    /// A process of a tool outlived the kill by more than a second.
    Orphaned,
    /// The process hung, or ended before the drill killed it.
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub kind: FindingKind,
    pub what: String,
}
