//! The environment and limits of commands.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use subtend_session::ids::Text;

use crate::builtin::environment;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Variables that commands get in addition to common ones such as `PATH`, `HOME` and `LANG`. Each entry is a name, or a prefix followed
    /// by `*`.
    pub environment: Vec<Text>,
    /// Limits of a command under a guard.
    pub limits: CommandLimits,
}

/// Limits of one command and its descendants. A lower system limit takes precedence. Without a guard these limits do not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// Concurrent processes and threads. For the superuser, this limit applies only if the guard can create a control group.
    pub processes: u64,
    /// Memory of one process.
    pub memory_bytes: u64,
    /// Bytes of one written file.
    pub file_bytes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Seconds of CPU time of one process.
    pub cpu_seconds: u64,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self { processes: 2048, memory_bytes: 8 << 30, file_bytes: 8 << 30, open_files: 4096, cpu_seconds: 3600 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not the name of a variable: give a name such as `HTTPS_PROXY`, or the start of names such as `AWS_*`"
)]
pub struct BadVariable {
    pub name: Text,
}

impl Commands {
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        environment::passed_variables(std::env::vars_os(), &self.environment)
    }

    /// Checks that each entry is a variable name.
    ///
    /// # Errors
    /// [`BadVariable`] for the first invalid entry.
    pub fn check(&self) -> Result<(), BadVariable> {
        let is_name = |name: &str| {
            let start = name.strip_suffix('*').unwrap_or(name);
            !name.is_empty() && !start.contains(['=', '\0', '*']) && !start.contains(char::is_whitespace)
        };
        match self.environment.iter().find(|name| !is_name(name)) {
            Some(name) => Err(BadVariable { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// Hides the environment and memory of this process from other processes of its user, such as commands. Also disables core dumps.
/// The superuser can still read both.
///
/// # Errors
/// If the system rejects the change.
#[cfg(target_os = "linux")]
pub fn hide_this_process() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};

    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Does nothing, because only Linux exposes the environment of a process in files.
///
/// # Errors
/// Never.
#[cfg(not(target_os = "linux"))]
pub fn hide_this_process() -> std::io::Result<()> {
    Ok(())
}
