//! The world of a simulation: what every part of it shares, from the first process to the last.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use subtend_actors::Runtime;

use crate::simulate::chance::Chance;
use crate::simulate::disk::Disk;
use crate::simulate::oracle::Oracle;
use crate::simulate::plan::{Plan, Swarm, Takes};
use crate::simulate::tally::Mishap;

/// Everything that outlives a process.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) swarm: Swarm,
    pub(crate) chance: Chance,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) disk: Disk,
    /// What a process that was killed leaves behind.
    left: Mutex<Option<Runtime>>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Arc<Self> {
        let chance = Chance::new(plan.seed);
        let swarm = Swarm::draw(&plan, &chance);
        let oracle = Arc::<Oracle>::default();
        oracle.lock().told = plan.told;
        let disk = Disk::new(Arc::clone(&oracle), plan.bug);
        Arc::new(Self { plan, swarm, chance, oracle, disk, left: Mutex::default() })
    }

    /// Keeps what a dead process leaves behind; gives what the one before left.
    pub(crate) fn leave(&self, runtime: Option<Runtime>) -> Option<Runtime> {
        std::mem::replace(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner), runtime)
    }

    /// Counts an action or an event. Tells whether it is the last one or beyond.
    pub(crate) fn step(&self) -> bool {
        let mut oracle = self.oracle.lock();
        oracle.steps = oracle.steps.saturating_add(1);
        oracle.steps >= self.plan.steps
    }

    /// Whether nothing goes wrong any more.
    pub(crate) fn is_calm(&self) -> bool {
        self.oracle.lock().calm
    }

    /// Whether something goes wrong now that goes wrong once in `of` times; and what, for the tally.
    pub(crate) fn strikes(&self, of: u64, mishap: Mishap) -> bool {
        let strikes = self.is_drawn(of);
        if strikes {
            self.oracle.lock().mishap(mishap);
        }
        strikes
    }

    /// Whether something is to go wrong, sooner or later, that does once in `of` times.
    pub(crate) fn is_drawn(&self, of: u64) -> bool {
        self.chance.one_in(of) && !self.is_calm()
    }

    /// How long something takes.
    pub(crate) fn takes(&self) -> Takes {
        let calm = [(Takes::Short, 1)];
        self.chance.weighted(if self.is_calm() { &calm } else { &self.swarm.takes }).unwrap_or(Takes::Short)
    }

    /// Lets it pass.
    pub(crate) async fn pass(&self, takes: Takes) {
        match takes {
            Takes::Nothing => {}
            Takes::Yields => self.yields().await,
            Takes::Tick => tokio::time::sleep(Duration::from_millis(1)).await,
            Takes::Short => tokio::time::sleep(self.chance.ms(1, 50)).await,
            Takes::Long => tokio::time::sleep(self.chance.ms(500, 12_000)).await,
        }
    }

    /// Lets others go before.
    pub(crate) async fn yields(&self) {
        for _ in 0..self.chance.below(5) {
            tokio::task::yield_now().await;
        }
    }
}

/// An effect at work: gone when it is dropped.
pub(crate) struct AtWork {
    oracle: Arc<Oracle>,
    at: Option<usize>,
}

impl AtWork {
    pub(crate) fn new(world: &World, at: Option<usize>) -> Self {
        Self { oracle: Arc::clone(&world.oracle), at }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut oracle = self.oracle.lock();
        if let Some(at) = self.at.filter(|_| !oracle.dead) {
            let now = oracle.now();
            oracle.observations.gone(now, at);
        }
    }
}

/// A panic that was ordered: it does not reach the hook, which takes every other one for a bug.
pub(crate) fn ordered_panic() -> ! {
    std::panic::resume_unwind(Box::new("a fault that was ordered".to_owned()))
}
