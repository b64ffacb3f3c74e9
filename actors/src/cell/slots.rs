//! Which slots a run takes, and how long it may wait for one.

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

/// The pool that the run in flight of `state` takes its slot from, and how many of its root may run there.
///
/// A person's run is in a pool of its own: whoever opened it waits for it, and what works by itself is not to be before it.
pub(crate) fn pool(state: &State) -> (PoolKind, u32) {
    match state.run.as_ref().map(|run| &run.opened.owner) {
        Some(Owner::Person) => (PoolKind::Interactive, state.limits.live_person_runs),
        Some(Owner::Run { .. } | Owner::Host(_) | Owner::Detached { .. }) | None => {
            (PoolKind::Background, state.limits.live_runs)
        }
    }
}

/// How long the run in flight of `state` may wait for a slot, and in which pool.
pub(crate) fn patience(state: &State) -> (PoolKind, Duration) {
    (pool(state).0, Duration::from_millis(state.limits.queue_ms))
}

impl Cells {
    /// Returns how long the queued run of a session without an actor may still wait: it is not to be activated only to be told to wait on.
    pub(crate) fn unborn_queue_left(&self, session: SessionId, run: RunNo) -> Option<Duration> {
        let waits = self.directory.with(session, |entry| match &entry.presence {
            Presence::Unborn(hot) => Some(hot.queues),
            Presence::Absent | Presence::Starting | Presence::Active => None,
        })??;
        self.runs.queue_left(RunKey { session, run }, waits)
    }
}

impl Driver {
    /// Arms the deadline of the queue anew where slots of the root were granted meanwhile; tells whether it did.
    pub(crate) fn waits_on(&self, deadline: Deadline) -> bool {
        let Deadline::Queue(run) = deadline else { return false };
        let session = self.session();
        let Some(left) = self.cells.runs.queue_left(RunKey { session, run }, patience(&self.state)) else {
            return false;
        };
        self.cells.runs.timers.arm(Timer::Deadline(session, deadline), left);
        true
    }
}
