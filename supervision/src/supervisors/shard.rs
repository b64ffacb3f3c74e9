//! One supervisor: turns ractor's events into reports, never waits, never ends because a child did.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use super::roster::Roster;
use super::{Exit, ExitSink, How, StormSeen, StormSink};
use crate::intensity::{Storm, StormLimit};

/// The reason that ractor gives for a kill.
const KILLED: &str = "killed";
/// The reason that ractor gives when the actor's task was dropped, not ended.
const TASK_LOST: &str = "actor_task_cancelled";

/// The actor behind one shard.
pub(super) struct Shard;

/// A shard takes no messages.
pub(super) enum Nothing {}

/// What a shard knows; its drop is the shard's end.
pub(super) struct Watch {
    number: usize,
    roster: Arc<Roster>,
    sink: ExitSink,
    on_storm: StormSink,
    limit: StormLimit,
    storm: Storm,
    in_storm: bool,
}

impl Actor for Shard {
    type Msg = Nothing;
    type State = Watch;
    type Arguments = Watch;

    async fn pre_start(&self, _: ActorRef<Nothing>, watch: Watch) -> Result<Watch, ActorProcessingErr> {
        Ok(watch)
    }

    /// Overrides ractor's default, which stops the supervisor, and with it all children, when one child ends.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Nothing>,
        event: SupervisionEvent,
        watch: &mut Watch,
    ) -> Result<(), ActorProcessingErr> {
        watch.see(event);
        Ok(())
    }
}

impl Watch {
    pub(super) fn new(roster: Arc<Roster>, sink: &ExitSink, on_storm: &StormSink, limit: StormLimit) -> Self {
        Self {
            number: roster.number(),
            roster,
            sink: Arc::clone(sink),
            on_storm: Arc::clone(on_storm),
            limit,
            storm: Storm::new(limit),
            in_storm: false,
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    fn see(&mut self, event: SupervisionEvent) {
        let (actor, state, how) = match event {
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return,
            SupervisionEvent::ActorTerminated(actor, state, reason) => (actor, state, ended(reason)),
            SupervisionEvent::ActorFailed(actor, error) => {
                (actor, None, How::Failed(guarded(|| error.to_string()).unwrap_or_default()))
            }
        };
        // The state of the dead actor came with the event and aborts what it owned when it is dropped: before the
        // report, and guarded, since a panic here would end the shard and with it every sibling.
        guarded(|| drop(state));
        let exit = Exit { actor: actor.get_id(), how };
        self.note(&exit.how);
        guarded(|| (self.sink)(exit));
        // Last: whoever waits for the last actor to leave finds it reported.
        self.roster.vacate(self.number);
    }

    fn note(&mut self, how: &How) {
        match how {
            How::Stopped | How::Killed => return,
            How::Failed(_) => {}
        }
        let storm = self.storm.note(Instant::now());
        if storm && !self.in_storm {
            tracing::error!(shard = self.number, limit = ?self.limit, "children fail faster than the storm limit");
            guarded(|| (self.on_storm)(StormSeen { shard: self.number, limit: self.limit }));
        }
        self.in_storm = storm;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let lost = self.roster.retire(self.number);
        if lost > 0 {
            tracing::error!(shard = self.number, lost, "a supervisor ended and took its children with it");
        }
    }
}

fn ended(reason: Option<String>) -> How {
    match reason.as_deref() {
        Some(KILLED) => How::Killed,
        Some(TASK_LOST) => How::Failed("its task was dropped before it ended".to_owned()),
        Some(_) | None => How::Stopped,
    }
}

fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(run));
    if done.is_err() {
        tracing::error!("a panic was kept away from a supervisor; its children go on");
    }
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_ractor_are_told_apart() {
        let reasons = [None, Some("Drained"), Some("done"), Some(KILLED), Some(TASK_LOST)];
        let hows = reasons.map(|reason| ended(reason.map(str::to_owned)));
        let lost = How::Failed("its task was dropped before it ended".to_owned());
        assert_eq!(hows, [How::Stopped, How::Stopped, How::Stopped, How::Killed, lost]);
    }
}
