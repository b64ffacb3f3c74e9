//! Tests of the tools through the public API, in one binary. A test that needs another process starts this program again. An environment
//! variable then selects the role of the new process.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(all(target_os = "linux", feature = "mcp"))]
mod mcp;
#[cfg(target_os = "linux")]
mod modes;
#[cfg(target_os = "linux")]
mod processes;
mod properties;
#[cfg(target_os = "linux")]
mod race;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod scene;
#[cfg(target_os = "linux")]
mod secrets;
