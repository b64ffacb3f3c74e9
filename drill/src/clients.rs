//! The drill of clients: many clients of one host that is killed repeatedly.
//!
//! Readers follow all events and reconnect after each kill. Senders repeat keyed commands until they are answered, and
//! cancel some runs from two clients at once. At the end all predicates judge the store. H-1, H-2 and S-2 concern clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use subtend_invariants::InvariantId;
use subtend_invariants::observed::Observed;
use subtend_journal::{AuditError, Auditor};
use subtend_session::ids::SessionId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::DrillError;
use super::rng::SeededRng;
use super::sabotage::Sabotage;
use super::store_dir::{DrillDirectory, StoreDir};
use host::HostProcess;
use reader::EventReader;
use sender::CommandSender;

pub use report::ClientReport;

mod connection;
mod host;
mod reader;
mod report;
mod sender;

/// Maximum time for clients to come to rest after the last kill.
const REST_TIMEOUT: Duration = Duration::from_secs(600);
/// Time in which a host must answer some commands before it is killed.
const WORK_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of readers for each sender.
const READERS_PER_SENDER: u64 = 10;

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The engine, optionally followed by a colon and the directory of the drill; the default is a temporary directory.
    pub store: String,
    pub seed: u64,
    pub kills: u64,
    /// Number of clients that follow all events.
    pub clients: u64,
    /// The seeded bug that must be detected.
    pub sabotage: Option<Sabotage>,
}

/// The progress that all clients share.
#[derive(Clone, Debug)]
struct DrillClients {
    socket: PathBuf,
    /// True if senders must not start further commands.
    closing: Arc<AtomicBool>,
    /// The session that marks the end, after it was opened. A reader ends when it has received that session.
    last: watch::Receiver<Option<SessionId>>,
    /// Numbers of unanswered commands, connected readers and answered commands.
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    unanswered: std::sync::atomic::AtomicU64,
    readers: std::sync::atomic::AtomicU64,
    answered: std::sync::atomic::AtomicU64,
}

/// Runs the drill to the end, or until `stop` is set. Reports progress after each kill.
/// # Errors
/// If the store cannot be drilled, or the system refuses a directory, a process or a socket.
pub async fn drill(
    options: &ClientOptions,
    stop: &AtomicBool,
    progress: &mut (dyn FnMut(&ClientReport) + Send),
) -> Result<ClientReport, DrillError> {
    if options.store == "postgres" {
        return Err(DrillError::Usage(
            "a drill of clients needs an engine with a directory: --store ENGINE or ENGINE:DIR".into(),
        ));
    }
    let mut directory = DrillDirectory::prepare(&options.store, options.seed)?;
    let store_dir = directory.new_store_dir()?;
    let mut report = ClientReport {
        engine: directory.engine().to_owned(),
        seed: options.seed,
        clients: options.clients,
        sabotage: options.sabotage,
        ..ClientReport::default()
    };
    let started = Instant::now();
    let observed = run(options, &store_dir, stop, &mut report, progress).await?;
    if let Some(observed) = observed {
        judge(&store_dir, &observed, &mut report)?;
    } else {
        report.stopped = true;
    }
    report.took = started.elapsed();
    if report.violations.is_empty() || options.sabotage.is_some() {
        store_dir.remove();
    } else {
        report.kept = Some(directory.keep(&store_dir).display().to_string());
    }
    Ok(report)
}

/// Lets the clients work while the host is killed repeatedly. Returns `None` if the drill was stopped.
async fn run(
    options: &ClientOptions,
    store_dir: &StoreDir,
    stop: &AtomicBool,
    report: &mut ClientReport,
    progress: &mut (dyn FnMut(&ClientReport) + Send),
) -> Result<Option<Observed>, DrillError> {
    let (announce, last) = watch::channel(None);
    let socket = host::socket(store_dir);
    let shared = DrillClients { socket, closing: Arc::default(), last, counts: Arc::default() };
    let mut readers = JoinSet::new();
    for number in 0..options.clients {
        readers.spawn(EventReader::new(&shared, options.seed, number).read());
    }
    let mut senders = JoinSet::new();
    for number in 0..options.clients.div_ceil(READERS_PER_SENDER).max(2) {
        senders.spawn(CommandSender::new(&shared, options.seed, number).send());
    }
    let mut rng = SeededRng::of(options.seed, "kills of the host");
    for number in 0..options.kills {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        kill(store_dir, options.sabotage, number % 4 == 1, &mut rng, &shared, report).await?;
        progress(report);
    }
    let mut host = HostProcess::start(store_dir, options.sabotage).await?;
    host.ready().await?;
    shared.closing.store(true, Ordering::Relaxed);
    let mut observed = Observed::default();
    let resting = async {
        while let Some(sent) = senders.join_next().await {
            report.add_sender(sent.map_err(failure)?, &mut observed);
        }
        let marker = host::await_rest(&shared.socket).await?;
        announce.send_replace(Some(marker));
        while let Some(read) = readers.join_next().await {
            report.add_reader(read.map_err(failure)?, &mut observed);
        }
        Ok::<_, DrillError>(())
    };
    let rested = tokio::time::timeout(REST_TIMEOUT, resting).await;
    host.kill().await;
    match rested {
        Ok(rested) => rested.map(|()| Some(observed)),
        Err(_) => Err(DrillError::Other(format!(
            "the clients did not come to rest within {REST_TIMEOUT:?}: {}",
            host.error_output()
        ))),
    }
}

fn failure(error: tokio::task::JoinError) -> DrillError {
    DrillError::Other(format!("a client of the drill failed: {error}"))
}

/// Starts a host and kills it: during its start if `early` is true, otherwise while clients use it.
async fn kill(
    store_dir: &StoreDir,
    sabotage: Option<Sabotage>,
    early: bool,
    rng: &mut SeededRng,
    shared: &DrillClients,
    report: &mut ClientReport,
) -> Result<(), DrillError> {
    let mut host = HostProcess::start(store_dir, sabotage).await?;
    if !early {
        host.ready().await?;
        // Waits for progress of the clients instead of a fixed time, because the machine may be busy.
        let wanted = shared.counts.answered.load(Ordering::Relaxed).saturating_add(2 + rng.below(20));
        let until = Instant::now() + WORK_TIMEOUT;
        while shared.counts.answered.load(Ordering::Relaxed) < wanted && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(rng.below(60))).await;
    let (unanswered, readers) =
        (shared.counts.unanswered.load(Ordering::Relaxed), shared.counts.readers.load(Ordering::Relaxed));
    host.kill().await;
    report.kills = report.kills.saturating_add(1);
    report.hits.unanswered = report.hits.unanswered.saturating_add(u64::from(unanswered > 0));
    report.hits.reading = report.hits.reading.saturating_add(u64::from(readers > 0));
    report.hits.starting = report.hits.starting.saturating_add(u64::from(early));
    Ok(())
}

/// Judges the store and the observations of the clients, at rest.
fn judge(store_dir: &StoreDir, observed: &Observed, report: &mut ClientReport) -> Result<(), DrillError> {
    let journal = store_dir.open_after_kill()?;
    let mut auditor = Auditor::default();
    auditor.read(&journal)?;
    report.sessions = auditor.sessions().count() as u64;
    report.events = auditor.sessions().map(|(_, records)| records.len() as u64).sum();
    for id in [InvariantId::H1, InvariantId::H2] {
        // Judges these invariants separately, because the audit reports only the first violation.
        if let Err(error) = auditor.check_invariant(id, observed) {
            report.violations.push(error.to_string());
        }
    }
    match auditor.check_observed(observed, true) {
        Ok(()) => {}
        Err(AuditError::Violated(found)) if matches!(found.id, InvariantId::H1 | InvariantId::H2) => {}
        Err(error) => report.violations.push(error.to_string()),
    }
    let problems = journal.verify(&mut |_| ())?.problems;
    report.violations.extend(problems.iter().map(|problem| format!("verify: {problem:?}")));
    Ok(())
}
