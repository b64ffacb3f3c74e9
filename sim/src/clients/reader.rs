//! A client that follows all events, across all hosts.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use subtend_invariants::observed::{ClientLog, EventPlace};
use subtend_session::ids::{Seq, SessionId};

use super::{RouterWatch, SimClients, lock, request};

/// The events that a reader has received, across all hosts.
#[derive(Debug, Default)]
pub(super) struct EventFollower {
    pub(super) log: ClientLog,
    pub(super) continued: u64,
    last: Option<String>,
}

impl EventFollower {
    /// Returns whether the last event creates the session that marks the end. If so, the log is marked as complete.
    fn is_complete(&mut self, marker: Option<SessionId>) -> bool {
        let last = self.log.received.last().map(|(_, session, _)| *session);
        self.log.complete = marker.is_some() && last == marker;
        self.log.complete
    }

    /// Returns whether the last event arrived out of order. Then the run has a violation, and may never reach the marker.
    fn is_wrong(&self) -> bool {
        let mut places = self.log.received.iter().rev().map(|(place, ..)| *place);
        places.next().is_some_and(|last| places.next().is_some_and(|before| last <= before))
    }
}

/// Follows one host until it is killed or everything was received. The client disconnects and reconnects at random.
pub(super) async fn read(reader: Arc<Mutex<EventFollower>>, door: RouterWatch, shared: SimClients) {
    let router = door.opened(&shared).await;
    loop {
        shared.dice.nap(20).await;
        let mut get = Request::get("/v1/events");
        {
            let mut reader = lock(&reader);
            if let Some(last) = reader.last.clone() {
                get = get.header("last-event-id", last);
                reader.continued += 1;
            }
        }
        let Ok(get) = get.body(Body::empty()) else { return };
        let mut body = request::send_request(&router, get).await.into_body();
        let (mut text, leaves_after) = (String::new(), 1 + shared.dice.below(60));
        let mut received = 0;
        while received < leaves_after {
            let Some(Ok(frame)) = body.frame().await else { break };
            text.push_str(
                &frame.into_data().map(|data| String::from_utf8_lossy(&data).into_owned()).unwrap_or_default(),
            );
            while let Some((event, rest)) = text.split_once("\n\n") {
                received += u64::from(take(&reader, event));
                if lock(&reader).is_wrong() {
                    return;
                }
                text = rest.to_owned();
            }
            if shared.dice.below(5) == 0 {
                shared.dice.nap(10).await;
            }
            if lock(&reader).is_complete(shared.state().last) {
                return;
            }
        }
    }
}

/// Records an event; returns whether it is durable.
fn take(reader: &Mutex<EventFollower>, event: &str) -> bool {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let Some(id) = field("id") else { return false };
    let data: Value = field("data").and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default();
    let session = data.get("session").and_then(|session| session.as_str()?.parse().ok());
    let seq = data.get("seq").and_then(Value::as_u64).map(Seq);
    let Some(((session, seq), place)) = session.zip(seq).zip(event_place(id)) else { return false };
    let mut reader = lock(reader);
    reader.log.received.push((place, session, seq));
    reader.last = Some(id.to_owned());
    true
}

fn event_place(id: &str) -> Option<EventPlace> {
    match id.split_once('.') {
        None => Some((id.parse().ok()?, u32::MAX)),
        Some((frame, records)) => Some((frame.parse().ok()?, records.parse().ok()?)),
    }
}
