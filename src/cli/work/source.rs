//! Events of a tree, from this process or from another host.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
use subtend_actors::event::{Event, EventKind, Next, Subscription};
use subtend_host::{Body, Host};
use subtend_models::model::Delta;
use subtend_session::ids::{AttemptNo, CallId, Lsn, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::record::Record;

use super::super::client::Connection;
use super::super::fail::Fail;
use crate::cli::json;

/// The position from which events are received.
pub(crate) enum Since {
    /// This process hosts the store.
    Own(Subscription),
    /// Another process hosts the store; this is the end of its log.
    Log(Lsn),
}

/// Events of one tree.
pub(crate) struct EventSource(EventsFrom);

enum EventsFrom {
    Own { events: Subscription, root: SessionId },
    Other { events: SseReader, root: SessionId },
}

pub(crate) struct ReceivedEvent {
    /// The event; absent if the screen does not show it.
    pub(crate) next: Option<Next>,
    /// The event as the other host wrote it.
    line: Option<Value>,
}

impl ReceivedEvent {
    /// Returns the event as a line of JSON.
    ///
    /// # Errors
    /// If the event cannot be written as JSON.
    pub(crate) fn line(&self) -> Result<String, Fail> {
        use subtend_actors::event::EventLine;
        Ok(match (&self.line, &self.next) {
            (Some(line), _) => line.to_string(),
            (None, Some(Next::Event(event))) => json::text(&event.line())?,
            (None, Some(Next::Missed(events))) => json::text(&EventLine::Missed { events: *events })?,
            (None, None) => String::new(),
        })
    }
}

impl Since {
    /// Subscribes to events of the tree of `root`, or of all trees if the root is unknown.
    pub(super) fn of_host(host: &Host, root: Option<SessionId>) -> Self {
        Self::Own(host.runtime().subscribe(root))
    }
}

impl EventSource {
    /// Returns the events of the tree of `root` in this process.
    pub(super) fn of_subscription(events: Subscription, root: SessionId) -> Self {
        Self(EventsFrom::Own { events, root })
    }

    /// Requests the events of the tree of `root` from another process, starting after `after` in its log.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(super) async fn other(mut connection: Connection, root: SessionId, after: Lsn) -> Result<Self, Fail> {
        let path = format!("/v1/trees/{root}/events?after={after}");
        let body = connection.send(Method::GET, &path, None).await?.into_body();
        Ok(Self(EventsFrom::Other { events: SseReader { body, text: Vec::new(), _connection: connection }, root }))
    }

    /// Returns the next event; `None` when the host ends.
    ///
    /// # Errors
    /// If an event of another host cannot be read.
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<ReceivedEvent>, Fail> {
        match &mut self.0 {
            EventsFrom::Own { events, root } => loop {
                match events.next().await {
                    None => return Ok(None),
                    Some(Next::Event(event)) if event.root != *root => {}
                    Some(next) => return Ok(Some(ReceivedEvent { next: Some(next), line: None })),
                }
            },
            EventsFrom::Other { events, root } => {
                let Some(line) = events.next().await? else { return Ok(None) };
                Ok(Some(ReceivedEvent { next: read(*root, line.clone()), line: Some(line) }))
            }
        }
    }
}

/// Parses an event of another host.
fn read(root: SessionId, line: Value) -> Option<Next> {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum EventLine {
        Record {
            session: SessionId,
            seq: Seq,
            record: Box<Record>,
        },
        Delta {
            session: SessionId,
            run: RunNo,
            turn: TurnNo,
            attempt: AttemptNo,
            kind: String,
            offset: u64,
            text: Text,
        },
        Progress {
            session: SessionId,
            call: CallId,
            line: Text,
        },
        Missed {
            events: u64,
        },
        #[serde(other)]
        Other,
    }
    let (session, what) = match serde_json::from_value(line).ok()? {
        EventLine::Record { session, seq, record } => (session, EventKind::Record { seq, record: Arc::new(*record) }),
        EventLine::Delta { session, run, turn, attempt, kind, offset, text } => {
            let delta = match &*kind {
                "text" => Delta::Text(text),
                "reasoning" => Delta::Reasoning(text),
                _ => Delta::Call { call: CallId { turn, ix: u32::try_from(offset).ok()? }, tool: text },
            };
            (session, EventKind::Delta { run, turn, attempt, offset, delta })
        }
        EventLine::Progress { session, call, line } => (session, EventKind::Progress { call, line }),
        EventLine::Missed { events } => return Some(Next::Missed(events)),
        EventLine::Other => return None,
    };
    Some(Next::Event(Event { root, session, what }))
}

struct SseReader {
    body: Body,
    text: Vec<u8>,
    /// Kept open until the reader is dropped.
    _connection: Connection,
}

impl SseReader {
    /// Returns the data of the next event; `None` when the host ended the stream.
    ///
    /// # Cancel safety
    /// Received bytes are kept when the future is dropped.
    async fn next(&mut self) -> Result<Option<Value>, Fail> {
        loop {
            while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                if let Some(data) = line.strip_prefix(b"data:") {
                    let read = serde_json::from_slice(data);
                    return read
                        .map(Some)
                        .map_err(|error| Fail::Store(format!("an event of the host cannot be read: {error}")));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.text.extend_from_slice(&data);
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
