//! Starts the child, kills it at a random moment, and has the store checked.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::check::{self, Acknowledged, Violations};
use crate::child;

/// Repeats a drill.
pub const SEED: &str = "SUBTEND_DRILL_SEED";

/// The seed of this drill: the given one, or another each time.
pub fn seed() -> u64 {
    std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..))
}

/// Kills so far, and what they hit.
pub struct Drill {
    random: fastrand::Rng,
    fault: Option<&'static str>,
    kills: u32,
    /// Acknowledgements read from killed processes.
    pub acknowledged: usize,
    /// Runs that were in flight at a kill.
    pub in_flight: usize,
}

impl Drill {
    pub fn new(seed: u64, fault: Option<&'static str>) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), fault, kills: 0, acknowledged: 0, in_flight: 0 }
    }

    pub fn told(&self) -> String {
        format!("{} kills, {} acknowledged, {} in flight at a kill", self.kills, self.acknowledged, self.in_flight)
    }

    /// One kill on the store in `dir`, and all checks after it.
    pub fn once(&mut self, dir: &Path) -> Violations {
        let acknowledged = self.kill(dir);
        self.kills += 1;
        self.acknowledged += acknowledged.count();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
        let (violations, in_flight) = tokio.block_on(check::after_kill(dir, &acknowledged));
        self.in_flight += in_flight;
        violations
    }

    fn kill(&mut self, dir: &Path) -> Acknowledged {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["child_process", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(child::DIR, dir).env(child::CHILD_SEED, self.random.u64(..).to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(fault) = self.fault {
            command.env("SUBTEND_FAULT", fault);
        }
        let mut process = command.spawn().expect("the child starts");
        let output = process.stdout.take().expect("its output");
        let (ready, started) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            Acknowledged::read(lines.inspect(|line| {
                if line.ends_with("READY") {
                    // Where the drill has struck already, nobody waits for it.
                    ready.send(()).unwrap_or_default();
                }
            }))
        });
        // One in five strikes during opening and recovery, the others while trees run, however slow the machine is.
        let after = if self.random.u8(..5) == 0 {
            self.random.u64(..60)
        } else {
            started.recv_timeout(Duration::from_secs(60)).expect("the child gets ready");
            50 + self.random.u64(..350)
        };
        std::thread::sleep(Duration::from_millis(after));
        process.kill().expect("the child dies");
        process.wait().expect("it is dead");
        reader.join().expect("its output is read")
    }
}
