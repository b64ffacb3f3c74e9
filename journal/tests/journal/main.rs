//! Tests of the journal: one suite for every engine, crashes, damage, and opening.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code, also in helpers")]

mod blobs;
mod compacted;
mod conformance;
mod crash;
mod damage;
mod described;
mod engines;
mod erasing;
mod exporting;
mod files;
mod fixtures;
mod importing;
mod kinds;
mod medium;
mod metadata;
mod opening;
mod poison;
#[cfg(feature = "postgres-tests")]
mod postgres;
mod power;
mod reading;
mod refusals;
mod remote;
mod rolled_back;
mod scene;
mod verifying;
