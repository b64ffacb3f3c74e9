//! Supervision: restart budgets, slots, spending, timers and cancellation.
//!
//! Everything is generic over key types and independent of sessions. Actors are not restarted automatically: the owner
//! receives each [`Exit`], asks its [`RestartBudget`], and may detect a mass failure ([`Storm`]).
//! - [`Supervisors`]: sharded supervisors of ractor actors; one child's end never ends another.
//! - [`Slots`]: run slots, bounded globally and per root, fair between roots; [`SlotPools`]: separate pools for interactive runs.
//! - [`Ledger`]: spawn limits. [`Budgets`]: limits of tokens and money.
//! - [`Timers`]: many deadlines, one task. [`TokenTree`]: cancels an owned subtree at once.
//! - [`Gate`]: refuses new work and waits for open work. [`Lease`]: permission to start work, which must be renewed.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

pub mod budget;
pub mod gate;
pub mod intensity;
pub mod lease;
pub mod ledger;
mod locked;
pub mod slots;
pub mod supervisors;
pub mod timers;
pub mod tokens;

pub use budget::{BudgetAnswer, Budgets, Currency, Reservation, Spend, SpendLimit};
pub use gate::{Gate, GatePass};
pub use intensity::{Intensity, RestartBudget, RestartDecision, Storm, StormLimit};
pub use lease::Lease;
pub use ledger::{Ledger, SpawnGrants};
pub use slots::{Class, PoolKind, Slot, SlotPools, Slots};
pub use supervisors::{Exit, ExitReason, SpawnError, StartError, StormDetected, Supervisors};
pub use timers::Timers;
pub use tokens::TokenTree;
