use serde::{Deserialize, Serialize};

/// The phase of the run in flight: the columns of the table in `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Queued,
    /// A model stream or local call is active or due.
    Working,
    /// The turn has open calls, all of which wait for children or approvals; or the run awaits a slot after such calls.
    WaitingMidTurn,
    /// No call is open and owned runs are in flight, or the run awaits a slot after that.
    WaitingAtRest,
    HeldInterrupted,
    HeldOutOfTurns,
    /// Held with a fixed outcome.
    Closing,
    /// No run is in flight.
    Quiet,
}
