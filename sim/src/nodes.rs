//! Nodes that share the shards of a database, in virtual time. The runtimes are real. The database is in memory, and
//! its requests, commits and replies may be lost, late or repeated.
//!
//! Each process has its own tokio runtime, whose clock runs slightly too fast or too slow. The simulation runs the
//! processes in short slices, pauses some until their lease is over, and kills others. At the end the predicates judge
//! each shard and the replies to the clients.

use std::sync::Arc;
use std::time::Duration;

use subtend_invariants::InvariantId;
use subtend_invariants::observed::Observed;
use subtend_journal::{Auditor, Journal};

use crate::lease::LeaseBug;
use process::Process;
use world::{NodesWorld, SLICE};

mod database;
mod engine;
mod fakes;
mod node;
mod process;
mod users;
mod world;

/// Period of simulated time in which faults occur.
const FAULTS: Duration = Duration::from_secs(150);
/// Maximum time after the last fault until everything is at rest.
const REST_TIMEOUT: Duration = Duration::from_secs(600);

/// Parameters of a run. Equal plans give equal runs.
#[derive(Clone, Copy, Debug)]
pub struct NodesPlan {
    pub seed: u64,
    /// The seeded bug, which must be noticed.
    pub bug: Option<LeaseBug>,
    pub trace: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodesReport {
    pub kills: u64,
    pub stops: u64,
    /// Number of claims of shards that belonged to another lease.
    pub takeovers: u64,
    /// Number of refused commits of former owners.
    pub fenced: u64,
    pub lost_replies: u64,
    /// Number of model and tool calls.
    pub effects: u64,
    pub acknowledged: u64,
    pub violation: Option<String>,
}

pub fn simulate(plan: NodesPlan) -> NodesReport {
    let world = NodesWorld::new(plan);
    let done = drive(&world).and_then(|()| judge(&world));
    let database = world.database();
    let mut report = world.report().clone();
    (report.takeovers, report.fenced) = (database.takeovers, database.fenced);
    report.acknowledged = world.clients().answered.len() as u64;
    report.violation = database.violation.clone().or(done.err());
    report
}

/// Lets all processes run until everything is at rest after the faults.
fn drive(world: &Arc<NodesWorld>) -> Result<(), String> {
    let mut processes: Vec<Option<Process>> = (0..world.rng.between(2, 3)).map(|_| None).collect();
    let most = u64::try_from(SLICE.as_millis()).unwrap_or(100);
    let (mut now, mut restarts) = (Duration::ZERO, vec![Duration::ZERO; processes.len()]);
    let done = loop {
        if let Some(violation) = &world.database().violation {
            break Err(violation.clone());
        }
        if now >= FAULTS {
            world.calm_down();
            if is_at_rest(world) {
                break Ok(());
            }
        }
        if now >= FAULTS.saturating_add(REST_TIMEOUT) {
            break Err(format!("not at rest within {REST_TIMEOUT:?} after the last fault"));
        }
        let length = world.rng.ms(1, most);
        for (number, (process, restart)) in processes.iter_mut().zip(&mut restarts).enumerate() {
            step(world, number, process, restart, now, length)?;
        }
        if world.rng.one_in(40) {
            world.database().deliver_late();
        }
        now = now.saturating_add(length);
        world.end_slice(now);
    };
    processes.into_iter().flatten().for_each(Process::kill);
    done
}

/// Runs one slice of a node. Starts a process if necessary, and sometimes pauses or kills it.
fn step(
    world: &Arc<NodesWorld>,
    number: usize,
    slot: &mut Option<Process>,
    restart: &mut Duration,
    now: Duration,
    length: Duration,
) -> Result<(), String> {
    let mut process = match slot.take() {
        Some(process) => process,
        None if now >= *restart => Process::start(world, number).map_err(|error| format!("tokio: {error}"))?,
        None => return Ok(()),
    };
    if process.stopped_until.is_none() && world.must_stop(number) {
        world.report().stops += 1;
        process.stopped_until = Some(now.saturating_add(world.rng.ms(100, 25_000)));
        world.trace(|| format!("node {number} is stopped"));
    }
    process.run(world, now, length);
    let killed = world.draw_fault(800);
    if killed || process.is_over() {
        world.report().kills += u64::from(killed);
        world.trace(|| format!("node {number} {}", if killed { "is killed" } else { "has left" }));
        process.kill();
        *restart = now.saturating_add(world.rng.ms(100, 20_000));
    } else {
        *slot = Some(process);
    }
    Ok(())
}

/// Returns whether every command has a reply and no shard has work.
fn is_at_rest(world: &NodesWorld) -> bool {
    world.clients().pending.is_empty() && world.database().shards.iter().all(database::SimShard::is_quiet)
}

/// Judges each shard with the store audit, and the replies to the clients.
fn judge(world: &NodesWorld) -> Result<(), String> {
    let (database, answered) = (world.database(), world.clients().answered.clone());
    for (number, shard) in database.shards.iter().enumerate() {
        let open = Journal::open(Box::new(shard.memory.clone()), subtend_journal::Options::default());
        let journal = open.map_err(|error| error.to_string())?;
        let mut auditor = Auditor::default();
        auditor.read(&journal).map_err(|error| format!("shard {number}: {error}"))?;
        let of_shard = |session| world.clients().sessions.contains(&(number, session));
        let keyed = answered.iter().filter(|command| command.replies.iter().any(|(session, _)| of_shard(*session)));
        let observed = Observed { keyed: keyed.cloned().collect(), ..Observed::default() };
        auditor.check_invariant(InvariantId::H2, &observed).map_err(|error| format!("shard {number}: {error}"))?;
        auditor.check_observed(&observed, true).map_err(|error| format!("shard {number}: {error}"))?;
    }
    Ok(())
}
