//! What commands get of this process and of the machine.

use serde::{Deserialize, Serialize};
use subtend_session::ids::Text;

/// What commands of the tool `shell` get of this process and of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Variables of the environment that commands get besides the usual ones (`PATH`, `HOME`, `LANG`, toolchains): a
    /// name, or the start of names with `*` at its end.
    pub environment: Vec<Text>,
    /// Limits of a command under a guard.
    pub limits: CommandLimits,
}

/// Limits of one command and of what it starts. A limit of the system that is lower applies; without a guard none of
/// these does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// Processes and threads at the same time. The superuser's are limited where the guard can make a control group.
    pub processes: u64,
    /// Bytes of memory of one process.
    pub memory_bytes: u64,
    /// Bytes of one file that is written.
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

/// A variable that no environment can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not the name of a variable: give a name such as `HTTPS_PROXY`, or the start of names such as `AWS_*`"
)]
pub struct BadVariable {
    pub name: Text,
}

impl Commands {
    /// Checks that each entry can be the name of a variable.
    ///
    /// # Errors
    /// For the first that cannot.
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

/// Keeps the environment and the memory of this process from other processes of its user, commands of sessions among
/// them. The superuser can still read them. There are no core dumps of it from then on.
///
/// # Errors
/// When the system refuses.
#[cfg(target_os = "linux")]
pub fn hide_this_process() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};

    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Does nothing: only Linux shows the environment of a process to others in files.
///
/// # Errors
/// Never.
#[cfg(not(target_os = "linux"))]
pub fn hide_this_process() -> std::io::Result<()> {
    Ok(())
}
