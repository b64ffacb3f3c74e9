//! Approvals. The journal's outbox has a row for each waiting call; this module knows the attached approvers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use subtend_journal::ReadError;
use subtend_session::command::Command;
use subtend_session::dialect::discovery;
use subtend_session::effect::Rejection;
use subtend_session::ids::{CallId, Lsn, SessionId, Text, TurnNo};
use subtend_session::index::{RowKey, RowKind};
use subtend_session::record::{AnsweredBy, AskVerdict, Record, ToolCall};

use crate::approvals::open_asks::{Approvals, args_of};
use crate::handle::SessionHandle;
use crate::handle::sessions::SessionServices;
use crate::log::Log;
use crate::runtime::Runtime;
use crate::spawn::proposing::plan_of;
use crate::values::control::Control;
use crate::values::error::ControlError;
use crate::values::paging;

pub use open_asks::{Approval, AskedCall};

pub(crate) mod open_asks;

/// An attached approver. While at least one is attached, calls that need an approval wait for it; otherwise they are denied at once.
///
/// Dropping the last one does not deny open asks: they wait for another approver or their deadline.
#[must_use = "calls that need an approval are denied while no approver is attached"]
pub struct Approver {
    approvals: Arc<Approvals>,
    sessions: Arc<SessionServices>,
    seen: u64,
}

impl Approver {
    /// Returns the next open ask: first those that are open already, then each new one. An ask that was answered in the
    /// meantime is skipped.
    ///
    /// Never returns after the runtime has stopped: select it together with another event.
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Approval {
        loop {
            let notified = self.approvals.notified();
            tokio::pin!(notified);
            // Enabled before the check, so that a later ask wakes it.
            notified.as_mut().enable();
            if let Some((no, approval)) = self.approvals.next_after(self.seen) {
                self.seen = no;
                return approval;
            }
            notified.await;
        }
    }

    /// Answers `approval`, as [`Runtime::answer`] does.
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
    /// Attaches an approver until the returned value is dropped. Resumed runs ask during the start, before this can be
    /// called: [`Builder::start_attended`](crate::runtime::builder::Builder::start_attended) attaches one earlier.
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
        self.components.approvals.attach();
        Approver {
            approvals: Arc::clone(&self.components.approvals),
            sessions: Arc::clone(&self.components.sessions),
            seen: 0,
        }
    }

    /// Returns the names of all calls that wait for an approval, oldest first. Reads no session.
    /// # Errors
    /// The error of reading the journal.
    pub async fn waiting_calls(&self) -> Result<Vec<AskedCall>, ReadError> {
        // A poisoned journal can still be read.
        drop(self.components.log.journal.settled().await);
        waiting_calls(&self.components.log)
    }

    /// Reads the content of each of `calls` and returns what `map` makes of it, in their order. Holds the calls of one
    /// session and a page of its records at a time, so that large sessions need little memory. Leaves out calls that
    /// cannot be read.
    pub fn read_approvals<T>(&self, calls: &[AskedCall], map: impl FnMut(Approval) -> T) -> Vec<T> {
        read_approvals(&self.components.log, calls, map)
    }

    /// Answers a call that waits for an approval: allow it once, allow the same access in that session from now on, or deny it.
    ///
    /// Returns [`Control::NotFound`] if the call no longer waits: it was answered, its deadline passed, or its run
    /// ended.
    /// # Errors
    /// [`ControlError`]; [`ControlError::NotFound`] for an unknown session.
    /// # Cancel safety
    /// If the future is dropped, the answer may or may not have been recorded.
    /// # Durability
    /// The answer is durable when this returns, and before a call with side effects starts.
    pub async fn answer(&self, session: SessionId, call: CallId, verdict: AskVerdict) -> Result<Control, ControlError> {
        answer_ask(&self.components.sessions, session, call, verdict).await
    }
}

/// Returns the calls with an ask row in the outbox, oldest first.
fn waiting_calls(log: &Log) -> Result<Vec<AskedCall>, ReadError> {
    let asks = log.journal.outbox()?.into_iter().filter(|(row, _)| row.kind == RowKind::Ask);
    let mut calls: Vec<(Lsn, AskedCall)> = asks
        .filter_map(|(row, lsn)| {
            let RowKey::Call(call) = row.key else { return None };
            Some((lsn, AskedCall { root: row.to, session: row.from, call }))
        })
        .collect();
    calls.sort_unstable();
    Ok(calls.into_iter().map(|(_, call)| call).collect())
}

fn read_approvals<T>(log: &Log, calls: &[AskedCall], mut map: impl FnMut(Approval) -> T) -> Vec<T> {
    let mut first_of = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        first_of.entry(call.session).or_insert(at);
    }
    // Calls of one answer often wait together, so each session is read once.
    let mut by_session: Vec<_> =
        calls.iter().enumerate().map(|(at, call)| (first_of.get(&call.session).copied(), at, *call)).collect();
    by_session.sort_unstable();
    let mut found = Vec::with_capacity(calls.len());
    for of_session in by_session.chunk_by(|(one, ..), (other, ..)| one == other) {
        let Some((.., AskedCall { session, .. })) = of_session.first() else { continue };
        let turns = of_session.iter().map(|(.., asked)| asked.call.turn).collect();
        match AskRecords::read(log, *session, turns) {
            Ok(records) => {
                let read = of_session.iter().filter_map(|(_, at, asked)| Some((*at, records.approval(*asked)?)));
                found.extend(read.map(|(at, approval)| (at, map(approval))));
            }
            Err(error) => tracing::warn!(%session, %error, "omitted the asks of an unreadable session"),
        }
    }
    found.sort_unstable_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, mapped)| mapped).collect()
}

/// The records of a session that describe its open asks.
struct AskRecords {
    path: String,
    /// The calls of each answer.
    answers: BTreeMap<TurnNo, Vec<ToolCall>>,
    /// Action, resource and deadline of each ask.
    asks: BTreeMap<CallId, (Text, Text, Option<i64>)>,
}

impl AskRecords {
    /// Reads backwards from the end, since an ask belongs to the run in flight, and keeps nothing else: the session may be large.
    fn read(log: &Log, session: SessionId, mut turns: BTreeSet<TurnNo>) -> Result<Self, ReadError> {
        let mut found = Self { path: log.path(session)?, answers: BTreeMap::new(), asks: BTreeMap::new() };
        paging::each_backwards(&log.journal.without_bodies(), session, |stored| {
            let is_opening = matches!(stored.record, Record::RunOpened(_));
            if let Record::TurnAnswered(answered) = stored.record {
                if turns.remove(&answered.turn) {
                    found.answers.insert(answered.turn, answered.calls);
                }
            } else if let Record::AskOpened { call, action, resource, deadline_at, .. } = stored.record
                && turns.contains(&call.turn)
            {
                found.asks.entry(call).or_insert((action, resource, deadline_at));
            }
            // The asks of an answer are behind it.
            is_opening || turns.is_empty()
        })?;
        Ok(found)
    }

    fn approval(&self, AskedCall { root, session, call }: AskedCall) -> Option<Approval> {
        let ToolCall { tool, args, .. } = self.answers.get(&call.turn)?.get(call.ix as usize)?;
        let (action, resource, deadline_ms) = self.asks.get(&call)?;
        Some(Approval {
            root,
            session,
            path: self.path.clone(),
            call,
            tool: discovery::display_name(tool, args).into(),
            args: args_of(tool, args),
            action: Arc::clone(action),
            resource: Arc::clone(resource),
            plan: plan_of(tool, args),
            deadline_ms: *deadline_ms,
        })
    }
}

async fn answer_ask(
    sessions: &Arc<SessionServices>,
    session: SessionId,
    call: CallId,
    verdict: AskVerdict,
) -> Result<Control, ControlError> {
    let known = sessions.log.journal.head(session).map_err(|error| ControlError::Refused(error.to_string()))?;
    let known = known.ok_or_else(|| ControlError::NotFound(ReadError::NoSuchSession(session).to_string()))?;
    let handle = SessionHandle { sessions: Arc::clone(sessions), id: session, root: known.root };
    let command = Command::AskAnswered { call, verdict, by: AnsweredBy::Person };
    match handle.reply_to(command).await.map_err(ControlError::Stopped)? {
        Ok((reply, _)) => Ok(Control::of(reply)),
        // The ask is closed.
        Err(Rejection::Stale(_)) => Ok(Control::NotFound),
        Err(rejection) => Err(ControlError::of(&rejection)),
    }
}
