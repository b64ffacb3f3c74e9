//! Limits of the machine for a command and its descendants. The guard applies them to itself, and its children inherit them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::LIMITS;
use crate::commands::CommandLimits;

/// Seconds between the soft and the hard CPU time signal.
const LAST: u64 = 5;

/// Reads the limits from the environment; `None` if no runtime started this guard.
pub(super) fn of_environment() -> Result<Option<CommandLimits>, String> {
    let Some(text) = std::env::var_os(LIMITS) else { return Ok(None) };
    let text = text.to_str().ok_or("they are not text")?;
    serde_json::from_str(text).map(Some).map_err(|error| error.to_string())
}

/// Limits this process and its descendants from now on.
///
/// # Errors
/// If a limit is refused: the command must not start then.
pub(super) fn apply(limits: &CommandLimits) -> Result<Counted, String> {
    let CommandLimits { processes, memory_bytes, file_bytes, open_files, cpu_seconds } = *limits;
    lower("core dumps", Resource::Core, 0, 0)?;
    lower("memory", Resource::Data, memory_bytes, memory_bytes)?;
    lower("file size", Resource::Fsize, file_bytes, file_bytes)?;
    lower("open files", Resource::Nofile, open_files, open_files)?;
    lower("CPU time", Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(LAST))?;
    count(processes)
}

fn lower(what: &str, resource: Resource, current: u64, maximum: u64) -> Result<(), String> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let (current, maximum) = (Some(current.min(most)), Some(maximum.min(most)));
    setrlimit(resource, Rlimit { current, maximum }).map_err(|error| format!("the limit of {what} is refused: {error}"))
}

/// The process counter, where the per-user limit does not apply.
#[cfg(not(target_os = "linux"))]
pub(super) struct Counted;

#[cfg(not(target_os = "linux"))]
fn count(_: u64) -> Result<Counted, String> {
    Ok(Counted)
}

#[cfg(target_os = "linux")]
pub(super) use linux::Counted;
#[cfg(target_os = "linux")]
use linux::count;

#[cfg(target_os = "linux")]
mod linux {
    use std::path::{Path, PathBuf};

    use super::*;

    /// Threads of the guard itself, with one spare.
    const OWN: u64 = 6;

    /// A control group that counts processes; removed on drop.
    pub(crate) struct Counted {
        _group: Option<ControlGroup>,
    }

    struct ControlGroup {
        above: PathBuf,
        own: PathBuf,
    }

    /// Limits processes and threads, including this one: on top of the user's present count; for the superuser by a control group, since
    /// that count does not apply. Without a group the superuser's are unlimited.
    pub(super) fn count(processes: u64) -> Result<Counted, String> {
        let most = processes.saturating_add(OWN);
        let user = rustix::process::getuid();
        if !user.is_root() {
            let most = most.saturating_add(threads_of(user.as_raw()));
            return lower("processes", Resource::Nproc, most, most).map(|()| Counted { _group: None });
        }
        Ok(Counted { _group: groups().into_iter().find_map(|above| ControlGroup::make(above, most)) })
    }

    /// Returns this process's control group directories that can count processes.
    fn groups() -> Vec<PathBuf> {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let place = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            let root = match controllers {
                "" => Path::new("/sys/fs/cgroup"),
                of if of.split(',').any(|name| name == "pids") => Path::new("/sys/fs/cgroup/pids"),
                _ => return None,
            };
            Some(root.join(path))
        };
        text.lines().filter_map(place).collect()
    }

    impl ControlGroup {
        /// Creates a group below `above` and enters it.
        fn make(above: PathBuf, most: u64) -> Option<Self> {
            // In version 2 a controller must be enabled for child groups.
            let unified = above.join("cgroup.subtree_control");
            if unified.exists() {
                std::fs::write(unified, "+pids").ok()?;
            }
            let group = Self { own: above.join(format!("subtend-{}", std::process::id())), above };
            std::fs::create_dir(&group.own).ok()?;
            // From here on a failure drops the group, which removes it.
            std::fs::write(group.own.join("pids.max"), most.to_string()).ok()?;
            std::fs::write(group.own.join("cgroup.procs"), "0").ok()?;
            Some(group)
        }
    }

    impl Drop for ControlGroup {
        fn drop(&mut self) {
            // A group with live processes remains.
            drop(std::fs::write(self.above.join("cgroup.procs"), "0"));
            drop(std::fs::remove_dir(&self.own));
        }
    }

    fn threads_of(user: u32) -> u64 {
        let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        numbers.filter_map(|id| threads(&std::fs::read_to_string(format!("/proc/{id}/status")).ok()?, user)).sum()
    }

    /// Returns the threads in a `/proc/<pid>/status`, if the process is the user's.
    fn threads(status: &str, user: u32) -> Option<u64> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        (field("Uid:")?.parse() == Ok(user)).then(|| field("Threads:")?.parse().ok())?
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn threads_are_those_of_the_user() {
            let status = "Name:\tsh\nUid:\t1000\t0\t0\t0\nThreads:\t7\n";
            assert_eq!((threads(status, 1000), threads(status, 0), threads("", 0)), (Some(7), None, None));
        }
    }
}
