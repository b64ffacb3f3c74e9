//! Processes of a test that kill themselves at a moment.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use subtend_journal::{Journal, StoreSpec, open_store};

pub(crate) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// Runs the test `name` of this binary with an instruction in `variable`; returns whether it was killed.
pub(crate) fn is_killed(name: &str, variable: &str, instruction: &str) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--nocapture"]).stdout(Stdio::null());
    command.env(variable, instruction).status().expect("it starts").signal() == Some(9)
}

pub(crate) fn store(dir: &Path) -> Journal {
    open_store(&StoreSpec::Redb(dir.join("store"))).expect("the store opens")
}

/// Adds a line to the calls of this process.
pub(crate) fn note(dir: &Path, line: &str) {
    let path = dir.join(format!("calls-{}", std::process::id()));
    let mut file = fs::File::options().create(true).append(true).open(path).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}

/// Removes and returns the calls of this process.
pub(crate) fn take_notes(dir: &Path) -> Vec<String> {
    let path = dir.join(format!("calls-{}", std::process::id()));
    let notes = fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    drop(fs::remove_file(path));
    notes
}
