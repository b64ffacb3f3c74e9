//! Event streams: server-sent events that continue where a client left.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::stream;
use serde::Deserialize;
use subtend_actors::event::Line;
use subtend_actors::{Event, SessionHandle, What};
use subtend_session::ids::{Seq, SessionId};
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::{Path, Query};
use crate::follow::{Cursor, Followed, TreeEvents};
use crate::host::Host;
use crate::metrics::Streaming;
use crate::problem::Problem;

/// Header of a browser that connects again.
const LAST_EVENT_ID: &str = "last-event-id";
/// Events between the journal and the connection: beyond them a slow client waits, and no one else does.
const AHEAD: usize = 16;

/// Where a stream begins.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// The id of the last event that the client has; all from the first on if not given. `Last-Event-ID` goes before it.
    after: Option<String>,
}

impl After {
    /// What the client has: by its header, else by the query.
    fn last(self, headers: &HeaderMap) -> Result<Option<String>, Problem> {
        match headers.get(LAST_EVENT_ID) {
            None => Ok(self.after),
            Some(id) => match id.to_str() {
                Ok(id) => Ok(Some(id.to_owned())),
                Err(_) => Err(Problem::malformed("Last-Event-ID: give the id of an event as it is")),
            },
        }
    }
}

/// Follows one session. `id` is the number of a record; pieces of answers carry no id, and begin again with offset 0 after a
/// reconnection.
#[utoipa::path(get, path = "/v1/sessions/{id}/events", tag = "events", operation_id = "session_events",
    params(("id" = String, Path, description = "The session"), After,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = 404, body = Problem)))]
pub(super) async fn session(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(after): Query<After>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = after.last(&headers)?;
    let last = match last {
        None => Seq(0),
        Some(id) => Seq(id.parse().map_err(|_| {
            Problem::malformed(format!("event id {id:?}: give the id of an event of this session, a number"))
        })?),
    };
    let handle = host.session(&id).await?;
    let (to, from) = mpsc::channel(AHEAD);
    tokio::spawn(follow_session(host.clone(), handle, last, to));
    Ok(stream_of(&host, from))
}

async fn follow_session(host: Host, handle: SessionHandle, last: Seq, to: mpsc::Sender<Sent>) {
    let mut events = handle.events(last.next());
    drop(handle);
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = host.ends().cancelled() => return,
            () = to.closed() => return,
        };
        let sent = match next {
            Ok(Some(event)) => {
                let id = match &event.what {
                    What::Record { seq, .. } => Some(seq.to_string()),
                    What::Delta { .. } | What::Progress { .. } | What::Queue { .. } => None,
                };
                written(&event, id)
            }
            Ok(None) => return,
            Err(error) => failed(&error),
        };
        let over = sent.is_none();
        if let Some(sent) = sent
            && to.send(sent).await.is_err()
        {
            return;
        }
        if over {
            return;
        }
    }
}

/// Follows a tree, by any of its sessions. `id` is a place in the store's one order.
#[utoipa::path(get, path = "/v1/trees/{id}/events", tag = "events", operation_id = "tree_events",
    params(("id" = String, Path, description = "A session of the tree"), After,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = 404, body = Problem)))]
pub(super) async fn tree(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(after): Query<After>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = after.last(&headers)?;
    let handle = host.session(&id).await?;
    let head = host.runtime().journal().head(handle.id())?.ok_or_else(|| Problem::no_session(&id))?;
    followed(&host, Some(head.root), last)
}

/// Follows all trees.
#[utoipa::path(get, path = "/v1/events", tag = "events", operation_id = "all_events",
    params(After, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn all(
    State(host): State<Host>,
    Query(after): Query<After>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    followed(&host, None, after.last(&headers)?)
}

fn followed(host: &Host, root: Option<SessionId>, last: Option<String>) -> Result<Response, Problem> {
    let after = match last {
        None => Cursor::default(),
        Some(id) => id.parse().map_err(|bad: crate::follow::BadCursor| Problem::malformed(bad.to_string()))?,
    };
    let (to, from) = mpsc::channel(AHEAD);
    tokio::spawn(follow_tree(host.clone(), root, after, to));
    Ok(stream_of(host, from))
}

async fn follow_tree(host: Host, root: Option<SessionId>, after: Cursor, to: mpsc::Sender<Sent>) {
    let mut events = TreeEvents::new(host.runtime(), root, after);
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = host.ends().cancelled() => return,
            () = to.closed() => return,
        };
        let (sent, over) = match next {
            Ok(Some(Followed::Event(cursor, event))) => (written(&event, cursor.map(|at| at.to_string())), false),
            Ok(Some(Followed::Missed(events))) => (data("missed", &Line::Missed { events }), false),
            Ok(None) => return,
            Err(error) => (failed(&error), true),
        };
        let Some(sent) = sent else { return };
        if to.send(sent).await.is_err() || over {
            return;
        }
    }
}

/// An event as it is sent; `None` where it cannot be written, which ends the stream.
fn written(event: &Event, id: Option<String>) -> Option<Sent> {
    let line = event.line();
    let name = match &line {
        Line::Record { .. } => "record",
        Line::Delta { .. } => "delta",
        Line::Progress { .. } => "progress",
        Line::Queue { .. } => "queue",
        Line::Missed { .. } => "missed",
    };
    let sent = data(name, &line)?;
    Some(match id {
        Some(id) => sent.id(id),
        None => sent,
    })
}

fn data(name: &str, line: &Line<'_>) -> Option<Sent> {
    let json = serde_json::to_string(line);
    if let Err(error) = &json {
        tracing::error!(%error, "an event cannot be written as JSON");
    }
    Some(Sent::default().event(name).data(json.ok()?))
}

/// The last event of a stream that ends early: the client connects again with the id that it has.
fn failed(error: &dyn std::error::Error) -> Option<Sent> {
    tracing::warn!(%error, "an event stream ends early");
    Some(Sent::default().event("error").data(error.to_string().replace(['\n', '\r'], " ")))
}

fn stream_of(host: &Host, from: mpsc::Receiver<Sent>) -> Response {
    let streaming = Arc::new(host.metrics().streaming());
    Sse::new(sent(from, streaming)).keep_alive(KeepAlive::new().interval(host.options().heartbeat)).into_response()
}

fn sent(from: mpsc::Receiver<Sent>, streaming: Arc<Streaming>) -> impl Stream<Item = Result<Sent, Infallible>> {
    stream::unfold((from, streaming), async |(mut from, streaming)| {
        let sent = from.recv().await?;
        Some((Ok(sent), (from, streaming)))
    })
}
