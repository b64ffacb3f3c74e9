//! Events: what subscribers of a tree see, durable facts and passing progress.

use std::sync::Arc;

use serde::Serialize;
use subtend_models::model::Delta;
use subtend_session::ids::{AttemptNo, CallId, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::record::Record;
use tokio::sync::broadcast;

/// One event of a session.
#[derive(Clone, Debug)]
pub struct Event {
    /// The root of the session's tree.
    pub root: SessionId,
    /// The session.
    pub session: SessionId,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// A record is durable. Records of one session come in order, without gaps (N-6).
    Record {
        /// Its place in the session's journal.
        seq: Seq,
        /// The record.
        record: Arc<Record>,
    },
    /// A piece of an answer on its way; not durable, gone when the attempt is discarded.
    Delta {
        /// The run.
        run: RunNo,
        /// The turn.
        turn: TurnNo,
        /// The attempt.
        attempt: AttemptNo,
        /// The piece.
        delta: Delta,
    },
    /// A line of progress of a tool; not durable.
    Progress {
        /// The call.
        call: CallId,
        /// The line.
        line: Text,
    },
}

/// What a subscription gives next.
#[derive(Clone, Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// The reader was too slow: so many events of the runtime are missed. Durable ones can be read from the journal.
    Missed(u64),
}

/// A bounded view of the events of one tree (or of all).
///
/// A slow reader never slows a session: it learns how many events it missed.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Event>>,
    root: Option<SessionId>,
}

impl Subscription {
    pub(crate) fn new(receiver: broadcast::Receiver<Arc<Event>>, root: Option<SessionId>) -> Self {
        Self { receiver, root }
    }

    /// The next event, or `None` when the runtime is gone.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Next> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.root.is_none_or(|root| root == event.root) => {
                    return Some(Next::Event((*event).clone()));
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Next::Missed(missed)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// An event that has already arrived, if there is one.
    pub fn try_next(&mut self) -> Option<Next> {
        loop {
            match self.receiver.try_recv() {
                Ok(event) if self.root.is_none_or(|root| root == event.root) => {
                    return Some(Next::Event((*event).clone()));
                }
                Ok(_) => {}
                Err(broadcast::error::TryRecvError::Lagged(missed)) => return Some(Next::Missed(missed)),
                Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => return None,
            }
        }
    }
}

/// An event as machines read it: `{"type":"record","session":…,"seq":…,"record":{…}}`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line<'a> {
    /// See [`What::Record`].
    Record {
        /// The session.
        session: SessionId,
        /// Its place.
        seq: Seq,
        /// The record.
        record: &'a Record,
    },
    /// Text of an answer on its way.
    Delta {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunNo,
        /// The turn.
        turn: TurnNo,
        /// The attempt.
        attempt: AttemptNo,
        /// The text, or the tool that is being called.
        text: &'a str,
    },
    /// See [`What::Progress`].
    Progress {
        /// The session.
        session: SessionId,
        /// The call.
        call: CallId,
        /// The line.
        line: &'a str,
    },
    /// See [`Next::Missed`].
    Missed {
        /// How many.
        events: u64,
    },
}

impl Event {
    /// The event as machines read it.
    pub fn line(&self) -> Line<'_> {
        match &self.what {
            What::Record { seq, record } => Line::Record { session: self.session, seq: *seq, record },
            What::Delta { run, turn, attempt, delta } => Line::Delta {
                session: self.session,
                run: *run,
                turn: *turn,
                attempt: *attempt,
                text: match delta {
                    Delta::Text(text) | Delta::Reasoning(text) => text,
                    Delta::Call { tool, .. } => tool,
                },
            },
            What::Progress { call, line } => Line::Progress { session: self.session, call: *call, line },
        }
    }
}
