//! A person's word: which calls wait for one, and who can give it.
//!
//! The journal's outbox has a row for each call that waits; this is who is told of it, and whether anybody is there at all.

use std::sync::Arc;

use subtend_journal::ReadError;
use subtend_session::command::Command;
use subtend_session::dialect::discovery;
use subtend_session::effect::Rejection;
use subtend_session::ids::{CallId, Lsn, SessionId, Text};
use subtend_session::index::{RowKey, RowKind};
use subtend_session::record::{AskBy, AskVerdict, Record};

use crate::approvals::questions::{Approvals, args_of};
use crate::handle::SessionHandle;
use crate::handle::sessions::Sessions;
use crate::log::Log;
use crate::runtime::Runtime;
use crate::spawn::proposing::plan_of;
use crate::values::control::Control;
use crate::values::error::ControlError;

pub use questions::Approval;

pub(crate) mod questions;

/// Someone who can give a person's word. While one lives, calls that need a word wait for it; without one they are denied at
/// once.
///
/// Dropping the last one denies nothing: a call that waits goes on waiting, for another approver or for its deadline. What is
/// asked from then on is denied.
#[must_use = "calls are denied when the last approver is dropped"]
pub struct Approver {
    approvals: Arc<Approvals>,
    sessions: Arc<Sessions>,
    /// The last question that was given.
    seen: u64,
}

impl Approver {
    /// The next call that waits for a word and was not given yet: those that wait already, then each as it is asked. One that
    /// was answered meanwhile is passed over.
    ///
    /// Does not return any more when the runtime has stopped: wait for something else beside it.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    ///
    /// # Durability
    /// The question is durable when it is returned.
    pub async fn next(&mut self) -> Approval {
        loop {
            let asked = self.approvals.shown();
            tokio::pin!(asked);
            // Before the look: a question that comes after it wakes this.
            asked.as_mut().enable();
            if let Some((no, approval)) = self.approvals.after(self.seen) {
                self.seen = no;
                return approval;
            }
            asked.await;
        }
    }

    /// Gives the word for `approval`: the same as [`Runtime::answer`].
    ///
    /// # Errors
    /// As [`Runtime::answer`].
    pub async fn answer(&self, approval: &Approval, verdict: AskVerdict) -> Result<Control, ControlError> {
        answer_ask(&self.sessions, approval.session, approval.call, verdict).await
    }
}

impl std::fmt::Debug for Approver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Approver").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Drop for Approver {
    fn drop(&mut self) {
        self.approvals.detach();
    }
}

impl Runtime {
    /// Someone who can give a person's word, for as long as the value lives. What runs that go on ask within the start is denied
    /// before this can be called: [`Builder::start_attended`](crate::runtime::builder::Builder::start_attended) has somebody there then.
    ///
    /// ```
    /// # async fn example(runtime: subtend_actors::Runtime) -> Result<(), subtend_actors::ControlError> {
    /// use subtend_session::record::AskVerdict;
    ///
    /// let mut approver = runtime.approver();
    /// let asked = approver.next().await;
    /// let verdict = if &*asked.action == "fs.write" { AskVerdict::Allow } else { AskVerdict::Deny };
    /// approver.answer(&asked, verdict).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn approver(&self) -> Approver {
        self.rooms.approvals.attach();
        Approver { approvals: Arc::clone(&self.rooms.approvals), sessions: Arc::clone(&self.rooms.sessions), seen: 0 }
    }

    /// All calls that wait for a person's word, oldest first, as the journal has them.
    ///
    /// # Errors
    /// When the journal cannot be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Durability
    /// What is listed is durable; all that was appended before the call is seen.
    pub async fn approvals(&self) -> Result<Vec<Approval>, ReadError> {
        // A journal that failed still says what it has.
        drop(self.rooms.log.journal.settled().await);
        waiting_asks(&self.rooms.log)
    }

    /// Gives a person's word for a call: once, always (for the same in that session), or no.
    ///
    /// [`Control::NotFound`] where the call does not wait for one any more: another word came first, its deadline passed, or
    /// its run ended.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::NotFound`] where there is no such session.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the word counts.
    ///
    /// # Durability
    /// The word is durable when the answer is returned, and before the call starts where its effects could not be undone.
    pub async fn answer(&self, session: SessionId, call: CallId, verdict: AskVerdict) -> Result<Control, ControlError> {
        answer_ask(&self.rooms.sessions, session, call, verdict).await
    }
}

/// Calls that wait for a word, by the rows that oblige to one. What cannot be read is left out.
fn waiting_asks(log: &Log) -> Result<Vec<Approval>, ReadError> {
    let rows = log.journal.outbox()?;
    let mut asks: Vec<(Lsn, SessionId, SessionId, CallId)> = rows
        .into_iter()
        .filter(|(row, _)| row.kind == RowKind::Ask)
        .filter_map(|(row, lsn)| {
            let RowKey::Call(call) = row.key else { return None };
            Some((lsn, row.to, row.from, call))
        })
        .collect();
    asks.sort_unstable();
    let mut found = Vec::with_capacity(asks.len());
    for (_, root, session, call) in asks {
        match approval(log, root, session, call) {
            Ok(approval) => found.extend(approval),
            Err(error) => {
                tracing::warn!(%session, %error, "a question of a session that cannot be read is left out")
            }
        }
    }
    Ok(found)
}

fn approval(log: &Log, root: SessionId, session: SessionId, call: CallId) -> Result<Option<Approval>, ReadError> {
    let records = log.journal.records(session)?;
    let tool = records.iter().find_map(|stored| {
        let Record::TurnAnswered(answered) = &stored.record else { return None };
        let asked = answered.calls.get(call.ix as usize).filter(|_| answered.turn == call.turn)?;
        let (tool, args) = (&asked.tool, &asked.args);
        Some((Text::from(discovery::named(tool, args)), args_of(tool, args), plan_of(tool, args)))
    });
    let asked = records.iter().rev().find_map(|stored| {
        let Record::AskOpened { call: of, action, resource, .. } = &stored.record else { return None };
        (*of == call).then(|| (Arc::clone(action), Arc::clone(resource)))
    });
    let Some(((tool, args, plan), (action, resource))) = tool.zip(asked) else { return Ok(None) };
    Ok(Some(Approval { root, session, path: log.path(session)?, call, tool, args, action, resource, plan }))
}

async fn answer_ask(
    sessions: &Arc<Sessions>,
    session: SessionId,
    call: CallId,
    verdict: AskVerdict,
) -> Result<Control, ControlError> {
    let known = sessions.log.journal.head(session).map_err(|error| ControlError::Refused(error.to_string()))?;
    let known = known.ok_or_else(|| ControlError::NotFound(ReadError::NoSuchSession(session).to_string()))?;
    let handle = SessionHandle { sessions: Arc::clone(sessions), id: session, root: known.root };
    let command = Command::AskAnswered { call, verdict, by: AskBy::Person };
    match handle.answer_to(command).await.map_err(ControlError::Stopped)? {
        Ok((reply, _)) => Ok(Control::of(reply)),
        // Nobody waits for the word any more.
        Err(Rejection::Stale(_)) => Ok(Control::NotFound),
        Err(rejection) => Err(ControlError::of(&rejection)),
    }
}
