//! Compactions that a model call waits for: a service session writes the summary, and a command delivers it.

use std::sync::Arc;

use subtend_session::command::{Command, SummarisedHistory, Unsummarised};
use subtend_session::compaction::{self, HistoryCut};
use subtend_session::ids::{AttemptNo, Seq, TurnNo};
use subtend_session::outcome::Initiator;
use subtend_session::record::CompactionFailure;

use crate::calls::in_flight::RunningTurn;
use crate::cell::driver::Driver;
use crate::cell::turn;
use crate::delivery::inbox::InboxItem;
use crate::services::creation::NewService;
use crate::services::running::{DueCompaction, ServiceKind};
use crate::services::service_prompts;
use crate::values::answering::model_of;

impl Driver {
    pub(super) fn window(&mut self) -> Option<u64> {
        let model = model_of(&self.state);
        if let Some((of, window)) = &self.window
            && of == model
        {
            return *window;
        }
        let window = self.agents.models.window(model);
        self.window = Some((Arc::clone(model), window));
        window
    }

    /// Starts a summary of old messages. The attempt waits until a command delivers the summary.
    pub(super) fn compact(&mut self, turn: TurnNo, attempt: AttemptNo) {
        if self.cells.life.is_stopping() {
            return;
        }
        if self.decide_owner_close() {
            return self.todo.next.push_back(turn::dropped(turn, attempt, false));
        }
        if self.agents.unusable.is_some() {
            self.renew_offer();
        }
        let Some(plan) = compaction::plan(&self.state) else {
            return self.todo.next.push_back(failure_command((turn, attempt), None, "no old message can be hidden"));
        };
        let service = match NewService::of(&self.agents, &self.state, ServiceKind::Compaction) {
            Ok(service) => service,
            Err(error) => {
                let why = format!("the compaction agent cannot be started: {error}");
                return self.todo.next.push_back(failure_command((turn, attempt), Some(plan), &why));
            }
        };
        let text = service_prompts::of_compaction(&self.state, plan, self.agents.models.window(&service.created.model));
        let due = Box::new(DueCompaction { root: self.root(), created: service.created, text });
        self.await_summary((turn, attempt), plan, due);
    }

    fn await_summary(&mut self, at: (TurnNo, AttemptNo), plan: HistoryCut, due: Box<DueCompaction>) {
        let Some(run) = self.run_key() else { return };
        let (agents, model) = (Arc::clone(&self.agents), Arc::clone(&due.created.model));
        // `None`: the runtime is stopping.
        let Some((summary, service)) = self.cells.services.compact_by_service(run.session, due) else { return };
        let owned = self.cells.runs.tokens.token(&run).unwrap_or_default();
        let stop = owned.child_token();
        let (cells, task_stop, owner) = (Arc::clone(&self.cells), stop.clone(), self.owner_run());
        let task = self.cells.life.tasks.spawn(async move {
            let summary = tokio::select! {
                biased;
                () = task_stop.cancelled() => None,
                summary = summary => Some(summary),
            };
            let command = match summary {
                None => {
                    // The token of the run fired: the owner's command, which has the cause, comes first.
                    if owned.is_cancelled()
                        && let Some(owner) = owner
                    {
                        let command = cells.runs.cancel_cause_command(owner, run);
                        cells.send_command(run.session, command);
                    }
                    turn::dropped(at.0, at.1, false)
                }
                Some(Ok(result)) => {
                    let reset = || cells.calls.reset_of(&agents.models.models, &model);
                    let result = result.map_err(|failed| Unsummarised { reset: reset(), ..failed });
                    Command::Compact(Box::new(SummarisedHistory { turn: Some(at), by: Initiator::Host, plan, result }))
                }
                Some(Err(_)) if cells.life.is_stopping() => return,
                Some(Err(_)) => failure_command(at, Some(plan), "the compaction agent was stopped"),
            };
            drop(service);
            cells.deliver(run.session, InboxItem::Command(command, None));
        });
        self.work.turn = Some(RunningTurn { stop, task: task.abort_handle() });
    }
}

/// Returns the command for a compaction that failed to produce a summary.
fn failure_command(at: (TurnNo, AttemptNo), plan: Option<HistoryCut>, why: &str) -> Command {
    let plan = plan.unwrap_or(HistoryCut { upto: 0, revised: Seq(0) });
    let result = Err(Unsummarised { why: CompactionFailure::Agent, message: why.into(), of: None, reset: None });
    Command::Compact(Box::new(SummarisedHistory { turn: Some(at), by: Initiator::Host, plan, result }))
}
