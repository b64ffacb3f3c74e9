//! Sends requests to other nodes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header, request};
use axum::response::Response;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use subtend_host::SharedByKey;
use subtend_host::auth::{NodeKey, SIGNATURE_REFUSED, SenderId, TokenGrant};
use subtend_host::listen::Bounds;
use subtend_journal::postgres::nodes::NodeRow;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

const LOST: &str = "the node has lost the shard";
/// Time without data after which keep-alive probes start.
#[cfg(target_os = "linux")]
const IDLE_BEFORE_PROBE: Duration = Duration::from_secs(8);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Headers that are not forwarded: those of one connection, and those that identify the client to the first node.
const DROPPED: [header::HeaderName; 8] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    header::EXPECT,
];

/// Permits for open requests to other nodes. Each request has its own connection, and a merged stream of events has one
/// request for each shard.
#[derive(Debug)]
pub(crate) struct ForwardPermits {
    /// Three quarters of the permits.
    shared: Arc<Semaphore>,
    /// The remaining permits, reserved for short requests: streams and waits cannot take them.
    short: Arc<Semaphore>,
    /// Permits of the streams and waits of each sender: seven eighths of the shared ones. A merged stream takes one for each shard.
    long_by_sender: SharedByKey<Option<SenderId>, Semaphore>,
    long_per_sender: usize,
}

/// A permit of the sender, for a stream or wait, and one of all senders.
pub(crate) type ForwardPermit = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

impl Default for ForwardPermits {
    /// Creates two permits for each client connection. Client connections and requests to other nodes then use at most
    /// three quarters of the files that the process may open.
    fn default() -> Self {
        Self::new(Bounds::default().connections.saturating_mul(2))
    }
}

impl ForwardPermits {
    fn new(count: usize) -> Self {
        let short = count.div_ceil(4);
        let shared = count.saturating_sub(short);
        let long_per_sender = shared.saturating_sub(shared / 8);
        let [shared, short] = [shared, short].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { shared, short, long_by_sender: SharedByKey::default(), long_per_sender }
    }

    /// Returns a permit for a request of `sender`; `None` if all are in use.
    pub(crate) fn try_acquire(&self, is_long: bool, sender: Option<SenderId>) -> Option<ForwardPermit> {
        let own = || self.long_by_sender.get(sender, || Semaphore::new(self.long_per_sender)).try_acquire_owned().ok();
        let own = if is_long { Some(own()?) } else { None };
        let short = (!is_long).then_some(&self.short);
        let mut of_all = short.into_iter().chain([&self.shared]);
        Some((own, of_all.find_map(|permits| Arc::clone(permits).try_acquire_owned().ok())?))
    }
}

#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The request had no effect, so it can be retried.
    NotAccepted(String),
    /// The connection ended after the request was sent, so its effect is unknown.
    Unknown(String),
}

/// Sends a request to `node`, signed with the permissions of `grant`, and streams the answer.
/// When `lost` resolves, the node has lost the shard. The wait then ends, because the node may be paused or
/// unreachable. `permit` is held until the answer ends.
pub(crate) async fn forward(
    node: &NodeRow,
    key: &NodeKey,
    grant: TokenGrant,
    (parts, body): (&request::Parts, &Bytes),
    lost: impl Future<Output = ()> + Send + 'static,
    permit: ForwardPermit,
) -> Result<Response, NoAnswer> {
    let connecting = async {
        let stream = TcpStream::connect(&node.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        // Keep-alive probes detect an unreachable node, also while this node waits for an answer.
        #[cfg(target_os = "linux")]
        {
            use rustix::net::sockopt;

            let set = sockopt::set_socket_keepalive(&stream, true)
                .and_then(|()| sockopt::set_tcp_keepidle(&stream, IDLE_BEFORE_PROBE))
                .and_then(|()| sockopt::set_tcp_keepintvl(&stream, IDLE_BEFORE_PROBE / 4))
                .and_then(|()| {
                    sockopt::set_tcp_user_timeout(
                        &stream,
                        2_000 * u32::try_from(IDLE_BEFORE_PROBE.as_secs()).unwrap_or(10),
                    )
                });
            set.map_err(|error| error.to_string())?;
        }
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())
    };
    let connected =
        timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err("no connection within 3 s".to_owned()));
    let (mut sender, connection) = connected.map_err(NoAnswer::NotAccepted)?;
    // The task ends with the answer, or when the client disconnects.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to another node ended");
        }
    });
    let mut request = Request::from_parts(parts.clone(), Body::from(body.clone()));
    DROPPED.iter().for_each(|name| drop(request.headers_mut().remove(name)));
    if let Ok(host) = HeaderValue::try_from(&*node.address) {
        request.headers_mut().insert(header::HOST, host);
    }
    let signed = key.to(&*node.name).sign(&mut request, body, grant);
    signed.map_err(|error| NoAnswer::NotAccepted(error.to_string()))?;
    let mut lost: BoxFuture<'static, ()> = Box::pin(lost);
    let answer = tokio::select! {
        answer = sender.send_request(request) => answer,
        () = &mut lost => return Err(NoAnswer::Unknown(LOST.to_owned())),
    };
    let answer = answer.map_err(|error| match error.is_canceled() {
        true => NoAnswer::NotAccepted(error.to_string()),
        false => NoAnswer::Unknown(error.to_string()),
    })?;
    // The other node was paused for longer than a signature is valid, or has just started.
    if answer.headers().contains_key(SIGNATURE_REFUSED) {
        return Err(NoAnswer::NotAccepted(format!("the node refuses the signature of {}", parts.uri)));
    }
    Ok(answer.map(|body| end_when_lost(body, lost, permit)))
}

/// Ends an answer with an error when `lost` resolves.
fn end_when_lost(body: Incoming, lost: BoxFuture<'static, ()>, permit: ForwardPermit) -> Body {
    let pieces = Body::new(body).into_data_stream();
    let pieces = stream::unfold(Some((pieces, lost, permit)), async |open| {
        let (mut pieces, mut lost, permit) = open?;
        tokio::select! {
            piece = pieces.next() => {
                let piece = piece?.map_err(std::io::Error::other);
                let open = piece.is_ok().then_some((pieces, lost, permit));
                Some((piece, open))
            }
            () = &mut lost => Some((Err(std::io::Error::other(LOST)), None)),
        }
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::routing::get;
    use subtend_host::auth::{Guard, TokenFile, TokenScope};
    use subtend_journal::postgres::nodes::NodeLease;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn d4_request_with_a_refused_signature_can_be_retried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let key = NodeKey::new(b"secret", "owner", Arc::new(|| 100_000));
        let guard = Guard::of_node(address, [], TokenFile::at("/nonexistent"), Some(key.clone()));
        let router = guard.protect(Router::new().route("/v1/sessions", get(async || "[]")));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let owner = NodeRow {
            name: "owner".to_owned(),
            lease: NodeLease::with_id("1"),
            address: address.to_string(),
            version: String::new(),
            labels: Vec::new(),
            alive: true,
            left_ms: 10_000,
        };
        let (parts, ()) = axum::http::Request::get("/v1/sessions").body(()).unwrap().into_parts();
        let permits = ForwardPermits::new(1);
        let free = || permits.short.available_permits();
        let send = async |key: &NodeKey| {
            let grant = TokenGrant::from(TokenScope::Read);
            let permit = permits.try_acquire(false, None).unwrap();
            forward(&owner, key, grant, (&parts, &Bytes::new()), std::future::pending(), permit).await
        };
        // Signed 31 s ago by the receiver's clock.
        let late = send(&NodeKey::new(b"secret", "owner", Arc::new(|| 69_000))).await;
        assert!(
            matches!(late, Err(NoAnswer::NotAccepted(why)) if why == "the node refuses the signature of /v1/sessions")
        );
        assert_eq!(free(), 1, "a request that was not accepted has ended");
        let answer = send(&key).await.unwrap();
        assert_eq!((answer.status().as_u16(), free()), (200, 0), "control: the request was signed again");
        drop(answer);
        assert_eq!(free(), 1, "the answer has ended");
    }

    /// Control: short requests also use the permits that streams do not hold.
    #[test]
    fn d4_streams_leave_permits_to_short_requests() {
        let permits = ForwardPermits::new(8);
        let taken = |is_long| std::iter::from_fn(|| permits.try_acquire(is_long, None)).collect::<Vec<_>>();
        let (streams, short) = (taken(true), taken(false));
        assert_eq!((streams.len(), short.len()), (6, 2));
        drop(streams);
        assert_eq!(taken(false).len(), 6);
        assert!(permits.try_acquire(true, None).is_some());
    }

    /// A client opened so many merged streams that no other one got a stream of another node. The control: its short
    /// requests, and its streams after some have ended.
    #[test]
    fn d4_streams_of_one_sender_leave_permits_to_others() {
        let permits = ForwardPermits::new(64);
        let [one, other] = [&b"one"[..], b"other"].map(|token| Some(SenderId::of(blake3::hash(token))));
        let taken = |sender| std::iter::from_fn(|| permits.try_acquire(true, sender)).collect::<Vec<_>>();
        let (mut first, second) = (taken(one), taken(other));
        assert_eq!((first.len(), second.len()), (42, 6));
        assert!(permits.try_acquire(false, one).is_some());
        first.truncate(40);
        assert_eq!(taken(one).len(), 2);
    }
}
