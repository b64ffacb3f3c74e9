//! Kills and reaps a command with all its descendants.

use std::io::{self, Write as _};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait as wait_any};

/// Number of rounds of killing before giving up, about one second in total.
const MAX_ROUNDS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Makes orphaned descendants children of this process.
pub(super) fn adopt() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        eprintln!("guard: processes that leave their group may outlive the command: {error}");
    }
}

/// Waits for `leader`, reaping adopted processes meanwhile. Returns its exit code as a shell does.
pub(super) fn wait(leader: Pid) -> i32 {
    loop {
        match wait_any(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => return exit_code(status),
            Ok(_) | Err(Errno::INTR) => {}
            // The other thread has already killed and reaped the process.
            Err(_) => return 137,
        }
    }
}

fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| Some(status.terminating_signal()?.saturating_add(128))).unwrap_or(1)
}

/// Kills the group of `leader`, if it may still exist, and all descendants. Returns whether all have ended.
///
/// One round is not enough: a killed process may have just started another process, which the guard then adopts.
pub(super) fn end(leader: Option<Pid>) -> bool {
    if let Some(leader) = leader {
        // An error means that the group has already ended.
        let _ = kill_process_group(leader, Signal::KILL);
    }
    for _ in 0..MAX_ROUNDS {
        loop {
            match wait_any(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return true,
            }
        }
        kill_descendants(std::process::id());
        std::thread::sleep(PAUSE);
    }
    false
}

/// Kills this guard. From the signal, the caller concludes that processes of the command may remain.
pub(super) fn give_up() -> ! {
    // An error means that the output of the command is closed.
    let _ = writeln!(io::stderr(), "guard: some processes of the command have not ended");
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

/// Kills the remaining descendants of the unresponsive guard `id`, and then the guard. Returns whether all of them were killed.
///
/// A stopped guard still adopts orphans, so its descendants can be found.
pub(crate) fn kill_with_descendants(id: u32) -> bool {
    let mut empty_rounds = 0;
    for _ in 0..MAX_ROUNDS {
        // The scan may miss a process that starts meanwhile, so two scans must find none.
        empty_rounds = if kill_descendants(id) { empty_rounds + 1 } else { 0 };
        if empty_rounds == 2 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    if let Some(guard) = pid(id) {
        // An error means that the process has already ended.
        let _ = rustix::process::kill_process(guard, Signal::KILL);
    }
    empty_rounds == 2
}

/// Kills the descendants of `root`. Returns true if it has no descendants.
#[cfg(target_os = "linux")]
fn kill_descendants(root: u32) -> bool {
    let mut parents = processes();
    let mut known = vec![root];
    // Each pass finds the next generation.
    loop {
        let (found, rest): (Vec<_>, Vec<_>) = parents.into_iter().partition(|(_, parent)| known.contains(parent));
        if found.is_empty() {
            return known == [root];
        }
        for (id, _) in &found {
            if let Some(pid) = pid(*id) {
                // An error means that the process has already ended, or that it belongs to another user.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        known = found.into_iter().map(|(id, _)| id).collect();
        parents = rest;
    }
}

/// Returns false, because this system does not report parents.
#[cfg(not(target_os = "linux"))]
fn kill_descendants(_: u32) -> bool {
    false
}

#[cfg(target_os = "linux")]
pub(crate) fn with_descendants(root: u32) -> Vec<u32> {
    let (mut all, mut last, mut rest) = (vec![root], vec![root], processes());
    while !last.is_empty() {
        let (found, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, parent)| last.contains(parent));
        last = found.into_iter().map(|(id, _)| id).collect();
        all.extend(&last);
        rest = others;
    }
    all
}

#[cfg(target_os = "linux")]
fn processes() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter_map(|id| Some((id, parent(&read_process_file(id, "stat")?)?))).collect()
}

/// Reads a file of a process that contains its name. A process can give itself a name that is not UTF-8.
#[cfg(target_os = "linux")]
pub(super) fn read_process_file(id: u32, file: &str) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{id}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the parent from a line of `/proc/<pid>/stat`. The name before it may contain parentheses. Returns `None` for a
/// dead process that has not been reaped. A process whose main thread has ended has the same state, but more threads.
#[cfg(target_os = "linux")]
fn parent(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let (state, parent) = (fields.next()?, fields.next()?);
    // `num_threads` is the 20th field of the line.
    let threads: u32 = fields.nth(15).and_then(|count| count.parse().ok()).unwrap_or_default();
    if state == "X" || (state == "Z" && threads <= 1) { None } else { parent.parse().ok() }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn parent_is_parsed_after_a_name_with_parentheses() {
        assert_eq!(parent("12 (a) S 1) R 34 12 12 0"), Some(34));
        assert_eq!((parent("12"), parent("12 (a) Z 34 12 12 0")), (None, None));
    }

    #[test]
    fn zombie_counts_as_dead_when_no_thread_is_left() {
        let line =
            |state, threads| format!("12 (a) {state} 34 12 12 0 -1 4228100 1 0 0 0 5 6 0 0 20 0 {threads} 0 99 0 0");
        assert_eq!(["Z", "X", "S"].map(|state| parent(&line(state, 1))), [None, None, Some(34)]);
        assert_eq!(["Z", "X", "S"].map(|state| parent(&line(state, 2))), [Some(34), None, Some(34)]);
    }
}
