//! The process of a node: a tokio runtime that runs in slices and can be paused or killed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::node::{Node, live};
use super::users;
use super::world::{NodesWorld, Rate, TRUE_RATE, lock};

pub(super) struct Process {
    tokio: tokio::runtime::Runtime,
    life: JoinHandle<()>,
    rate: Rate,
    /// Time of the node's clock for which the process was paused.
    stopped: Arc<Mutex<Duration>>,
    /// Simulated time at which a paused process continues.
    pub(super) stopped_until: Option<Duration>,
    missed: Duration,
}

impl Process {
    pub(super) fn start(world: &Arc<NodesWorld>, number: usize) -> std::io::Result<Self> {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        // The clocks must differ by less than a third of the time between the last effect of a lease and its end.
        let rate = world.rng.between(930, 1_070);
        let stopped = Arc::<Mutex<Duration>>::default();
        let node = Node::new(world, number, Arc::clone(&stopped));
        let life = tokio.spawn(live(node.clone()));
        tokio.spawn(users::act(node));
        Ok(Self { tokio, life, rate, stopped, stopped_until: None, missed: Duration::ZERO })
    }

    /// Returns whether the node has left by itself.
    pub(super) fn is_over(&self) -> bool {
        self.life.is_finished()
    }

    /// Runs for `length` from `now`, unless paused. The clock of a process that continues jumps over the pause.
    pub(super) fn run(&mut self, world: &NodesWorld, now: Duration, length: Duration) {
        if self.stopped_until.is_some_and(|until| now < until) {
            self.missed = self.missed.saturating_add(length);
            return;
        }
        self.stopped_until = None;
        let missed = scale(std::mem::take(&mut self.missed), self.rate);
        *lock(&self.stopped) += missed;
        let (rate, local) = (self.rate, scale(length, self.rate));
        self.tokio.block_on(async {
            if !missed.is_zero() {
                tokio::time::advance(missed).await;
            }
            world.begin_slice(now, rate);
            tokio::time::sleep(local).await;
            world.end_slice(now.saturating_add(length));
        });
    }

    /// Kills the process. Dropping tasks may start further tasks within the runtime. Those are dropped too.
    pub(super) fn kill(self) {
        let handle = self.tokio.handle().clone();
        let _inside = handle.enter();
        drop(self.tokio);
    }
}

fn scale(time: Duration, rate: Rate) -> Duration {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros.saturating_mul(rate) / TRUE_RATE)
}
