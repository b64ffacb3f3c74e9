//! Event streams: server-sent events that resume after the last event of a client.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use subtend_actors::event::EventLine;
use subtend_actors::{Event, EventKind, Events, EventsNext};
use subtend_session::ids::{Seq, SessionId};
use utoipa::IntoParams;

use super::{Path, Query};
use crate::follow::{Cursor, Followed, TreeEvents};
use crate::host::Host;
use crate::host_bug::HostBug;
use crate::metrics::Streaming;
use crate::problem::{Problem, quote};

/// Header that browsers send when they reconnect.
const LAST_EVENT_ID: &str = "last-event-id";

/// The start of a stream.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamStart {
    /// Id of the last event that the client has. By default, the stream starts with the first event. The header
    /// `Last-Event-ID` takes precedence.
    after: Option<String>,
}

impl StreamStart {
    /// Returns the position of the client, from its header or else from the query.
    fn last_position(self, headers: &HeaderMap, host: &Host) -> Result<Option<String>, Problem> {
        if host.options().injected_bug.has(HostBug::NoResume) {
            return Ok(None);
        }
        // A client without a position may send an empty header.
        match headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) {
            None => Ok(self.after),
            Some(id) => match id.to_str() {
                Ok(id) => Ok(Some(id.to_owned())),
                Err(_) => Err(Problem::malformed("Last-Event-ID: give the id of an event unchanged")),
            },
        }
    }
}

/// Follows a session. `id` is the number of a record. Parts of answers have no id, and start again at offset 0 after a
/// reconnection.
#[utoipa::path(get, path = "/v1/sessions/{id}/events", tag = "events", operation_id = "session_events",
    params(("id" = String, Path, description = "The session"), StreamStart,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = 404, body = Problem)))]
pub(super) async fn session(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(start): Query<StreamStart>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = start.last_position(&headers, &host)?;
    let last = match last {
        None => Seq(0),
        Some(id) => Seq(id.parse().map_err(|_| {
            Problem::malformed(format!(
                "event id {id}: give the id of an event of this session, a number",
                id = quote(&id)
            ))
        })?),
    };
    let handle = host.session(&id).await?;
    let newest = host.runtime().journal().head(handle.id())?.map_or(Seq(0), |head| head.last_seq);
    if last > newest {
        return Err(unknown_position(&last.to_string(), &newest.to_string()));
    }
    let last = if host.options().injected_bug.has(HostBug::LateJoin) { newest } else { last };
    Ok(stream_of(&host, handle.events(last.next())))
}

/// Follows the tree of a session. `id` is a position in the log of the store.
#[utoipa::path(get, path = "/v1/trees/{id}/events", tag = "events", operation_id = "tree_events",
    params(("id" = String, Path, description = "A session of the tree"), StreamStart,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = 404, body = Problem)))]
pub(super) async fn tree(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(start): Query<StreamStart>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = start.last_position(&headers, &host)?;
    let handle = host.session(&id).await?;
    let head = host.runtime().journal().head(handle.id())?.ok_or_else(|| Problem::no_session(&id))?;
    follow_stream(&host, Some(head.root), last)
}

/// Follows all trees.
#[utoipa::path(get, path = "/v1/events", tag = "events", operation_id = "all_events",
    params(StreamStart, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn all(
    State(host): State<Host>,
    Query(start): Query<StreamStart>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    follow_stream(&host, None, start.last_position(&headers, &host)?)
}

fn follow_stream(host: &Host, root: Option<SessionId>, last: Option<String>) -> Result<Response, Problem> {
    let after = match last {
        None => Cursor::default(),
        Some(id) => id.parse().map_err(|bad: crate::follow::BadCursor| Problem::malformed(bad.to_string()))?,
    };
    let newest = Cursor::end_of(host.runtime().journal().last_appended());
    if after > newest {
        return Err(unknown_position(&after.to_string(), &newest.to_string()));
    }
    Ok(stream_of(host, TreeEvents::new(host.runtime(), root, after)))
}

/// Returns the refusal of a position beyond the end of the log, which can happen after a restore from an older copy.
/// The client would miss the events up to that position.
fn unknown_position(id: &str, newest: &str) -> Problem {
    let detail = format!("event {id} does not exist, the newest one is {newest}: read from the start, without an id");
    Problem::new(StatusCode::NOT_FOUND, "record_not_found", detail)
}

/// Converts an event for sending. Returns `None` if it cannot be written as JSON; the stream then ends.
fn format_event(event: &Event, id: Option<String>) -> Option<Sent> {
    let line = event.line();
    let name = match &line {
        EventLine::Record { .. } => "record",
        EventLine::Delta { .. } => "delta",
        EventLine::Progress { .. } => "progress",
        EventLine::Queue { .. } => "queue",
        EventLine::Missed { .. } => "missed",
    };
    let sent = data(name, &line)?;
    Some(match id {
        Some(id) => sent.id(id),
        None => sent,
    })
}

fn data(name: &str, line: &EventLine<'_>) -> Option<Sent> {
    let json = serde_json::to_string(line);
    if let Err(error) = &json {
        tracing::error!(%error, "an event cannot be written as JSON");
    }
    Some(Sent::default().event(name).data(json.ok()?))
}

/// Returns the error event of a stream that ends early. The client can reconnect with its last id.
fn failure_event(error: &dyn std::error::Error) -> Sent {
    tracing::warn!(%error, "an event stream ends early");
    Sent::default().event("error").data(error.to_string().replace(['\n', '\r'], " "))
}

enum NextSent {
    Event(Sent),
    Last(Sent),
}

/// A source of events: a session, a tree, or all trees.
trait EventSource: Send + 'static {
    /// Returns the next event; `None` at the end.
    fn next(&mut self, host: &Host) -> impl Future<Output = Option<NextSent>> + Send;
}

impl EventSource for Events {
    async fn next(&mut self, host: &Host) -> Option<NextSent> {
        loop {
            let event = match self.next_or_behind().await {
                Ok(Some(EventsNext::Event(event))) => event,
                Ok(Some(EventsNext::Behind)) => match host.read_stream(async { self.read_page() }).await {
                    Ok(()) => continue,
                    Err(error) => return Some(NextSent::Last(failure_event(&error))),
                },
                Ok(None) => return None,
                Err(error) => return Some(NextSent::Last(failure_event(&error))),
            };
            let id = match &event.what {
                EventKind::Record { seq, .. } => Some(seq.to_string()),
                EventKind::Delta { .. } | EventKind::Progress { .. } | EventKind::Queue { .. } => None,
            };
            return Some(NextSent::Event(format_event(&event, id)?));
        }
    }
}

impl EventSource for TreeEvents {
    async fn next(&mut self, host: &Host) -> Option<NextSent> {
        Some(match self.next(host).await {
            Ok(None) => return None,
            Ok(Some(Followed::Event(cursor, event))) => {
                NextSent::Event(format_event(&event, cursor.map(|at| at.to_string()))?)
            }
            Ok(Some(Followed::Missed(events))) => NextSent::Event(data("missed", &EventLine::Missed { events })?),
            Err(error) => NextSent::Last(failure_event(&error)),
        })
    }
}

struct Open<E> {
    events: E,
    host: Host,
    _counted: Streaming,
}

/// Streams `events` until the host ends. Reads them only as the connection accepts them: a slow client delays itself.
fn stream_of(host: &Host, events: impl EventSource) -> Response {
    // Boxed, so that idle streams use little memory.
    let open = Box::new(Open { events, host: host.for_stream(), _counted: host.metrics().count_stream() });
    let events = stream::unfold(Some(open), async |open| {
        let mut open = open?;
        let Open { events, host, .. } = &mut *open;
        let next = tokio::select! {
            next = events.next(host) => next?,
            () = host.ends().cancelled() => return None,
        };
        Some(match next {
            NextSent::Event(sent) => (Ok::<_, Infallible>(sent), Some(open)),
            NextSent::Last(sent) => (Ok(sent), None),
        })
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(host.options().heartbeat)).into_response()
}
