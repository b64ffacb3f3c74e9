//! The host of a worker, over HTTP.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subtend_tools::http::tls;

use super::super::fail::Fail;

/// How long the host may hold a request for a call.
const TAKE: Duration = Duration::from_secs(30);

/// Time for a request, in addition to what the host may hold it.
const EXCHANGE: Duration = Duration::from_secs(10);

pub(super) struct RemoteHost {
    http: Client,
    base: String,
    token: String,
    is_open: bool,
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
    pub(super) fn at(url: &str, token: &str) -> Result<Self, Fail> {
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
            .user_agent(concat!("subtend/", env!("CARGO_PKG_VERSION")));
        if is_local {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| failed(error.to_string()))?;
        let base = parsed.as_str().trim_end_matches('/').to_owned();
        Ok(Self { http, base, token: token.to_owned(), is_open: !is_tls && !is_local })
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
    async fn post(&self, what: &str, wait: Duration, body: &Value) -> Result<Option<String>, HostError> {
        let mut url = format!("{}/v1/workers/{what}", self.base);
        if !wait.is_zero() {
            url = format!("{url}?wait=true&timeout={}", wait.as_millis());
        }
        let away = |error: reqwest::Error| {
            HostError::Away(format!("the host {} cannot be reached: {}", self.base, causes(&error.without_url())))
        };
        let request = self.http.post(url).bearer_auth(&self.token).timeout(wait + EXCHANGE);
        let request = request.header("content-type", "application/json").body(body.to_string());
        let response = request.send().await.map_err(away)?;
        let status = response.status();
        let text = response.text().await.map_err(away)?;
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
        let why = format!("the host {} refuses this worker: {detail}", self.base);
        match status {
            StatusCode::CONFLICT => HostError::Lost(detail),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => HostError::Away(why),
            status if status.is_server_error() => HostError::Away(why),
            StatusCode::PAYLOAD_TOO_LARGE => HostError::Refused(detail),
            StatusCode::NOT_FOUND if code.is_empty() || code == "no_such_resource" => HostError::Refused(format!(
                "the host {} has no remote tools: check the address, and its version",
                self.base
            )),
            _ => HostError::Refused(why),
        }
    }
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
