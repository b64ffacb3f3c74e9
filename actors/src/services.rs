//! Services of the host: sessions that write titles and summaries of other sessions. An answer becomes one record, or nothing.
//!
//! No caller owns a service: it takes no slot, wakes nothing, and holds no run open. It ends with the cancel, close or deletion of its
//! session, and with the runtime.

use std::sync::Arc;

use subtend_journal::Stored;
use subtend_session::authority::Authority;
use subtend_session::command::{BranchPlan, Command, Description, SummarisedHistory, Summary, Unsummarised};
use subtend_session::compaction;
use subtend_session::effect::Reply;
use subtend_session::ids::{InputId, RunNo, Seq, SessionId, Text};
use subtend_session::message::Message;
use subtend_session::outcome::{By, Outcome};
use subtend_session::place::{BranchKind, Owner};
use subtend_session::record::{CompactionFailure, From, Record, SummarySet, TitleSet};
use subtend_session::state::{Compaction, State};
use subtend_session::{context, render};
use tokio::sync::oneshot;

use crate::handle::SessionHandle;
use crate::handle::sessions::SessionServices;
use crate::services::birth::NewService;
use crate::services::running::{DueCompaction, For, Shift, Starter, SummaryResult};
use crate::values::error::{ControlError, SendError, WaitError};
use crate::values::panic::bounded;

pub(crate) mod birth;
pub(crate) mod material;
pub(crate) mod running;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Unserved {
    #[error("it was ended with the session that it works for")]
    Stopped,
    #[error("its run {0}")]
    Ended(String),
    #[error("its session {0} got another input before its answer")]
    Disturbed(SessionId),
    #[error("its answer cannot be used: {0:?}")]
    Unusable(Text),
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
    fn name(self: Arc<Self>, first: Text, shift: Shift) {
        let session = shift.session;
        let handle = SessionHandle { sessions: Arc::clone(&self), id: session, root: session };
        self.life.tasks.spawn(async move {
            if let Err(error) = handle.entitle(&first, &shift).await {
                // Without a title the session goes by its first message.
                tracing::info!(%session, %error, "the session was not named");
            }
        });
    }

    fn condense(self: Arc<Self>, due: Box<DueCompaction>, shift: Shift, tell: oneshot::Sender<SummaryResult>) {
        let handle = SessionHandle { sessions: Arc::clone(&self), id: shift.session, root: due.root };
        self.life.tasks.spawn(async move {
            let DueCompaction { created, text, .. } = *due;
            let service = NewService { what: For::Compaction, created };
            let summarised = match handle.serve(service, text, &shift).await {
                Ok((of, text)) => Ok(Summary { text, of }),
                // The next activation or process compacts again.
                Err(_) if handle.sessions.life.is_stopping() => return,
                Err(error) => Err(error.unsummarised()),
            };
            // The model call may not wait any more.
            let _ = tell.send(summarised);
        });
    }
}

impl Unserved {
    fn unsummarised(&self) -> Unsummarised {
        let message = bounded(&format!("the compaction agent gave no summary: {self}")).into();
        Unsummarised { why: CompactionFailure::Agent, message, of: None }
    }
}

impl SessionHandle {
    /// Compacts the session by request, and returns what it hid.
    pub(crate) async fn condense(&self, shift: &Shift) -> Result<Compaction, Unserved> {
        let state = self.state().await?;
        let plan = compaction::plan(&state).ok_or(Unserved::Nothing)?;
        let agents = self.sessions.environments.of(&state);
        let service = NewService::of(&agents, &state, For::Compaction)?;
        let text = material::of_compaction(&state, plan, agents.models.window(&service.created.model));
        let (of, text) = self.serve(service, text, shift).await?;
        let (by, result) = (By::Person, Ok(Summary { text, of }));
        self.order(Command::Compact(Box::new(SummarisedHistory { turn: None, by, plan, result }))).await?;
        self.state().await?.compactions.pop().ok_or(Unserved::Nothing)
    }

    async fn entitle(&self, first: &Text, shift: &Shift) -> Result<(), Unserved> {
        let state = self.state().await?;
        // An older untitled session is named by its first message, not by its last.
        let begun = context::visible_own(&state).iter().find_map(|message| match message {
            Message::User { text, .. } => Some(Arc::clone(text)),
            Message::Assistant { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => {
                None
            }
        });
        let first = begun.unwrap_or_else(|| Arc::clone(first));
        let (of, answer) = self.served(&state, For::Title, material::of_title(&first), shift).await?;
        let title = material::title(&answer).ok_or(Unserved::Unusable(answer))?;
        let set = TitleSet { title, by: By::Host, of: Some(of) };
        Ok(self.order(Command::Describe(Box::new(Description::Title(set)))).await.map(drop)?)
    }

    /// Summarises the session; `None` without messages, or with `only_new` without new ones.
    pub(crate) async fn sum_up(&self, only_new: bool, shift: &Shift) -> Result<Option<Text>, Unserved> {
        let state = self.state().await?;
        let upto = Seq(state.next_seq.0.saturating_sub(1));
        let wanted = !only_new || !material::is_summarised(&state);
        let Some(text) = material::of_summary(&state).filter(|_| wanted) else { return Ok(None) };
        let (of, answer) = self.served(&state, For::Summary, text, shift).await?;
        let text = material::summary(&answer).ok_or(Unserved::Unusable(answer))?;
        let set = SummarySet { text: Arc::clone(&text), upto, of };
        self.order(Command::Describe(Box::new(Description::Summary(set)))).await?;
        Ok(Some(text))
    }

    /// Runs the agent of `what` on `text` in a service session below that of `state`, and returns its answer.
    async fn served(&self, state: &State, what: For, text: Text, shift: &Shift) -> Result<(SessionId, Text), Unserved> {
        let service = NewService::of(&self.sessions.environments.of(state), state, what)?;
        self.serve(service, text, shift).await
    }

    async fn serve(&self, service: NewService, text: Text, shift: &Shift) -> Result<(SessionId, Text), Unserved> {
        let NewService { what, created } = service;
        // A custom agent for the service has no permissions.
        let manifest = Arc::new(Authority::deny_all());
        let child = self.sessions.host.ids.session();
        let plan = BranchPlan { child, kind: BranchKind::Service, at: None, created, manifest, by: By::Host };
        if shift.stop.is_cancelled() {
            return Err(Unserved::Stopped);
        }
        let born = self.order(Command::Branch(Box::new(plan))).await?.0;
        if !matches!(born, Reply::Branched { .. }) || shift.stop.is_cancelled() {
            return Err(Unserved::Stopped);
        }
        let service = self.of_tree(child);
        let receipt = service.input(text).by(From::Host, Owner::Host(what.service())).send().await?;
        let (run, input) = (receipt.run, receipt.input);
        let ended = tokio::select! {
            ended = service.run_ended(run) => ended?,
            () = shift.stop.cancelled() => {
                let cancel = Command::Cancel { run: Some(run), by: By::Host, queue_stands: true };
                service.control(cancel).await?;
                service.run_ended(run).await?
            }
        };
        // The service may have been ended while its answer arrived: an ended session is not changed.
        if shift.stop.is_cancelled() {
            return Err(Unserved::Stopped);
        }
        match (ended.outcome, ended.text) {
            // Its session accepts inputs like any other: a foreign one may come before or during its run.
            (Outcome::Completed, Some(_)) if !is_undisturbed(&service.stored().await?, run, input) => {
                Err(Unserved::Disturbed(child))
            }
            (Outcome::Completed, Some(text)) if run == RunNo(1) => Ok((child, text)),
            (outcome, _) => Err(Unserved::Ended(render::cause(&outcome))),
        }
    }
}

/// Returns whether `run` is the host's and took `input` alone: then its last text is the answer to that.
fn is_undisturbed(stored: &[Stored], run: RunNo, input: InputId) -> bool {
    stored.iter().all(|stored| {
        if let Record::RunOpened(opened) = &stored.record {
            return opened.run != run || matches!(opened.owner, Owner::Host(_));
        }
        let Record::InputsTaken { ids, run: by, .. } = &stored.record else { return true };
        *by != run || **ids == [input]
    })
}
