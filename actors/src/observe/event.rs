//! Events: what subscribers of a tree see, durable facts and passing progress.

use std::sync::Arc;

use serde::Serialize;
use subtend_models::model::Delta;
use subtend_session::ids::{AttemptNo, CallId, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::record::Record;

pub use queue::{QueueEvent, QueueEvents};
pub use subscription::Subscription;

mod queue;
pub(crate) mod subscription;

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
    ///
    /// No piece of a retry comes before the `AttemptDiscarded` of the attempt before it (and the `TurnStarted` of its own),
    /// none of an attempt after its `AttemptDiscarded` or `TurnAnswered`.
    Delta {
        /// The run.
        run: RunNo,
        /// The turn.
        turn: TurnNo,
        /// The attempt.
        attempt: AttemptNo,
        /// Bytes of text, or of reasoning, that came before this piece in the attempt; for a call, calls that did. Who
        /// attaches late gets the text so far with offset 0, up to 1 MiB of each kind.
        offset: u64,
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
    /// The queue changed (B11). [`crate::Events`] derives it from the journal and gives it right after the record that changed the
    /// queue; a [`Subscription`] has records only.
    Queue {
        /// The record.
        seq: Seq,
        /// The change.
        event: QueueEvent,
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
        /// What it is a piece of.
        kind: Kind,
        /// Bytes of that kind, or calls, that came before it in the attempt.
        offset: u64,
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
    /// See [`What::Queue`].
    Queue {
        /// The session.
        session: SessionId,
        /// The record that changed the queue.
        seq: Seq,
        /// The change.
        #[serde(flatten)]
        event: &'a QueueEvent,
    },
    /// See [`Next::Missed`].
    Missed {
        /// How many.
        events: u64,
    },
}

/// What a [`Line::Delta`] is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The text of the answer.
    Text,
    /// Its reasoning.
    Reasoning,
    /// A call that it asks for.
    Call,
}

impl Event {
    /// The event as machines read it.
    pub fn line(&self) -> Line<'_> {
        match &self.what {
            What::Record { seq, record } => Line::Record { session: self.session, seq: *seq, record },
            What::Delta { run, turn, attempt, offset, delta } => {
                let (kind, text) = match delta {
                    Delta::Text(text) => (Kind::Text, text),
                    Delta::Reasoning(text) => (Kind::Reasoning, text),
                    Delta::Call { tool, .. } => (Kind::Call, tool),
                };
                let (session, run, turn, attempt, offset) = (self.session, *run, *turn, *attempt, *offset);
                Line::Delta { session, run, turn, attempt, kind, offset, text }
            }
            What::Progress { call, line } => Line::Progress { session: self.session, call: *call, line },
            What::Queue { seq, event } => Line::Queue { session: self.session, seq: *seq, event },
        }
    }
}
