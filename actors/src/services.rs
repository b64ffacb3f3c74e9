//! Services of the host: sessions that write titles and summaries of other sessions. An answer becomes one record; a failure leaves no record.
//! No run owns a service: it takes no slot, wakes nothing, and does not keep a run open. It ends with the cancel, close or deletion of its session,
//! and with the runtime.

use std::sync::Arc;

use subtend_journal::Stored;
use subtend_session::authority::Authority;
use subtend_session::command::{BranchPlan, Command, Description, SummarisedHistory, Summary, Unsummarised};
use subtend_session::compaction;
use subtend_session::effect::Reply;
use subtend_session::ids::{InputId, RunNo, Seq, SessionId, Text};
use subtend_session::message::Message;
use subtend_session::outcome::{Initiator, ModelFail, Outcome};
use subtend_session::place::{BranchKind, Owner};
use subtend_session::record::{CompactionFailure, From, Record, SummarySet, TitleSet};
use subtend_session::state::{Compaction, State};
use subtend_session::{context, render};
use tokio::sync::oneshot;

use crate::handle::SessionHandle;
use crate::handle::sessions::SessionServices;
use crate::services::creation::NewService;
use crate::services::running::{DueCompaction, DueTitle, ServiceGuard, ServiceKind, Starter, SummaryResult};
use crate::values::error::{ControlError, SendError, WaitError};
use crate::values::panic::{Excerpt, truncate_message};

pub(crate) mod creation;
pub(crate) mod running;
pub(crate) mod service_prompts;

/// Minimum time between two attempts at a title: the reset of a limit may be unknown.
const TITLE_PAUSE_MS: i64 = 60_000;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error("it was ended with the session that it works for")]
    Stopped,
    #[error("its run {0}")]
    Ended(String),
    #[error("its session {0} got another input before its answer")]
    Disturbed(SessionId),
    #[error("its answer cannot be used: {0}")]
    Unusable(Excerpt),
    #[error("no old message can be hidden yet")]
    Nothing,
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl Starter for SessionServices {
    fn start_title(self: Arc<Self>, due: DueTitle, guard: ServiceGuard) {
        let session = guard.session;
        let handle = SessionHandle { sessions: Arc::clone(&self), id: session, root: session };
        self.life.tasks.spawn(async move {
            if let Err(error) = handle.write_title(&due, &guard).await {
                // A session without a title is listed by its first message.
                tracing::info!(%session, %error, "cannot name the session");
            }
        });
    }

    fn compact_by_service(
        self: Arc<Self>,
        due: Box<DueCompaction>,
        guard: ServiceGuard,
        sender: oneshot::Sender<SummaryResult>,
    ) {
        let handle = SessionHandle { sessions: Arc::clone(&self), id: guard.session, root: due.root };
        self.life.tasks.spawn(async move {
            let DueCompaction { created, text, .. } = *due;
            let service = NewService { what: ServiceKind::Compaction, created };
            let summarised = match handle.serve(service, text, &guard).await {
                Ok((of, text)) => Ok(Summary { text, of }),
                // The next activation or process compacts again.
                Err(_) if handle.sessions.life.is_stopping() => return,
                Err(error) => Err(error.to_unsummarised()),
            };
            // The model call may no longer be waiting.
            let _ = sender.send(summarised);
        });
    }
}

impl ServiceError {
    fn to_unsummarised(&self) -> Unsummarised {
        let message = truncate_message(&format!("the compaction agent produced no summary: {self}")).into();
        Unsummarised { why: CompactionFailure::Agent, message, of: None, reset: None }
    }
}

impl SessionHandle {
    /// Compacts the session by request, and returns the compaction.
    pub(crate) async fn compact_by_service(&self, guard: &ServiceGuard) -> Result<Compaction, ServiceError> {
        let state = self.state().await?;
        let plan = compaction::plan(&state).ok_or(ServiceError::Nothing)?;
        let agents = self.sessions.environments.of(&state);
        let service = NewService::of(&agents, &state, ServiceKind::Compaction)?;
        let text = service_prompts::of_compaction(&state, plan, agents.models.window(&service.created.model));
        let (of, text) = self.serve(service, text, guard).await?;
        let (by, result) = (Initiator::Person, Ok(Summary { text, of }));
        self.order(Command::Compact(Box::new(SummarisedHistory { turn: None, by, plan, result }))).await?;
        self.state().await?.compactions.pop().ok_or(ServiceError::Nothing)
    }

    async fn write_title(&self, due: &DueTitle, guard: &ServiceGuard) -> Result<(), ServiceError> {
        let now_ms = self.sessions.host.clock.wall_ms();
        // Checked before the session is folded, since its journal may be long and its title may have failed for good.
        for of in &due.earlier {
            let stored = self.of_tree(*of).stored().await?;
            let since_ms = now_ms.saturating_sub(stored.last().map_or(0, |last| last.at_ms));
            if !failed_at_limit(&stored) || since_ms < TITLE_PAUSE_MS {
                return Ok(());
            }
        }
        let state = self.state().await?;
        // An older session without a title is named by its first message, not by its last.
        let first_message = context::visible_own(&state).iter().find_map(|message| match message {
            Message::User { text, .. } => Some(Arc::clone(text)),
            Message::Assistant { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => {
                None
            }
        });
        let first = first_message.unwrap_or_else(|| Arc::clone(&due.first));
        let agents = self.sessions.environments.of(&state);
        let service = NewService::of(&agents, &state, ServiceKind::Title)?;
        let is_limited = || self.sessions.cells.calls.reset_of(&agents.models.models, &service.created.model).is_some();
        if first.trim().is_empty() || (!due.earlier.is_empty() && is_limited()) {
            return Ok(());
        }
        let (of, answer) = self.serve(service, service_prompts::of_title(&first), guard).await?;
        let title = service_prompts::title(&answer).ok_or_else(|| ServiceError::Unusable(Excerpt::of(&answer)))?;
        let set = TitleSet { title, by: Initiator::Host, of: Some(of) };
        Ok(self.order(Command::Describe(Box::new(Description::Title(set)))).await.map(drop)?)
    }

    /// Summarises the session. Returns `None` if there are no messages or, with `only_new`, no new ones.
    pub(crate) async fn write_summary(
        &self,
        only_new: bool,
        guard: &ServiceGuard,
    ) -> Result<Option<Text>, ServiceError> {
        let state = self.state().await?;
        let upto = Seq(state.next_seq.0.saturating_sub(1));
        let wanted = !only_new || !service_prompts::is_summarised(&state);
        let Some(text) = service_prompts::of_summary(&state).filter(|_| wanted) else { return Ok(None) };
        let (of, answer) = self.run_service(&state, ServiceKind::Summary, text, guard).await?;
        let text = service_prompts::summary(&answer).ok_or_else(|| ServiceError::Unusable(Excerpt::of(&answer)))?;
        let set = SummarySet { text: Arc::clone(&text), upto, of };
        self.order(Command::Describe(Box::new(Description::Summary(set)))).await?;
        Ok(Some(text))
    }

    /// Runs the agent of the service `what` on `text` in a service session below that of `state`, and returns its answer.
    async fn run_service(
        &self,
        state: &State,
        what: ServiceKind,
        text: Text,
        guard: &ServiceGuard,
    ) -> Result<(SessionId, Text), ServiceError> {
        let service = NewService::of(&self.sessions.environments.of(state), state, what)?;
        self.serve(service, text, guard).await
    }

    async fn serve(
        &self,
        service: NewService,
        text: Text,
        guard: &ServiceGuard,
    ) -> Result<(SessionId, Text), ServiceError> {
        let NewService { what, created } = service;
        self.check_levels(BranchKind::Service)?;
        // A custom agent for the service gets no permissions.
        let manifest = Arc::new(Authority::deny_all());
        let child = self.sessions.host.ids.session();
        let plan = BranchPlan {
            child,
            kind: BranchKind::Service,
            at: None,
            created,
            manifest,
            by: Initiator::Host,
            is_task: false,
        };
        if guard.stop.is_cancelled() {
            return Err(ServiceError::Stopped);
        }
        let reply = self.order(Command::Branch(Box::new(plan))).await?.0;
        if !matches!(reply, Reply::Branched { .. }) || guard.stop.is_cancelled() {
            return Err(ServiceError::Stopped);
        }
        let service = self.of_tree(child);
        let receipt = service.input(text).with_sender(From::Host, Owner::Host(what.service())).send().await?;
        let (run, input) = (receipt.run, receipt.input);
        let ended = tokio::select! {
            ended = service.run_ended(run) => ended?,
            () = guard.stop.cancelled() => {
                let cancel = Command::Cancel { run: Some(run), by: Initiator::Host, keeps_queue: true };
                service.control(cancel).await?;
                service.run_ended(run).await?
            }
        };
        // The service may have been ended while its answer arrived: then the session is not changed.
        if guard.stop.is_cancelled() {
            return Err(ServiceError::Stopped);
        }
        match (ended.outcome, ended.text) {
            // A service session accepts inputs like any other, also of another sender before or during its run.
            (Outcome::Completed, Some(_)) if !has_only_input(&service.stored().await?, run, input) => {
                Err(ServiceError::Disturbed(child))
            }
            (Outcome::Completed, Some(text)) if run == RunNo(1) => Ok((child, text)),
            (outcome, _) => Err(ServiceError::Ended(render::cause(&outcome))),
        }
    }
}

/// Returns whether a service failed, or ran out of time, at a limit of its provider.
fn failed_at_limit(stored: &[Stored]) -> bool {
    let (mut last_error, mut is_failed) = (None, false);
    for stored in stored {
        if let Record::AttemptDiscarded(discarded) = &stored.record {
            last_error = Some(discarded.error);
        } else if let Record::RunEnded(ended) = &stored.record {
            is_failed = matches!(ended.outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. });
        }
    }
    is_failed && last_error == Some(ModelFail::Rate)
}

/// Returns whether `run` is the host's and took only `input`: then its last text is the answer.
fn has_only_input(stored: &[Stored], run: RunNo, input: InputId) -> bool {
    stored.iter().all(|stored| {
        if let Record::RunOpened(opened) = &stored.record {
            return opened.run != run || matches!(opened.owner, Owner::Host(_));
        }
        let Record::InputsTaken { ids, run: by, .. } = &stored.record else { return true };
        *by != run || **ids == [input]
    })
}
