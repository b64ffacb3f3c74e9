//! Branches of a session, and answers given anew.

use subtend_journal::{ReadError, Stored};
use subtend_session::command::{BranchPlan, Command, RegeneratePlan, SwitchTo};
use subtend_session::effect::Reply;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::message::Message;
use subtend_session::outcome::By;
use subtend_session::place::BranchKind;
use subtend_session::state::State;
use subtend_session::title;

use super::{ControlError, SessionHandle};

/// How a branch is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchOptions {
    /// The message that it hangs on: a record of the session. The last message if not given.
    pub at: Option<Seq>,
    /// What it begins with: of a human branch everything up to that message, of the others nothing.
    pub kind: BranchKind,
    /// The agent that answers in it; the one that answers in the session if not given.
    pub agent: Option<Text>,
    /// A title for listings; that of the session if absent.
    pub title: Option<Text>,
    /// What is attached to it; JSON text.
    pub metadata: Option<Text>,
}

impl Default for BranchOptions {
    fn default() -> Self {
        Self { at: None, kind: BranchKind::Human, agent: None, title: None, metadata: None }
    }
}

impl BranchOptions {
    /// A person's branch on the message `at`.
    pub fn at(at: Seq) -> Self {
        Self { at: Some(at), ..Self::default() }
    }
}

/// An answer with its alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternatives {
    /// The answer: a record of the session.
    pub of: Seq,
    /// Which of them is seen.
    pub active: u32,
    /// All of them; the first is the original.
    pub choices: Vec<Alternative>,
}

/// One alternative of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The branch that gives it; absent for the original.
    pub session: Option<SessionId>,
    /// Its text; absent while its run is in flight, and where that came to nothing.
    pub text: Option<Text>,
}

/// The alternative that is seen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// The answer.
    pub of: Seq,
    /// Which: 0 is the original.
    pub to: u32,
}

impl SessionHandle {
    /// Makes a branch of the session, also while it works. A human branch knows what was said up to the message that it
    /// hangs on, as it stood then: calls that are open in it have a result that says so. Its first input opens its first run.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::NotFound`] where there is no such message; [`ControlError::Refused`] where the title is
    /// empty, more than one line, or has more than 200 characters.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the branch is made.
    ///
    /// # Durability
    /// The branch is durable when its handle is returned.
    pub async fn branch(&self, options: BranchOptions) -> Result<SessionHandle, ControlError> {
        if let Some(title) = &options.title {
            title::check(title).map_err(|bad| ControlError::Refused(bad.to_string()))?;
        }
        self.branch_as(options, true).await
    }

    /// As [`SessionHandle::branch`], without a check of the title; `listed`: whether listings show it.
    pub(super) async fn branch_as(&self, options: BranchOptions, listed: bool) -> Result<SessionHandle, ControlError> {
        let sessions = &self.sessions;
        let BranchOptions { at, kind, agent, title, metadata } = options;
        if kind == BranchKind::Alternative {
            return Err(ControlError::Refused("an alternative is made by `regenerate`".to_owned()));
        }
        let state = self.state().await?;
        let (mut created, manifest) = sessions.usable(&state)?.branched(&state, agent.as_ref(), kind)?;
        created.metadata = metadata;
        created.title = title;
        // The person who makes a branch must find it in listings.
        created.inspectable |= listed;
        let child = sessions.host.ids.session();
        let plan = BranchPlan { child, kind, at, created, manifest, by: By::Person };
        self.branched(Command::Branch(Box::new(plan))).await
    }

    /// Lets an answer be given anew, in a branch: the last answer, or the one of record `of`. The branch's run begins at once.
    ///
    /// When it completes and the answer is still the session's last, its text takes the answer's place; else it is one to
    /// [switch](SessionHandle::switch) to. The original stays intact, and seen where the new one comes to nothing.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Working`] while a run of the session is in flight; [`ControlError::NotFound`] for an
    /// unknown answer.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the answer is given anew.
    ///
    /// # Durability
    /// The branch and its run are durable when they are returned.
    pub async fn regenerate(&self, of: Option<Seq>) -> Result<(SessionHandle, RunNo), ControlError> {
        let sessions = &self.sessions;
        let state = self.state().await?;
        let (mut created, manifest) = sessions.usable(&state)?.branched(&state, None, BranchKind::Alternative)?;
        created.inspectable = false;
        let (child, input) = (sessions.host.ids.session(), sessions.host.ids.input());
        let plan = RegeneratePlan { child, input, of, created, manifest, by: By::Person };
        let child = self.branched(Command::Regenerate(Box::new(plan))).await?;
        Ok((child, RunNo(1)))
    }

    /// Shows another alternative of an answer: of the last one that has any, or of record `of`. The next model call sees it in
    /// the answer's place.
    ///
    /// # Errors
    /// As [`SessionHandle::regenerate`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it is switched.
    ///
    /// # Durability
    /// The switch is durable when it is returned.
    pub async fn switch(&self, of: Option<Seq>, to: SwitchTo) -> Result<Switched, ControlError> {
        match self.order(Command::Switch { of, to, by: By::Person }).await?.0 {
            Reply::Switched { of, to } => Ok(Switched { of, to }),
            other @ (Reply::None
            | Reply::NotFound
            | Reply::Accepted { .. }
            | Reply::Done(_)
            | Reply::Branched { .. }
            | Reply::AlreadyEnded(..)) => Err(unexpected(&other)),
        }
    }

    /// The answers of the session that have alternatives, in order. What a run came to that was seen to end is among them.
    ///
    /// # Errors
    /// As [`SessionHandle::branch`].
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Durability
    /// What is listed is durable.
    pub async fn alternatives(&self) -> Result<Vec<Alternatives>, ControlError> {
        // The session has heard of every end that was told before: whoever waited for one finds it here.
        self.probe().await.map_err(ControlError::Stopped)?;
        let state = self.state().await?;
        let original = |of: Seq| {
            let text = state.transcript.iter().find_map(|message| {
                let Message::Assistant { seq, text, .. } = message else { return None };
                text.clone().filter(|_| *seq == of)
            });
            Alternative { session: None, text }
        };
        let listed = state.alternatives.iter().map(|(of, known)| {
            let given = known
                .branches
                .iter()
                .map(|branch| Alternative { session: Some(branch.child), text: branch.text.clone() });
            let choices = std::iter::once(original(*of)).chain(given).collect();
            Alternatives { of: *of, active: known.active, choices }
        });
        Ok(listed.collect())
    }

    async fn branched(&self, command: Command) -> Result<SessionHandle, ControlError> {
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

    /// The session as the journal has it.
    pub(crate) async fn state(&self) -> Result<State, ControlError> {
        let stored = self.stored().await?;
        State::fold(self.id, stored.iter().map(|stored| &stored.record)).map_err(|error| unread(&error))
    }

    /// What the journal has of the session.
    pub(crate) async fn stored(&self) -> Result<Vec<Stored>, ControlError> {
        drop(self.sessions.log.journal.settled().await);
        self.sessions.log.journal.records(self.id).map_err(|error| match error {
            ReadError::NoSuchSession(_) => ControlError::NotFound(error.to_string()),
            ReadError::Closed => ControlError::Stopped(self.sessions.life.stopped()),
            other @ (ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::Engine(_)) => unread(&other),
        })
    }
}

fn unread(error: &dyn std::fmt::Display) -> ControlError {
    ControlError::Refused(format!("the session cannot be read: {error}"))
}

pub(super) fn unexpected(reply: &Reply) -> ControlError {
    ControlError::Refused(format!("the session answered something else: {reply:?}"))
}
