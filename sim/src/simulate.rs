//! The simulator: the real runtime in virtual time, one seed for one run, with everything going wrong that may.
//!
//! A run is a row of lives of one process over one store in memory. People, models, tools, the disk and every mishap draw
//! from the seed, and nothing else is left to chance: the runtime has one thread, its clock stands still until all is done,
//! and the journal is written when the disk has its turn.

mod alarm;
mod answers;
mod archive;
mod asker;
mod book;
mod chance;
mod context;
mod crowd;
mod deed;
mod disk;
mod hands;
mod inside;
mod judge;
mod life;
mod people;
mod plan;
mod report;
mod seeded;
mod sights;
mod tally;
mod voice;
mod watcher;
mod world;

pub use crowd::{Crowd, Failed, Result as CrowdResult};
pub use plan::Plan;
pub use report::{Failure, Report};
pub use seeded::{NoSuchBug, Rot, Seeded};
pub use tally::{Mishap, Tally, Verb};

use subtend_journal::Journal;

use crate::simulate::life::End;
use crate::simulate::world::World;

/// Lives of one process at most: one that dies in every recovery would never be done.
const LIVES: u32 = 60;

/// Runs a plan.
pub fn simulate(plan: Plan) -> Report {
    alarm::listen();
    let world = World::new(plan);
    let mut lives = 0;
    loop {
        lives += 1;
        if lives > LIVES {
            world.book.open().calm = true;
        }
        // Every other process finds the store compacted: deleted sessions are met both before and after they are erased.
        if lives % 2 == 0 {
            judge::compact(&world);
        }
        let end = life::live(&world, lives);
        if let Some(panic) = alarm::heard().first() {
            world.book.wrong("panic", panic.clone());
        }
        if end == End::Over || world.book.open().failure.is_some() {
            break;
        }
    }
    last_look(&world);
    alarm::stop();
    let book = world.book.open();
    let hash = book.hash.finalize().to_hex().to_string();
    let took_ms = u64::try_from(book.now().as_millis()).unwrap_or(u64::MAX);
    let examined = book.coverage.counts().map(|(predicate, count)| (predicate.name, count)).collect();
    Report {
        plan,
        hash,
        records: book.records,
        lives,
        took_ms,
        tally: Tally { examined, ..book.tally.clone() },
        failure: book.failure.clone(),
    }
}

/// What is on the disk when all is over: everything that was acknowledged, and nothing that may not be.
fn last_look(world: &World) {
    let journal = match Journal::open(Box::new(world.disk.clone()), subtend_journal::Options::default()) {
        Ok(journal) => journal,
        Err(error) => return world.book.wrong("open", error.to_string()),
    };
    judge::whole(&world.book, &journal);
    judge::archive(world, false);
    judge::erased(world, &journal);
    judge::acknowledged(&world.book, &journal);
}
