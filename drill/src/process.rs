//! Starts and kills a process, and collects its acknowledgements.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use super::acknowledgements::Acknowledgements;
use super::error::DrillError;
use super::line::Line;
use super::plan::{KillOrder, KillPoint};
use super::sabotage::{Sabotage, VARIABLE};
use super::store_dir::{ADDRESS, StoreDir};

pub(crate) const VERB: &str = "drill-child";
/// Time after which a process counts as hanging.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(180);

#[derive(Clone, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) store_dir: &'a StoreDir,
    pub(crate) engine: &'a str,
    pub(crate) sabotage: Option<Sabotage>,
    /// Maximum time for runs to end after a recovery.
    pub(crate) patience: Duration,
}

#[derive(Debug)]
pub(crate) struct ProcessResult {
    pub(crate) acknowledged: Acknowledgements,
    /// True if the process opened the store, so that recovery started.
    pub(crate) opened: bool,
    /// Duration of the recovery, if it finished.
    pub(crate) ready: Option<Duration>,
    /// Number of runs in flight at the end of the wait for rest. Absent if the process ended before that.
    pub(crate) quiet: Option<usize>,
    /// Time at which the process was found to have ended.
    pub(crate) ended_at: Instant,
    /// The reason why the process ended, if it neither came to rest nor was killed.
    pub(crate) failure: Option<String>,
}

impl Start<'_> {
    /// Starts the process and kills it at the moment that `order` names.
    pub(crate) fn run_and_kill(&self, order: &KillOrder) -> Result<ProcessResult, DrillError> {
        let mut command = self.command()?;
        command.arg("--seed").arg(order.seed.to_string()).arg("--kill-point").arg(order.kill_point.to_string());
        let mut child = self.spawn(command)?;
        let delay = Duration::from_micros(order.late_us);
        if order.kill_point == KillPoint::Opening {
            std::thread::sleep(delay);
            kill(&mut child);
        }
        self.follow(child, delay)
    }

    /// Starts the process, lets it recover, and waits until it is at rest.
    pub(crate) fn run_and_recover(&self, seed: u64) -> Result<ProcessResult, DrillError> {
        let mut command = self.command()?;
        command.arg("--seed").arg(seed.to_string());
        self.follow(self.spawn(command)?, Duration::ZERO)
    }

    fn command(&self) -> Result<Command, DrillError> {
        let program = std::env::current_exe().map_err(|error| {
            DrillError::Other(format!("cannot find the running program, which starts the process: {error}"))
        })?;
        let mut command = Command::new(program);
        command.arg(VERB).arg("--dir").arg(self.store_dir.dir()).arg("--engine").arg(self.engine);
        command.arg("--patience-ms").arg(self.patience.as_millis().to_string());
        command.envs(self.store_dir.address().map(|address| (ADDRESS, address)));
        match self.sabotage {
            Some(sabotage) => command.env(VARIABLE, sabotage.name()),
            None => command.env_remove(VARIABLE),
        };
        Ok(command)
    }

    fn spawn(&self, mut command: Command) -> Result<Child, DrillError> {
        let errors = std::fs::File::create(self.store_dir.errors()).map_err(|error| {
            DrillError::Other(format!("cannot create {}: {error}", self.store_dir.errors().display()))
        })?;
        // The stdin of the process closes when the drill ends for any reason.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        // A Ctrl-C at the terminal is for the drill, which then kills the process.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map_err(|error| DrillError::Other(format!("cannot start the process to be killed: {error}")))
    }

    fn follow(&self, mut child: Child, delay: Duration) -> Result<ProcessResult, DrillError> {
        let watchdog = Watchdog::over(&child);
        let mut left = ProcessResult {
            acknowledged: Acknowledgements::default(),
            opened: false,
            ready: None,
            quiet: None,
            ended_at: Instant::now(),
            failure: None,
        };
        let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines);
        for line in lines.map_while(Result::ok).filter_map(|line| Line::parse(&line)) {
            left.acknowledged.record(line);
            match line {
                Line::Opened => left.opened = true,
                Line::Ready(took_us) => left.ready = Some(Duration::from_micros(took_us)),
                Line::Quiet(runs) => left.quiet = Some(runs),
                Line::KillPoint => {
                    std::thread::sleep(delay);
                    kill(&mut child);
                }
                Line::Input(..)
                | Line::Ended(..)
                | Line::Cancelled(..)
                | Line::Interrupted(..)
                | Line::Branched(_)
                | Line::Approved(..)
                | Line::Deleting(_)
                | Line::Deleted(_)
                | Line::Compacted
                | Line::Seen(..) => {}
            }
        }
        let hung = watchdog.stop();
        let status =
            child.wait().map_err(|error| DrillError::Other(format!("cannot wait for the process: {error}")))?;
        left.ended_at = Instant::now();
        let rested = left.quiet.is_some() && status.success();
        if hung {
            left.failure = Some(format!("it hung for {} s", PROCESS_TIMEOUT.as_secs()));
        } else if !rested && !was_killed(status) {
            left.failure = Some(format!("it ended by itself, {status}: {}", self.error_output()));
        }
        Ok(left)
    }

    fn error_output(&self) -> String {
        const MAX_OUTPUT: usize = 600;
        let error_output = std::fs::read(self.store_dir.errors()).unwrap_or_default();
        let error_output = error_output.get(error_output.len().saturating_sub(MAX_OUTPUT)..).unwrap_or_default();
        let error_output = String::from_utf8_lossy(error_output).trim().to_owned();
        if error_output.is_empty() { "no error output".to_owned() } else { error_output }
    }
}

fn kill(child: &mut Child) {
    // The process may have ended by itself. The exit status shows that.
    drop(child.kill());
}

#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal() == Some(9)
}

#[cfg(not(unix))]
fn was_killed(status: ExitStatus) -> bool {
    !status.success()
}

struct Watchdog {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watchdog {
    fn over(child: &Child) -> Self {
        let (stop, stopped) = mpsc::channel();
        let process = child.id();
        let thread = std::thread::spawn(move || {
            let hangs = stopped.recv_timeout(PROCESS_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
            if hangs {
                end(process);
            }
            hangs
        });
        Self { stop, thread }
    }

    /// Returns whether the process hung. Called before the process is reaped, because its id may be reused afterwards.
    fn stop(self) -> bool {
        drop(self.stop);
        self.thread.join().unwrap_or(false)
    }
}

#[cfg(unix)]
fn end(process: u32) {
    if let Some(pid) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) {
        // The process may end at this moment.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[cfg(not(unix))]
fn end(_: u32) {}
