use std::io::{Error, ErrorKind, Write};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use subtend_journal::Scope;
use tokio::sync::mpsc::{Sender, channel};

use super::Path;
use crate::host::Host;
use crate::problem::Problem;
use crate::reads::ReadPermit;

const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of pieces buffered for a slow client.
const MAX_BUFFERED: usize = 4;

/// Writes pieces to a response; blocks while the client is slow.
struct Pieces {
    piece: Vec<u8>,
    /// Dropped before the sender, so that a client that has read an export can start another.
    _permit: ReadPermit,
    to: Sender<Result<Bytes, Error>>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.to.blocking_send(Ok(piece)).map_err(|_| Error::from(ErrorKind::BrokenPipe))
    }
}

/// Exports a session with its descendants, as JSON Lines for `subtend import`. After an error, the connection ends
/// without the last line, so that an import detects the truncation.
#[utoipa::path(get, path = "/v1/sessions/{id}/export", tag = "sessions", operation_id = "export_session",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = String, content_type = "application/x-ndjson"), (status = 404, body = Problem)))]
pub(super) async fn get(State(host): State<Host>, Path(id): Path<String>) -> Result<Response, Problem> {
    let handle = host.session(&id).await?;
    let permit = host.reads().begin_export()?;
    let journal = host.runtime().journal().clone();
    let (to, from) = channel(MAX_BUFFERED);
    tokio::task::spawn_blocking(move || {
        let mut out = Pieces { piece: Vec::with_capacity(PIECE_BYTES), _permit: permit, to };
        let done = journal.export(Scope::Tree(handle.id()), &mut out, &mut |_| {});
        if let Err(error) = done.map_err(Error::other).and_then(|_| out.flush()) {
            // The error ends the connection early. Sending it fails only if the client has disconnected.
            drop(out.to.blocking_send(Err(error)));
        }
    });
    let pieces = stream::unfold(from, async |mut from| from.recv().await.map(|piece| (piece, from)));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pieces)).into_response())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use subtend_actors::{OpenOptions, Runtime};
    use tower::ServiceExt as _;

    use super::*;
    use crate::HostOptions;
    use crate::auth::SenderId;
    use crate::reads::{ReadSender, run_as};

    /// Exports that are not read occupied all threads for blocking work. The controls: another sender has permits of its own, and an export
    /// that ends returns its permit.
    #[tokio::test]
    async fn exports_that_are_not_read_are_bounded() {
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(std::sync::Arc::new(model)).start().await.expect("a runtime");
        let host = Host::new(runtime, HostOptions::default());
        let (session, _) = host.open(OpenOptions::agent("general")).await.expect("a session");
        let path = format!("/v1/sessions/{}/export", session.id());
        let status = async || {
            let request = Request::get(&path).body(Body::empty()).expect("a request");
            let response = host.router().oneshot(request).await.expect("infallible");
            let status = response.status().as_u16();
            axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            status
        };
        let token = ReadSender::Named(SenderId::of(blake3::hash(b"token")));
        let begin = |sender| run_as(sender, async { host.reads().begin_export().map_err(|problem| problem.code) });
        let mut unread = Vec::new();
        while let Ok(permit) = begin(token).await {
            unread.push(permit);
        }
        assert_eq!((unread.len(), status().await), (4, 200));
        while let Ok(permit) = begin(ReadSender::Socket).await {
            unread.push(permit);
        }
        assert_eq!((unread.len(), status().await), (8, 503));
        unread.clear();
        assert_eq!(status().await, 200);
    }
}
