//! The command as its users call it: what goes where, and what it tells by its exit code.

pub(crate) mod call;
pub(crate) mod repository;

mod agents;
mod cancel;
mod caps;
mod config;
mod drill;
mod elsewhere;
#[cfg(target_os = "linux")]
mod left;
mod life;
#[cfg(target_os = "linux")]
mod memory;
mod moving;
mod named;
mod permissions;
mod prompt;
mod reading;
mod rollback;
mod runs;
#[cfg(target_os = "linux")]
mod screen;
#[cfg(unix)]
mod second;
mod serve;
mod services;
mod store;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod unchanged;
mod usage;
mod waiting;
