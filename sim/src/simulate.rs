//! The simulator: the real runtime in virtual time, with faults. Each run has one seed.
//!
//! A run is a series of processes on one store in memory. The seed determines the behaviour of users, models, tools and
//! the disk, and all faults. The runtime has one thread, its clock advances only when it is idle, and a simulated disk
//! delays the writes of the journal.

mod action;
mod disk;
mod fake_approver;
mod fake_catalog;
mod fake_model;
mod fake_tools;
mod fake_users;
mod judge;
mod life;
mod oracle;
mod panics;
mod plan;
mod report;
mod seed_runner;
mod seeded;
mod tally;
mod watcher;
mod world;

pub use plan::SeedPlan;
pub use report::{RunReport, SimFailure};
pub use seed_runner::{Failed, Result as SeedRunResult, SeedRunner};
pub use seeded::{NoSuchBug, Seeded, StoreBug};
pub use tally::{FaultKind, Tally, Verb};

use subtend_journal::Journal;

use crate::simulate::fake_users::ProcessEnd;
use crate::simulate::world::World;
use crate::storage::Simulated;

/// Maximum number of processes. Without it, a run that crashes in each recovery would never end.
const MAX_PROCESSES: u32 = 60;

pub fn simulate(plan: SeedPlan) -> RunReport {
    panics::start_recording();
    let world = World::new(plan);
    let mut processes = 0;
    loop {
        processes += 1;
        if processes > MAX_PROCESSES {
            world.oracle.lock().calm = true;
        }
        // Compacts before every second process, so that deleted sessions occur before and after their erasure.
        if processes % 2 == 0 {
            judge::compact(&world);
        }
        let end = life::live(&world, processes);
        if let Some(panic) = panics::take_panics().first() {
            world.oracle.wrong("panic", panic.clone());
        }
        if end == ProcessEnd::Over || world.oracle.lock().failure.is_some() {
            break;
        }
    }
    check_final_store(&world);
    panics::stop_recording();
    let oracle = world.oracle.lock();
    let hash = oracle.hash.finalize().to_hex().to_string();
    let took_ms = u64::try_from(oracle.now().as_millis()).unwrap_or(u64::MAX);
    let examined = oracle.coverage.counts().map(|(predicate, count)| (predicate.name, count)).collect();
    RunReport {
        plan,
        hash,
        records: oracle.records,
        processes,
        took_ms,
        tally: Tally { examined, ..oracle.tally.clone() },
        failure: oracle.failure.clone(),
    }
}

/// Checks that the final store has all acknowledged data, and no deleted data.
fn check_final_store(world: &World) {
    let journal = match Journal::open(Box::new(Simulated(world.disk.clone())), subtend_journal::Options::default()) {
        Ok(journal) => journal,
        Err(error) => return world.oracle.wrong("open", error.to_string()),
    };
    judge::judge_store(&world.oracle, &journal);
    judge::judge_all(world, false);
    judge::erased(world, &journal);
    judge::check_acknowledged(&world.oracle, &journal);
}
