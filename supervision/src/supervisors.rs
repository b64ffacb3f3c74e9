//! Sharded supervisors of ractor actors. Every end is reported once, and the end of one child never ends another.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorId, ActorRef, SpawnErr};
use tokio_util::sync::CancellationToken;

use crate::intensity::StormLimit;

mod capacities;
mod shard;

use capacities::{CapacityResult, ReservedCapacity, ShardCapacities};
use shard::Shard;

/// Maximum number of children of one shard. ractor detaches the children of a dying parent under one process-wide lock,
/// which takes about 50 ns each.
pub const SHARD_MAX: usize = 2_000;

/// The end of one actor, reported once.
///
/// It may arrive before the last message that the actor cast, because ractor handles supervision before messages. So a
/// result may still follow. The actor's state has already been dropped, except after `Failed`: then the actor's task
/// drops it concurrently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub actor: ActorId,
    pub how: ExitReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// A stop or a drain.
    Stopped,
    /// A kill. Do not stop an actor with the reason `killed`: ractor reports that as a kill too.
    Killed,
    /// A panic, an error or the loss of its task, with the message.
    Failed(String),
}

/// A shard whose children fail faster than its storm limit. Reported once when the storm begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StormDetected {
    pub shard: usize,
    pub limit: StormLimit,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("invalid shard size {0}; use 1 to {SHARD_MAX}")]
    Shard(usize),
}

/// Error of [`Supervisors::spawn`]. No [`Exit`] follows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    #[error("the supervisors are shutting down; no actor is started")]
    Closing,
    #[error("the actor did not start: {0}")]
    Start(String),
    #[error("all supervisors are full and another one did not start: {0}")]
    Shard(String),
}

pub type ExitSink = Arc<dyn Fn(Exit) + Send + Sync>;

pub type StormSink = Arc<dyn Fn(StormDetected) + Send + Sync>;

/// Supervisors of actors (cheap clone, shared state).
///
/// They do not restart actors: the receiver of ends decides. Dropping the last clone kills all actors without reports, so
/// call [`Supervisors::shutdown`] first.
#[derive(Clone)]
pub struct Supervisors {
    shared: Arc<SupervisorState>,
}

struct SupervisorState {
    capacities: Arc<ShardCapacities>,
    sink: ExitSink,
    on_storm: StormSink,
    limit: StormLimit,
    /// Held while a shard is added, so that a burst of spawns does not open a shard for each.
    adding: tokio::sync::Mutex<()>,
    /// Cancelled after the grace period, so that a shutdown does not wait for starting actors.
    killing: CancellationToken,
}

impl fmt::Debug for Supervisors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisors").field("live", &self.live()).finish_non_exhaustive()
    }
}

impl Supervisors {
    /// Creates supervisors with at most `shard` children each. Shards start on demand.
    ///
    /// `sink` runs inside the shard and must not block. A panic in it is logged. Storms are only logged; see
    /// [`Supervisors::start_with`].
    /// # Errors
    /// If `shard` is zero or above [`SHARD_MAX`].
    pub fn start(shard: usize, sink: ExitSink) -> Result<Self, StartError> {
        Self::start_with(shard, sink, StormLimit::default(), Arc::new(|_| {}))
    }

    /// Creates supervisors that also report when more than `limit` children of one shard fail. A kill does not count.
    ///
    /// `on_storm` follows the rules of `sink` and is called before it.
    /// # Errors
    /// If `shard` is zero or above [`SHARD_MAX`].
    pub fn start_with(
        shard: usize,
        sink: ExitSink,
        limit: StormLimit,
        on_storm: StormSink,
    ) -> Result<Self, StartError> {
        if shard == 0 || shard > SHARD_MAX {
            return Err(StartError::Shard(shard));
        }
        Ok(Self::with_shards_of(shard, sink, limit, on_storm))
    }

    /// Creates supervisors of [`SHARD_MAX`] children each. Like [`Supervisors::start_with`], but cannot fail.
    pub fn start_full(sink: ExitSink, limit: StormLimit, on_storm: StormSink) -> Self {
        Self::with_shards_of(SHARD_MAX, sink, limit, on_storm)
    }

    fn with_shards_of(shard: usize, sink: ExitSink, limit: StormLimit, on_storm: StormSink) -> Self {
        let shared = SupervisorState {
            capacities: Arc::new(ShardCapacities::new(shard)),
            sink,
            on_storm,
            limit,
            adding: tokio::sync::Mutex::new(()),
            killing: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Starts an actor under a shard with free capacity. Its `pre_start` runs inside this call.
    ///
    /// After `Ok` exactly one [`Exit`] follows, possibly before this returns. If a shutdown began meanwhile, the actor stops at once.
    /// # Errors
    /// See [`SpawnError`]. No actor remains and no [`Exit`] follows.
    /// # Cancel safety
    /// Dropping the future during `pre_start` drops the actor; no [`Exit`] follows.
    pub async fn spawn<A: Actor>(&self, actor: A, args: A::Arguments) -> Result<ActorRef<A::Msg>, SpawnError> {
        let capacity = self.shared.reserve().await?;
        let started = tokio::select! {
            biased;
            started = capacity.cell.spawn_linked(None, actor, args) => started,
            () = self.shared.killing.cancelled() => return Err(SpawnError::Closing),
        };
        let (actor, _task) = started.map_err(|error| SpawnError::Start(describe(&error)))?;
        capacity.keep();
        // A concurrent shutdown may have listed its children before this one was linked.
        if self.shared.killing.is_cancelled() {
            actor.kill();
        } else if self.shared.capacities.is_closing() {
            drain(&actor);
        }
        Ok(actor)
    }

    /// Returns the number of actors that are starting or whose end is not reported yet.
    pub fn live(&self) -> usize {
        self.shared.capacities.live()
    }

    pub fn shards(&self) -> usize {
        self.shared.capacities.shards().len()
    }

    /// Refuses new actors, drains the others, kills the remaining ones after `grace`, then ends the shards; idempotent.
    ///
    /// It returns when every actor has ended and every [`Exit`] was reported. A drain handles queued messages and runs
    /// `post_stop`. The order among children is undefined: end owned actors first if they must end before their owners. A
    /// kill takes effect at the actor's next await, so an actor that never awaits blocks this call.
    /// # Cancel safety
    /// Completed steps remain; call it again.
    pub async fn shutdown(&self, grace: Duration) {
        let capacities = &self.shared.capacities;
        capacities.close();
        let mut children = self.children();
        children.iter().for_each(drain);
        if tokio::time::timeout(grace, capacities.wait_empty()).await.is_err() {
            self.shared.killing.cancel();
            children = self.children();
            children.iter().for_each(ActorCell::kill);
            capacities.wait_empty().await;
        }
        // An actor still runs a few instructions after its end is reported.
        for actor in children {
            wait_stopped(&actor).await;
        }
        for shard in capacities.shards() {
            shard.stop(None);
            wait_stopped(&shard).await;
        }
    }

    fn children(&self) -> Vec<ActorCell> {
        let mut children: Vec<_> = self.shared.capacities.shards().iter().flat_map(ActorCell::get_children).collect();
        // Sorted by start for reproducible runs: ractor does not order them.
        children.sort_unstable_by_key(ActorCell::get_id);
        children
    }
}

impl SupervisorState {
    async fn reserve(&self) -> Result<ReservedCapacity, SpawnError> {
        loop {
            match self.capacities.reserve_capacity() {
                CapacityResult::ReservedCapacity(capacity) => return Ok(capacity),
                CapacityResult::Closing => return Err(SpawnError::Closing),
                CapacityResult::Full => {}
            }
            let _adding = self.adding.lock().await;
            if self.capacities.is_full() {
                self.add_shard().await?;
            }
        }
    }

    async fn add_shard(&self) -> Result<(), SpawnError> {
        let watch = shard::ShardState::new(Arc::clone(&self.capacities), &self.sink, &self.on_storm, self.limit);
        let number = watch.number();
        let (shard, _task) =
            Actor::spawn(None, Shard, watch).await.map_err(|error| SpawnError::Shard(describe(&error)))?;
        self.capacities.opened(number, shard.get_cell());
        Ok(())
    }
}

impl Drop for SupervisorState {
    fn drop(&mut self) {
        for shard in self.capacities.shards() {
            shard.kill();
        }
    }
}

fn drain(actor: &ActorCell) {
    // A drain fails only if the actor is already ending.
    if actor.drain().is_err() {
        tracing::trace!("an actor was ending before it was drained");
    }
}

async fn wait_stopped(actor: &ActorCell) {
    // Without a timeout the wait ends only when the actor has ended.
    if actor.wait(None).await.is_err() {
        tracing::warn!("ractor gave up waiting for an actor");
    }
}

fn describe(error: &SpawnErr) -> String {
    match error {
        SpawnErr::StartupFailed(cause) => cause.to_string(),
        SpawnErr::ActorAlreadyStarted | SpawnErr::ActorAlreadyRegistered(_) => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
