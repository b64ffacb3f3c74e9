//! Attacks: models that try everything to exceed their permissions, on a whole runtime.
//!
//! Each reproduces a privilege escalation that other agent systems had.

pub(crate) mod scene;

mod arguments;
mod bulk;
mod cloned;
#[cfg(unix)]
mod eyes;
#[cfg(unix)]
mod files;
#[cfg(unix)]
mod flood;
#[cfg(target_os = "linux")]
mod guarded;
#[cfg(target_os = "linux")]
mod held;
#[cfg(unix)]
mod hosts;
mod huge;
mod ids;
mod imported_bounds;
mod imports;
mod inheritance;
mod instructions;
mod kept;
#[cfg(unix)]
mod linked;
mod moved;
mod output;
#[cfg(unix)]
mod owners;
mod paths;
mod present;
#[cfg(target_os = "linux")]
mod processes;
mod products;
mod rules;
#[cfg(all(unix, feature = "cli"))]
mod servers;
mod shell;
mod skills;
mod slash;
#[cfg(feature = "providers")]
mod tls;
mod trusted;
#[cfg(feature = "web")]
mod web;
#[cfg(feature = "web")]
pub(crate) mod web_server;
mod words;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod workers;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod worktree;
mod writing;
