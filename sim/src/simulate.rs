//! The simulator: the real runtime in virtual time, one seed for one run, with everything going wrong that may.
//!
//! A run is a row of lives of one process over one store in memory. Users, models, tools, the disk and every mishap draw
//! from the seed, and nothing else is left to chance: the runtime has one thread, its clock stands still until all is done,
//! and the journal is written when the disk has its turn.

mod action;
mod chance;
mod crowd;
mod disk;
mod fake_approver;
mod fake_model;
mod fake_tools;
mod fake_users;
mod judge;
mod life;
mod offered;
mod oracle;
mod panics;
mod plan;
mod report;
mod seeded;
mod tally;
mod watcher;
mod world;

pub use crowd::{Crowd, Failed, Result as CrowdResult};
pub use plan::Plan;
pub use report::{Failure, Report};
pub use seeded::{NoSuchBug, Rot, Seeded};
pub use tally::{Mishap, Tally, Verb};

use subtend_journal::Journal;

use crate::simulate::fake_users::End;
use crate::simulate::world::World;

/// Lives of one process at most: one that dies in every recovery would never be done.
const LIVES: u32 = 60;

/// Runs a plan.
pub fn simulate(plan: Plan) -> Report {
    panics::listen();
    let world = World::new(plan);
    let mut lives = 0;
    loop {
        lives += 1;
        if lives > LIVES {
            world.oracle.lock().calm = true;
        }
        // Every other process finds the store compacted: deleted sessions are met both before and after they are erased.
        if lives % 2 == 0 {
            judge::compact(&world);
        }
        let end = life::live(&world, lives);
        if let Some(panic) = panics::heard().first() {
            world.oracle.wrong("panic", panic.clone());
        }
        if end == End::Over || world.oracle.lock().failure.is_some() {
            break;
        }
    }
    last_look(&world);
    panics::stop();
    let oracle = world.oracle.lock();
    let hash = oracle.hash.finalize().to_hex().to_string();
    let took_ms = u64::try_from(oracle.now().as_millis()).unwrap_or(u64::MAX);
    let examined = oracle.coverage.counts().map(|(predicate, count)| (predicate.name, count)).collect();
    Report {
        plan,
        hash,
        records: oracle.records,
        lives,
        took_ms,
        tally: Tally { examined, ..oracle.tally.clone() },
        failure: oracle.failure.clone(),
    }
}

/// What is on the disk when all is over: everything that was acknowledged, and nothing that may not be.
fn last_look(world: &World) {
    let journal = match Journal::open(Box::new(world.disk.clone()), subtend_journal::Options::default()) {
        Ok(journal) => journal,
        Err(error) => return world.oracle.wrong("open", error.to_string()),
    };
    judge::whole(&world.oracle, &journal);
    judge::archive(world, false);
    judge::erased(world, &journal);
    judge::acknowledged(&world.oracle, &journal);
}
