//! Keeps started things alive within a restart budget, within slots, and takes them down in order.
//!
//! This member knows no sessions: everything is generic over key types, so that it can be tested with toy actors and
//! stays simpler than what it protects. It never restarts anything by itself; it tells its owner what ended
//! ([`Exit`]), whether a restart is within the budget ([`RestartBudget`]) and whether a failure is local or a mass
//! failure ([`Storm`]).
//!
//! - [`Supervisors`]: sharded supervisors of ractor actors; one child's end never ends another.
//! - [`Slots`]: who may run now, bounded globally and per root, fair between roots; [`SlotPools`]: apart for persons.
//! - [`Ledger`]: how many spawns a root run has left.
//! - [`Budgets`]: what a root run may spend in tokens and money.
//! - [`Timers`]: many deadlines, one task.
//! - [`TokenTree`]: cancels a whole owned subtree at once.
//! - [`Gate`]: refuses new work and waits for what is open.

pub mod budget;
pub mod gate;
pub mod intensity;
pub mod ledger;
mod locked;
pub mod slots;
pub mod supervisors;
pub mod timers;
pub mod tokens;

pub use budget::{Asked, Budgets, Currency, Reservation, Spend, SpendLimit};
pub use gate::{Gate, Pass};
pub use intensity::{Intensity, RestartBudget, Storm, StormLimit, Verdict};
pub use ledger::{Ledger, SpawnGrants};
pub use slots::{Class, Slot, SlotPools, Slots, Whose};
pub use supervisors::{Exit, How, SpawnError, StartError, StormSeen, Supervisors};
pub use timers::Timers;
pub use tokens::TokenTree;
