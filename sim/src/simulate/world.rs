//! The state that all parts of a simulation share, across all processes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use subtend_actors::Runtime;

use crate::rng::SeededRng;
use crate::simulate::disk::Disk;
use crate::simulate::oracle::Oracle;
use crate::simulate::plan::{CallDuration, SeedPlan, Swarm};
use crate::simulate::tally::FaultKind;

pub(crate) struct World {
    pub(crate) plan: SeedPlan,
    pub(crate) swarm: Swarm,
    pub(crate) rng: SeededRng,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) disk: Disk,
    /// The runtime of the last killed process.
    abandoned: Mutex<Option<Runtime>>,
}

impl World {
    pub(crate) fn new(plan: SeedPlan) -> Arc<Self> {
        let rng = SeededRng::new(plan.seed);
        let swarm = Swarm::draw(&plan, &rng);
        let oracle = Arc::<Oracle>::default();
        oracle.lock().trace = plan.trace;
        let disk = Disk::new(Arc::clone(&oracle), plan.bug);
        Arc::new(Self { plan, swarm, rng, oracle, disk, abandoned: Mutex::default() })
    }

    /// Keeps the runtime of a killed process. Returns the previous one.
    pub(crate) fn set_abandoned(&self, runtime: Option<Runtime>) -> Option<Runtime> {
        std::mem::replace(&mut *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner), runtime)
    }

    /// Counts an action or event. Returns whether the maximum number is reached.
    pub(crate) fn step(&self) -> bool {
        let mut oracle = self.oracle.lock();
        oracle.steps = oracle.steps.saturating_add(1);
        oracle.steps >= self.plan.steps
    }

    /// Returns whether no further fault occurs.
    pub(crate) fn is_calm(&self) -> bool {
        self.oracle.lock().calm
    }

    /// Draws whether a fault occurs now, with a probability of 1 in `of`, and counts it.
    pub(crate) fn draw_fault(&self, of: u64, fault: FaultKind) -> bool {
        let occurs = self.is_drawn(of);
        if occurs {
            self.oracle.lock().record_fault(fault);
        }
        occurs
    }

    /// Draws whether a fault will occur, with a probability of 1 in `of`.
    pub(crate) fn is_drawn(&self, of: u64) -> bool {
        self.rng.one_in(of) && !self.is_calm()
    }

    pub(crate) fn draw_duration(&self) -> CallDuration {
        let calm = [(CallDuration::Short, 1)];
        self.rng
            .pick_weighted(if self.is_calm() { &calm } else { &self.swarm.durations })
            .unwrap_or(CallDuration::Short)
    }

    pub(crate) async fn wait(&self, duration: CallDuration) {
        match duration {
            CallDuration::Nothing => {}
            CallDuration::Yields => self.yield_some().await,
            CallDuration::Tick => tokio::time::sleep(Duration::from_millis(1)).await,
            CallDuration::Short => tokio::time::sleep(self.rng.ms(1, 50)).await,
            CallDuration::Long => tokio::time::sleep(self.rng.ms(500, 12_000)).await,
        }
    }

    pub(crate) async fn yield_some(&self) {
        for _ in 0..self.rng.below(5) {
            tokio::task::yield_now().await;
        }
    }
}

/// A guard of a running effect: the effect ends when the guard is dropped.
pub(crate) struct RunningEffect {
    oracle: Arc<Oracle>,
    at: Option<usize>,
}

impl RunningEffect {
    pub(crate) fn new(world: &World, at: Option<usize>) -> Self {
        Self { oracle: Arc::clone(&world.oracle), at }
    }
}

impl Drop for RunningEffect {
    fn drop(&mut self) {
        let mut oracle = self.oracle.lock();
        if let Some(at) = self.at.filter(|_| !oracle.dead) {
            let now = oracle.now();
            oracle.observations.end_effect(now, at);
        }
    }
}

/// Panics without reaching the hook that reports unexpected panics.
pub(crate) fn injected_panic() -> ! {
    std::panic::resume_unwind(Box::new("an injected fault".to_owned()))
}
