//! Merges the events of all shards into one stream. An id contains a position in each shard, so that clients can resume at any node.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, SelectAll, StreamExt as _};
use subtend_host::problem::{Problem, quote};
use subtend_journal::postgres::nodes::Members;
use tokio::time::{Instant, sleep};

use super::{add_missing, add_partial_hint, unless_missing};
use crate::gateway::{BufferedRequest, Gateway, no_owner};
use crate::node::Node;

const LAST_EVENT_ID: &str = "last-event-id";

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
    let (mut streams, mut missing) = (SelectAll::new(), Vec::new());
    for shard in shards {
        let mut one = request.clone();
        one.parts.headers.remove(LAST_EVENT_ID);
        let after = cursors.0.get(&shard).map_or_else(String::new, |id| format!("?after={id}"));
        one.parts.uri = format!("/v1/events{after}").parse::<Uri>().map_err(|_| bad())?;
        let until = request.partial.then(|| Instant::now() + gateway.node().times().heartbeat);
        match unless_missing(gateway, &shard, until, gateway.ask(&shard, &one)).await {
            Ok(answer) if answer.status().is_success() => streams.push(frames(shard, answer.into_body())),
            Ok(answer) if !(request.partial && answer.status().is_server_error()) => return Ok(answer),
            Err(problem) if !request.partial => return Err(add_partial_hint(problem)),
            Ok(_) | Err(_) => missing.push(shard),
        }
    }
    if streams.is_empty() {
        return Err(missing.first().map_or_else(bad, |shard| no_owner(shard)));
    }
    let returned = wait_until_one_returns(gateway.node(), missing.clone());
    let merged = stream::unfold(Some((streams, cursors, returned)), async |open| {
        let (mut streams, mut cursors, mut returned) = open?;
        // A stream ends when its shard moves to another node; the client then reconnects with its last event id.
        let (shard, frame) = tokio::select! {
            next = streams.next() => next?,
            () = &mut returned => return None,
        };
        let frame = frame?;
        let written = with_id(&frame, &shard, &mut cursors);
        Some((Ok::<_, Infallible>(Bytes::from(written)), Some((streams, cursors, returned))))
    });
    let mut response = Body::from_stream(merged).into_response();
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

/// Returns the frames of one shard, and `None` after the last one.
pub(super) fn frames(shard: String, body: Body) -> BoxStream<'static, (String, Option<String>)> {
    let state = (body.into_data_stream(), Vec::new(), false);
    let frames = stream::unfold(state, async |(mut pieces, mut buffer, ended)| {
        if ended {
            return None;
        }
        // Bytes without an end of a frame: they are not searched again when more arrive.
        let mut searched = 0_usize;
        loop {
            let unsearched = buffer.get(searched..).unwrap_or_default();
            if let Some(end) = unsearched.windows(2).position(|pair| pair == b"\n\n") {
                let rest = buffer.split_off(searched + end + 2);
                let frame = String::from_utf8_lossy(&buffer).into_owned();
                return Some((Some(frame), (pieces, rest, false)));
            }
            searched = buffer.len().saturating_sub(1);
            match pieces.next().await {
                Some(Ok(piece)) => buffer.extend_from_slice(&piece),
                Some(Err(_)) | None => return Some((None, (pieces, buffer, true))),
            }
        }
    });
    frames.map(move |frame| (shard.clone(), frame)).boxed()
}

/// Returns the frame with its id replaced by the positions in all shards.
fn with_id(frame: &str, shard: &str, cursors: &mut Cursors) -> String {
    let mut written = String::with_capacity(frame.len() + 64);
    for line in frame.split_inclusive('\n') {
        match line.strip_prefix("id:") {
            Some(id) => {
                cursors.0.insert(shard.to_owned(), id.trim().to_owned());
                written.push_str(&format!("id: {}\n", cursors.text()));
            }
            None => written.push_str(line),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_event_ids_have_a_position_in_each_shard() {
        let mut cursors = Cursors::parse("a=3.0").unwrap();
        let frame = "event: record\nid: 7.1\ndata: {\"x\":\"id: 9\"}\n\n";
        assert_eq!(with_id(frame, "b", &mut cursors), "event: record\nid: a=3.0,b=7.1\ndata: {\"x\":\"id: 9\"}\n\n");
        assert_eq!(Cursors::parse(&cursors.text()), Some(cursors.clone()));
        assert_eq!(with_id(":\n\n", "a", &mut cursors), ":\n\n");
        assert_eq!((Cursors::parse(""), Cursors::parse("7.1")), (Some(Cursors::default()), None));
    }

    #[tokio::test]
    async fn d4_frames_are_assembled_from_any_pieces() {
        let pieces = ["event: a\nid: 1\nda", "ta: x\n\nevent: b", "\n\n", "event: cut"];
        let body = Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)));
        let all: Vec<Option<String>> = frames("s".to_owned(), body).map(|(_, frame)| frame).collect().await;
        assert_eq!(all, [Some("event: a\nid: 1\ndata: x\n\n".to_owned()), Some("event: b\n\n".to_owned()), None]);
    }
}
