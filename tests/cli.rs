//! The command: output streams and exit codes.

pub(crate) mod call;
pub(crate) mod repository;

mod agents;
mod cancel;
mod caps;
mod checkpoints;
mod condense;
mod config;
mod cut_off;
#[cfg(unix)]
mod deleting;
mod drill;
mod elsewhere;
mod ids;
#[cfg(target_os = "linux")]
mod left;
mod life;
#[cfg(target_os = "linux")]
mod memory;
mod moving;
mod named;
mod permissions;
#[cfg(target_os = "linux")]
mod processes;
mod prompt;
mod reading;
mod reload;
mod rollback;
mod runs;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod screen;
#[cfg(unix)]
mod second;
pub(crate) mod serve;
mod services;
mod store;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod unchanged;
mod usage;
mod waiting;
#[cfg(feature = "web")]
mod web;
#[cfg(target_os = "linux")]
pub(crate) mod worker;
#[cfg(unix)]
pub(crate) mod worktree;
