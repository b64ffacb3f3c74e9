//! Model calls that wait for the tools of MCP servers: a server is started at its first use, and lists its tools only then.

use std::sync::Arc;

use subtend_session::ids::{AttemptNo, Lsn, TurnNo};

use crate::calls::in_flight::{ModelDue, RunningTurn};
use crate::cell::driver::Driver;
use crate::cell::turn;
use crate::delivery::inbox::InboxItem;

impl Driver {
    /// Returns whether a model call must wait for its tools. If so, starts a task that waits and then delivers the call to the
    /// session. A cancel ends the wait.
    pub(crate) fn wait_for_tools(
        &mut self,
        turn: TurnNo,
        attempt: AttemptNo,
        after_ms: u64,
        intent: Option<Lsn>,
    ) -> bool {
        let Some(run) = self.run_key() else { return false };
        let Some(settled) = self.agents.tools.settle() else { return false };
        let due = ModelDue { turn, attempt, after_ms, intent };
        let owned = self.cells.runs.tokens.token(&run).unwrap_or_default();
        let stop = owned.child_token();
        let (cells, owner, task_stop) = (Arc::clone(&self.cells), self.owner_run(), stop.clone());
        let task = self.cells.life.tasks.spawn(async move {
            let item = tokio::select! {
                biased;
                () = task_stop.cancelled() => {
                    // The owner's command comes first: a call that the owner's token dropped is not a failed attempt.
                    if owned.is_cancelled()
                        && let Some(owner) = owner
                    {
                        cells.send_command(run.session, cells.runs.cancel_cause_command(owner, run));
                    }
                    InboxItem::Command(turn::dropped(turn, attempt, false), None)
                }
                () = settled => InboxItem::ModelDue(due),
            };
            cells.deliver(run.session, item);
        });
        self.work.turn = Some(RunningTurn { stop, task: task.abort_handle() });
        self.work.settling = Some((turn, attempt));
        true
    }

    /// Makes a model call whose tools are known. Calls of an ended turn or a crashed activation are ignored.
    pub(crate) fn on_tools_settled(&mut self, due: ModelDue) {
        let ModelDue { turn, attempt, after_ms, intent } = due;
        if self.work.settling.take_if(|waits| *waits == (turn, attempt)).is_some() {
            self.work.turn = None;
            self.call_model(turn, attempt, after_ms, intent);
        }
    }
}
