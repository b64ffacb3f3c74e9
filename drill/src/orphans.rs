//! Processes of tools that may outlive the killed process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use super::store_dir::StoreDir;

/// Maximum time for which a process may outlive a kill.
const MAX_LIFETIME: Duration = Duration::from_secs(1);

/// The command of a tool. It starts two processes that live for five minutes, one of them in its own process session. Each
/// writes its id. The shell that starts them writes the id of its parent, the guard.
pub(crate) const COMMAND: &str = "\
    (setsid sh -c 'echo $$ >> processes; exec sleep 300' &); \
    sh -c 'echo $$ >> processes; exec sleep 300' & \
    echo $PPID >> processes; sleep 0.05";

/// A thread that watches the processes of tools after a kill, while the store is inspected.
pub(crate) struct Orphans(JoinHandle<(u64, Vec<u32>)>);

impl Orphans {
    pub(crate) fn watch(store_dir: &StoreDir, killed: Instant) -> Self {
        let path = store_dir.processes();
        Self(std::thread::spawn(move || watch(&path, killed)))
    }

    /// Returns the number of processes, and the ids of those that lived too long and were then killed.
    pub(crate) fn remaining(self) -> (u64, Vec<u32>) {
        let (all, remaining) = self.0.join().unwrap_or_default();
        remaining.iter().copied().for_each(end);
        (all, remaining)
    }
}

fn watch(path: &Path, killed: Instant) -> (u64, Vec<u32>) {
    loop {
        let all = read(path);
        let alive: Vec<u32> = all.iter().copied().filter(|process| is_alive(*process)).collect();
        if alive.is_empty() || killed.elapsed() > MAX_LIFETIME {
            return (all.len() as u64, alive);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(path: &Path) -> BTreeSet<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Returns whether the process exists and its id was not reused.
#[cfg(target_os = "linux")]
fn is_alive(process: u32) -> bool {
    let of = PathBuf::from(format!("/proc/{process}"));
    let command_line = std::fs::read(of.join("cmdline")).unwrap_or_default();
    if command_line.is_empty() {
        // The process is a zombie, or has not reached its exec.
        return std::fs::read_to_string(of.join("stat")).is_ok_and(|stat| !has_ended(&stat));
    }
    let mut words = command_line.split(|byte| *byte == 0);
    words.any(|word| word == b"guard" || word == b"300" || word.ends_with(b"exec sleep 300"))
}

/// Returns whether a stat line reports an ended process. The name before the state may contain spaces and parentheses.
#[cfg(target_os = "linux")]
fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn is_alive(process: u32) -> bool {
    pid(process).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

#[cfg(not(unix))]
fn is_alive(_: u32) -> bool {
    false
}

#[cfg(unix)]
fn end(process: u32) {
    if let Some(pid) = pid(process) {
        // The process may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[cfg(not(unix))]
fn end(_: u32) {}

#[cfg(unix)]
fn pid(process: u32) -> Option<rustix::process::Pid> {
    i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn process_outliving_the_kill_is_found_and_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let store_dir = StoreDir::of("redb", dir.path());
        std::fs::create_dir(store_dir.workspace()).expect("a workspace");
        let mut sleeper = Command::new("sleep").arg("300").spawn().expect("a process");
        std::fs::write(store_dir.processes(), format!("{}\n1\n\n", sleeper.id())).expect("a file");
        // Process 1 is alive, but the drill did not start it, so it does not count.
        let (all, remaining) = Orphans::watch(&store_dir, Instant::now() - MAX_LIFETIME).remaining();
        assert_eq!((all, remaining), (2, vec![sleeper.id()]));
        sleeper.wait().expect("the sleeper was ended");
        let (_, remaining) = Orphans::watch(&store_dir, Instant::now()).remaining();
        assert_eq!(remaining, Vec::<u32>::new());
    }

    #[test]
    fn process_before_its_exec_has_not_ended() {
        let states = ["7 (a) Z) R 1", "7 (sleep) D 1", "7 (sleep) Z 1", "7 (sleep) X 1", "", "7 (sleep)"];
        assert_eq!(states.map(has_ended), [false, false, true, true, true, true]);
    }
}
