//! Fuzzes requests to the router of a host, without a socket.
//!
//! An input has up to `MAX_REQUESTS` requests, separated by lines `===`. A request is a line `SENDER METHOD PATH`,
//! header lines, an empty line and a body. SENDER is the scope of a token, or `none`, or `socket`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use subtend_host::Host;
use subtend_host::auth::{Guard, TokenFile, TokenScope};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};
use tower::ServiceExt as _;

use super::InputResult;

mod scene;
pub(crate) mod seeds;

/// Maximum number of requests in an input.
const MAX_REQUESTS: usize = 6;
const SEPARATOR: &[u8] = b"\n===\n";
const ADDRESS: &str = "127.0.0.1:7475";
/// Maximum virtual time of a request that waits or streams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(100);
/// The time within which a response counts as immediate. It is shorter than every deadline of a session.
const AT_ONCE: Duration = Duration::from_millis(20);
const MAX_RESPONSE_BYTES: usize = 1 << 20;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Sends the requests in order. Each gets a response. Refused requests and reads change nothing. A request without a
/// token reaches no session. A keyed command that is sent again has no second effect. No handler or actor panics.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let requests: Vec<ParsedRequest> =
        split(bytes).into_iter().take(MAX_REQUESTS).filter_map(ParsedRequest::of).collect();
    if requests.is_empty() {
        return InputResult::Refused;
    }
    count_panics();
    let before = PANICS.load(Ordering::Relaxed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let Ok(runtime) = runtime else { return InputResult::Refused };
    let result = runtime.block_on(send_all(&requests));
    assert_eq!(PANICS.load(Ordering::Relaxed), before, "a handler or an actor panicked");
    result
}

/// Installs a hook that also counts panics that the host or a supervisor catches.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            next(info);
        }));
    });
}

fn split(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut parts) = (bytes, Vec::new());
    while let Some(at) = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR) {
        parts.push(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + SEPARATOR.len()..).unwrap_or_default();
    }
    parts.push(rest);
    parts
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestSender {
    Anonymous,
    Token(TokenScope),
    Socket,
}

#[derive(Debug)]
struct ParsedRequest {
    sender: RequestSender,
    method: Method,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
}

impl ParsedRequest {
    /// Parses a request. `None` if no HTTP server would forward it.
    fn of(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(2).position(|window| window == b"\n\n").unwrap_or(bytes.len());
        let (head, body) = bytes.split_at_checked(end)?;
        let mut lines = head.split(|byte| *byte == b'\n');
        let mut words = lines.next()?.splitn(3, |byte| *byte == b' ');
        let sender = match words.next()? {
            b"none" => RequestSender::Anonymous,
            b"socket" => RequestSender::Socket,
            b"read" => RequestSender::Token(TokenScope::Read),
            b"act" => RequestSender::Token(TokenScope::Act),
            b"work" => RequestSender::Token(TokenScope::Work),
            b"admin" => RequestSender::Token(TokenScope::Admin),
            _ => return None,
        };
        let method = Method::from_bytes(words.next()?).ok()?;
        let uri = Uri::try_from(words.next()?).ok()?;
        let headers = lines.map(|line| {
            let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
            let value = value.get(1..)?.trim_ascii();
            Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
        });
        let headers = headers.collect::<Option<Vec<_>>>()?;
        Some(Self { sender, method, uri, headers, body: body.get(2..).unwrap_or_default().to_vec() })
    }

    fn request(&self) -> Option<Request<Body>> {
        let mut request = Request::builder().method(&self.method).uri(&self.uri);
        let has = |name: HeaderName| self.headers.iter().any(|(own, _)| *own == name);
        if self.sender != RequestSender::Socket && !has(header::HOST) {
            request = request.header(header::HOST, ADDRESS);
        }
        if let RequestSender::Token(scope) = self.sender
            && !has(header::AUTHORIZATION)
        {
            request = request.header(header::AUTHORIZATION, Tokens::get().of(scope)?);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Body::from(self.body.clone())).ok()
    }

    /// Returns whether the command must have no second effect when it is sent again.
    fn is_keyed(&self) -> bool {
        self.uri.path().starts_with("/v1/") && self.headers.iter().any(|(name, _)| name == "idempotency-key")
    }
}

/// A token of each scope. All inputs share the file with these tokens.
struct Tokens {
    file: TokenFile,
    secrets: Vec<(TokenScope, String)>,
    _dir: TempDir,
}

impl Tokens {
    #[expect(clippy::expect_used, reason = "nothing can be fuzzed without a file of tokens")]
    fn get() -> &'static Self {
        static TOKENS: OnceLock<Tokens> = OnceLock::new();
        TOKENS.get_or_init(|| {
            let dir = TempDir::new().expect("a directory");
            let file = TokenFile::at(dir.path().join("tokens.json"));
            let scopes = [TokenScope::Read, TokenScope::Act, TokenScope::Work, TokenScope::Admin];
            let token = |scope: TokenScope| (scope, file.create(&scope.to_string(), scope).expect("a token"));
            let secrets = scopes.map(token).to_vec();
            Self { file, secrets, _dir: dir }
        })
    }

    fn of(&self, scope: TokenScope) -> Option<String> {
        self.secrets.iter().find(|(own, _)| *own == scope).map(|(_, secret)| format!("Bearer {secret}"))
    }
}

/// A response: its status, whether it is a problem document, and the start of its body. `None` if none has arrived.
type RouterAnswer = Option<(u16, bool, Vec<u8>)>;

struct Routers {
    guarded: Router,
    socket: Router,
}

async fn send_all(requests: &[ParsedRequest]) -> InputResult {
    let Some(host) = scene::host().await else { return InputResult::Refused };
    let guarded = ADDRESS.parse().map(|address| Guard::new(address, [], Tokens::get().file.clone()));
    let Ok(guard) = guarded else { return InputResult::Refused };
    let routers = Routers { guarded: guard.protect(host.router()), socket: host.router() };
    let mut result = InputResult::Refused;
    for request in requests {
        let before = wait_until_idle(&host).await;
        let (answered, at_once) = send(&routers, request).await;
        let changed = wait_until_idle(&host).await != before;
        check_response(request, answered.as_ref(), changed && at_once);
        let accepted = answered.is_some_and(|(status, ..)| status < 400);
        if accepted {
            result = InputResult::Accepted;
        }
        if accepted && at_once && request.is_keyed() {
            resend(&host, &routers, request).await;
        }
    }
    drop(routers);
    let report = host.shutdown(Duration::from_secs(5)).await;
    assert!(report.is_some_and(|report| report.actors == 0), "a request blocked the shutdown, or an actor remained");
    result
}

/// Waits until no session is active. Returns the number of frames in the store.
async fn wait_until_idle(host: &Host) -> u64 {
    let journal = host.runtime().journal();
    let mut last = journal.last_appended().0;
    let mut calm = 0;
    while calm < 3 {
        let _ = journal.settled().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = journal.last_appended().0;
        calm = if now == last { calm + 1 } else { 0 };
        last = now;
    }
    last
}

/// Returns the response, and whether it arrived before any deadline of a session could pass.
async fn send(routers: &Routers, parsed: &ParsedRequest) -> (RouterAnswer, bool) {
    let Some(request) = parsed.request() else { return (None, false) };
    let router = if parsed.sender == RequestSender::Socket { &routers.socket } else { &routers.guarded };
    let from = Instant::now();
    let Ok(Ok(response)) = timeout(REQUEST_TIMEOUT, router.clone().oneshot(request)).await else {
        return (None, false);
    };
    let (parts, mut body) = response.into_parts();
    let problem = parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    let mut bytes = Vec::new();
    // A stream of events ends only when its client closes it.
    while let Ok(Some(Ok(frame))) = timeout(AT_ONCE / 2, body.frame()).await {
        bytes.extend_from_slice(frame.data_ref().map(|data| &**data).unwrap_or_default());
        if bytes.len() > MAX_RESPONSE_BYTES {
            break;
        }
    }
    (Some((parts.status.as_u16(), problem, bytes)), from.elapsed() < AT_ONCE)
}

fn check_response(request: &ParsedRequest, answered: Option<&(u16, bool, Vec<u8>)>, changed: bool) {
    let reads = [Method::GET, Method::HEAD].contains(&request.method);
    assert!(!(changed && reads), "a read changed the store: {request:?}");
    let may_change = !matches!(request.sender, RequestSender::Anonymous | RequestSender::Token(TokenScope::Read));
    assert!(!changed || may_change, "a sender without permission changed the store: {request:?}");
    let Some((status, is_problem, body)) = answered else { return };
    let path = request.uri.path();
    if request.sender == RequestSender::Anonymous && *status < 400 {
        let open = ["/healthz", "/readyz", "/login"].contains(&path) || path.starts_with("/assets/");
        assert!(open, "a request without a token was answered: {request:?}");
    }
    assert_ne!(*status, 500, "{request:?}: {}", String::from_utf8_lossy(body));
    if *status < 400 {
        return;
    }
    // Excludes compactions and summaries: what the model wrote is recorded even if it cannot be used.
    let asks_model = ["/compaction", "/summary"].iter().any(|end| path.ends_with(end));
    assert!(
        !changed || asks_model,
        "a refused request changed the store: {request:?}: {}",
        String::from_utf8_lossy(body)
    );
    if path.starts_with("/v1/") && request.method != Method::HEAD && *is_problem {
        let problem: Option<Value> = serde_json::from_slice(body).ok();
        let sound = problem.is_some_and(|problem| {
            let code = problem.get("code").and_then(Value::as_str).unwrap_or_default();
            problem.get("status").and_then(Value::as_u64) == Some(u64::from(*status)) && !code.is_empty()
        });
        assert!(sound, "a refusal without a code: {request:?}: {}", String::from_utf8_lossy(body));
    }
    let by_page = String::from_utf8_lossy(body).starts_with("<!");
    let bare = request.method == Method::HEAD;
    assert!(
        *is_problem || by_page || bare,
        "a refusal without a problem document: {request:?}: {status} {}",
        String::from_utf8_lossy(body)
    );
}

async fn resend(host: &Host, routers: &Routers, request: &ParsedRequest) {
    let before = wait_until_idle(host).await;
    let (answered, at_once) = send(routers, request).await;
    let after = wait_until_idle(host).await;
    if let (Some((status, _, body)), true) = (answered, at_once) {
        assert!(status < 400, "refused when sent again: {request:?}: {status} {}", String::from_utf8_lossy(&body));
        assert_eq!(after, before, "a second effect: {request:?}");
    }
}
