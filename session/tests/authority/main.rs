//! Properties of authority (P-1 to P-4) over chains of sessions up to depth 12, each with seeded bugs that it must detect.
//!
//! A property takes an evaluation of a chain of rule sets. It must hold for the crate's evaluation in every case, and fail
//! for each seeded bug in at least one.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot continue fails")]

mod chains;
mod given;
mod histories;
