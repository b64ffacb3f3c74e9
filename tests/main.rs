//! Tests of the library and the command, in one binary so that they are linked only once.
//!
//! Separate binaries are `kill_drill`, which keeps every core busy and kills in real time, and `providers` and `mcp`,
//! which need servers.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot continue fails"
)]

mod attacks;
mod cli;
mod main_job;
mod schemas;
#[cfg(feature = "testing")]
mod testing;
// Operating systems describe a missing file differently.
#[cfg(target_os = "linux")]
mod texts;
