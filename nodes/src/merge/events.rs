//! Merges the events of all shards into one stream. An id contains a position in each shard, so that clients can resume at any node.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use subtend_host::problem::{Problem, quote};
use subtend_journal::postgres::nodes::Members;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::{add_missing, add_partial_hint, unless_missing};
use crate::gateway::{BufferedRequest, Gateway, no_owner};
use crate::node::Node;

const LAST_EVENT_ID: &str = "last-event-id";
/// Bytes of an incomplete frame from which on they are sent.
const PIECE_BYTES: usize = 16 << 10;

/// The last event of each shard that a client has received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cursors(BTreeMap<String, String>);

impl Cursors {
    /// Reads `SHARD=ID,…`.
    fn parse(text: &str) -> Option<Self> {
        let pair = |pair: &str| pair.split_once('=').map(|(shard, id)| (shard.to_owned(), id.to_owned()));
        text.split(',').filter(|pair| !pair.is_empty()).map(pair).collect::<Option<_>>().map(Self)
    }

    fn text(&self) -> String {
        self.0.iter().map(|(shard, id)| format!("{shard}={id}")).collect::<Vec<_>>().join(",")
    }
}

pub(super) async fn answer(gateway: &Gateway, request: BufferedRequest) -> Result<Response, Problem> {
    let header = request.parts.headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or("?").to_owned());
    let pairs = request.parts.uri.query().unwrap_or_default().split('&');
    let query = pairs
        .filter_map(|pair| pair.strip_prefix("after="))
        .next_back()
        .map(|id| id.replace("%3D", "=").replace("%2C", ","));
    let last = header.or(query).unwrap_or_default();
    let bad = || {
        Problem::malformed(format!("invalid event id {last}: give the id of an event unchanged", last = quote(&last)))
    };
    let cursors = Cursors::parse(&last).ok_or_else(bad)?;
    let shards = gateway.shards();
    if cursors.0.keys().any(|shard| !shards.contains(shard)) {
        return Err(bad());
    }
    let (mut streams, mut missing) = (Vec::new(), Vec::new());
    for shard in shards {
        let mut one = request.clone();
        one.parts.headers.remove(LAST_EVENT_ID);
        let after = cursors.0.get(&shard).map_or_else(String::new, |id| format!("?after={id}"));
        one.parts.uri = format!("/v1/events{after}").parse::<Uri>().map_err(|_| bad())?;
        let until = request.partial.then(|| Instant::now() + gateway.node().times().heartbeat);
        match unless_missing(gateway, &shard, until, gateway.ask(&shard, &one)).await {
            Ok(answer) if answer.status().is_success() => streams.push((shard, answer.into_body())),
            Ok(answer) if !(request.partial && answer.status().is_server_error()) => return Ok(answer),
            Err(problem) if !request.partial => return Err(add_partial_hint(problem)),
            Ok(_) | Err(_) => missing.push(shard),
        }
    }
    if streams.is_empty() {
        return Err(missing.first().map_or_else(bad, |shard| no_owner(shard)));
    }
    let merged = merged(streams, cursors, gateway.node().times().heartbeat * 3);
    let merged = merged.take_until(wait_until_one_returns(gateway.node(), missing.clone()));
    let mut response = Body::from_stream(merged.map(Ok::<_, Infallible>)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    add_missing(&mut response, &missing);
    Ok(response)
}

/// Resolves when one of the `missing` shards has an owner again, so that the client reconnects. One that has an owner,
/// which did not answer, is tried again after a lease. Never resolves if no shard is missing.
fn wait_until_one_returns(node: &Node, missing: Vec<String>) -> BoxFuture<'static, ()> {
    if missing.is_empty() {
        return Box::pin(std::future::pending());
    }
    let (mut changes, lease) = (node.changes(), node.times().lease);
    Box::pin(async move {
        let is_owned = |members: &Members| missing.iter().any(|shard| members.owner(shard).is_some());
        let owned_now = is_owned(&changes.borrow());
        if owned_now {
            sleep(lease).await;
        }
        // If the node has ended, its streams end too.
        drop(changes.wait_for(|members| is_owned(members)).await);
    })
}

/// Merges the frames of shards. Ends when one of their streams ends, as when a shard moves to another node: the client
/// then reconnects with its last event id.
fn merged(streams: Vec<(String, Body)>, cursors: Cursors, stall: Duration) -> impl Stream<Item = Bytes> + Send {
    let turn = Arc::new(Mutex::new(()));
    let pieces =
        stream::select_all(streams.into_iter().map(|(shard, body)| pieces(shard, body, Arc::clone(&turn), stall)));
    stream::unfold((pieces, cursors, false), async |(mut pieces, mut cursors, in_frame)| {
        let (shard, piece) = pieces.next().await?;
        let piece = piece?;
        let written = with_id(&piece, in_frame, &shard, &mut cursors);
        Some((Bytes::from(written), (pieces, cursors, !piece.ends_with(b"\n\n"))))
    })
}

/// Returns the frames of one shard, long ones in pieces, and `None` after the last one. A frame has the turn until its
/// end is sent. So no frame of any size is in memory while the client reads nothing. The stream ends if a frame stalls.
fn pieces(
    shard: String,
    body: Body,
    turn: Arc<Mutex<()>>,
    stall: Duration,
) -> BoxStream<'static, (String, Option<Vec<u8>>)> {
    let state = (body.into_data_stream(), Vec::new(), None);
    let pieces = stream::unfold(Some(state), move |open| {
        let turn = Arc::clone(&turn);
        async move {
            let (mut body, mut buffer, mut held) = open?;
            loop {
                if let Some(end) = sendable(&buffer) {
                    let held = match held.take() {
                        Some(held) => held,
                        None => turn.lock_owned().await,
                    };
                    let rest = buffer.split_off(end);
                    let held = (!buffer.ends_with(b"\n\n")).then_some(held);
                    return Some((Some(buffer), Some((body, rest, held))));
                }
                // A shard that stops within a frame must not hold up the others.
                let next =
                    async { if held.is_some() { timeout(stall, body.next()).await } else { Ok(body.next().await) } };
                match next.await {
                    Ok(Some(Ok(piece))) => buffer.extend_from_slice(&piece),
                    Ok(Some(Err(_)) | None) | Err(_) => return Some((None, None)),
                }
            }
        }
    });
    pieces.map(move |piece| (shard.clone(), piece)).boxed()
}

/// Returns the end of a frame, or of the bytes of an incomplete one that can be sent. Those end within a line.
fn sendable(buffer: &[u8]) -> Option<usize> {
    if let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
        return Some(end.saturating_add(2));
    }
    let line = buffer.iter().rposition(|byte| *byte == b'\n').filter(|end| *end > 0);
    (buffer.len() >= PIECE_BYTES).then(|| line.unwrap_or(buffer.len()))
}

/// Returns a piece of a frame with its id replaced by the positions in all shards. With `in_frame`, it starts within a
/// line.
fn with_id(piece: &[u8], in_frame: bool, shard: &str, cursors: &mut Cursors) -> Vec<u8> {
    let mut written = Vec::with_capacity(piece.len().saturating_add(64));
    for (ix, line) in piece.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match line.strip_prefix(b"id:").filter(|_| ix > 0 || !in_frame) {
            Some(id) => {
                cursors.0.insert(shard.to_owned(), String::from_utf8_lossy(id).trim().to_owned());
                written.extend_from_slice(format!("id: {}\n", cursors.text()).as_bytes());
            }
            None => written.extend_from_slice(line),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn d4_event_ids_have_a_position_in_each_shard() {
        let mut cursors = Cursors::parse("a=3.0").unwrap();
        let frame = "event: record\nid: 7.1\ndata: {\"x\":\"id: 9\"}\n\n";
        let mut written =
            |piece: &str, in_frame| String::from_utf8(with_id(piece.as_bytes(), in_frame, "b", &mut cursors)).unwrap();
        assert_eq!(written(frame, false), "event: record\nid: a=3.0,b=7.1\ndata: {\"x\":\"id: 9\"}\n\n");
        assert_eq!(written("id: 8\nid: 9\n\n", true), "id: 8\nid: a=3.0,b=9\n\n");
        assert_eq!(Cursors::parse(&cursors.text()), Some(cursors.clone()));
        assert_eq!(with_id(b":\n\n", false, "a", &mut cursors), b":\n\n");
        assert_eq!((Cursors::parse(""), Cursors::parse("7.1")), (Some(Cursors::default()), None));
    }

    /// Two shards send large frames in small pieces, and the client reads some of them: no frame is in memory. The
    /// control: all frames arrive whole, one after the other, with their ids.
    #[tokio::test]
    async fn d4_large_frames_are_sent_before_they_are_complete() {
        let frame = |id: &str| format!("data: {}\nid: {id}\n\n", "x".repeat(1 << 20));
        let taken = Arc::new(AtomicUsize::new(0));
        let body = |id: &str| {
            let (frame, taken) = (frame(id).into_bytes(), Arc::clone(&taken));
            let pieces: Vec<Vec<u8>> = frame.chunks(10_000).map(Vec::from).collect();
            let pieces = stream::iter(pieces).inspect(move |piece| {
                taken.fetch_add(piece.len(), Ordering::Relaxed);
            });
            Body::from_stream(pieces.chain(stream::pending()).map(Ok::<_, Infallible>))
        };
        let streams = vec![("a".to_owned(), body("1")), ("b".to_owned(), body("2"))];
        let mut merged = Box::pin(merged(streams, Cursors::default(), Duration::from_secs(3)));
        let (mut text, mut unread) = (Vec::new(), 0);
        while text.len() < 2 << 20 {
            text.extend(merged.next().await.unwrap());
            unread = unread.max(taken.load(Ordering::Relaxed).saturating_sub(text.len()));
        }
        while let Some(Some(piece)) = merged.next().now_or_never() {
            text.extend(piece);
        }
        assert!(unread < 4 * PIECE_BYTES, "{unread} bytes in memory");
        let (first, second) = (frame("a=1") + &frame("a=1,b=2"), frame("b=2") + &frame("a=1,b=2"));
        let text = String::from_utf8(text).unwrap();
        assert!(text == first || text == second, "{} bytes", text.len());
    }

    /// A shard that stops within a large frame has the turn. The control: between frames it may be silent.
    #[tokio::test(start_paused = true)]
    async fn d4_stream_ends_if_a_shard_stops_within_a_frame() {
        let body = |text: String| Body::from_stream(stream::iter([Ok::<_, Infallible>(text)]).chain(stream::pending()));
        let silent = |text: &str| {
            let stall = Duration::from_secs(3);
            let streams = vec![("a".to_owned(), body(text.to_owned())), ("b".to_owned(), body(String::new()))];
            timeout(stall * 2, merged(streams, Cursors::default(), stall).count())
        };
        assert!(silent("data: 1\nid: 1\n\n").await.is_err(), "the control");
        assert_eq!(silent(&format!("data: {}", "x".repeat(PIECE_BYTES))).await, Ok(1));
    }
}
