//! The HTTP client of logins. Requests are limited, and reach only public addresses and addresses that the user configured.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::LOCATION;
use http::{Request, Response};
use reqwest::Url;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};

use crate::http::checked::{AllowedHosts, CheckedClient, RequestFailed};
use crate::http::{InternalHost, Resolver, SystemResolver};
use crate::mcp::result::{self, ServerText};
use crate::secrets::Secrets;
use crate::threads;

/// Maximum bytes of an answer.
const MAX_ANSWER: usize = 256 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of requests of one login. The metadata of a server can name any number of addresses.
const MAX_REQUESTS: usize = 32;
/// Names of this machine. A server on this machine may refer to them.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The addresses that a login for one server may use.
#[derive(Clone, Debug)]
pub(super) struct LoginReach {
    /// True if the server runs on this machine. Then its authorization server may also run here.
    is_local: bool,
    hosts: Vec<InternalHost>,
}

impl LoginReach {
    /// Returns the addresses for the login of `server`: its own host, and the `listed` internal hosts.
    ///
    /// # Errors
    /// If the address of the server is invalid.
    pub(super) fn of(server: &str, listed: &[InternalHost]) -> Result<Self, String> {
        let url = Url::parse(server).map_err(|error| format!("its address is invalid: {error}"))?;
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let is_local = LOOPBACK.contains(&host);
        let local = LOOPBACK.iter().filter(|_| is_local).map(|host| (*host).to_owned());
        let own = local.chain([format!("{host}:{port}")]).map(|host| host.parse::<InternalHost>());
        let own = own.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        let hosts = listed.iter().cloned().chain(own).collect();
        Ok(Self { is_local, hosts })
    }

    /// Checks that an address is encrypted, or on the same machine as the server and this process.
    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        let is_loopback = url.host_str().is_some_and(|host| LOOPBACK.contains(&host));
        match url.scheme() {
            "https" => {}
            "http" if self.is_local && is_loopback => {}
            "http" => return Err(format!("`{}` is not encrypted", to_message(url.as_str()))),
            _ => return Err(format!("`{}` is not a web address", to_message(url.as_str()))),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("an address contains a user or a password".to_owned());
        }
        Ok(())
    }
}

/// Escapes and shortens an untrusted text for messages.
pub(super) fn to_message(text: &str) -> String {
    crate::escape::harmless(&crate::bounded::shorten(text, 300)).replace('\n', " ")
}

pub(super) struct BoundedClient {
    client: CheckedClient,
    reach: LoginReach,
    /// Number of remaining requests; `None` means no limit.
    left: Option<AtomicUsize>,
    /// The reason why the last request failed, which the library does not pass on.
    fault: Mutex<Option<String>>,
    /// The address that the library requested last, before any redirects, and whether the last answer is a redirect.
    requested: Mutex<(String, bool)>,
}

impl BoundedClient {
    pub(super) fn for_login(reach: LoginReach) -> Arc<Self> {
        Self::new(reach, Some(MAX_REQUESTS))
    }

    /// Returns a client that renews tokens. It has no limit of requests, because the library makes one at a time.
    pub(super) fn for_renewal(reach: LoginReach) -> Arc<Self> {
        Self::new(reach, None)
    }

    fn new(reach: LoginReach, most: Option<usize>) -> Arc<Self> {
        let resolver: Arc<dyn Resolver> = Arc::new(SystemResolver);
        let client = CheckedClient::new(AllowedHosts::Public(reach.hosts.clone()), resolver);
        Arc::new(Self {
            client,
            reach,
            left: most.map(AtomicUsize::new),
            fault: Mutex::default(),
            requested: Mutex::default(),
        })
    }

    /// Returns the address of the last document that the library read. Redirects, which stay at one origin, do not change it.
    pub(super) fn document(&self) -> String {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Adds the reason of the last failed request to a message. Returns one line without `secrets`.
    pub(super) fn explain(&self, message: &str, secrets: &Secrets) -> String {
        let mut text = result::short(message);
        if let Some(fault) = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
            && !text.contains(&fault)
        {
            // Writing to a string cannot fail.
            let _ = write!(text, " ({fault})");
        }
        ServerText::from(text).one_line(secrets)
    }

    /// Sends a request, and reads the whole response or only its head.
    pub(super) async fn answer(&self, request: Request<Vec<u8>>, is_read: bool) -> Result<Response<Vec<u8>>, String> {
        let answered = self.bounded(request, is_read).await;
        if let Err(why) = &answered {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
        }
        answered
    }

    async fn bounded(&self, request: Request<Vec<u8>>, is_read: bool) -> Result<Response<Vec<u8>>, String> {
        let request = reqwest::Request::try_from(request).map_err(|error| error.to_string())?;
        self.reach.check(request.url())?;
        let next = |left: usize| left.checked_sub(1);
        if self.left.as_ref().is_some_and(|left| left.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_err())
        {
            return Err(format!("it needs more than {MAX_REQUESTS} requests"));
        }
        let (client, host) = (self.client.clone(), to_message(request.url().host_str().unwrap_or_default()));
        let answering = threads::run_separately(async move { send(&client, request, is_read).await });
        match tokio::time::timeout(REQUEST_TIMEOUT, answering).await {
            Ok(answered) => answered?.map_err(|why| format!("`{host}`: {why}")),
            Err(_) => Err(format!("`{host}` did not answer within {} s", REQUEST_TIMEOUT.as_secs())),
        }
    }
}

async fn send(client: &CheckedClient, request: reqwest::Request, is_read: bool) -> Result<Response<Vec<u8>>, String> {
    let sent = client.send(request).await.map_err(|error| match error {
        RequestFailed::Internal => {
            "its address is not public. The user can list the host under `web.internal_hosts` in \
                                    their own configuration"
                .to_owned()
        }
        RequestFailed::Client(why) => format!("cannot create an HTTP client: {why}"),
        RequestFailed::Sending(error) => chain(error),
    });
    let mut response = sent?;
    let mut body = Vec::new();
    while is_read && let Some(piece) = response.chunk().await.map_err(chain)? {
        if piece.len() > MAX_ANSWER.saturating_sub(body.len()) {
            return Err(format!("it sent an answer of more than {MAX_ANSWER} bytes"));
        }
        body.extend_from_slice(&piece);
    }
    let mut answer = Response::new(body);
    *answer.status_mut() = response.status();
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    Ok(answer)
}

/// Returns an error with its causes, without the address, which may contain a code.
fn chain(error: reqwest::Error) -> String {
    to_message(&result::chain(&error.without_url()))
}

impl OAuthHttpClient for BoundedClient {
    /// Never follows redirects, even if the library requests it: the target would receive a code or a token.
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let address = request.request.uri().to_string();
            let (first, is_redirected) =
                std::mem::take(&mut *self.requested.lock().unwrap_or_else(PoisonError::into_inner));
            let answer = self.answer(request.request, true).await?;
            // The library follows every redirect that has a location, or fails.
            let is_redirect = answer.status().is_redirection() && answer.headers().contains_key(LOCATION);
            let requested = (if is_redirected { first } else { address }, is_redirect);
            *self.requested.lock().unwrap_or_else(PoisonError::into_inner) = requested;
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_addresses_are_encrypted_or_on_this_machine() {
        let checked =
            |server: &str, url: &str| LoginReach::of(server, &[]).unwrap().check(&Url::parse(url).unwrap()).is_ok();
        let (local, remote) = ("http://127.0.0.1:8080/mcp", "https://tracker.example/mcp");
        for (server, url, expected) in [
            (remote, "https://auth.example/token", true),
            (remote, "http://auth.example/token", false),
            (remote, "http://127.0.0.1/token", false),
            (remote, "http://tracker.example/token", false),
            (remote, "javascript:alert(1)", false),
            (remote, "file:///etc/passwd", false),
            (remote, "https://user@auth.example/token", false),
            (local, "http://localhost:99/token", true),
            (local, "http://[::1]:99/token", true),
            (local, "http://10.0.0.1/token", false),
            (local, "http://localhost.example/token", false),
            (local, "https://auth.example/token", true),
        ] {
            assert_eq!(checked(server, url), expected, "{server} {url}");
        }
    }
}
