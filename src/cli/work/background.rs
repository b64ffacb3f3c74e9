//! A background host for detached runs.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::client::Attached;
use super::super::data::StoreArgs;
use super::super::fail::Fail;
use super::super::progress::ProgressLine;
use super::super::serve::directory;
use subtend_journal::owner_only::file_options;

/// The log file of the host, in its directory.
const LOG: &str = "host.log";
/// Interval of checks whether the host listens.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of checks, one minute in total, because the recovery of a large store takes time.
const MAX_POLLS: u32 = 1_200;
/// Maximum number of checks after the started process has exited.
const MAX_POLLS_AFTER_EXIT: u32 = 60;

/// Creates the file of what the host prints, in place of an earlier one. The author of a store may have put a link or a pipe there.
fn new_log(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => file_options().create_new(true).write(true).open(path),
    }
}

/// Starts a host of the store unless one is running. It ends when no run is left.
pub(crate) fn ensure_host(store: &StoreArgs) -> Result<(), Fail> {
    let place = store.place()?;
    if place.is_in_memory() {
        return Err(Fail::Usage(
            "`--detach` needs a store on disk: name one with --data DIR or --store ENGINE:PATH".to_owned(),
        ));
    }
    if Attached::to(&place)?.is_some() {
        return Ok(());
    }
    if let Some(dir) = place.path().map_or_else(|| place.node_dir(), std::path::Path::parent) {
        subtend_journal::owner_only::create_dir_all(dir)
            .map_err(|error| Fail::Store(format!("cannot create {}: {error}", dir.display())))?;
    }
    let log = directory(&place)?.join(LOG);
    let at_log =
        |what: &str| Fail::Other(format!("the host did not start: {what}; its output is in {}", log.display()));
    let file = new_log(&log).map_err(|error| at_log(&error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| at_log(&error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "none", "--until-idle"]);
    store.pass_to(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        // The host must survive Ctrl-C at this terminal and the end of the terminal.
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|error| at_log(&error.to_string()))?;
    let mut progress = ProgressLine::new();
    let mut after_exit = 0_u32;
    for _ in 0..MAX_POLLS {
        if Attached::to(&place)?.is_some() {
            return Ok(());
        }
        if let Some(status) = child.try_wait().map_err(|error| at_log(&error.to_string()))? {
            // Another process that started at the same time may hold the store, and listen soon.
            after_exit = after_exit.saturating_add(1);
            if after_exit > MAX_POLLS_AFTER_EXIT {
                return Err(at_log(&status.to_string()));
            }
        }
        progress.report(|| "waiting for the host to be ready".to_owned());
        std::thread::sleep(POLL_INTERVAL);
    }
    Err(at_log("it did not listen within a minute"))
}
