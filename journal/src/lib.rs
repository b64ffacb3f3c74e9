//! The journal of subtend: one append-only log of frames with index rows, group commit, and engines behind one trait.
//!
//! An appended [`Batch`] is fenced, gets a position in the total order, and is queued without waiting for a disk. Effects outside the
//! process must wait until that position is durable ([`Journal::wait`]).

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

#[cfg(feature = "audit")]
pub mod audit;
pub mod blobs;
mod bodies;
pub mod codec;
pub mod compact;
#[cfg(feature = "disk")]
mod directory;
pub mod engine;
mod engines;
pub mod error;
pub mod export;
mod fault_points;
pub mod faulty;
mod fence;
pub mod frame;
pub mod import;
pub mod journal;
mod json;
#[cfg_attr(not(feature = "disk"), allow(dead_code, reason = "only a store in a directory needs it"))]
mod lock;
pub mod memory;
#[cfg_attr(not(feature = "disk"), allow(dead_code, reason = "only a store in a directory needs all of it"))]
pub mod owner_only;
mod panics;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queue;
mod read;
#[cfg(feature = "redb")]
pub mod redb;
pub mod remote;
#[cfg_attr(
    not(any(feature = "disk", feature = "postgres")),
    allow(dead_code, reason = "only engines that store bytes need it")
)]
mod rows;
mod shared;
#[cfg(feature = "sled")]
pub mod sled;
#[cfg(any(feature = "disk", feature = "postgres"))]
mod sorted;
pub mod stepper;
pub mod store;
#[cfg(any(feature = "disk", feature = "postgres"))]
mod tables;
#[cfg(feature = "sled")]
mod temp_copy;
pub mod verify;
mod waiters;
#[cfg_attr(not(feature = "disk"), allow(dead_code, reason = "only a store in a directory needs it"))]
mod watermark;
mod writer;

#[cfg(feature = "audit")]
pub use audit::{AuditError, Auditor, audit};
pub use compact::{Compacted, CompactionStep, DeferredErasure};
pub use engine::Engine;
pub use error::{AppendError, EngineError, OpenError, Poisoned, ReadError};
pub use export::{ExportError, Scope, Skipped, Tally};
pub use fault_points::FAULT_POINTS;
pub use frame::{Appended, Batch, Frame, Stored};
pub use import::{ImportBounds, ImportError, WrittenImport};
pub use journal::{Activation, Journal, Options, StartRows, StoreInfo};
pub use store::{
    CopyProgress, StoreSpec, compact_store, discard_store, open_store, open_store_to_read, open_store_with,
    store_exists,
};
pub use verify::{Problem, Progress, Report};
