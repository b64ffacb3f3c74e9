//! The library and the command as their users have them: one binary, so that it is linked once.
//!
//! Apart from it are `kill_drill`, which keeps every core busy and kills by real time, and `providers`, which needs servers.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on fails"
)]

mod attacks;
mod cli;
mod main_job;
mod schemas;
#[cfg(feature = "testing")]
mod testing;
// What the system says of a file that is not there differs from one to the next.
#[cfg(target_os = "linux")]
mod texts;
