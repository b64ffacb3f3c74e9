//! Connections to the socket of a host. They are closed if the host stops responding.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;

use super::Fail;
#[cfg(unix)]
use super::unreachable_at;

pub(super) type RequestSender = SendRequest<Full<Bytes>>;

/// Time limit for responses that need no read of the store. A host that exceeds it is suspended or stuck.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval of checks that the host still responds. Requests and streams may stay open as long as a run.
#[cfg(unix)]
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Returns `None`: without Unix sockets no other process can reach a host.
#[cfg(not(unix))]
pub(super) async fn connect(_: &Path) -> Result<Option<RequestSender>, Fail> {
    Ok(None)
}

/// Connects to the host that listens at `path`; `None` if none does.
#[cfg(unix)]
pub(super) async fn connect(path: &Path) -> Result<Option<RequestSender>, Fail> {
    let Some(stream) = stream(path).await? else { return Ok(None) };
    let host = path.to_owned();
    let answer = move || wait_for_answer(host.clone());
    open_http(stream, answer).await.map(Some).map_err(|error| unreachable_at(path, &error.to_string()))
}

/// Opens an HTTP connection on `stream`. Closes it when a check, `answer`, does not resolve in time.
#[cfg(unix)]
pub(super) async fn open_http<A>(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    answer: impl Fn() -> A + Send + Sync + 'static,
) -> hyper::Result<RequestSender>
where
    A: Future<Output = ()> + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        let silent = async {
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                if tokio::time::timeout(ANSWER_TIMEOUT, answer()).await.is_err() {
                    return;
                }
            }
        };
        // `connection` ends when the sender is dropped.
        tokio::select! {
            _ = connection => {}
            () = silent => {}
        }
    });
    Ok(sender)
}

/// Checks on another connection that the host at `path` responds. Returns if it has ended: that closes all connections.
#[cfg(unix)]
async fn wait_for_answer(path: std::path::PathBuf) {
    let Ok(Some(stream)) = stream(&path).await else { return };
    let Ok((mut sender, connection)) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await
    else {
        return;
    };
    let request = hyper::Request::get("/v1/host").header(hyper::header::HOST, "localhost");
    let Ok(request) = request.body(Full::<Bytes>::default()) else { return };
    tokio::select! {
        _ = connection => {}
        _ = sender.send_request(request) => {}
    }
}

#[cfg(unix)]
async fn stream(path: &Path) -> Result<Option<tokio::net::UnixStream>, Fail> {
    use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};

    if is_planted(path) {
        return Err(unreachable_at(
            path,
            "its directory cannot be used: it is a link or belongs to another user: remove it",
        ));
    }
    if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        return Err(unreachable_at(path, "it is a link, and could lead to the host of another store: remove it"));
    }
    let stream = match subtend_host::socket_path::connect(path).await {
        Ok(stream) => stream,
        // A killed host leaves its socket behind. A host that shuts down resets connections that it has not accepted.
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset) => return Ok(None),
        Err(error) => return Err(unreachable_at(path, &error.to_string())),
    };
    let peer = stream.peer_cred().map_err(|error| unreachable_at(path, &error.to_string()))?.uid();
    if peer != rustix::process::geteuid().as_raw() && peer != 0 {
        return Err(unreachable_at(path, &format!("it belongs to the user {peer}")));
    }
    Ok(Some(stream))
}

/// Returns whether the directory of a socket is a link, or belongs to another user. Next to a store in `/tmp`, another user can put a link to
/// the host of another store. A host refuses such a directory too.
#[cfg(unix)]
fn is_planted(socket: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let found = socket.parent().and_then(|dir| dir.symlink_metadata().ok());
    found.is_some_and(|found| !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw())
}
