use std::io;
use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use subtend_host::socket_path;

/// The error of a request without an answer: the host was killed, or has not started.
#[derive(Debug, thiserror::Error)]
#[error("the host does not answer: {0}")]
pub(super) struct HostGone(String);

impl From<hyper::Error> for HostGone {
    fn from(error: hyper::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<io::Error> for HostGone {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<hyper::http::Error> for HostGone {
    fn from(error: hyper::http::Error) -> Self {
        Self(error.to_string())
    }
}

pub(super) struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    pub(super) async fn open(socket: &Path) -> Result<Self, HostGone> {
        let stream = socket_path::connect(socket).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The task ends when the sender is dropped. Requests report errors of the connection.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self(sender))
    }

    /// Sends a request with an optional header, and returns the head of the response.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        header: Option<(&str, &str)>,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, HostGone> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let bytes = body.map(ToString::to_string).unwrap_or_default();
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        self.0.ready().await?;
        Ok(self.0.send_request(request.body(Full::new(bytes.into()))?).await?)
    }
}

/// Sends one request on a connection of its own, and reads its answer.
pub(super) async fn call(
    socket: &Path,
    method: Method,
    path: &str,
    key: Option<&str>,
    body: Option<&Value>,
) -> Result<(StatusCode, Value), HostGone> {
    let mut connection = Connection::open(socket).await?;
    let response = connection.send(method, path, key.map(|key| ("idempotency-key", key)), body).await?;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    let json = serde_json::from_slice(&bytes).map_err(|error| HostGone(format!("its answer is not JSON: {error}")))?;
    Ok((status, json))
}
