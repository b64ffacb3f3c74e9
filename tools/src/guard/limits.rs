//! Resource limits of a command and its descendants. The guard applies them to itself, and its children inherit them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::LIMITS;
use crate::commands::CommandLimits;

/// Seconds between the soft and the hard limit of CPU time.
const CPU_GRACE: u64 = 5;

/// Maximum number of signals that are queued for the user, and of timers of its processes, at which a command can add one.
#[cfg(target_os = "linux")]
const QUEUED_SIGNALS: u64 = 4_096;

/// Reads the limits from the environment. Returns `None` if no runtime started the guard.
pub(super) fn from_environment() -> Result<Option<CommandLimits>, String> {
    let Some(text) = std::env::var_os(LIMITS) else { return Ok(None) };
    let text = text.to_str().ok_or("they are not UTF-8")?;
    serde_json::from_str(text).map(Some).map_err(|error| error.to_string())
}

/// Applies the limits to this process and its future descendants. A sandboxed command gets its limit of CPU time by [`limit_cpu`]: it could
/// have the guard use up its own, by orphans without end, and outlive it.
///
/// # Errors
/// If the system rejects a limit. Then the command must not be started.
pub(super) fn apply(limits: &CommandLimits, sandboxed: bool) -> Result<Counted, String> {
    let CommandLimits { processes, memory_bytes, file_bytes, open_files, cpu_seconds } = *limits;
    lower("core dumps", Resource::Core, 0, 0)?;
    lower("memory", Resource::Data, memory_bytes, memory_bytes)?;
    lower("file size", Resource::Fsize, file_bytes, file_bytes)?;
    lower("open files", Resource::Nofile, open_files, open_files)?;
    // All processes of a user share a count of queued signals, and this limit applies to those that add to it.
    #[cfg(target_os = "linux")]
    lower("queued signals", Resource::Sigpending, QUEUED_SIGNALS, QUEUED_SIGNALS)?;
    if !sandboxed {
        lower("CPU time", Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(CPU_GRACE))?;
    }
    limit_processes(processes)
}

/// Limits the CPU time of a sandboxed command that has not begun.
///
/// # Errors
/// As for [`apply`].
#[cfg(target_os = "linux")]
pub(super) fn limit_cpu(command: u32) -> Result<(), String> {
    let Some(CommandLimits { cpu_seconds, .. }) = from_environment()? else { return Ok(()) };
    let limit = lowered(Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(CPU_GRACE));
    let limited = rustix::process::prlimit(super::reap::pid(command), Resource::Cpu, limit);
    limited.map(drop).map_err(|error| format!("cannot limit CPU time: {error}"))
}

/// Does nothing, because only Linux has a sandbox.
#[cfg(not(target_os = "linux"))]
pub(super) fn limit_cpu(_: u32) -> Result<(), String> {
    Ok(())
}

fn lower(name: &str, resource: Resource, current: u64, maximum: u64) -> Result<(), String> {
    setrlimit(resource, lowered(resource, current, maximum)).map_err(|error| format!("cannot limit {name}: {error}"))
}

fn lowered(resource: Resource, current: u64, maximum: u64) -> Rlimit {
    let present = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    Rlimit { current: Some(current.min(present)), maximum: Some(maximum.min(present)) }
}

/// Placeholder for the control group, which exists only on Linux.
#[cfg(not(target_os = "linux"))]
pub(super) struct Counted;

#[cfg(not(target_os = "linux"))]
fn limit_processes(_: u64) -> Result<Counted, String> {
    Ok(Counted)
}

#[cfg(target_os = "linux")]
pub(super) use linux::Counted;
#[cfg(target_os = "linux")]
use linux::limit_processes;

#[cfg(target_os = "linux")]
mod linux {
    use std::path::{Path, PathBuf};

    use super::*;

    /// Number of threads of the guard itself, plus one spare.
    const GUARD_THREADS: u64 = 7;

    /// A control group that counts processes; removed on drop.
    pub(crate) struct Counted {
        _group: Option<ControlGroup>,
    }

    struct ControlGroup {
        parent: PathBuf,
        own: PathBuf,
    }

    /// Limits processes and threads, including those of the guard.
    ///
    /// The system's limit counts all threads of the user, so it is raised by their current number. The limit does not apply to the
    /// superuser, whose processes are limited by a control group if one can be created.
    pub(super) fn limit_processes(processes: u64) -> Result<Counted, String> {
        let most = processes.saturating_add(GUARD_THREADS);
        let user = rustix::process::getuid();
        if !user.is_root() {
            let most = most.saturating_add(threads_of(user.as_raw()));
            return lower("processes", Resource::Nproc, most, most).map(|()| Counted { _group: None });
        }
        Ok(Counted { _group: groups().into_iter().find_map(|parent| ControlGroup::create(parent, most)) })
    }

    /// Returns the control group directories of this process that can count processes.
    fn groups() -> Vec<PathBuf> {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let directory = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            let root = match controllers {
                "" => Path::new("/sys/fs/cgroup"),
                names if names.split(',').any(|name| name == "pids") => Path::new("/sys/fs/cgroup/pids"),
                _ => return None,
            };
            Some(root.join(path))
        };
        text.lines().filter_map(directory).collect()
    }

    impl ControlGroup {
        /// Creates a group in `parent` and enters it.
        fn create(parent: PathBuf, most: u64) -> Option<Self> {
            // In version 2 a controller must be enabled for child groups.
            let unified = parent.join("cgroup.subtree_control");
            if unified.exists() {
                std::fs::write(unified, "+pids").ok()?;
            }
            let group = Self { own: parent.join(format!("subtend-{}", std::process::id())), parent };
            std::fs::create_dir(&group.own).ok()?;
            // If a later step fails, the drop of the group removes the directory.
            std::fs::write(group.own.join("pids.max"), most.to_string()).ok()?;
            std::fs::write(group.own.join("cgroup.procs"), "0").ok()?;
            Some(group)
        }
    }

    impl Drop for ControlGroup {
        fn drop(&mut self) {
            // The removal fails while the group has running processes.
            drop(std::fs::write(self.parent.join("cgroup.procs"), "0"));
            drop(std::fs::remove_dir(&self.own));
        }
    }

    fn threads_of(user: u32) -> u64 {
        let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        numbers.filter_map(|id| threads(&super::super::reap::read_process_file(id, "status")?, user)).sum()
    }

    /// Returns the number of threads in a `/proc/<pid>/status`, if the process belongs to `user`.
    fn threads(status: &str, user: u32) -> Option<u64> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        (field("Uid:")?.parse() == Ok(user)).then(|| field("Threads:")?.parse().ok())?
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn threads_counts_processes_of_the_user_only() {
            let status = "Name:\tsh\nUid:\t1000\t0\t0\t0\nThreads:\t7\n";
            assert_eq!((threads(status, 1000), threads(status, 0), threads("", 0)), (Some(7), None, None));
        }
    }
}
