//! Gives a body to hyper's refusals of request heads, and lets clients that are still sending read their response.
//!
//! A refused head never reaches the router: hyper sends an empty response and closes the connection. [`Heads`] is the
//! stream that hyper writes to, and adds a problem to that response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Response, StatusCode};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::unsent::{HeldRest, PIECE_BYTES, Unsent};
use crate::auth::SenderId;
use crate::problem::Problem;

/// Limits for reading the rest of a refused request. It is read because closing a connection with unread bytes resets
/// it, and the client may then lose the response.
const MAX_REST_BYTES: usize = 8 << 20;
const MAX_REST_TIME: Duration = Duration::from_secs(5);

/// No response of the router is in flight, and all earlier ones have been written.
const IDLE: u8 = 0;
/// The router is answering a request.
const ANSWERING: u8 = 1;
/// The router has ended a response, but its last bytes may not have been written.
const ENDED: u8 = 2;

/// Whether a connection writes a response of the router or one of hyper. Shared by service, bodies and stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseState(Arc<ResponseProgress>);

#[derive(Debug, Default)]
struct ResponseProgress {
    response: AtomicU8,
    /// True if the router did not read the whole body of the last request.
    unread: AtomicBool,
}

impl ResponseState {
    /// Marks the start of a response of the router. The response ends when the guard is dropped.
    pub(super) fn answer(&self) -> ResponseGuard {
        self.0.response.store(ANSWERING, Ordering::Relaxed);
        self.0.unread.store(false, Ordering::Relaxed);
        ResponseGuard(self.clone())
    }

    fn is_idle(&self) -> bool {
        self.0.response.load(Ordering::Relaxed) == IDLE
    }

    /// Records that hyper has written everything.
    fn mark_written(&self) {
        _ = self.0.response.compare_exchange(ENDED, IDLE, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn has_unread_body(&self) -> bool {
        self.0.unread.load(Ordering::Relaxed)
    }
}

/// A response of the router in flight.
#[derive(Debug)]
pub(super) struct ResponseGuard(ResponseState);

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.0.response.store(ENDED, Ordering::Relaxed);
    }
}

/// The body of a request. Records whether the router read it to its end.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    is_read: bool,
    state: ResponseState,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, state: ResponseState) -> Self {
        Self { body, is_read: false, state }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.is_read = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_read && !self.body.is_end_stream() {
            self.state.0.unread.store(true, Ordering::Relaxed);
        }
    }
}

/// The body of a response, in pieces of at most [`PIECE_BYTES`].
#[derive(Debug)]
pub(super) struct RouterBody {
    body: Body,
    sender: Option<SenderId>,
    unsent: &'static Unsent,
    /// The rest of the last part of `body`.
    rest: Option<HeldRest>,
    _answering: ResponseGuard,
}

impl RouterBody {
    pub(super) fn wrap(response: Response<Body>, unsent: &'static Unsent, answering: ResponseGuard) -> Response<Self> {
        let sender = response.extensions().get().copied();
        response.map(|body| Self { body, sender, unsent, rest: None, _answering: answering })
    }
}

impl HttpBody for RouterBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(rest) = &mut this.rest {
                let piece = rest.take_piece().map(Frame::data).map_err(axum::Error::new);
                if rest.left() == 0 {
                    this.rest = None;
                }
                return Poll::Ready(Some(piece));
            }
            let next = ready!(Pin::new(&mut this.body).poll_frame(cx));
            match next.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) if data.len() > PIECE_BYTES => this.rest = Some(this.unsent.hold(this.sender, data)),
                Some(Ok(Ok(data))) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.as_ref().map_or(0, HeldRest::left) as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

/// A stream that adds problems to hyper's refusals of heads, and reads the rest of refused requests.
#[derive(Debug)]
pub(super) struct Heads<S> {
    stream: S,
    state: ResponseState,
    refusal: Option<Box<HeadRefusal>>,
    rest: Option<Box<UnreadRest>>,
}

/// A response to a head that hyper refused.
#[derive(Debug)]
struct HeadRefusal {
    response: Vec<u8>,
    written: usize,
}

/// The rest of a refused request, which is read after the response is sent.
#[derive(Debug)]
struct UnreadRest {
    bytes: usize,
    ends: Pin<Box<Sleep>>,
}

impl<S> Heads<S> {
    pub(super) fn new(stream: S, state: ResponseState) -> Self {
        Self { stream, state, refusal: None, rest: None }
    }

    /// Returns the response to write instead of `bytes`; `None` to write them unchanged.
    fn refusal(&mut self, bytes: &[u8]) -> Option<&mut HeadRefusal> {
        if self.refusal.is_none() && self.state.is_idle() {
            let response = with_problem(bytes)?;
            self.refusal = Some(Box::new(HeadRefusal { response, written: 0 }));
        }
        self.refusal.as_deref_mut()
    }
}

/// Returns hyper's empty response with a problem as its body; `None` for any other response.
fn with_problem(response: &[u8]) -> Option<Vec<u8>> {
    const EMPTY: &str = "content-length: 0\r\n";
    let head = std::str::from_utf8(response).ok()?.strip_suffix("\r\n")?;
    let status = StatusCode::from_bytes(head.split(' ').nth(1)?.as_bytes()).ok()?;
    let (before, after) = head.split_once(EMPTY)?;
    let body = serde_json::to_vec(&problem(status)?).ok()?;
    let fields = format!("content-type: application/problem+json\r\ncontent-length: {}\r\n", body.len());
    Some([before.as_bytes(), fields.as_bytes(), after.as_bytes(), b"\r\n", &body].concat())
}

fn problem(status: StatusCode) -> Option<Problem> {
    Some(match status {
        StatusCode::BAD_REQUEST => Problem::malformed("the head of the request is not HTTP/1.1: check its lines"),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Problem::new(
            status,
            "head_too_large",
            "the head of the request is too large, or has too many lines: send a shorter address and fewer headers",
        ),
        StatusCode::URI_TOO_LONG => {
            Problem::new(status, "head_too_large", "the address is too long: send a shorter one")
        }
        _ => return None,
    })
}

impl<S: AsyncRead + Unpin> AsyncRead for Heads<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Heads<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.refusal(bytes).is_none() {
            return Pin::new(&mut this.stream).poll_write(cx, bytes);
        }
        let Some(refusal) = &mut this.refusal else { return Poll::Ready(Ok(bytes.len())) };
        while let Some(left) = refusal.response.get(refusal.written..).filter(|left| !left.is_empty()) {
            let count = ready!(Pin::new(&mut this.stream).poll_write(cx, left))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            refusal.written = refusal.written.saturating_add(count);
        }
        // Tell hyper that its own response was written.
        Poll::Ready(Ok(bytes.len()))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.refusal.is_none() && !this.state.is_idle() {
            return Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        }
        // A response of hyper has no body, so the first slice contains all of it.
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        Pin::new(this).poll_write(cx, first)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes the stream only after it has written its own buffer.
        self.state.mark_written();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        if this.refusal.is_none() && !this.state.has_unread_body() {
            return Poll::Ready(Ok(()));
        }
        let rest = this.rest.get_or_insert_with(|| {
            let ends = Box::pin(tokio::time::sleep(MAX_REST_TIME));
            Box::new(UnreadRest { bytes: 0, ends })
        });
        while rest.bytes < MAX_REST_BYTES && rest.ends.as_mut().poll(cx).is_pending() {
            let mut bytes = [0; 4096];
            let mut piece = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut piece)) {
                Ok(()) if !piece.filled().is_empty() => rest.bytes = rest.bytes.saturating_add(piece.filled().len()),
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
