//! Attacks by models that try to exceed their permissions, on a whole runtime.
//!
//! Each attack reproduces a privilege escalation of other agent systems.

pub(crate) mod scene;

mod approvals;
mod arguments;
mod cloned_repository;
#[cfg(target_os = "linux")]
mod confinement;
#[cfg(unix)]
mod escaping;
#[cfg(unix)]
mod files;
#[cfg(unix)]
mod flood;
#[cfg(unix)]
mod given_stores;
#[cfg(target_os = "linux")]
mod guard_attacks;
#[cfg(unix)]
mod hosts;
mod huge_files;
mod ids;
mod imported_bounds;
#[cfg(unix)]
mod imported_frames;
mod imported_names;
mod imported_sessions;
#[cfg(unix)]
mod imported_views;
mod imports;
mod inheritance;
mod instructions;
#[cfg(unix)]
mod linked_configuration;
#[cfg(all(unix, feature = "cli", feature = "web"))]
pub(crate) mod login_server;
#[cfg(all(unix, feature = "cli", feature = "web"))]
mod logins;
mod messages;
mod output;
#[cfg(unix)]
mod owners;
mod paths;
#[cfg(target_os = "linux")]
mod process_handles;
#[cfg(target_os = "linux")]
mod processes;
mod products;
mod protected_files;
#[cfg(all(unix, feature = "cli"))]
mod proxies;
mod quoted_text;
mod reduced_permissions;
#[cfg(unix)]
mod reexported;
mod rules;
#[cfg(all(unix, feature = "cli"))]
mod servers;
#[cfg(target_os = "linux")]
mod shared_directories;
mod shell;
mod skills;
mod slash;
mod store_size;
#[cfg(unix)]
mod temporary_files;
#[cfg(feature = "providers")]
pub(crate) mod tls;
mod trust;
#[cfg(feature = "web")]
mod web;
#[cfg(feature = "web")]
pub(crate) mod web_server;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod workers;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod worktree;
