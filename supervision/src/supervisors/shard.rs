//! One supervisor. It turns ractor's events into reports, never waits, and survives the end of its children.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use super::capacities::ShardCapacities;
use super::{Exit, ExitReason, ExitSink, StormDetected, StormSink};
use crate::intensity::{Storm, StormLimit};

const KILLED: &str = "killed";
/// Ractor's reason when the actor's task was dropped.
const TASK_LOST: &str = "actor_task_cancelled";

pub(super) struct Shard;

pub(super) enum NoMessage {}

pub(super) struct ShardState {
    number: usize,
    capacities: Arc<ShardCapacities>,
    sink: ExitSink,
    on_storm: StormSink,
    limit: StormLimit,
    storm: Storm,
    in_storm: bool,
}

impl Actor for Shard {
    type Msg = NoMessage;
    type State = ShardState;
    type Arguments = ShardState;

    async fn pre_start(&self, _: ActorRef<NoMessage>, state: ShardState) -> Result<ShardState, ActorProcessingErr> {
        Ok(state)
    }

    /// Overrides ractor's default, which stops the supervisor and all children when one child ends.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<NoMessage>,
        event: SupervisionEvent,
        state: &mut ShardState,
    ) -> Result<(), ActorProcessingErr> {
        state.report(event);
        Ok(())
    }
}

impl ShardState {
    pub(super) fn new(
        capacities: Arc<ShardCapacities>,
        sink: &ExitSink,
        on_storm: &StormSink,
        limit: StormLimit,
    ) -> Self {
        Self {
            number: capacities.reserve_number(),
            capacities,
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

    fn report(&mut self, event: SupervisionEvent) {
        let (actor, state, how) = match event {
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return,
            SupervisionEvent::ActorTerminated(actor, state, reason) => (actor, state, exit_reason(reason)),
            SupervisionEvent::ActorFailed(actor, error) => {
                (actor, None, ExitReason::Failed(catch_panic(|| error.to_string()).unwrap_or_default()))
            }
        };
        // The drop aborts the actor's tasks before the report. A panic here would end the shard and all siblings.
        catch_panic(|| drop(state));
        let exit = Exit { actor: actor.get_id(), how };
        self.record_failure(&exit.how);
        catch_panic(|| (self.sink)(exit));
        // This comes after the report: `ShardCapacities::wait_empty` must not return before the last exit is reported.
        self.capacities.vacate(self.number);
    }

    fn record_failure(&mut self, how: &ExitReason) {
        match how {
            ExitReason::Stopped | ExitReason::Killed => return,
            ExitReason::Failed(_) => {}
        }
        let storm = self.storm.record_failure(Instant::now());
        if storm && !self.in_storm {
            tracing::error!(shard = self.number, limit = ?self.limit, "children fail faster than the storm limit");
            catch_panic(|| (self.on_storm)(StormDetected { shard: self.number, limit: self.limit }));
        }
        self.in_storm = storm;
    }
}

impl Drop for ShardState {
    fn drop(&mut self) {
        let lost = self.capacities.retire(self.number);
        if lost > 0 {
            tracing::error!(shard = self.number, lost, "a supervisor ended with its children");
        }
    }
}

fn exit_reason(reason: Option<String>) -> ExitReason {
    match reason.as_deref() {
        Some(KILLED) => ExitReason::Killed,
        Some(TASK_LOST) => ExitReason::Failed("its task was dropped before it ended".to_owned()),
        Some(_) | None => ExitReason::Stopped,
    }
}

fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(run));
    if done.is_err() {
        tracing::error!("caught a panic in a supervisor: its children continue");
    }
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_and_kill_reasons_of_ractor_are_distinguished() {
        let reasons = [None, Some("Drained"), Some("done"), Some(KILLED), Some(TASK_LOST)];
        let exits = reasons.map(|reason| exit_reason(reason.map(str::to_owned)));
        let lost = ExitReason::Failed("its task was dropped before it ended".to_owned());
        assert_eq!(exits, [ExitReason::Stopped, ExitReason::Stopped, ExitReason::Stopped, ExitReason::Killed, lost]);
    }
}
