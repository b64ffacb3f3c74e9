//! Receives the redirect of a login page at an address of this machine.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use subtend_tools::mcp::{Login, PendingLogin};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::cli::fail::Fail;

/// Time for the user to log in.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);
const CONNECTION_LIMIT: Duration = Duration::from_secs(90);
/// Maximum number of connections, because any web page can open some.
const MAX_CONNECTIONS: usize = 16;
const MAX_HEAD: usize = 32 << 10;
/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const PATH: &str = "/callback";

/// The query of a redirect, and the channel for the response.
type Redirect = (String, oneshot::Sender<(StatusCode, &'static str)>);

pub(super) struct Listener {
    inner: TcpListener,
    address: String,
}

impl Listener {
    pub(super) async fn bind(port: u16) -> Result<Self, Fail> {
        let failed = |error| {
            Fail::Other(format!(
                "cannot listen for the browser at 127.0.0.1:{port}: {error}. Name a free port (--port)"
            ))
        };
        let inner = TcpListener::bind(("127.0.0.1", port)).await.map_err(failed)?;
        let port = inner.local_addr().map_err(failed)?.port();
        Ok(Self { inner, address: format!("http://127.0.0.1:{port}{PATH}") })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Waits for the redirect of a login, and completes the login. Rejects other requests.
    pub(super) async fn receive(self, pending: PendingLogin) -> Result<Login, String> {
        let (send, mut redirects) = mpsc::channel::<Redirect>(MAX_CONNECTIONS);
        let serving = tokio::spawn(serve(self.inner, send));
        let next = async {
            while let Some((query, reply)) = redirects.recv().await {
                if pending.is_own(&query) {
                    return Some((query, reply));
                }
                // Fails if the browser has disconnected.
                let _ = reply
                    .send((StatusCode::BAD_REQUEST, "This address does not belong to the login that waits here.\n"));
            }
            None
        };
        let Ok(Some((query, reply))) = tokio::time::timeout(TIMEOUT, next).await else {
            return Err(format!("no one logged in within {} minutes", TIMEOUT.as_secs() / 60));
        };
        let finished = pending.finish(&query).await;
        let answer = match &finished {
            Ok(_) => (StatusCode::OK, "Logged in. You can close this page.\n"),
            Err(_) => (StatusCode::BAD_REQUEST, "The login failed. The command says why.\n"),
        };
        let _ = reply.send(answer);
        // Ends when the response is sent, and does not wait for the browser to close its connection.
        drop(redirects);
        drop(tokio::time::timeout(Duration::from_secs(2), serving).await);
        finished.map_err(|why| why.0)
    }
}

/// Serves until the receiver of redirects is dropped and all connections have ended.
async fn serve(listener: TcpListener, send: mpsc::Sender<Redirect>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = send.closed() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // The error may be "too many open files", which would recur at once.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let send = send.clone();
        connections.spawn(async move {
            let _permit = permit;
            drop(tokio::time::timeout(CONNECTION_LIMIT, connection(stream, send)).await);
        });
        while connections.try_join_next().is_some() {}
    }
    connections.join_all().await;
}

async fn connection(stream: TcpStream, send: mpsc::Sender<Redirect>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let send = send.clone();
        async move {
            let (status, text) = answer(&request, &send).await;
            Ok::<_, Infallible>(page(status, text))
        }
    });
    // A browser that leaves is not an error.
    let served =
        http1::Builder::new().keep_alive(false).max_buf_size(MAX_HEAD).serve_connection(TokioIo::new(stream), service);
    drop(served.await);
}

async fn answer(request: &Request<Incoming>, send: &mpsc::Sender<Redirect>) -> (StatusCode, &'static str) {
    if request.uri().path() != PATH {
        return (StatusCode::NOT_FOUND, "There is nothing here.\n");
    }
    if request.method() != Method::GET {
        return (StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered here.\n");
    }
    let (reply, answered) = oneshot::channel();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let over = (StatusCode::GONE, "The login is over.\n");
    if send.send((query, reply)).await.is_err() {
        return over;
    }
    answered.await.unwrap_or(over)
}

/// Returns a page with a fixed text. It repeats nothing of the request, which may come from another web page.
fn page(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let headers = [
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
    }
    response
}
