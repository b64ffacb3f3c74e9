//! The hub of subtend: one mailbox, one activation and one loop for each session: take, decide, commit, perform.

mod activation;
mod admit;
pub mod boot;
pub mod builder;
mod clock;
mod commit;
mod directory;
mod driver;
pub mod event;
pub mod faults;
pub mod handle;
mod hub;
mod lane;
mod mint;
mod offer;
pub mod options;
mod perform;
mod publisher;
pub mod runtime;
mod session_actor;
mod ticket;
mod tool_task;
mod turn;
mod waiters;
mod work;

pub use boot::{BootError, BootProgress, BootReport};
pub use builder::{Builder, StartError};
pub use event::{Event, Next, Subscription, What};
pub use handle::{Control, Ended, Receipt, SendError, SessionHandle, Stopped, WaitError};
pub use options::Options;
pub use runtime::{OpenOptions, OpenSessionError, Runtime, ShutdownReport};
