//! Event streams: server-sent events that resume after the last event of a client.

use std::convert::Infallible;
use std::io;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, stream};
use serde::Deserialize;
use subtend_actors::event::EventLine;
use subtend_actors::{Event, EventKind, Events, EventsNext};
use subtend_journal::Journal;
use subtend_session::ids::{Seq, SessionId};
use tokio::time::timeout;
use utoipa::IntoParams;

use super::{Path, Query};
use crate::follow::{Cursor, Followed, TreeEvents};
use crate::host::Host;
use crate::host_bug::HostBug;
use crate::json::{short_text_between, text_between};
use crate::metrics::Streaming;
use crate::problem::{Problem, quote};

/// Header that browsers send when they reconnect.
const LAST_EVENT_ID: &str = "last-event-id";

/// Sent to an idle client.
const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

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

/// The next event of a stream.
enum NextSent {
    /// An event, with its id if it is durable.
    Event(Event, Option<String>),
    Missed(u64),
}

/// The next event of a source, or the need to read one first.
enum SourceNext {
    Sent(NextSent),
    Behind,
}

/// The error that ends a stream.
type StreamError = Box<dyn std::error::Error + Send + Sync>;

impl NextSent {
    /// Returns the text of the event as `write` writes it, with the text before and after its JSON.
    fn text<T>(&self, write: impl FnOnce([&str; 2], &EventLine<'_>) -> io::Result<T>) -> io::Result<T> {
        let (line, id) = match self {
            Self::Event(event, id) => (event.line(), id.as_deref()),
            Self::Missed(events) => (EventLine::Missed { events: *events }, None),
        };
        let name = match &line {
            EventLine::Record { .. } => "record",
            EventLine::Delta { .. } => "delta",
            EventLine::Progress { .. } => "progress",
            EventLine::Queue { .. } => "queue",
            EventLine::Missed { .. } => "missed",
        };
        let before = format!("event: {name}\ndata: ");
        // JSON on one line, as here, has no line break.
        let after = id.map_or_else(|| "\n\n".to_owned(), |id| format!("\nid: {id}\n\n"));
        write([before.as_str(), after.as_str()], &line)
    }

    fn whole_text(&self) -> io::Result<Bytes> {
        self.text(|around, line| text_between(around, line)).map(Bytes::from)
    }
}

/// A source of events: a session, a tree, or all trees.
trait EventSource: Send + 'static {
    /// Returns the next event; `None` at the end. Reads no records.
    fn next(&mut self, host: &Host) -> impl Future<Output = Result<Option<SourceNext>, StreamError>> + Send;

    /// Reads records after [`SourceNext::Behind`], and returns the first event of them.
    fn read(&mut self, journal: &Journal) -> Result<Option<NextSent>, StreamError>;
}

fn of_session(next: EventsNext) -> SourceNext {
    let event = match next {
        EventsNext::Event(event) => event,
        EventsNext::Behind => return SourceNext::Behind,
    };
    let id = match &event.what {
        EventKind::Record { seq, .. } => Some(seq.to_string()),
        EventKind::Delta { .. } | EventKind::Progress { .. } | EventKind::Queue { .. } => None,
    };
    SourceNext::Sent(NextSent::Event(event, id))
}

impl EventSource for Events {
    async fn next(&mut self, _: &Host) -> Result<Option<SourceNext>, StreamError> {
        Ok(self.next_or_behind().await?.map(of_session))
    }

    fn read(&mut self, _: &Journal) -> Result<Option<NextSent>, StreamError> {
        self.read_page()?;
        let Some(next) = self.next_or_behind().now_or_never() else { return Ok(None) };
        Ok(match next?.map(of_session) {
            Some(SourceNext::Sent(sent)) => Some(sent),
            Some(SourceNext::Behind) | None => None,
        })
    }
}

fn of_tree(followed: Followed) -> SourceNext {
    match followed {
        Followed::Event(cursor, event) => {
            SourceNext::Sent(NextSent::Event(event, cursor.map(|cursor| cursor.to_string())))
        }
        Followed::Missed(events) => SourceNext::Sent(NextSent::Missed(events)),
        Followed::Behind => SourceNext::Behind,
    }
}

impl EventSource for TreeEvents {
    async fn next(&mut self, host: &Host) -> Result<Option<SourceNext>, StreamError> {
        Ok(self.next(host.runtime()).await?.map(of_tree))
    }

    fn read(&mut self, journal: &Journal) -> Result<Option<NextSent>, StreamError> {
        Ok(match self.read_page(journal)?.map(of_tree) {
            Some(SourceNext::Sent(sent)) => Some(sent),
            Some(SourceNext::Behind) | None => None,
        })
    }
}

/// A read, which returns the text of the first event, and the source if it was needed.
type Reading<E> = BoxFuture<'static, (Result<Option<Bytes>, StreamError>, Option<E>)>;

struct Open<E> {
    /// `None` while it is read, and after an error.
    events: Option<E>,
    /// Kept while a heartbeat is sent. Boxed, so that idle streams use little memory.
    reading: Option<Reading<E>>,
    host: Host,
    _counted: Streaming,
}

impl<E: EventSource> Open<E> {
    /// Returns the text of the next event, or a heartbeat; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        // Of a long read too, even if it has many short pages.
        let next = timeout(self.host.options().heartbeat, self.next_text()).await.unwrap_or(Ok(Some(HEARTBEAT)));
        next.unwrap_or_else(|error| {
            tracing::warn!(%error, "an event stream ends early");
            self.events = None;
            // The client can reconnect with its last id.
            let error = error.to_string().replace(['\n', '\r'], " ");
            Some(format!("event: error\ndata: {error}\n\n").into())
        })
    }

    async fn next_text(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if let Some(reading) = &mut self.reading {
                let (text, events) = reading.await;
                self.reading = None;
                self.events = events.or(self.events.take());
                match text? {
                    Some(text) => return Ok(Some(text)),
                    None => continue,
                }
            }
            let Some(events) = &mut self.events else { return Ok(None) };
            match events.next(&self.host).await? {
                None => return Ok(None),
                Some(SourceNext::Sent(sent)) => {
                    if let Ok(text) = sent.text(|around, line| short_text_between(around, line))? {
                        return Ok(Some(text.into()));
                    }
                    self.read(move || (sent.whole_text().map(Some).map_err(StreamError::from), None));
                }
                Some(SourceNext::Behind) => {
                    let Some(mut events) = self.events.take() else { return Ok(None) };
                    let journal = self.host.runtime().journal().clone();
                    self.read(move || {
                        let text = events.read(&journal).and_then(|sent| {
                            let text = sent.map(|sent| sent.whole_text()).transpose();
                            Ok(text?)
                        });
                        (text, Some(events))
                    });
                }
            }
        }
    }

    /// Large events are read and written with one permit, and without waiting for anything else. So only a few of them
    /// are in memory, apart from texts that are handed to a connection, which have a limit of their own.
    fn read(&mut self, read: impl FnOnce() -> (Result<Option<Bytes>, StreamError>, Option<E>) + Send + 'static) {
        let host = self.host.clone();
        self.reading = Some(async move { host.read_events(read).await }.boxed());
    }
}

/// Streams `events` until the host ends. Reads them only as the connection accepts them: a slow client delays itself.
fn stream_of(host: &Host, events: impl EventSource) -> Response {
    let (host, counted) = (host.for_stream(), host.metrics().count_stream());
    let open = Open { events: Some(events), reading: None, host, _counted: counted };
    // Boxed, so that idle streams use little memory. The response of axum would write each event into a buffer that grows.
    let texts = stream::unfold(Box::new(open), async |mut open| {
        let ends = open.host.ends().clone();
        let text = tokio::select! {
            text = open.next() => text?,
            () = ends.cancelled() => return None,
        };
        Some((Ok::<_, Infallible>(text), open))
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], Body::from_stream(texts)).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use subtend_actors::Runtime;
    use subtend_models::closure::fn_model;

    use super::*;
    use crate::HostOptions;

    /// A source whose pages have no events. Each takes a second.
    struct PagesWithoutEvents;

    impl EventSource for PagesWithoutEvents {
        async fn next(&mut self, _: &Host) -> Result<Option<SourceNext>, StreamError> {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Some(SourceNext::Behind))
        }

        fn read(&mut self, _: &Journal) -> Result<Option<NextSent>, StreamError> {
            Ok(None)
        }
    }

    /// A client or a proxy ends a stream without heartbeats.
    #[tokio::test(start_paused = true)]
    async fn stream_sends_heartbeats_while_it_reads_pages() {
        let model = fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(Arc::new(model)).start().await.expect("a runtime");
        let host = Host::new(runtime, HostOptions::default());
        let counted = host.metrics().count_stream();
        let mut open =
            Open { events: Some(PagesWithoutEvents), reading: None, host: host.for_stream(), _counted: counted };
        let next = timeout(Duration::from_mins(1), open.next()).await;
        assert_eq!(next.expect("a heartbeat"), Some(HEARTBEAT));
        drop(open);
        host.shutdown(Duration::from_secs(5)).await.expect("no request holds the host");
    }
}
