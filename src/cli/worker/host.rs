//! The host of a worker, over HTTP.

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
use subtend_tools::http::tls;
use subtend_tools::threads;
use tokio::time::timeout;

use super::super::data::StoreLocation;
use super::super::fail::Fail;
#[cfg(unix)]
use super::super::serve;

/// How long the host may hold a request for a call.
const TAKE: Duration = Duration::from_secs(30);

/// Time for a request, in addition to what the host may hold it.
const EXCHANGE: Duration = Duration::from_secs(10);

/// Bytes of a response that are read: more than the arguments of any call.
const MOST: usize = 16 << 20;

/// JSON values of a response next to the arguments of a call.
const FIELDS: usize = 100;

/// How much longer a request may take than its own limit: then its thread reads without end, and does not see that limit.
const LATE: Duration = Duration::from_secs(5);

/// Threads that may be left reading without end.
const HELD: usize = 4;

pub(super) struct RemoteHost {
    http: Client,
    base: String,
    /// The name of the host in errors.
    label: String,
    /// Absent on the socket, where the operating system says who connects.
    token: Option<String>,
    is_open: bool,
    /// Threads that are left.
    held: AtomicUsize,
    #[cfg(unix)]
    _socket: Option<SocketPath>,
}

/// Why the host did not do as asked.
#[derive(Debug)]
pub(super) enum HostError {
    /// It cannot be reached, or not now.
    Away(String),
    /// The lease is over.
    Lost(String),
    /// It would refuse the same request again.
    Refused(String),
}

#[derive(Debug, Deserialize)]
pub(super) struct LeasedCall {
    pub(super) call: String,
    pub(super) tool: String,
    pub(super) args: Value,
    pub(super) token: String,
    pub(super) lease_ms: u64,
    pub(super) attempt: u32,
    pub(super) max_bytes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct RenewedLease {
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

    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Ok { .. } => "done",
            Self::Error { .. } => "failed",
            Self::Stopped => "stopped",
            Self::NotStarted => "not started",
        }
    }
}

/// A refusal of the host.
#[derive(Deserialize)]
struct RefusedRequest {
    detail: String,
    code: String,
}

impl RemoteHost {
    /// Returns the host at `url`. Nothing is connected.
    pub(super) fn at(url: &str, token: String) -> Result<Self, Fail> {
        let bad = || Fail::Usage(format!("`--host {url}`: an address such as http://127.0.0.1:7475 is needed"));
        let parsed: Url = url.parse().map_err(|_| bad())?;
        let is_http = matches!(parsed.scheme(), "http" | "https");
        if !is_http || parsed.query().is_some() || parsed.fragment().is_some() || !parsed.username().is_empty() {
            return Err(bad());
        }
        let name = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let is_local = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_tls = parsed.scheme() == "https";
        let failed = |why: String| Fail::Other(format!("no HTTP client can be made: {why}"));
        let mut http = Client::builder()
            .tls_backend_preconfigured(tls(is_tls).map_err(|error| failed(error.to_string()))?)
            .connect_timeout(EXCHANGE)
            // The token would go along.
            .redirect(Policy::none())
            // Each request has a thread of its own, and its connection ends with that.
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
            is_open: !is_tls && !is_local,
            held: AtomicUsize::new(0),
            #[cfg(unix)]
            _socket: None,
        })
    }

    /// Returns the process that hosts a store, by its socket. None may do so yet.
    #[cfg(unix)]
    pub(super) fn of(place: &StoreLocation) -> Result<Self, Fail> {
        let path = serve::socket(place)?;
        let label = format!("the host of the store {}", place.name());
        let failed = |why: String| Fail::Other(format!("{label} cannot be reached at {}: {why}", path.display()));
        // Its directory is this user's own, so no other user listens there.
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
            is_open: false,
            held: AtomicUsize::new(0),
            _socket: Some(socket),
        })
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &StoreLocation) -> Result<Self, Fail> {
        Err(Fail::Usage("this system has no Unix sockets: name the address of the host with --host".to_owned()))
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Returns the longest time between two attempts to reach the host. Hosts of a store on this machine come and go.
    pub(super) fn longest_wait(&self) -> Duration {
        Duration::from_secs(if self.token.is_some() { 15 } else { 1 })
    }

    /// Returns whether requests travel unencrypted over a network.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) async fn take(&self, worker: &str, tools: &[&str]) -> Result<Option<LeasedCall>, HostError> {
        let body = json!({ "worker": worker, "tools": tools });
        match self.post("take", TAKE, &body).await? {
            Some(text) => read(&text).map(Some),
            None => Ok(None),
        }
    }

    /// Renews a lease; the host holds the response for `wait`, unless the call is cancelled.
    pub(super) async fn renew(
        &self,
        token: &str,
        progress: Option<&str>,
        wait: Duration,
    ) -> Result<RenewedLease, HostError> {
        let renewed = self.post("renew", wait, &json!({ "token": token, "progress": progress })).await?;
        read(&renewed.unwrap_or_default())
    }

    pub(super) async fn complete(&self, token: &str, result: &WorkerResult) -> Result<(), HostError> {
        self.post("complete", Duration::ZERO, &json!({ "token": token, "result": result })).await.map(drop)
    }

    /// Sends a request; returns the body of the response, if it has one.
    ///
    /// The HTTP library reads interim responses for as long as they come: a thread of its own does it, so that signals and leases of this
    /// worker still count.
    async fn post(&self, what: &str, wait: Duration, body: &Value) -> Result<Option<String>, HostError> {
        let mut url = format!("{}/v1/workers/{what}", self.base);
        if !wait.is_zero() {
            url = format!("{url}?wait=true&timeout={}", wait.as_millis());
        }
        let away = |error: reqwest::Error| {
            HostError::Away(format!("{} cannot be reached: {}", self.label, causes(&error.without_url())))
        };
        let mut request = self.http.post(url).timeout(wait + EXCHANGE);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let request = request.header("content-type", "application/json").body(body.to_string());
        let exchange = timeout(wait + EXCHANGE + LATE, threads::apart(answered(request)));
        let (status, bytes) = match exchange.await {
            Ok(Ok(Ok(answered))) => answered,
            Ok(Ok(Err(error))) => return Err(away(error)),
            Ok(Err(why)) => return Err(HostError::Away(format!("{} cannot be reached: {why}", self.label))),
            Err(_) if self.held.fetch_add(1, Ordering::Relaxed) < HELD => {
                return Err(HostError::Away(format!("{} sends interim responses without end", self.label)));
            }
            Err(_) => {
                return Err(HostError::Refused(format!("{} often sent interim responses without end", self.label)));
            }
        };
        let Some(bytes) = bytes else {
            let why = format!("the response of {} is longer than {} MiB", self.label, MOST >> 20);
            return Err(HostError::Refused(why));
        };
        if ValueCount::default().add(&bytes) > MAX_VALUES + FIELDS {
            let why = format!("the response of {} has more than {MAX_VALUES} JSON values", self.label);
            return Err(HostError::Refused(why));
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match status {
            StatusCode::NO_CONTENT => Ok(None),
            status if status.is_success() => Ok(Some(text)),
            status => Err(self.refused(status, &text)),
        }
    }

    fn refused(&self, status: StatusCode, text: &str) -> HostError {
        let (detail, code) = match serde_json::from_str::<RefusedRequest>(text) {
            Ok(problem) => (problem.detail, problem.code),
            Err(_) => (format!("it answered {status}"), String::new()),
        };
        let why = format!("{} refuses this worker: {detail}", self.label);
        match status {
            StatusCode::CONFLICT => HostError::Lost(detail),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => HostError::Away(why),
            status if status.is_server_error() => HostError::Away(why),
            StatusCode::PAYLOAD_TOO_LARGE => HostError::Refused(detail),
            StatusCode::NOT_FOUND if code.is_empty() || code == "no_such_resource" => {
                HostError::Refused(format!("{} has no remote tools: check the address, and its version", self.label))
            }
            _ => HostError::Refused(why),
        }
    }
}

/// Sends a request; returns the status and the body of the response, or no body if it is too long.
async fn answered(request: RequestBuilder) -> Result<(StatusCode, Option<Vec<u8>>), reqwest::Error> {
    let mut response = request.send().await?;
    let status = response.status();
    let mut bytes = Vec::new();
    while let Some(more) = response.chunk().await? {
        if bytes.len().saturating_add(more.len()) > MOST {
            return Ok((status, None));
        }
        bytes.extend_from_slice(&more);
    }
    Ok((status, Some(bytes)))
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
