//! Events for subscribers: durable records and live progress.

use std::sync::Arc;

use serde::Serialize;
use subtend_models::model::Delta;
use subtend_session::ids::{AttemptNo, CallId, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::record::Record;

pub use queue::{QueueEvent, QueueEvents};
pub use subscription::Subscription;

pub(crate) mod channel;
mod queue;
pub(crate) mod subscription;

#[derive(Clone, Debug)]
pub struct Event {
    pub root: SessionId,
    pub session: SessionId,
    pub what: EventKind,
}

#[derive(Clone, Debug)]
pub enum EventKind {
    /// A durable record. Records of one session come in order, without gaps.
    Record {
        /// The record's position in the session's journal.
        seq: Seq,
        record: Arc<Record>,
    },
    /// A piece of a streamed answer. It is not durable, and invalid once the attempt is discarded.
    ///
    /// Pieces of a retry come after the `AttemptDiscarded` of the previous attempt and their own `TurnStarted`, and no piece comes after the
    /// `AttemptDiscarded` or `TurnAnswered` of its attempt.
    Delta {
        run: RunNo,
        turn: TurnNo,
        attempt: AttemptNo,
        /// The number of bytes of text or of reasoning before this piece in the attempt; for a call, the number of earlier calls. A late reader gets
        /// the text so far from offset 0 on, up to 1 MiB of each kind.
        offset: u64,
        delta: Delta,
    },
    /// A line of progress of a tool; not durable.
    Progress { call: CallId, line: Text },
    /// A change of the queue. [`crate::Events`] derives it from the journal, right after its record; a [`Subscription`] does not have these events.
    Queue { seq: Seq, event: QueueEvent },
}

#[derive(Clone, Debug)]
pub enum Next {
    Event(Event),
    /// The number of the runtime's events that the reader missed because it was too slow. Durable ones can be read from the journal.
    Missed(u64),
}

/// An event for machines: `{"type":"record","session":…,"seq":…,"record":{…}}`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventLine<'a> {
    Record {
        session: SessionId,
        seq: Seq,
        record: &'a Record,
    },
    Delta {
        session: SessionId,
        run: RunNo,
        turn: TurnNo,
        attempt: AttemptNo,
        kind: DeltaKind,
        /// The number of bytes of that kind, or of calls, before this piece in the attempt.
        offset: u64,
        /// The text, or the name of the called tool.
        text: &'a str,
    },
    Progress {
        session: SessionId,
        call: CallId,
        line: &'a str,
    },
    Queue {
        session: SessionId,
        /// The record that changed the queue.
        seq: Seq,
        #[serde(flatten)]
        event: &'a QueueEvent,
    },
    Missed {
        events: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    Text,
    Reasoning,
    Call,
}

impl Event {
    pub fn line(&self) -> EventLine<'_> {
        match &self.what {
            EventKind::Record { seq, record } => EventLine::Record { session: self.session, seq: *seq, record },
            EventKind::Delta { run, turn, attempt, offset, delta } => {
                let (kind, text) = match delta {
                    Delta::Text(text) => (DeltaKind::Text, text),
                    Delta::Reasoning(text) => (DeltaKind::Reasoning, text),
                    Delta::Call { tool, .. } => (DeltaKind::Call, tool),
                };
                let (session, run, turn, attempt, offset) = (self.session, *run, *turn, *attempt, *offset);
                EventLine::Delta { session, run, turn, attempt, kind, offset, text }
            }
            EventKind::Progress { call, line } => EventLine::Progress { session: self.session, call: *call, line },
            EventKind::Queue { seq, event } => EventLine::Queue { session: self.session, seq: *seq, event },
        }
    }
}
