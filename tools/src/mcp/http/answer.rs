//! Interprets a response to a posted message, by the rules of the library's own client. That client is not used, because it reads
//! event streams at any rate.

use std::io;

use futures_util::StreamExt as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage};
use rmcp::transport::WWWAuthenticateParams;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpPostResponse,
    StreamableHttpResponseLimits,
};
use sse_stream::Sse;

use subtend_session::values::parse_foreign;

use super::{HttpFault, StreamBudget, events};
use crate::bounded::shorten;
use crate::mcp::handshake::{LONG_VERSION, strip};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
/// Maximum bytes of an unusable body in an error.
const MAX_PREVIEW: usize = 256;

/// What a response depends on of the message that was posted.
#[derive(Clone)]
pub(super) struct PostedMessage {
    /// The id of a request.
    id: Option<RequestId>,
    /// True if the library keeps the protocol version of the answer. It repeats the handshake when the server ends a session, and uses that
    /// answer itself.
    is_handshake: bool,
    is_discovery: bool,
}

impl PostedMessage {
    pub(super) fn of(message: &ClientJsonRpcMessage) -> Self {
        let ClientJsonRpcMessage::Request(request) = message else {
            return Self { id: None, is_handshake: false, is_discovery: false };
        };
        Self {
            id: Some(request.id.clone()),
            is_handshake: matches!(request.request, ClientRequest::InitializeRequest(_)),
            is_discovery: matches!(request.request, ClientRequest::DiscoverRequest(_)),
        }
    }
}

/// Interprets the response to `message`. `is_in_session` is true if the message was posted within a session of the protocol.
pub(super) async fn answer(
    response: Response,
    message: &PostedMessage,
    (is_in_session, limits): (bool, StreamableHttpResponseLimits),
    budget: &StreamBudget,
) -> Result<StreamableHttpPostResponse, HttpFault> {
    let status = response.status();
    if let Some(fault) = challenge(&response) {
        return Err(fault);
    }
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if status == StatusCode::NOT_FOUND && is_in_session {
        return Err(HttpFault::SessionExpired);
    }
    if !status.is_success() {
        return refusal(response, message, is_in_session, limits).await;
    }
    // Only requests have an answer.
    let is_request = message.id.is_some();
    if !is_request && response.content_length() == Some(0) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    let session = session(response.headers());
    // The library keeps each stream open, without a limit on their number. A server could cause messages without end, such as answers to pings.
    if is_request && is_of(response.headers(), EVENTS) {
        let events = events(response, budget, limits.max_sse_event_size)?;
        let message = message.clone();
        let events = events.map(move |event| event.and_then(|event| answer_event(&message, event)));
        return Ok(StreamableHttpPostResponse::Sse(events.boxed(), session));
    }
    if is_of(response.headers(), JSON) {
        let (body, is_whole) = read(response, limits.max_json_response_size).await.map_err(HttpFault::Client)?;
        if !is_whole {
            return Err(HttpFault::ResponseBodyTooLarge { max_size: limits.max_json_response_size });
        }
        return match parse_foreign(&body) {
            Ok(answered) => Ok(StreamableHttpPostResponse::Json(answer_to(message, answered)?, session)),
            Err(_) if !is_request => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => {
                let text = String::from_utf8_lossy(&body);
                let why = format!("could not parse JSON response: {error}: {}", shorten(&text, MAX_PREVIEW));
                Err(HttpFault::UnexpectedServerResponse(why.into()))
            }
        };
    }
    if is_request {
        return Err(HttpFault::UnexpectedContentType(text(response.headers(), &CONTENT_TYPE)));
    }
    Ok(StreamableHttpPostResponse::Accepted)
}

/// Returns the error for a response that requires a login or more scopes.
fn challenge(response: &Response) -> Option<HttpFault> {
    let status = response.status();
    let value = response.headers().get(WWW_AUTHENTICATE)?;
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    let Ok(header) = value.to_str().map(str::to_owned) else {
        return Some(HttpFault::UnexpectedServerResponse("invalid www-authenticate header value".into()));
    };
    Some(if status == StatusCode::UNAUTHORIZED {
        HttpFault::AuthRequired(AuthRequiredError::new(header))
    } else {
        let scope = WWWAuthenticateParams::parse(&header, response.url()).scope;
        HttpFault::InsufficientScope(InsufficientScopeError::new(header, scope))
    })
}

/// Interprets a response with an error status. Its body may be an error of the protocol.
async fn refusal(
    response: Response,
    message: &PostedMessage,
    is_in_session: bool,
    limits: StreamableHttpResponseLimits,
) -> Result<StreamableHttpPostResponse, HttpFault> {
    let status = response.status();
    let is_json = is_of(response.headers(), JSON);
    let is_temporary = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    let retry = text(response.headers(), &RETRY_AFTER);
    let of_status = move || Err(HttpStatusError::new(status.as_u16(), retry).into());
    if is_temporary && (!is_json || status == StatusCode::TOO_MANY_REQUESTS) {
        return of_status();
    }
    let session = session(response.headers());
    let is_login = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let can_hold_error = is_json && !is_login;
    let most = if can_hold_error { limits.max_json_response_size } else { limits.max_error_response_size };
    let body = read(response, most).await.map_or_else(
        |_| "<failed to read response body>".to_owned(),
        |(body, _)| String::from_utf8_lossy(&body).into_owned(),
    );
    let error = match parse_foreign(body.as_bytes()) {
        Ok(ServerJsonRpcMessage::Error(error)) if can_hold_error => Some(error),
        Ok(_) | Err(_) => None,
    };
    let body = shorten(&body, limits.max_error_response_size);
    // A server with an older protocol refuses `server/discover` without an id, so this restores the id of the request.
    if message.is_discovery && status.is_client_error() && !is_login && !is_in_session {
        let refused = || format!("server/discover rejected with HTTP {status}: {body}");
        let error = error.map_or_else(|| ErrorData::invalid_request(refused(), None), |error| error.error);
        let named = ServerJsonRpcMessage::error(error, message.id.clone());
        return Ok(StreamableHttpPostResponse::Json(named, None));
    }
    match error {
        Some(error) => {
            let answered = answer_to(message, ServerJsonRpcMessage::Error(error))?;
            Ok(StreamableHttpPostResponse::Json(answered, session))
        }
        None if is_temporary => of_status(),
        None => Err(HttpFault::UnexpectedServerResponse(format!("HTTP {status}: {body}").into())),
    }
}

/// Returns the answer to `message`. The library ignores errors without an id and other messages, so that the call would wait for its time
/// limit. An error gets the id of the request: some servers send errors with no id, or with a fixed one.
fn answer_to(message: &PostedMessage, mut answered: ServerJsonRpcMessage) -> Result<ServerJsonRpcMessage, HttpFault> {
    if message.id.is_none() {
        return Ok(answered);
    }
    match &mut answered {
        ServerJsonRpcMessage::Response(response) => {
            if message.is_handshake && !strip(&mut response.result) {
                return Err(HttpFault::UnexpectedServerResponse(LONG_VERSION.into()));
            }
        }
        ServerJsonRpcMessage::Error(error) => error.id.clone_from(&message.id),
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
            return Err(HttpFault::UnexpectedServerResponse("its JSON is not an answer".into()));
        }
    }
    Ok(answered)
}

/// Interprets an event of the response to `message` like a body of JSON. Other messages than answers are passed on.
fn answer_event(message: &PostedMessage, mut event: Sse) -> Result<Sse, SseError> {
    let answered = event.data.as_deref().and_then(|data| parse_foreign::<ServerJsonRpcMessage>(data.as_bytes()).ok());
    if let Some(answered @ (ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))) = answered {
        let broken = |why: String| SseError::Body(Box::new(io::Error::other(why)));
        let answered = answer_to(message, answered).map_err(|fault| broken(fault.to_string()))?;
        if matches!(answered, ServerJsonRpcMessage::Error(_)) {
            event.data = Some(serde_json::to_string(&answered).map_err(|error| broken(error.to_string()))?);
        }
    }
    Ok(event)
}

/// Reads at most `most` bytes of a body. The flag is true if they are the whole body.
async fn read(mut response: Response, most: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = most.saturating_sub(body.len());
        body.extend(chunk.iter().take(room));
        if chunk.len() > room {
            return Ok((body, false));
        }
    }
    Ok((body, true))
}

fn session(headers: &HeaderMap) -> Option<String> {
    text(headers, &HeaderName::from_static("mcp-session-id"))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Returns whether the content type is `kind`, with any parameters.
fn is_of(headers: &HeaderMap, expected: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(expected.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::stream::iter;
    use reqwest::Body;
    use rmcp::model::{ClientResult, EmptyResult, PingRequest};
    use serde_json::{Value, json};
    use subtend_session::values::MAX_VALUES;

    use super::super::{MAX_MESSAGE, MAX_RESPONSE};
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    fn ping() -> PostedMessage {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        PostedMessage::of(&ClientJsonRpcMessage::request(ping, RequestId::Number(1)))
    }

    fn limits() -> StreamableHttpResponseLimits {
        let mut limits = StreamableHttpResponseLimits::default();
        limits.max_sse_event_size = MAX_MESSAGE;
        limits.max_json_response_size = 100;
        limits
    }

    fn respond(status: u16, kind: &str, body: impl Into<Body>) -> Response {
        let response = http::Response::builder().status(status).header(CONTENT_TYPE, kind);
        response.body(body.into()).unwrap().into()
    }

    /// A stream of 100,000 chunks, and the number of those that were read.
    fn endless(chunk: &'static str) -> (Response, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let chunks = (0..100_000).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, io::Error>(chunk)
        });
        (respond(200, "Text/Event-Stream; charset=utf-8", Body::wrap_stream(iter(chunks))), read)
    }

    /// Endless comments must not keep a CPU busy. The control: without the pauses, all chunks are read at once.
    #[tokio::test(start_paused = true)]
    async fn endless_comments_of_an_answer_are_read_at_a_bounded_rate() {
        let attacks: [&str; 4] = [": x\n\n", ": x\r\r", "\n\n\n\n", "\r"];
        for attack in attacks {
            let (response, read) = endless(attack);
            let answered = answer(response, &ping(), (true, limits()), &StreamBudget::default()).await.unwrap();
            let StreamableHttpPostResponse::Sse(events, None) = answered else { panic!("{attack:?}: {answered:?}") };
            assert_eq!(events.take_until(tokio::time::sleep(LIFETIME)).count().await, 0, "{attack:?}");
            let read = read.load(Ordering::Relaxed);
            assert!((9_990..=10_001).contains(&read), "{attack:?}: {read}");
        }
        let (mut response, read) = endless(": x\n\n");
        let all = async { while response.chunk().await.unwrap().is_some() {} };
        tokio::time::timeout(LIFETIME, all).await.unwrap();
        assert_eq!(read.load(Ordering::Relaxed), 100_000);
    }

    /// Each such stream would stay open and hold an unfinished message. The control: the stream of an answer to a request is kept.
    #[tokio::test(start_paused = true)]
    async fn stream_that_answers_no_request_is_closed() {
        let pong = ClientJsonRpcMessage::response(ClientResult::EmptyResult(EmptyResult {}), RequestId::Number(1));
        for (message, is_kept) in [(PostedMessage::of(&pong), false), (ping(), true)] {
            let (response, _) = endless("data: x");
            let answered = answer(response, &message, (true, limits()), &StreamBudget::default()).await.unwrap();
            assert_eq!(matches!(answered, StreamableHttpPostResponse::Sse(..)), is_kept, "{answered:?}");
            assert_eq!(matches!(answered, StreamableHttpPostResponse::Accepted), !is_kept, "{answered:?}");
        }
    }

    /// A tree of values takes hundreds of times the bytes of its text. The control: half of the values.
    #[tokio::test]
    async fn values_of_an_answer_are_counted() {
        let refused = async |status: u16, values: usize| {
            let data = "0,".repeat(values);
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"","data":[{data}0]}}}}"#);
            let mut limits = limits();
            limits.max_json_response_size = MAX_RESPONSE;
            answer(respond(status, JSON, body), &ping(), (true, limits), &StreamBudget::default()).await.is_err()
        };
        for status in [200, 400] {
            assert_eq!([refused(status, MAX_VALUES).await, refused(status, MAX_VALUES / 2).await], [true, false]);
        }
    }

    /// The library repeats the handshake by itself, and each POST would repeat the version. The control: a version of 40 bytes.
    #[tokio::test(start_paused = true)]
    async fn long_version_of_a_repeated_handshake_is_refused() {
        let initialize =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize});
        let initialize: ClientJsonRpcMessage = serde_json::from_value(initialize).unwrap();
        let initialize = PostedMessage::of(&initialize);
        for (bytes, is_accepted) in [(40, true), (41, false)] {
            let server = json!({"name": "a", "version": "1"});
            let result = json!({"protocolVersion": "1".repeat(bytes), "capabilities": {}, "serverInfo": server});
            let body = json!({"jsonrpc": "2.0", "id": 1, "result": result});
            for (kind, body) in [(JSON, body.to_string()), (EVENTS, format!("data: {body}\n\n"))] {
                let mut limits = limits();
                limits.max_json_response_size = MAX_RESPONSE;
                let answered =
                    answer(respond(200, kind, body), &initialize, (false, limits), &StreamBudget::default()).await;
                let initialized = match answered {
                    Ok(answered) => answered.expect_initialized::<reqwest::Error>().await,
                    Err(fault) => Err(fault),
                };
                let refused = initialized.is_err_and(|fault| fault.to_string().contains(LONG_VERSION));
                assert_eq!(!refused, is_accepted, "{kind}, {bytes}");
            }
        }
    }

    /// The library's own client interprets these responses in the same way.
    #[tokio::test(start_paused = true)]
    async fn responses_are_interpreted_as_by_the_library() {
        let refused = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32_600, "message": "no"}});
        let pong = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        let long = json!({"jsonrpc": "2.0", "id": 1, "result": {"x": "x".repeat(99)}});
        let nameless = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_700, "message": "no"}});
        let progress = json!({"progressToken": 1, "progress": 1});
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress});
        let foreign = json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32_600, "message": "no"}});
        let cases: [(u16, &str, &Value, bool, &str); 15] = [
            // These differ: with the library's own client, the call waits for its time limit.
            (400, JSON, &foreign, true, "Json(Error(JsonRpcError { jsonrpc: JsonRpcVersion2_0, id: Some(Number(1))"),
            (200, JSON, &nameless, true, "Json(Error(JsonRpcError { jsonrpc: JsonRpcVersion2_0, id: Some(Number(1))"),
            (400, JSON, &nameless, true, "Json(Error(JsonRpcError { jsonrpc: JsonRpcVersion2_0, id: Some(Number(1))"),
            (200, JSON, &progress, true, "UnexpectedServerResponse(\"its JSON is not an answer\")"),
            (400, JSON, &progress, true, "UnexpectedServerResponse(\"HTTP 400 Bad Request: {"),
            (202, JSON, &pong, true, "Accepted"),
            (200, JSON, &pong, true, "Json(Response"),
            (200, JSON, &long, true, "ResponseBodyTooLarge { max_size: 100 }"),
            (200, JSON, &json!({}), true, "UnexpectedServerResponse(\"could not parse JSON response"),
            (200, "text/html", &pong, true, "UnexpectedContentType(Some(\"text/html\"))"),
            (404, JSON, &refused, true, "SessionExpired"),
            (404, JSON, &refused, false, "Json(Error"),
            (400, JSON, &pong, true, "UnexpectedServerResponse(\"HTTP 400 Bad Request: {"),
            (500, JSON, &refused, true, "Json(Error"),
            (503, "text/html", &refused, true, "HttpStatus(HttpStatusError { status: 503, retry_after: None })"),
        ];
        for (status, kind, body, is_in_session, expected) in cases {
            let answered = {
                let response = respond(status, kind, body.to_string());
                answer(response, &ping(), (is_in_session, limits()), &StreamBudget::default()).await
            };
            let found = match answered {
                Ok(answered) => format!("{answered:?}"),
                Err(fault) => format!("{fault:?}"),
            };
            assert!(found.starts_with(expected), "{status} {kind} {body}: {found}");
        }
    }
}
