//! Sharded supervisors of ractor actors: every end is reported once, and one child's end never ends another.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorId, ActorRef, SpawnErr};
use tokio_util::sync::CancellationToken;

use crate::intensity::StormLimit;

mod roster;
mod shard;

use roster::{Roster, Seat, Seating};
use shard::Shard;

/// The most children that one shard may have: ractor detaches the children of a dying parent under one process-wide
/// lock, about 50 ns each.
pub const SHARD_MAX: usize = 2_000;

/// One actor's end, told once.
///
/// It may arrive before the last message that the actor cast: ractor handles supervision before messages. Never
/// conclude from it that no result is coming. The actor's state has been dropped, except after `Failed`, where the
/// actor's own task drops it about now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The actor that ended.
    pub actor: ActorId,
    /// How it ended.
    pub how: How,
}

/// How an actor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// By a stop or a drain.
    Stopped,
    /// By a kill. A stop with the reason `killed` looks the same to ractor; do not use it.
    Killed,
    /// By a panic, an error, or the loss of its task; with what it said.
    Failed(String),
}

/// A shard whose children fail faster than its storm limit; told once when the storm begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StormSeen {
    /// Number of the shard.
    pub shard: usize,
    /// The limit that was exceeded.
    pub limit: StormLimit,
}

/// Why supervisors were not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The number of children per shard is out of range.
    #[error("a shard of {0} children is not possible; use 1 to {SHARD_MAX}")]
    Shard(usize),
}

/// Why an actor was not started. No [`Exit`] follows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// The supervisors are being shut down.
    #[error("the supervisors are shutting down; nothing is started any more")]
    Closing,
    /// The actor's `pre_start` failed or panicked.
    #[error("the actor did not start: {0}")]
    Start(String),
    /// A further shard was needed and did not start.
    #[error("no supervisor had room and another one did not start: {0}")]
    Shard(String),
}

/// Where ends are reported.
pub type ExitSink = Arc<dyn Fn(Exit) + Send + Sync>;

/// Where storms are reported.
pub type StormSink = Arc<dyn Fn(StormSeen) + Send + Sync>;

/// Supervisors that take actors in and report their ends (cheap clone, one shared set).
///
/// They restart nothing: the owner of the sink decides, and spawns anew. Dropping the last clone kills everything
/// that is left, without reports; [`Supervisors::shutdown`] is the orderly way.
#[derive(Clone)]
pub struct Supervisors {
    house: Arc<House>,
}

struct House {
    roster: Arc<Roster>,
    sink: ExitSink,
    on_storm: StormSink,
    limit: StormLimit,
    /// Only one caller adds a shard at a time: a burst of spawns must not open one each.
    adding: tokio::sync::Mutex<()>,
    /// The grace is over: what still starts is not waited for.
    killing: CancellationToken,
}

impl fmt::Debug for Supervisors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisors").field("live", &self.live()).finish_non_exhaustive()
    }
}

impl Supervisors {
    /// Opens supervisors with `shard` children each at most; shards are started as they are needed.
    ///
    /// `sink` is called inside the shard and must neither block nor take long; a panic in it is logged and harms
    /// nobody. A storm is only logged; use [`Supervisors::start_with`] to hear of it.
    ///
    /// # Errors
    ///
    /// If `shard` is zero or above [`SHARD_MAX`].
    pub fn start(shard: usize, sink: ExitSink) -> Result<Self, StartError> {
        Self::start_with(shard, sink, StormLimit::default(), Arc::new(|_| {}))
    }

    /// Opens supervisors that also report when more than `limit` children of one shard failed.
    ///
    /// A kill is no failure. `on_storm` follows the rules of `sink` and is called before it.
    ///
    /// # Errors
    ///
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
        let house = House {
            roster: Arc::new(Roster::new(shard)),
            sink,
            on_storm,
            limit,
            adding: tokio::sync::Mutex::new(()),
            killing: CancellationToken::new(),
        };
        Ok(Self { house: Arc::new(house) })
    }

    /// Starts an actor under a shard with room; its `pre_start` runs inside this call.
    ///
    /// After `Ok` exactly one [`Exit`] follows, possibly before this returns. If a shutdown began meanwhile, the
    /// actor is told to stop at once.
    ///
    /// # Errors
    ///
    /// See [`SpawnError`]; no actor is left and no [`Exit`] follows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while `pre_start` runs drops the actor; no [`Exit`] follows.
    pub async fn spawn<A: Actor>(&self, actor: A, args: A::Arguments) -> Result<ActorRef<A::Msg>, SpawnError> {
        let seat = self.house.seat().await?;
        let started = tokio::select! {
            biased;
            started = seat.cell.spawn_linked(None, actor, args) => started,
            () = self.house.killing.cancelled() => return Err(SpawnError::Closing),
        };
        let (actor, _task) = started.map_err(|error| SpawnError::Start(said(&error)))?;
        seat.keep();
        // A shutdown that began while we started may have listed its children before we were one of them.
        if self.house.killing.is_cancelled() {
            actor.kill();
        } else if self.house.roster.is_closing() {
            drain(&actor);
        }
        Ok(actor)
    }

    /// Returns the number of actors that are starting, or running and not reported yet.
    pub fn live(&self) -> usize {
        self.house.roster.live()
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.house.roster.shards().len()
    }

    /// Refuses new actors, drains the others, kills what is left after `grace`, then ends the shards; idempotent.
    ///
    /// It returns when none of the actors is alive and every [`Exit`] has been reported. Draining lets an actor
    /// handle what it has queued and run its `post_stop`. There is no order among the children: whoever needs one
    /// (owned before owners) ends them in that order first. A kill takes effect at the actor's next await; one that
    /// never awaits holds this call up, since saying that it is dead would be wrong.
    ///
    /// # Cancel safety
    ///
    /// What has been refused, drained or killed stays so; call it again.
    pub async fn shutdown(&self, grace: Duration) {
        let roster = &self.house.roster;
        roster.close();
        let mut children = self.children();
        children.iter().for_each(drain);
        if tokio::time::timeout(grace, roster.emptied()).await.is_err() {
            self.house.killing.cancel();
            children = self.children();
            children.iter().for_each(ActorCell::kill);
            roster.emptied().await;
        }
        // Everything is reported; the last instructions of an actor run just after its report.
        for actor in children {
            stopped(&actor).await;
        }
        for shard in roster.shards() {
            shard.stop(None);
            stopped(&shard).await;
        }
    }

    fn children(&self) -> Vec<ActorCell> {
        let mut children: Vec<_> = self.house.roster.shards().iter().flat_map(ActorCell::get_children).collect();
        // In the order of their start: ractor keeps them in none, and a run that is repeated shall be the same.
        children.sort_unstable_by_key(ActorCell::get_id);
        children
    }
}

impl House {
    async fn seat(&self) -> Result<Seat, SpawnError> {
        loop {
            match self.roster.seat() {
                Seating::Seat(seat) => return Ok(seat),
                Seating::Closing => return Err(SpawnError::Closing),
                Seating::Full => {}
            }
            let _adding = self.adding.lock().await;
            if self.roster.is_full() {
                self.add_shard().await?;
            }
        }
    }

    async fn add_shard(&self) -> Result<(), SpawnError> {
        let watch = shard::Watch::new(Arc::clone(&self.roster), &self.sink, &self.on_storm, self.limit);
        let number = watch.number();
        let (shard, _task) = Actor::spawn(None, Shard, watch).await.map_err(|error| SpawnError::Shard(said(&error)))?;
        self.roster.opened(number, shard.get_cell());
        Ok(())
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for shard in self.roster.shards() {
            shard.kill();
        }
    }
}

fn drain(actor: &ActorCell) {
    // Refused only by an actor that is ending already.
    if actor.drain().is_err() {
        tracing::trace!("an actor was ending before it was drained");
    }
}

async fn stopped(actor: &ActorCell) {
    // Without a timeout the wait ends only when the actor has.
    if actor.wait(None).await.is_err() {
        tracing::warn!("ractor gave up waiting for an actor");
    }
}

fn said(error: &SpawnErr) -> String {
    match error {
        SpawnErr::StartupFailed(cause) => cause.to_string(),
        SpawnErr::ActorAlreadyStarted | SpawnErr::ActorAlreadyRegistered(_) => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
