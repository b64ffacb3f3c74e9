//! Services of the host: sessions that write titles and summaries of other sessions. An answer becomes one record, or nothing.
//!
//! No caller owns a service: it takes no slot, wakes nothing, and holds no run open. It ends with the cancel, close or deletion of its
//! session, and with the runtime.

use std::sync::Arc;

use subtend_journal::Stored;
use subtend_session::authority::Authority;
use subtend_session::command::{BranchPlan, Command, Description};
use subtend_session::effect::Reply;
use subtend_session::ids::{InputId, Interned, RunNo, Seq, SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::outcome::{By, Outcome};
use subtend_session::place::{BranchKind, OnRestart, Owner};
use subtend_session::record::{From, Record, SummarySet, TitleSet};
use subtend_session::state::State;
use subtend_session::{context, render};

use crate::handle::SessionHandle;
use crate::handle::sessions::Sessions;
use crate::services::running::{For, Namer, Shift};
use crate::values::error::{ControlError, SendError, WaitError};

pub(crate) mod material;
pub(crate) mod running;

/// Why a service gave no result.
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
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("its limits cannot be written down: {0}")]
    Unrecordable(#[from] serde_json::Error),
}

impl Namer for Sessions {
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
}

impl SessionHandle {
    /// Starts the title of a session.
    async fn entitle(&self, first: &Text, shift: &Shift) -> Result<(), Unserved> {
        let state = self.state().await?;
        // An older untitled session is named by its first message, not by its last.
        let begun =
            context::visible(&state).iter().skip(state.created.inherited.len()).find_map(|message| match message {
                Message::User { text, .. } => Some(Arc::clone(text)),
                Message::Assistant { .. }
                | Message::Result { .. }
                | Message::Notice { .. }
                | Message::Prompt { .. } => None,
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
        let wanted = !only_new || !material::is_told(&state);
        let Some(text) = material::of_summary(&state).filter(|_| wanted) else { return Ok(None) };
        let (of, answer) = self.served(&state, For::Summary, text, shift).await?;
        let text = material::summary(&answer).ok_or(Unserved::Unusable(answer))?;
        let set = SummarySet { text: Arc::clone(&text), upto, of };
        self.order(Command::Describe(Box::new(Description::Summary(set)))).await?;
        Ok(Some(text))
    }

    /// Runs the agent of `what` on `text` in a service session below that of `state`, and returns its answer.
    async fn served(&self, state: &State, what: For, text: Text, shift: &Shift) -> Result<(SessionId, Text), Unserved> {
        let sessions = &self.sessions;
        let (mut created, _) =
            sessions.environments.of(state).branched(state, Some(&what.agent().into()), BranchKind::Service)?;
        // A custom agent for the service has no permissions and no tools either.
        let manifest = Arc::new(Authority::deny_all());
        (created.tools, created.dialects) = (Some(Vec::new()), Vec::new());
        created.limits = capped(state, &created.limits, what)?;
        created.inspectable = false;
        // The receiver of its answer would be lost with this process.
        created.on_restart = OnRestart::Fail;
        let child = sessions.host.ids.session();
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

/// Returns the limits of a service, with a wall-clock cap.
fn capped(state: &State, limits: &Interned<Limits>, what: For) -> Result<Interned<Limits>, serde_json::Error> {
    let mut limits = limits.body.as_deref().unwrap_or(&state.limits).clone();
    limits.wall_ms = Some(limits.wall_ms.map_or(what.cap_ms(), |ms| ms.min(what.cap_ms())));
    Interned::new(Arc::new(limits))
}
