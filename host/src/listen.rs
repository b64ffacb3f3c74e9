//! Accepts connections, within bounds of number, time and size.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use futures_util::TryFutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::problem::Problem;
#[cfg(unix)]
use crate::socket_path::SocketPath;
use heads::{Heads, RequestBody, ResponseState, RouterBody};
use unsent::UNSENT;

mod heads;
mod unsent;

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of concurrent connections. Further connections wait. On the Unix socket, some of them get the
    /// refusal `busy` instead.
    pub connections: usize,
    /// Time limit for receiving the head of a request. After it, the connection is closed.
    pub head_time: Duration,
    /// Maximum size of the head of a request in bytes.
    pub head_bytes: usize,
    /// Maximum number of header lines of a request.
    pub headers: usize,
    /// Time after which a TCP connection is closed if its client does not read. On Linux only.
    pub stall_time: Duration,
    /// Time limit for requests in flight when the host ends.
    pub end_time: Duration,
}

/// Maximum number of connections, if the limit of open files permits.
const MAX_CONNECTIONS: usize = 4_096;

/// Returns the maximum number of connections for a limit of open files. It is a quarter of that limit, so that
/// sessions, the store and the other socket can still open files.
fn connections(files: Option<u64>) -> usize {
    let room = files.and_then(|files| usize::try_from(files / 4).ok()).unwrap_or(MAX_CONNECTIONS);
    room.clamp(1, MAX_CONNECTIONS)
}

#[cfg(unix)]
fn open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn open_files() -> Option<u64> {
    None
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: connections(open_files()),
            head_time: Duration::from_secs(30),
            head_bytes: 64 << 10,
            headers: 100,
            stall_time: Duration::from_secs(60),
            end_time: Duration::from_secs(5),
        }
    }
}

trait Accept: Send {
    /// Number of connections beyond the bound that get a refusal; further ones wait.
    const REFUSED: usize;
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Returns the next connection; `None` if it was refused.
    fn accept(&self) -> impl Future<Output = io::Result<Option<Self::Stream>>> + Send;
}

/// TCP sockets, and the time after which a client that does not read is disconnected.
struct Tcp(Vec<TcpListener>, Duration);

impl Accept for Tcp {
    const REFUSED: usize = 0;
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<TcpStream>> {
        let accepted = |cx: &mut Context<'_>| {
            self.0.iter().map(|listener| listener.poll_accept(cx)).find(Poll::is_ready).unwrap_or(Poll::Pending)
        };
        let (stream, _) = poll_fn(accepted).await?;
        // The kernel enforces the time limit; a timer for each connection would cost memory.
        #[cfg(target_os = "linux")]
        {
            let ms = u32::try_from(self.1.as_millis()).unwrap_or(u32::MAX);
            rustix::net::sockopt::set_tcp_user_timeout(&stream, ms)?;
        }
        Ok(Some(stream))
    }
}

/// A Unix socket, and the user id whose processes may connect.
#[cfg(unix)]
struct OwnerSocket(tokio::net::UnixListener, u32);

#[cfg(unix)]
impl Accept for OwnerSocket {
    // Clients of this socket assume that a host that does not respond has stopped.
    const REFUSED: usize = 16;
    type Stream = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<Option<tokio::net::UnixStream>> {
        let (stream, _) = self.0.accept().await?;
        let peer = stream.peer_cred()?.uid();
        if peer == self.1 || peer == 0 {
            return Ok(Some(stream));
        }
        tracing::warn!(peer, "a connection of another user was refused");
        Ok(None)
    }
}

/// Serves `router` on TCP sockets, which share the bound of connections, until `ends` fires. Returns when all connections
/// are closed.
///
/// # Errors
/// If a socket fails permanently.
pub async fn tcp(
    listeners: Vec<TcpListener>,
    router: Router,
    bounds: Bounds,
    ends: CancellationToken,
) -> io::Result<()> {
    serve(Tcp(listeners, bounds.stall_time), router, bounds, ends).await
}

/// Serves `router` on a Unix socket until `ends` fires. Returns when all connections are closed. Only root and this
/// process's user can connect.
///
/// # Errors
/// If the socket fails permanently.
#[cfg(unix)]
pub async fn unix(
    listener: tokio::net::UnixListener,
    router: Router,
    bounds: Bounds,
    ends: CancellationToken,
) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    serve(OwnerSocket(listener, own), router, bounds, ends).await
}

/// Opens a Unix socket at `path`, which may be longer than the limit for socket addresses. Only its owner can use it.
/// Replaces a leftover socket of an earlier process.
///
/// # Errors
/// If the socket cannot be opened.
#[cfg(unix)]
pub fn bind_unix(path: &std::path::Path) -> io::Result<tokio::net::UnixListener> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    match std::fs::symlink_metadata(path) {
        // This process holds the lock on the store, so an existing socket is a leftover.
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = tokio::net::UnixListener::bind(SocketPath::of(path)?.as_path())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn serve<L: Accept>(listener: L, router: Router, bounds: Bounds, ends: CancellationToken) -> io::Result<()> {
    let [room, beyond] = [bounds.connections, L::REFUSED].map(|most| Arc::new(Semaphore::new(most)));
    let (full, tasks) = (Router::new().fallback(refusal), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            accepted = async {
                let stream = listener.accept().await?;
                Ok::<_, io::Error>(if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
                    (stream, permit, &router)
                } else if let Ok(permit) = Arc::clone(&beyond).try_acquire_owned() {
                    (stream, permit, &full)
                } else {
                    (stream, Arc::clone(&room).acquire_owned().await.map_err(io::Error::other)?, &router)
                })
            } => accepted,
            () = ends.cancelled() => break,
        };
        match accepted {
            Ok((Some(stream), permit, router)) => {
                let (router, ends) = (router.clone(), ends.clone());
                tasks.spawn(async move {
                    connection(stream, router, bounds, ends).await;
                    drop(permit);
                });
            }
            Ok((None, ..)) => {}
            Err(error) if is_temporary(&error) => {
                tracing::warn!(%error, "a connection was not accepted");
                // The error may be "too many open files": retry later, when some may be closed.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(error),
        }
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// Returns the response on a connection beyond the bound, which is then closed.
async fn refusal() -> impl IntoResponse {
    let detail = "all connections of the host are in use: close a client that follows a run, or send the request again";
    let busy = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
    ([(header::CONNECTION, "close")], Problem { retry_after: Some(1), ..busy })
}

/// Returns whether accepting connections may continue after this error.
fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, NotConnected};
    // EMFILE and ENFILE have no `ErrorKind`.
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | NotConnected)
        || matches!(error.raw_os_error(), Some(23 | 24))
}

/// Returns the HTTP connection that answers the requests on `stream`.
fn http_connection<S>(
    stream: S,
    router: Router,
    bounds: Bounds,
) -> http1::Connection<
    TokioIo<Heads<S>>,
    impl Service<hyper::Request<Incoming>, Response = Response<RouterBody>, Error = Infallible, Future: Send> + Send,
>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let state = ResponseState::default();
    let stream = Heads::new(stream, state.clone());
    let answer = move |request: hyper::Request<Incoming>| {
        let answering = state.answer();
        let response = router.clone().oneshot(request.map(|body| Body::new(RequestBody::new(body, state.clone()))));
        // Boxed: hyper reserves memory for the future while the connection is open, even while a stream is sent.
        Box::pin(response.map_ok(|response| RouterBody::wrap(response, &UNSENT, answering)))
    };
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_time)
        // Needed because the limit of the buffer would allow twice this size.
        .max_buf_size(bounds.head_bytes)
        .max_header_size(bounds.head_bytes)
        .max_headers(bounds.headers)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
}

/// Serves a connection until it closes. After `ends` fires, only the request in flight is served, within a time limit.
/// [`tcp`] and [`unix`] call this for each connection.
pub fn connection<S>(
    stream: S,
    router: Router,
    bounds: Bounds,
    ends: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let end_time = bounds.end_time;
    // Built outside the async block, whose captured arguments would occupy memory as long as the connection is open.
    let mut connection = Box::pin(http_connection(stream, router, bounds));
    async move {
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = ends.cancelled() => {
                connection.as_mut().graceful_shutdown();
                // A client that does not read must not block the shutdown.
                let late = Box::pin(tokio::time::sleep(end_time));
                tokio::select! {
                    served = connection.as_mut() => served,
                    () = late => return tracing::warn!("a connection was closed before its client had read the response"),
                }
            }
        };
        if let Err(error) = served {
            // Logged at debug level, because clients may disconnect at any time.
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limit_is_a_quarter_of_open_files() {
        let of = [Some(256), Some(1_024), Some(1 << 20), None, Some(0)].map(connections);
        assert_eq!(of, [64, 256, MAX_CONNECTIONS, MAX_CONNECTIONS, 1]);
    }
}
