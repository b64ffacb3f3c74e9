//! A client that follows all events, across every kill of the host.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use subtend_invariants::observed::{ClientLog, EventPlace};
use subtend_session::ids::{Seq, SessionId};

use super::DrillClients;
use super::connection::{Connection, HostGone};
use crate::rng::SeededRng;

#[derive(Debug)]
pub(super) struct ReaderResult {
    pub(super) log: ClientLog,
    pub(super) connections: u64,
    /// The reason why the reader stopped early, if it did.
    pub(super) failure: Option<String>,
}

pub(super) struct EventReader {
    shared: DrillClients,
    rng: SeededRng,
    /// True if the reader pauses after each event, to be slow.
    slow: bool,
    /// The id of the last event, as the host sent it.
    last: Option<String>,
    read: ReaderResult,
}

/// An event with a record.
#[derive(Deserialize)]
struct RecordLine {
    session: SessionId,
    seq: Seq,
}

enum StreamEnd {
    /// Everything was received.
    Complete,
    Refused(String),
}

impl EventReader {
    pub(super) fn new(shared: &DrillClients, seed: u64, number: u64) -> Self {
        let name = format!("reader {number}");
        let mut rng = SeededRng::of(seed, &name);
        let slow = rng.one_in(10);
        let log = ClientLog { name: name.into(), ..ClientLog::default() };
        let read = ReaderResult { log, connections: 0, failure: None };
        Self { shared: shared.clone(), rng, slow, last: None, read }
    }

    pub(super) async fn read(mut self) -> ReaderResult {
        loop {
            match self.follow().await {
                Ok(StreamEnd::Complete) => {
                    self.read.log.complete = true;
                    return self.read;
                }
                Ok(StreamEnd::Refused(why)) => {
                    self.read.failure = Some(why);
                    return self.read;
                }
                Err(HostGone { .. }) => {
                    let nap = Duration::from_millis(1 + self.rng.below(30));
                    tokio::time::sleep(nap).await;
                }
            }
        }
    }

    /// Follows one connection to its end.
    async fn follow(&mut self) -> Result<StreamEnd, HostGone> {
        let mut connection = Connection::open(&self.shared.socket).await?;
        let last = self.last.clone();
        let header = last.as_deref().map(|last| ("last-event-id", last));
        let response = connection.send(Method::GET, "/v1/events", header, None).await?;
        if response.status() != StatusCode::OK {
            return Ok(StreamEnd::Refused(format!("the events were refused: {}", response.status())));
        }
        self.read.connections = self.read.connections.saturating_add(1);
        let counts = self.shared.counts.clone();
        counts.readers.fetch_add(1, Ordering::Relaxed);
        let end = self.events(response.into_body()).await;
        counts.readers.fetch_sub(1, Ordering::Relaxed);
        end
    }

    async fn events(&mut self, mut body: hyper::body::Incoming) -> Result<StreamEnd, HostGone> {
        let mut buffer = Vec::new();
        let mut event = ServerEvent::default();
        let mut announced = self.shared.last.clone();
        loop {
            if self.has_last() {
                return Ok(StreamEnd::Complete);
            }
            let frame = tokio::select! {
                frame = body.frame() => frame,
                changed = announced.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return Ok(StreamEnd::Refused("the drill ended first".to_owned())),
                },
            };
            let Some(frame) = frame else { return Err(std::io::Error::other("the stream ended").into()) };
            let Ok(data) = frame?.into_data() else { continue };
            buffer.extend_from_slice(&data);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                if let Some(done) = event.line(line.trim_end())
                    && let Err(why) = self.take(done).await
                {
                    return Ok(StreamEnd::Refused(why));
                }
            }
        }
    }

    /// Returns whether the session that marks the end was received.
    fn has_last(&self) -> bool {
        let marker = *self.shared.last.borrow();
        marker.is_some_and(|marker| self.read.log.received.last().is_some_and(|(_, session, _)| *session == marker))
    }

    async fn take(&mut self, event: ServerEvent) -> Result<(), String> {
        let Some(id) = event.id else { return Ok(()) };
        let place = place(&id).ok_or_else(|| format!("the event id {id:?} is not a position"))?;
        let line: RecordLine = serde_json::from_str(&event.data).map_err(|error| format!("{error}: {}", event.data))?;
        self.read.log.received.push((place, line.session, line.seq));
        self.last = Some(id);
        if self.slow {
            tokio::time::sleep(Duration::from_millis(self.rng.below(4))).await;
        }
        Ok(())
    }
}

/// Parses the position in an event id: `FRAME.RECORDS`, or `FRAME` for the position after all records of the frame.
fn place(id: &str) -> Option<EventPlace> {
    let (frame, records) = id.split_once('.').map_or((id, None), |(frame, records)| (frame, Some(records)));
    Some((frame.parse().ok()?, records.map_or(Some(u32::MAX), |records| records.parse().ok())?))
}

/// A server-sent event, built from its lines.
#[derive(Debug, Default)]
struct ServerEvent {
    id: Option<String>,
    data: String,
}

impl ServerEvent {
    /// Adds a line. Returns the event if the line ends it.
    fn line(&mut self, line: &str) -> Option<Self> {
        if line.is_empty() {
            return Some(std::mem::take(self));
        }
        if let Some(id) = line.strip_prefix("id: ") {
            self.id = Some(id.to_owned());
        } else if let Some(data) = line.strip_prefix("data: ") {
            self.data.push_str(data);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positions_in_the_order_of_the_store() {
        assert_eq!(
            [place("7"), place("7.2"), place("x"), place("7.x")],
            [Some((7, u32::MAX)), Some((7, 2)), None, None]
        );
    }

    #[test]
    fn event_ends_with_an_empty_line() {
        let mut event = ServerEvent::default();
        assert!(
            event.line("event: record").is_none()
                && event.line("id: 7.1").is_none()
                && event.line("data: {}").is_none()
        );
        let done = event.line("").expect("an event");
        assert_eq!((done.id.as_deref(), done.data.as_str(), event.id), (Some("7.1"), "{}", None));
    }
}
