//! Phases of a run.

use serde::{Deserialize, Serialize};

/// Where the run in flight stands: the columns of the table in `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Opened, not claimed.
    Queued,
    /// A model stream or local call is in flight or due.
    Working,
    /// Mid-turn: only child, await or ask calls are open; or a slot is awaited after that.
    WaitingMidTurn,
    /// At rest: no call open, owned runs in flight; or a slot is awaited after that.
    WaitingAtRest,
    /// Held: interrupted.
    HeldInterrupted,
    /// Held: out of turns.
    HeldOutOfTurns,
    /// Held: the outcome is fixed.
    Closing,
    /// No run in flight.
    Quiet,
}
