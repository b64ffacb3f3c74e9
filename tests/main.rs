//! The library and the command as their users see them: one binary, so that it is linked once.
//!
//! Separate from it are `kill_drill`, which keeps every core busy and kills by real time, and `providers` and `mcp`,
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
// The operating systems word a missing file differently.
#[cfg(target_os = "linux")]
mod texts;
