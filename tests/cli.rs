//! Tests of the command: output, exit codes and effects.

pub(crate) mod call;
pub(crate) mod repository;

#[cfg(target_os = "linux")]
mod after_kill;
mod agents;
mod cancel;
mod caps;
#[cfg(all(target_os = "linux", feature = "web"))]
mod certificates;
mod checkpoints;
mod compaction;
mod config;
#[cfg(unix)]
mod deleting;
mod drill;
mod export_import;
mod ids;
mod json_results;
mod lost_answers;
#[cfg(all(unix, feature = "web"))]
mod mcp;
#[cfg(target_os = "linux")]
mod memory;
mod model_names;
mod other_directory;
mod permissions;
#[cfg(target_os = "linux")]
mod processes;
mod prompt;
mod queued_inputs;
#[cfg(target_os = "linux")]
mod read_only;
mod reading;
mod reload;
mod rollback;
mod runs;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod screen;
#[cfg(unix)]
mod second_terminal;
pub(crate) mod serve;
mod services;
mod session_verbs;
mod store;
#[cfg(target_os = "linux")]
pub(crate) mod terminal;
#[cfg(target_os = "linux")]
mod unread_output;
mod usage;
#[cfg(feature = "web")]
mod web;
#[cfg(target_os = "linux")]
pub(crate) mod worker;
#[cfg(unix)]
pub(crate) mod worktree;
