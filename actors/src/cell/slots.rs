//! Slot pools of runs, and the time limits of their waits.

use std::time::Duration;

use subtend_session::command::Deadline;
use subtend_session::ids::{RunKey, RunNo, SessionId};
use subtend_session::place::Owner;
use subtend_session::state::State;
use subtend_supervision::PoolKind;

use crate::cell::cells::Cells;
use crate::cell::driver::Driver;
use crate::delivery::directory::Presence;
use crate::delivery::ticket::Timer;

/// Returns the pool of the run in flight of `state`, and the maximum number of its root's runs in that pool.
/// A person's run has its own pool, so that a waiting person does not queue behind owned runs.
pub(crate) fn pool(state: &State) -> (PoolKind, u32) {
    match state.run.as_ref().map(|run| &run.opened.owner) {
        Some(Owner::Person) => (PoolKind::Interactive, state.limits.live_person_runs),
        Some(Owner::Run { .. } | Owner::Host(_) | Owner::Detached { .. }) | None => {
            (PoolKind::Background, state.limits.live_runs)
        }
    }
}

/// Returns how long the run in flight of `state` may wait for a slot, and in which pool.
pub(crate) fn queue_limit(state: &State) -> (PoolKind, Duration) {
    (pool(state).0, Duration::from_millis(state.limits.queue_ms))
}

impl Cells {
    /// Returns how long the queued run of a session without an actor may still wait. Computing it here avoids an activation.
    pub(crate) fn new_child_queue_left(&self, session: SessionId, run: RunNo) -> Option<Duration> {
        let waits = self.directory.with(session, |entry| match &entry.presence {
            Presence::NotStarted(new_child) => Some(new_child.queues),
            Presence::Absent | Presence::Starting | Presence::Active => None,
        })??;
        self.runs.queue_time_left(RunKey { session, run }, waits)
    }
}

impl Driver {
    /// Rearms the queue deadline if slots of the root were granted meanwhile; returns whether it was rearmed.
    pub(crate) fn rearm_queue_deadline(&self, deadline: Deadline) -> bool {
        let Deadline::Queue(run) = deadline else { return false };
        let session = self.session();
        let Some(left) = self.cells.runs.queue_time_left(RunKey { session, run }, queue_limit(&self.state)) else {
            return false;
        };
        self.cells.runs.timers.arm(Timer::Deadline(session, deadline), left);
        true
    }
}
