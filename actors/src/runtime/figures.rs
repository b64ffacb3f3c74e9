//! Figures of a runtime, for monitoring and tests.

use subtend_models::throttle::QuotaUsage;
#[cfg(feature = "fault-points")]
use subtend_session::ids::SessionId;
use subtend_supervision::PoolKind;

use crate::observe::counters::Counters;
use crate::runtime::Runtime;

impl Runtime {
    /// Returns the Unix time in ms by the clock that also dates records.
    pub fn now_ms(&self) -> i64 {
        self.components.host.clock.wall_ms()
    }

    pub fn loaded_sessions(&self) -> usize {
        self.components.directory.len()
    }

    /// Returns the number of inputs that no run has taken, of sessions that were in memory since the start.
    pub fn queued_inputs(&self) -> usize {
        self.components.directory.queued_inputs()
    }

    /// Returns the counts of turns, tokens, failed attempts and ended runs since the start, even if not durable yet.
    pub fn counters(&self) -> Counters {
        self.components.log.counters()
    }

    /// Returns the quotas of model calls that are in use, with the numbers of calls that run and wait.
    pub fn quotas(&self) -> Vec<QuotaUsage> {
        self.components.calls.throttles.active_quotas()
    }

    pub fn slots_in_use(&self) -> usize {
        self.components.cells.runs().slots.in_use()
    }

    /// Returns the numbers of runs that hold a slot and that wait for one: of owned runs, and of people's runs.
    pub fn slot_demand(&self) -> [(usize, usize); 2] {
        let slots = &self.components.cells.runs().slots;
        [PoolKind::Background, PoolKind::Interactive].map(|kind| (slots.of(kind).in_use(), slots.of(kind).queued()))
    }

    /// Changes the number of slots of owned runs, and of people's runs, for a process that divides them among several
    /// runtimes. Runs keep the slots that they hold. Limits of sessions are still checked against
    /// [`Options::slots`](crate::Options::slots).
    pub fn bound_slots(&self, bounds: [usize; 2]) {
        let [owned, people] = bounds;
        let slots = &self.components.cells.runs().slots;
        slots.of(PoolKind::Background).resize(owned);
        slots.of(PoolKind::Interactive).resize(people);
    }

    /// Returns a function that counts the slots in use below a root: those of owned runs, and those of people's runs.
    #[cfg(feature = "fault-points")]
    pub fn slots_of_root(&self) -> impl Fn(SessionId) -> [usize; 2] + Send + Sync + use<> {
        let components = std::sync::Arc::downgrade(&self.components);
        move |root| {
            let used = |pool_kind| {
                components.upgrade().map_or(0, |components| components.cells.runs().slots.of(pool_kind).in_use_by(root))
            };
            [used(PoolKind::Background), used(PoolKind::Interactive)]
        }
    }
}
