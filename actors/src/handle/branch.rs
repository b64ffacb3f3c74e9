//! Branches of a session, and regenerated answers.

use subtend_journal::{ReadError, Stored};
use subtend_session::command::{BranchPlan, Command, RegeneratePlan, SwitchTo};
use subtend_session::effect::Reply;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::limits::MAX_DEPTH;
use subtend_session::outcome::Initiator;
use subtend_session::place::BranchKind;
use subtend_session::state::State;
use subtend_session::title;
use subtend_session::values::check_metadata;
use subtend_tools::background::AGENT;

use super::{ControlError, SessionHandle};
use crate::spawn::ancestors::count_levels;
use crate::values::alternatives::Alternatives;

/// Maximum number of sessions above a branch: an import takes 1,000 levels, and views read a tree level by level. Services
/// use all of them.
const MAX_ABOVE: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchOptions {
    /// The id of the branch; a new one by default. The caller makes sure that the id is unused.
    pub id: Option<SessionId>,
    /// The record of the message to branch from; the default is the last message.
    pub at: Option<Seq>,
    /// The kind of branch. A human branch starts with the context up to that message, others with an empty one.
    pub kind: BranchKind,
    /// The agent of the branch; the default is the agent that answers in the session.
    pub agent: Option<Text>,
    /// The title of the branch; the default is that of the session.
    pub title: Option<Text>,
    /// Metadata of the branch, as JSON text of at most 64 KiB and 10,000 values.
    pub metadata: Option<Text>,
}

impl Default for BranchOptions {
    fn default() -> Self {
        Self { id: None, at: None, kind: BranchKind::Human, agent: None, title: None, metadata: None }
    }
}

impl BranchOptions {
    /// Returns the options of a person's branch from the message `at`.
    pub fn at(at: Seq) -> Self {
        Self { at: Some(at), ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    pub of: Seq,
    /// The index of the active alternative; 0 is the original.
    pub to: u32,
}

impl SessionHandle {
    /// Creates a branch, even while the session is running. A human branch has the context up to its message; calls that were open at that point get
    /// a result that says so. The branch's first input opens its first run.
    /// # Errors
    /// [`ControlError`]; [`ControlError::NotFound`] for an unknown message; [`ControlError::Refused`] if the title is empty, has more than
    /// one line, or more than 200 characters, or if the metadata is too large.
    /// # Cancel safety
    /// If the future is dropped, the branch may or may not have been created.
    pub async fn branch(&self, options: BranchOptions) -> Result<SessionHandle, ControlError> {
        if let Some(title) = &options.title {
            title::check(title).map_err(|bad| ControlError::Refused(bad.to_string()))?;
        }
        self.branch_as(options, true).await
    }

    /// Creates a branch without checking the title; `listed` says whether listings show it.
    pub(super) async fn branch_as(&self, options: BranchOptions, listed: bool) -> Result<SessionHandle, ControlError> {
        let state = self.state().await?;
        self.branch_of(state, options, listed, false).await
    }

    /// Creates a branch as [`SessionHandle::branch_as`] does, from the known `state` of this session. If `is_task`, the branch
    /// is a task, which a closed session refuses.
    pub(crate) async fn branch_of(
        &self,
        state: State,
        options: BranchOptions,
        listed: bool,
        is_task: bool,
    ) -> Result<SessionHandle, ControlError> {
        let sessions = &self.sessions;
        let BranchOptions { id, at, kind, agent, title, metadata } = options;
        if kind == BranchKind::Alternative {
            return Err(ControlError::Refused("call `regenerate` to create an alternative".to_owned()));
        }
        check_metadata("the metadata", metadata.as_deref().unwrap_or_default()).map_err(ControlError::Refused)?;
        refuse_for_process(&state.created.agent)?;
        self.check_levels(kind)?;
        let (mut created, manifest) = sessions.usable(&state)?.branch_spec(&state, agent.as_ref(), kind)?;
        created.metadata = metadata;
        created.title = title;
        // Listings must show a branch of a person.
        created.inspectable |= listed;
        let child = id.unwrap_or_else(|| sessions.host.ids.session());
        let plan = BranchPlan { child, kind, at, created, manifest, by: Initiator::Person, is_task };
        // Dropped first, because the session's actor has the same conversation in memory.
        drop(state);
        self.create_branch(Command::Branch(Box::new(plan))).await
    }

    /// Regenerates an answer in a branch: the last answer, or the one of record `of`. The branch's run starts at once.
    ///
    /// If the run completes while the answer is still the session's last, its text becomes active; otherwise it is an alternative to
    /// [switch](SessionHandle::switch) to. The original remains, and stays active if the new run fails.
    /// # Errors
    /// [`ControlError`]; [`ControlError::Working`] while a run of the session is in flight; [`ControlError::NotFound`] for an unknown answer.
    /// # Cancel safety
    /// If the future is dropped, the answer may or may not be regenerated.
    pub async fn regenerate(&self, of: Option<Seq>) -> Result<(SessionHandle, RunNo), ControlError> {
        self.regenerate_as(of, None).await
    }

    /// Regenerates an answer in a branch with the given id. The caller makes sure that the id is unused.
    /// # Errors, cancel safety
    /// As [`SessionHandle::regenerate`].
    pub async fn regenerate_as(
        &self,
        of: Option<Seq>,
        id: Option<SessionId>,
    ) -> Result<(SessionHandle, RunNo), ControlError> {
        let sessions = &self.sessions;
        let state = self.state().await?;
        refuse_for_process(&state.created.agent)?;
        self.check_levels(BranchKind::Alternative)?;
        let (mut created, manifest) = sessions.usable(&state)?.branch_spec(&state, None, BranchKind::Alternative)?;
        created.inspectable = false;
        let child = id.unwrap_or_else(|| sessions.host.ids.session());
        let input = sessions.host.ids.input();
        let plan = RegeneratePlan { child, input, of, created, manifest, by: Initiator::Person };
        drop(state);
        let child = self.create_branch(Command::Regenerate(Box::new(plan))).await?;
        Ok((child, RunNo(1)))
    }

    /// Activates another alternative of the last answer that has any, or of record `of`. The next model call sees it instead.
    /// # Errors
    /// As [`SessionHandle::regenerate`].
    /// # Cancel safety
    /// If the future is dropped, the alternative may or may not have been activated.
    pub async fn switch(&self, of: Option<Seq>, to: SwitchTo) -> Result<Switched, ControlError> {
        match self.order(Command::Switch { of, to, by: Initiator::Person }).await?.0 {
            Reply::Switched { of, to } => Ok(Switched { of, to }),
            other @ (Reply::None
            | Reply::NotFound
            | Reply::Accepted { .. }
            | Reply::Done(_)
            | Reply::Branched { .. }
            | Reply::AlreadyEnded(..)) => Err(unexpected(&other)),
        }
    }

    /// Returns the answers with alternatives, in order, including the result of each run whose end was reported.
    /// # Errors
    /// [`ControlError::Stopped`].
    pub async fn alternatives(&self) -> Result<Vec<Alternatives>, ControlError> {
        // The actor answers, because a reading of a large session would be a second copy of its texts.
        Ok(self.probe().await.map_err(ControlError::Stopped)?.alternatives)
    }

    /// Refuses a branch with too many sessions above it.
    pub(crate) fn check_levels(&self, kind: BranchKind) -> Result<(), ControlError> {
        let most = if kind == BranchKind::Service { MAX_DEPTH as usize } else { MAX_ABOVE };
        let above = count_levels(&self.sessions.log.journal, Some(self.id)).map_err(|error| unreadable(&error))?;
        if above > most {
            let why = format!("a branch has at most {most} sessions above it: branch off from an earlier one");
            return Err(ControlError::Refused(why));
        }
        Ok(())
    }

    async fn create_branch(&self, command: Command) -> Result<SessionHandle, ControlError> {
        match self.order(command).await?.0 {
            Reply::Branched { child, .. } => Ok(self.of_tree(child)),
            other @ (Reply::None
            | Reply::NotFound
            | Reply::Accepted { .. }
            | Reply::Done(_)
            | Reply::Switched { .. }
            | Reply::AlreadyEnded(..)) => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn state(&self) -> Result<State, ControlError> {
        let id = self.id;
        let fold = move |stored: Vec<Stored>| State::fold(id, stored.iter().map(|stored| &stored.record));
        self.read_records(fold).await?.map_err(|error| unreadable(&error))
    }

    pub(crate) async fn stored(&self) -> Result<Vec<Stored>, ControlError> {
        self.read_records(|stored| stored).await
    }

    async fn read_records<T: Send + 'static>(
        &self,
        map: impl FnOnce(Vec<Stored>) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        drop(self.sessions.log.journal.settled().await);
        let id = self.id;
        self.sessions.log.read_whole(move |journal| journal.records(id).map(map)).await.map_err(|error| match error {
            ReadError::NoSuchSession(_) => ControlError::NotFound(error.to_string()),
            ReadError::Closed => ControlError::Stopped(self.sessions.life.stopped()),
            other @ (ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::Engine(_)) => unreadable(&other),
        })
    }
}

/// Refuses changes that would let the session of a background process mistake a message for its command.
pub(super) fn refuse_for_process(agent: &str) -> Result<(), ControlError> {
    if agent != AGENT {
        return Ok(());
    }
    let why =
        "the session of a background process runs one command: it has no branches, and no run of it is rolled back";
    Err(ControlError::Refused(why.to_owned()))
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> ControlError {
    ControlError::Refused(format!("the session cannot be read: {error}"))
}

pub(super) fn unexpected(reply: &Reply) -> ControlError {
    ControlError::Refused(format!("unexpected reply of the session: {reply:?}"))
}
