//! The HTTP client of a worker's host.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
#[cfg(unix)]
use subtend_host::socket_path::SocketPath;
use subtend_session::values::{MAX_VALUES, ValueCount};
use subtend_tools::escape::on_one_line;
use subtend_tools::http::tls;
use subtend_tools::memory_budget::{MemoryBudget, ReservedMemory};
use subtend_tools::threads;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::data::StoreLocation;
use super::super::fail::Fail;
#[cfg(unix)]
use super::super::serve;

/// Maximum time for which the host holds a request for a call.
const TAKE_WAIT: Duration = Duration::from_secs(30);

/// Time limit of a request, in addition to the time for which the host holds it.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response in bytes; arguments of calls are smaller.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Maximum MiB of all large responses: a worker has up to 256 slots. A response holds them until its call ends.
const MAX_HELD_MIB: usize = 64;

static RESPONSES: MemoryBudget = MemoryBudget::of_mib(MAX_HELD_MIB);

/// Bytes of a response or of a program's output above which it is large.
pub(super) const SMALL_BYTES: usize = 64 << 10;

/// Maximum number of JSON values in a response, apart from the arguments of a call.
const MAX_OTHER_VALUES: usize = 100;

/// Time after the limit of a request at which its thread counts as stuck in endless interim responses.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Maximum number of threads stuck in endless interim responses.
const MAX_STUCK: usize = 4;

pub(super) struct RemoteHost {
    http: Client,
    base: String,
    /// Name of the host in errors.
    label: String,
    /// Bearer token; absent for the Unix socket, where the operating system identifies the client.
    token: Option<String>,
    is_unencrypted: bool,
    stuck: AtomicUsize,
    #[cfg(unix)]
    _socket: Option<SocketPath>,
}

#[derive(Debug)]
pub(super) enum HostError {
    /// The host is unavailable; the request may be retried.
    Unavailable(String),
    Lost(String),
    /// The host refuses the request permanently.
    Refused(String),
}

/// Maximum duration of a lease in ms, whatever the host sends.
const MAX_LEASE_MS: u64 = 600_000;

/// Maximum bytes of a result, whatever the host requests.
const MAX_RESULT_BYTES: u64 = 4 << 20;

fn lease_ms<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    u64::deserialize(from).map(|ms| ms.min(MAX_LEASE_MS))
}

fn max_bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    u64::deserialize(from).map(|bytes| bytes.min(MAX_RESULT_BYTES))
}

/// Returns the text of arguments. Their tree takes up to three hundred times as much, and is not kept while a program runs.
fn text_of<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Value::deserialize(from).map(|args| args.to_string())
}

#[derive(Debug, Deserialize)]
pub(super) struct LeasedCall {
    pub(super) call: String,
    pub(super) tool: String,
    #[serde(deserialize_with = "text_of")]
    pub(super) args: String,
    pub(super) token: String,
    #[serde(deserialize_with = "lease_ms")]
    pub(super) lease_ms: u64,
    pub(super) attempt: u32,
    #[serde(deserialize_with = "max_bytes")]
    pub(super) max_bytes: u64,
    /// The memory of the call, if it is large.
    #[serde(skip)]
    #[cfg_attr(not(test), expect(dead_code, reason = "it ends with the call"))]
    pub(super) held: Option<ReservedMemory>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RenewedLease {
    #[serde(deserialize_with = "lease_ms")]
    pub(super) lease_ms: u64,
    pub(super) stop: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerResult {
    Ok { content: String, truncated_from: Option<u64> },
    Error { message: String },
    Stopped,
    NotStarted,
}

impl WorkerResult {
    pub(super) fn error(message: impl Into<String>) -> Self {
        Self::Error { message: message.into() }
    }

    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Ok { .. } => "done",
            Self::Error { .. } => "failed",
            Self::Stopped => "stopped",
            Self::NotStarted => "not started",
        }
    }
}

#[derive(Serialize)]
struct Completion<'a> {
    token: &'a str,
    result: &'a WorkerResult,
}

#[derive(Deserialize)]
struct RefusedRequest {
    detail: String,
    code: String,
}

impl RemoteHost {
    /// Creates a client of the host at `url`, without connecting.
    pub(super) fn at(url: &str, token: String) -> Result<Self, Fail> {
        let bad = || Fail::Usage(format!("`--host {url}`: write an address such as http://127.0.0.1:7475"));
        let parsed: Url = url.parse().map_err(|_| bad())?;
        let is_http = matches!(parsed.scheme(), "http" | "https");
        if !is_http || parsed.query().is_some() || parsed.fragment().is_some() || !parsed.username().is_empty() {
            return Err(bad());
        }
        let name = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let is_local = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_tls = parsed.scheme() == "https";
        let failed = |why: String| Fail::Other(format!("cannot create an HTTP client: {why}"));
        let mut http = Client::builder()
            .tls_backend_preconfigured(tls(is_tls).map_err(|error| failed(error.to_string()))?)
            .connect_timeout(EXCHANGE_TIMEOUT)
            // Do not follow redirects, which could send the token to another host.
            .redirect(Policy::none())
            // Keep no idle connections: each request runs in its own thread, and its connection ends with that thread.
            .pool_max_idle_per_host(0)
            .user_agent(concat!("subtend/", env!("CARGO_PKG_VERSION")));
        if is_local {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| failed(error.to_string()))?;
        let base = parsed.as_str().trim_end_matches('/').to_owned();
        Ok(Self {
            http,
            label: format!("the host {base}"),
            base,
            token: Some(token),
            is_unencrypted: !is_tls && !is_local,
            stuck: AtomicUsize::new(0),
            #[cfg(unix)]
            _socket: None,
        })
    }

    /// Creates a client of the process that hosts a store, by its socket. The host may start later.
    #[cfg(unix)]
    pub(super) fn for_store(place: &StoreLocation) -> Result<Self, Fail> {
        let path = serve::socket(place)?;
        let label = format!("the host of the store {}", place.name());
        let failed = |why: String| Fail::Other(format!("{label} cannot be reached at {}: {why}", path.display()));
        // No token is needed: the directory belongs to this user, so other users cannot listen there.
        let socket = SocketPath::of(&path).map_err(|error| failed(error.to_string()))?;
        let http = Client::builder()
            .tls_backend_preconfigured(tls(false).map_err(|error| failed(error.to_string()))?)
            .unix_socket(socket.as_path())
            .pool_max_idle_per_host(0)
            .no_proxy()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            http,
            label,
            base: "http://localhost".to_owned(),
            token: None,
            is_unencrypted: false,
            stuck: AtomicUsize::new(0),
            _socket: Some(socket),
        })
    }

    #[cfg(not(unix))]
    pub(super) fn for_store(_: &StoreLocation) -> Result<Self, Fail> {
        Err(Fail::Usage("this system has no Unix sockets: name the address of the host with --host".to_owned()))
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Returns the maximum delay between attempts; short for hosts of a local store, which start and end often.
    pub(super) fn longest_wait(&self) -> Duration {
        Duration::from_secs(if self.token.is_some() { 15 } else { 1 })
    }

    /// Returns whether requests are sent unencrypted over a network.
    pub(super) fn is_unencrypted(&self) -> bool {
        self.is_unencrypted
    }

    pub(super) async fn take(&self, worker: &str, tools: &[&str]) -> Result<Option<LeasedCall>, HostError> {
        let body = json!({ "worker": worker, "tools": tools });
        match self.post("take", TAKE_WAIT, body.to_string()).await? {
            Some((text, held)) => Ok(Some(LeasedCall { held, ..read(&text)? })),
            None => Ok(None),
        }
    }

    /// Renews a lease. The host holds the response for `wait`, unless the call is cancelled.
    pub(super) async fn renew(
        &self,
        token: &str,
        progress: Option<&str>,
        wait: Duration,
    ) -> Result<RenewedLease, HostError> {
        let body = json!({ "token": token, "progress": progress });
        let renewed = self.post("renew", wait, body.to_string()).await?;
        let (text, _held) = renewed.unwrap_or_default();
        read(&text)
    }

    pub(super) async fn complete(&self, token: &str, result: &WorkerResult) -> Result<(), HostError> {
        // Without a tree, which would copy the result.
        let body = serde_json::to_string(&Completion { token, result });
        let body = body.map_err(|error| HostError::Refused(error.to_string()))?;
        self.post("complete", Duration::ZERO, body).await.map(drop)
    }

    /// Sends a request, and returns the body of the response with its memory, if it has one.
    ///
    /// The HTTP library reads interim responses without a limit. So each request runs in its own thread, and cannot block
    /// signals and lease renewals of this worker.
    async fn post(
        &self,
        what: &str,
        wait: Duration,
        body: String,
    ) -> Result<Option<(String, Option<ReservedMemory>)>, HostError> {
        let mut url = format!("{}/v1/workers/{what}", self.base);
        if !wait.is_zero() {
            url = format!("{url}?wait=true&timeout={}", wait.as_millis());
        }
        let unavailable = |error: reqwest::Error| {
            HostError::Unavailable(format!("{} cannot be reached: {}", self.label, causes(&error.without_url())))
        };
        let mut request = self.http.post(url).timeout(wait + EXCHANGE_TIMEOUT);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let request = request.header("content-type", "application/json").body(body);
        let exchange = threads::run_separately(exchange_once(request, Instant::now() + wait + EXCHANGE_TIMEOUT));
        let (status, body) = match timeout(wait + EXCHANGE_TIMEOUT + STUCK_AFTER, exchange).await {
            Ok(Ok(Ok(exchange_once))) => exchange_once,
            Ok(Ok(Err(error))) => return Err(unavailable(error)),
            Ok(Err(why)) => return Err(HostError::Unavailable(format!("{} cannot be reached: {why}", self.label))),
            Err(_) if self.stuck.fetch_add(1, Ordering::Relaxed) < MAX_STUCK => {
                return Err(HostError::Unavailable(format!("{} sent endless interim responses", self.label)));
            }
            Err(_) => {
                return Err(HostError::Refused(format!("{} repeatedly sent endless interim responses", self.label)));
            }
        };
        let (bytes, held) = match body {
            ResponseBody::Whole(bytes, held) => (bytes, held),
            ResponseBody::TooLong => {
                let why = format!("the response of {} is longer than {} MiB", self.label, MAX_RESPONSE_BYTES >> 20);
                return Err(HostError::Refused(why));
            }
            ResponseBody::NoMemory => {
                let why = format!("running calls of {} hold {MAX_HELD_MIB} MiB of arguments", self.label);
                return Err(HostError::Unavailable(why));
            }
        };
        if ValueCount::default().add(&bytes) > MAX_VALUES + MAX_OTHER_VALUES {
            let why = format!("the response of {} has more than {MAX_VALUES} JSON values", self.label);
            return Err(HostError::Refused(why));
        }
        let text =
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        match status {
            StatusCode::NO_CONTENT => Ok(None),
            status if status.is_success() => Ok(Some((text, held))),
            status => Err(self.refusal_error(status, &text)),
        }
    }

    fn refusal_error(&self, status: StatusCode, text: &str) -> HostError {
        let (detail, code) = match serde_json::from_str::<RefusedRequest>(text) {
            // The detail is printed on a line of this worker.
            Ok(problem) => (on_one_line(&problem.detail), problem.code),
            Err(_) => (format!("it answered {status}"), String::new()),
        };
        let why = format!("{} refuses this worker: {detail}", self.label);
        match status {
            StatusCode::CONFLICT => HostError::Lost(detail),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => HostError::Unavailable(why),
            status if status.is_server_error() => HostError::Unavailable(why),
            StatusCode::PAYLOAD_TOO_LARGE => HostError::Refused(detail),
            StatusCode::NOT_FOUND if code.is_empty() || code == "no_such_resource" => {
                HostError::Refused(format!("{} does not serve remote tools: check its address and version", self.label))
            }
            _ => HostError::Refused(why),
        }
    }
}

enum ResponseBody {
    Whole(Vec<u8>, Option<ReservedMemory>),
    TooLong,
    NoMemory,
}

/// Sends a request, and returns the status and the body of the response. A large body reserves its memory once, and waits for it until the
/// request ends.
async fn exchange_once(request: RequestBuilder, until: Instant) -> Result<(StatusCode, ResponseBody), reqwest::Error> {
    let mut response = request.send().await?;
    let status = response.status();
    let known = response.content_length().and_then(|length| usize::try_from(length).ok());
    let (mut bytes, mut held) = (Vec::new(), None);
    while let Some(more) = response.chunk().await? {
        let length = bytes.len().saturating_add(more.len());
        if length > MAX_RESPONSE_BYTES {
            return Ok((status, ResponseBody::TooLong));
        }
        if length > SMALL_BYTES && held.is_none() {
            let most = known.unwrap_or(MAX_RESPONSE_BYTES).min(MAX_RESPONSE_BYTES);
            let Ok(reserved) = timeout_at(until, RESPONSES.reserve(most)).await else {
                return Ok((status, ResponseBody::NoMemory));
            };
            held = reserved;
            bytes.reserve_exact(most.saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&more);
    }
    if let Some(held) = &mut held {
        bytes.shrink_to_fit();
        held.shrink(bytes.len());
    }
    Ok((status, ResponseBody::Whole(bytes, held)))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, HostError> {
    serde_json::from_str(text)
        .map_err(|error| HostError::Refused(format!("the response of the host cannot be read: {error}")))
}

/// Returns the message of an error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Starts a host that leases calls with arguments of these sizes, one after the other.
    fn host_of(sizes: Vec<usize>) -> RemoteHost {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (size, stream) in sizes.into_iter().zip(listener.incoming()) {
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    assert_ne!(stream.read(&mut [0; 65_536]).unwrap(), 0);
                    let args = "x".repeat(size);
                    let call = json!({
                        "call": "c", "tool": "t", "args": args, "token": "x", "lease_ms": 1, "attempt": 1, "max_bytes": 1
                    });
                    let call = call.to_string();
                    let head =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", call.len());
                    stream.write_all((head + &call).as_bytes()).unwrap();
                });
            }
        });
        RemoteHost::at(&format!("http://{address}"), "token".to_owned()).unwrap_or_else(|_| panic!("a client"))
    }

    /// Attack: each slot of a worker takes a large call. The controls: a small call does not wait, and a large one only until there is memory.
    #[tokio::test]
    async fn large_calls_share_the_memory_of_a_worker() {
        const LARGE: usize = 15 << 20;
        let host = host_of(vec![LARGE, LARGE, LARGE, LARGE, 1 << 10, LARGE]);
        let take = async || host.take("w", &["t"]).await.unwrap().unwrap();
        let mut large = Vec::new();
        while large.len() < 4 {
            large.push(take().await);
        }
        assert!(RESPONSES.reserved() + LARGE > MAX_HELD_MIB << 20);
        assert!(take().await.held.is_none());
        let (last, ()) = tokio::join!(take(), async { drop(large) });
        assert_eq!(last.args.len(), LARGE + 2);
        drop(last);
        assert_eq!(RESPONSES.reserved(), 0);
    }

    /// Attack: arguments whose tree takes far more memory than their text.
    #[test]
    fn leased_call_keeps_the_text_of_its_arguments() {
        let args = r#"{"a":[[[{"b":{}}]],[],null],"c":"d"}"#;
        let text =
            format!(r#"{{"call":"c","tool":"t","args":{args},"token":"x","lease_ms":1,"attempt":1,"max_bytes":2}}"#);
        let call: LeasedCall = read(&text).unwrap();
        let expected = format!(
            r#"LeasedCall {{ call: "c", tool: "t", args: {args:?}, token: "x", lease_ms: 1, attempt: 1, max_bytes: 2, held: None }}"#
        );
        assert_eq!(format!("{call:?}"), expected);
    }
}
