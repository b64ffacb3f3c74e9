//! What a runtime holds at one moment, counted.

use std::time::Duration;

use futures_util::future::join_all;
use ractor::ActorRef;

use crate::delivery::lane::Wake;
use crate::faults::Flaw;
use crate::hub::Hub;
use crate::runtime::Runtime;

/// How long the actors of one level may take to finish what they have in hand.
const LEVEL: Duration = Duration::from_millis(100);

/// What a runtime holds at one moment. Idle, when its quiet sessions have left memory, all of it is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions in memory; a quiet root stays for a while.
    pub present: usize,
    /// Their actors.
    pub actors: usize,
    /// Tasks of models, tools and services at work.
    pub tasks: usize,
    /// Runs that hold a slot.
    pub slots: usize,
    /// Runs that wait for one.
    pub queued: usize,
    /// Cancellation tokens: one a run in flight.
    pub tokens: usize,
    /// Timers that are armed: deadlines of runs, turns and calls, and one for each idle session.
    pub timers: usize,
    /// Accounts of the ledger: one a root run that spawned, and one a root run that called a model under a budget.
    pub accounts: usize,
}

impl Runtime {
    /// Counts what the runtime holds, for operators and tests. The parts are counted one after the other.
    pub fn census(&self) -> Census {
        let hub = &self.hub;
        Census {
            present: hub.directory.len(),
            actors: hub.supervisors.live(),
            tasks: hub.tasks.len(),
            slots: hub.slots.in_use(),
            queued: hub.slots.queued(),
            tokens: hub.tokens.len(),
            timers: hub.timers.armed(),
            accounts: hub.calls.ledger.len().saturating_add(hub.calls.budgets.len()),
        }
    }
}

impl Hub {
    /// Stops the actors of the deepest sessions first: an owner may hear of the end of what it owns, and never the other way
    /// round (V-5). One that does not stop is killed before the next level is.
    pub(crate) async fn stop_deepest_first(&self) {
        let mut levels: Vec<_> = self.directory.by_depth().into_values().collect();
        if !self.faults.has(Flaw::OwnersStopFirst) {
            levels.reverse();
        }
        for level in levels {
            for actor in &level {
                // Refused only by one that is ending already.
                drop(actor.drain());
            }
            if tokio::time::timeout(LEVEL, stopped(&level)).await.is_err() {
                level.iter().for_each(|actor| actor.kill());
                stopped(&level).await;
            }
        }
    }
}

async fn stopped(actors: &[ActorRef<Wake>]) {
    join_all(actors.iter().map(|actor| async move { drop(actor.wait(None).await) })).await;
}
