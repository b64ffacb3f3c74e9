//! Authentication: tokens with scopes, login links for browsers, and checks of the Host and Origin headers.
//!
//! A request over the Unix socket has all rights: the operating system confirms that its sender owns the socket. A
//! request over TCP needs a token or the cookie of a login. Three checks refuse requests from other web pages. The Host
//! header must name this host (against DNS rebinding). An Origin header must name this host (against cross-site
//! requests). The cookie is `SameSite=Strict`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::json::Json;
use crate::listen::Bounds;
use crate::page;
use crate::problem::Problem;
use crate::trace;

pub(crate) use access::Access;
use access::{Credential, Validity};
use bodies::BodyBudget;
pub use forwarded::{Forwarded, NodeClock, NodeKey, REFUSED as SIGNATURE_REFUSED};
pub use grant::TokenGrant;
pub use logins::Logins;
use open_requests::OpenRequests;
pub(crate) use tokens::secret;
pub use tokens::{TokenError, TokenFile, TokenInfo, TokenScope};

mod access;
mod bodies;
mod forwarded;
mod grant;
mod logins;
mod open_requests;
mod own_file;
mod tokens;

const COOKIE: &str = "subtend_login";

/// The checks of requests over TCP. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Guard {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: SocketAddr,
    /// Allowed values of the Host header, in lower case.
    hosts: HashSet<String>,
    tokens: TokenFile,
    logins: Logins,
    bodies: BodyBudget,
    requests: OpenRequests,
    /// Key with which other nodes sign forwarded requests.
    key: Option<NodeKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Token(TokenGrant),
    /// A browser, by its cookie.
    Login,
}

/// Identifies the sender of requests over TCP, a token or a login, without revealing the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenderId(u64);

impl SenderId {
    /// The sender of a request that another node forwarded without naming its sender.
    const UNKNOWN: Self = Self(0);

    /// Returns the id for the hash of a token or a login.
    pub fn of(credential: blake3::Hash) -> Self {
        let key = blake3::derive_key("subtend host: sender of a request", credential.as_bytes());
        Self(key.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte)))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Returns the rights of a request that passed [`Guard`]; `None` if it did not pass through one, as over the Unix
/// socket.
pub fn grant_of(request: &Request) -> Option<TokenGrant> {
    request.extensions().get().map(|sender| match sender {
        Sender::Token(grant) => grant.clone(),
        Sender::Login => TokenScope::Admin.into(),
    })
}

impl Guard {
    /// Creates the checks for requests to `address`; `names` are additional allowed host names.
    pub fn new(address: SocketAddr, names: impl IntoIterator<Item = String>, tokens: TokenFile) -> Self {
        Self::of_node(address, names, tokens, None)
    }

    /// As [`Guard::new`], but also accepts requests that other nodes checked and signed with `key`, with the signed rights.
    pub fn of_node(
        address: SocketAddr,
        names: impl IntoIterator<Item = String>,
        tokens: TokenFile,
        key: Option<NodeKey>,
    ) -> Self {
        let port = address.port();
        let mut hosts: HashSet<String> = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        hosts.insert(address.to_string());
        if address.ip().is_loopback() {
            hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{port}")));
        }
        Self {
            inner: Arc::new(Inner {
                address,
                hosts,
                tokens,
                logins: Logins::default(),
                bodies: BodyBudget::default(),
                requests: OpenRequests::new(Bounds::default().connections),
                key,
            }),
        }
    }

    /// Returns the login links and logins.
    pub fn logins(&self) -> &Logins {
        &self.inner.logins
    }

    /// Makes a link that logs in one browser, once, within five minutes. Returns `None` if the system cannot supply
    /// random bytes.
    pub fn login_link(&self) -> Option<String> {
        self.inner.logins.link().map(|code| format!("http://{}/login?code={code}", self.inner.address))
    }

    /// Adds the resource that makes login links. Only for the router of the Unix socket, which no other user can reach.
    pub fn with_login_links(&self, router: Router) -> Router {
        router.merge(Router::new().route("/login/links", post(make_link)).with_state(self.clone()))
    }

    /// Adds the checks and the resource for login links to `router`.
    pub fn protect(&self, router: Router) -> Router {
        let login = Router::new()
            .route("/login", get(login).head(api::no_such_method).fallback(api::no_such_method))
            .with_state(self.clone());
        router
            .merge(login)
            .layer(middleware::from_fn_with_state(self.clone(), check))
            .layer(middleware::from_fn(add_security_headers))
            .layer(middleware::from_fn(trace::trace))
    }

    fn is_known_host(&self, host: &str) -> bool {
        self.inner.hosts.contains(&host.to_ascii_lowercase())
    }

    /// Refuses requests for another host, and requests from other web pages.
    fn check_origin(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        // RFC 9112, 3.2.2: the authority of the target replaces the Host header, which must still be valid.
        let header = single(headers, &header::HOST)?;
        let named = uri.authority().map(|host| host.as_str()).or(header);
        if !named.is_some_and(|host| self.is_known_host(host)) {
            let detail = format!(
                "the Host header {:?} does not name this host: use the address that it printed, or start it with --allow-host",
                named.unwrap_or_default()
            );
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", detail));
        }
        let origin = single(headers, &header::ORIGIN)?;
        if origin.is_some_and(|origin| !self.is_own_origin(origin)) {
            return Err(cross_origin());
        }
        Ok(())
    }

    fn is_own_origin(&self, origin: &str) -> bool {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| self.is_known_host(host))
    }

    /// Returns whether, by the browser's headers, a page of this host or the user opened the resource.
    fn is_opened_here(&self, headers: &HeaderMap) -> bool {
        match headers.get("sec-fetch-site") {
            Some(site) => site == "same-origin" || site == "none",
            // Browsers send `Sec-Fetch-Site` to secure origins only. A page cannot forge the referrer of another origin.
            None => headers.get(header::REFERER).and_then(|from| from.to_str().ok()).is_some_and(|from| {
                let end = from.match_indices('/').nth(2).map_or(from.len(), |(at, _)| at);
                from.get(..end).is_some_and(|origin| self.is_own_origin(origin))
            }),
        }
    }

    fn sender(&self, headers: &HeaderMap) -> Result<(Sender, Credential), Problem> {
        if let Some(authorization) = single(headers, &header::AUTHORIZATION)? {
            let token = authorization.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            // Read the version before the file, so that a concurrent change is noticed later.
            let version = self.inner.tokens.version();
            let hash = token.map(|(_, token)| blake3::hash(token.trim().as_bytes())).ok_or_else(unauthorized)?;
            let grant = self.inner.tokens.grant_of_hash(hash).map_err(|_| tokens_unread())?.ok_or_else(unauthorized)?;
            return Ok((Sender::Token(grant.clone()), Credential::token(hash, grant, version)));
        }
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        // Another server on the same host name may set a cookie with this name, so all values are tried.
        let logins = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, login)| blake3::hash(login.as_bytes()));
        let open = logins.into_iter().find(|login| self.inner.logins.is_open_hash(login));
        open.map(|login| (Sender::Login, Credential::Login(login))).ok_or_else(unauthorized)
    }

    fn check_rights(&self, sender: &Sender, method: &Method, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let needed = TokenScope::required_scope(method, uri.path());
        let is_view = *method == Method::GET && uri.path().starts_with("/s/") && self.is_opened_here(headers);
        match sender {
            Sender::Token(grant) if grant.scope().allows(needed) => Ok(()),
            Sender::Token(grant) => {
                let scope = grant.scope();
                let detail = format!("the token may {scope}, and this needs {needed}: use a token of that scope");
                Err(Problem::new(StatusCode::FORBIDDEN, "scope_too_small", detail))
            }
            // A browser adds the cookie automatically, so changing requests must have an Origin of this host's page.
            Sender::Login if needed != TokenScope::Read && !is_view && !headers.contains_key(header::ORIGIN) => {
                Err(cross_origin())
            }
            Sender::Login => Ok(()),
        }
    }
}

/// Returns the value of a header; refuses a header that is repeated or not text.
fn single<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(Some)
            .map_err(|_| Problem::malformed(format!("header {name}: only visible ASCII is allowed"))),
        (Some(_), Some(_)) => Err(Problem::malformed(format!("header {name} is sent twice: send it once"))),
    }
}

fn unauthorized() -> Problem {
    let detail =
        "a token is needed: send Authorization: Bearer TOKEN (`subtend token create` makes one), or open a login link";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

/// Returns 503: whether the token is valid is not known, for example because no file descriptor is free.
fn tokens_unread() -> Problem {
    let detail = "the host cannot read its tokens now: send the request again; the log of the host has the cause";
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
}

fn cross_origin() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "cross_origin", "the request comes from a page of another origin")
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let (method, headers, uri) = (request.method(), request.headers(), request.uri());
    match guard.inner.key.as_ref().and_then(|key| key.forwarded_grant(&request)) {
        Some(Ok((grant, forwarded))) => {
            let mut request = request;
            let permit = match guard.inner.requests.try_acquire(forwarded.sender()) {
                Ok(permit) => permit,
                Err(problem) => return problem.into_response(),
            };
            let sender = forwarded.sender();
            request.extensions_mut().insert(Sender::Token(grant));
            request.extensions_mut().insert(sender);
            request.extensions_mut().insert(forwarded);
            return name_sender(permit.hold_until_sent(next.run(request).await), sender);
        }
        Some(Err(problem)) => {
            let mut answer = problem.into_response();
            answer.headers_mut().insert(SIGNATURE_REFUSED, HeaderValue::from_static("1"));
            return answer;
        }
        None => {}
    }
    let open = matches!(uri.path(), "/healthz" | "/readyz" | "/login") || uri.path().starts_with("/assets/");
    let checked = guard.check_origin(headers, uri).and_then(|()| {
        if open {
            return Ok(None);
        }
        let (sender, by) = guard.sender(headers)?;
        guard.check_rights(&sender, method, headers, uri)?;
        let permit = guard.inner.requests.try_acquire(SenderId::of(by.hash()))?;
        Ok(Some((sender, by, permit)))
    });
    match checked {
        // Requests without a token have no budget for bodies, and none of them needs one.
        Ok(None) => name_sender(next.run(request.map(|_| Body::empty())).await, SenderId::UNKNOWN),
        Ok(Some((sender, by, permit))) => {
            let full = CancellationToken::new();
            // Requests that only read need no body, and a waiting request would keep it in memory.
            let request = if request.method().is_safe() { request.map(|_| Body::empty()) } else { request };
            let request = guard.inner.bodies.count(request, by.hash(), &full);
            let access = Arc::new(Access::new(guard, by, permit));
            tokio::select! {
                biased;
                response = admit(access, sender, request, next) => response,
                () = full.cancelled() => bodies::busy_problem().into_response(),
            }
        }
        Err(problem) => refusal(uri, headers, problem),
    }
}

/// Answers a request, unless the sender's access ends first.
async fn admit(access: Arc<Access>, sender: Sender, mut request: Request, next: Next) -> Response {
    let (reads, uri, headers) = (request.method().is_safe(), request.uri().clone(), request.headers().clone());
    request.extensions_mut().insert(sender);
    request.extensions_mut().insert(access.sender_id());
    request.extensions_mut().insert(Arc::clone(&access));
    let response = tokio::select! {
        biased;
        response = next.run(request) => response,
        () = access.wait_until_ended() => return refusal(&uri, &headers, unauthorized()),
    };
    // A command that took effect gets its response even if the token was revoked meanwhile.
    match access.validity() {
        Validity::Ended if reads => return refusal(&uri, &headers, unauthorized()),
        Validity::Unknown if reads => return refusal(&uri, &headers, tokens_unread()),
        Validity::Valid | Validity::Ended | Validity::Unknown => {}
    }
    let sender = access.sender_id();
    name_sender(access.bound(response), sender)
}

/// Adds the sender of the request to its response, whose unsent bytes count as those of the sender.
fn name_sender(mut response: Response, sender: SenderId) -> Response {
    response.extensions_mut().insert(sender);
    response
}

fn refusal(uri: &Uri, headers: &HeaderMap, problem: Problem) -> Response {
    let mut response = page::refusal(uri, headers, || problem.clone()).unwrap_or_else(|| problem.into_response());
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Adds headers that restrict the use of responses in browsers.
async fn add_security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, browsers would send forms of this page with `Origin: null`.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// A login link.
#[derive(Debug, Deserialize, Serialize)]
pub struct LoginLink {
    /// The URL, with a code that opens one login.
    pub login: String,
}

async fn make_link(State(guard): State<Guard>) -> Result<Json<LoginLink>, Problem> {
    let no_randomness = || {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "cannot get random bytes from the system: try again",
        )
    };
    Ok(Json(LoginLink { login: guard.login_link().ok_or_else(no_randomness)? }))
}

/// Opens a login with the code of a link. The code is valid once, for five minutes.
async fn login(State(guard): State<Guard>, uri: Uri, headers: HeaderMap) -> Response {
    let code = uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("code=")));
    let Some(login) = code.and_then(|code| guard.inner.logins.redeem(code)) else {
        let detail =
            "the login link was used or is too old: `subtend token login` makes a new one, on the machine of the host";
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "login_refused", detail);
        return page::refusal(&uri, &headers, || problem.clone()).unwrap_or_else(|| problem.into_response());
    };
    let cookie = format!("{COOKIE}={login}; HttpOnly; SameSite=Strict; Path=/");
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
