//! The HTTP client for servers with an address.

mod answer;
pub(super) mod authorized;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{BoxStream, try_unfold};
use futures_util::{Stream, StreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthorizationManager;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::{Sse, SseStream};
use subtend_session::values::{MAX_VALUES, has_too_many};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::bytes::Bytes;

use self::authorized::LoginToken;
use crate::http::hosts::is_local;
use crate::http::tls;
use crate::threads::ServerThread;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of one message of a stream. The JSON values of each message are limited too.
const MAX_MESSAGE: usize = 4 << 20;
/// Maximum bytes of one response.
const MAX_RESPONSE: usize = 1 << 20;
/// Maximum number of open streams of a connection.
const MAX_STREAMS: usize = 256;
/// Maximum bytes that the open streams of a connection hold: for each, those of its largest message. The parser keeps that memory.
const MAX_HELD: usize = 16 << 20;
/// Maximum number of requests that are posted at a time.
pub(super) const MAX_POSTS: usize = 16;
/// Capacity of each of the two message queues.
const QUEUE_CAPACITY: usize = 1;
/// Maximum rate at which a stream is read.
const BYTES_PER_MICROSECOND: u64 = 8;
/// Minimum pause after a chunk of a stream.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// Minimum time before a stream is reopened, regardless of the server's `retry`.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// Number of reopened streams within [`REOPEN_WINDOW`] after which [`MAX_REOPEN_DELAY`] applies.
const FAST_REOPENS: usize = 60;
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(15);
const REOPEN_WINDOW: Duration = Duration::from_mins(10);
/// Headers of the protocol, which a configuration cannot set.
const RESERVED: [&str; 3] = ["accept", "mcp-session-id", "last-event-id"];

/// Returns a transport that authorizes itself with the tokens of `manager`.
pub(super) fn transport(
    url: &str,
    headers: &BTreeMap<String, String>,
    manager: AuthorizationManager,
) -> Result<(StreamableHttpClientTransport<CountedClient>, ServerThread), String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let invalid = || format!("the header `{}` is invalid", crate::escape::exact(name));
        let name: HeaderName = name.parse().map_err(|_| invalid())?;
        if RESERVED.contains(&name.as_str()) {
            return Err(format!("the header `{name}` is set by the protocol"));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom);
    config.max_json_response_size = MAX_RESPONSE;
    config.max_sse_event_size = MAX_MESSAGE;
    config.channel_buffer_capacity = QUEUE_CAPACITY;
    config.max_concurrent_requests = MAX_POSTS;
    let http = client(url).map_err(|error| error.to_string())?;
    let login = LoginToken::new(manager);
    let client = CountedClient { http, login, opened: OpenedStreams::default(), budget: StreamBudget::default() };
    let thread = ServerThread::start()?;
    // The transport spawns its tasks on the current runtime.
    let entered = thread.handle().map(Handle::enter);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    drop(entered);
    Ok((transport, thread))
}

/// Returns a client that does not follow redirects: the target of a redirect would receive the headers.
fn client(url: &str) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let builder = reqwest::Client::builder();
    let builder = if is_local(&Url::parse(url)?) { builder.no_proxy() } else { builder };
    Ok(builder
        .tls_backend_preconfigured(tls(url.starts_with("https://"))?)
        .connect_timeout(CONNECT_TIMEOUT)
        // Without compression, the size limits hold for the decoded message.
        .no_gzip()
        .redirect(Policy::none())
        .user_agent(concat!("subtend/", env!("CARGO_PKG_VERSION")))
        .build()?)
}

/// A client that counts the values of each stream message before parsing, and limits the rate of new streams.
#[derive(Clone)]
pub(super) struct CountedClient {
    http: reqwest::Client,
    login: LoginToken,
    opened: OpenedStreams,
    budget: StreamBudget,
}

/// The streams and bytes that a connection may still hold. Otherwise a server could open streams without end, each with a long unfinished message.
#[derive(Clone)]
struct StreamBudget {
    streams: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl Default for StreamBudget {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { streams: semaphore(MAX_STREAMS), bytes: semaphore(MAX_HELD) }
    }
}

impl StreamBudget {
    /// Adds a stream. The drop of the returned value gives back what the stream holds.
    fn open(&self) -> Option<OpenMessage> {
        let stream = Arc::clone(&self.streams).try_acquire_owned().ok()?;
        let held = Arc::clone(&self.bytes).try_acquire_many_owned(0).ok()?;
        Some(OpenMessage { bytes: 0, is_at_line_start: false, is_after_cr: false, held, _stream: stream })
    }
}

type SseEvents = BoxStream<'static, Result<Sse, SseError>>;
type HttpFault = StreamableHttpError<reqwest::Error>;

/// Times at which streams were opened within [`REOPEN_WINDOW`].
#[derive(Clone, Default)]
struct OpenedStreams(Arc<Mutex<VecDeque<Instant>>>);

impl OpenedStreams {
    /// Records the opening of a stream, and returns the time to wait before it.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while opened.front().is_some_and(|first| now.duration_since(*first) > REOPEN_WINDOW) {
            opened.pop_front();
        }
        let lately = opened.len();
        opened.push_back(now);
        match lately {
            0 => Duration::ZERO,
            1..FAST_REOPENS => REOPEN_DELAY,
            _ => MAX_REOPEN_DELAY,
        }
    }
}

impl CountedClient {
    async fn open_stream(
        &self,
        uri: Arc<str>,
        (session, last): (Option<Arc<str>>, Option<String>),
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<SseEvents, HttpFault> {
        let named = (session.as_deref(), last.as_deref());
        let request = with_headers(self.http.get(&*uri), named, token.as_deref(), headers.clone());
        let response = request.send().await.map_err(HttpFault::Client)?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(HttpFault::ServerDoesNotSupportSse);
        }
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if !response.status().is_success() || !kind.to_ascii_lowercase().starts_with(b"text/event-stream") {
            drop(response);
            // The library reports the reason, and requests a login if necessary.
            let stream = self.http.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most);
            return stream.await.and_then(|_| Err(HttpFault::UnexpectedContentType(None)));
        }
        events(response, &self.budget, most)
    }
}

/// The unfinished message of a stream. A blank line ends the message; CR LF, LF or CR ends a line.
struct OpenMessage {
    bytes: usize,
    is_at_line_start: bool,
    is_after_cr: bool,
    /// Bytes of the largest message so far.
    held: OwnedSemaphorePermit,
    _stream: OwnedSemaphorePermit,
}

impl OpenMessage {
    fn add(&mut self, chunk: &[u8], most: usize) -> io::Result<()> {
        let mut largest = self.held.num_permits();
        for byte in chunk {
            if std::mem::replace(&mut self.is_after_cr, *byte == b'\r') && *byte == b'\n' {
                continue;
            }
            let ends_line = matches!(*byte, b'\n' | b'\r');
            self.bytes = if ends_line && self.is_at_line_start { 0 } else { self.bytes.saturating_add(1) };
            if self.bytes > most {
                return Err(io::Error::other(format!("it sent a message of more than {most} bytes")));
            }
            largest = largest.max(self.bytes);
            self.is_at_line_start = ends_line;
        }
        let more = u32::try_from(largest.saturating_sub(self.held.num_permits())).unwrap_or(u32::MAX);
        let more = Arc::clone(self.held.semaphore())
            .try_acquire_many_owned(more)
            .map_err(|_| io::Error::other(format!("its open streams hold messages of more than {MAX_HELD} bytes")))?;
        self.held.merge(more);
        Ok(())
    }
}

/// Reads a stream at a bounded rate, because its comments may be endless. Fails at a message of more than `most` bytes.
fn paced<D: AsRef<[u8]>>(
    chunks: impl Stream<Item = io::Result<D>>,
    mut open: OpenMessage,
    most: usize,
) -> impl Stream<Item = io::Result<D>> {
    chunks.then(move |chunk| {
        let checked = chunk.and_then(|chunk| open.add(chunk.as_ref(), most).map(|()| chunk));
        async move {
            let bytes = checked.as_ref().map_or(0, |chunk| chunk.as_ref().len() as u64);
            tokio::time::sleep(MIN_PAUSE.max(Duration::from_micros(bytes / BYTES_PER_MICROSECOND))).await;
            checked
        }
    })
}

fn events(response: Response, budget: &StreamBudget, most: usize) -> Result<SseEvents, HttpFault> {
    let too_many =
        || HttpFault::UnexpectedServerResponse(format!("it has more than {MAX_STREAMS} open streams").into());
    let open = budget.open().ok_or_else(too_many)?;
    let chunks = try_unfold(response, |mut response| async move {
        let chunk = response.chunk().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(chunk.map(|chunk| (chunk, response)))
    });
    Ok(limit_values(SseStream::from_bytes_stream(paced(chunks, open, most)).boxed()))
}

fn with_headers(
    request: RequestBuilder,
    (session, last): (Option<&str>, Option<&str>),
    auth: Option<&str>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    let custom: HeaderMap = headers.into_iter().collect();
    let mut request = request.header(ACCEPT, "text/event-stream, application/json").headers(custom);
    for (name, value) in [("Mcp-Session-Id", session), ("Last-Event-Id", last)] {
        request = value.into_iter().fold(request, |request, value| request.header(name, value));
    }
    auth.into_iter().fold(request, |request, token| request.bearer_auth(token))
}

fn limit_values(events: SseEvents) -> SseEvents {
    let check = |event: Result<Sse, SseError>| {
        let mut event = event?;
        // The library keeps the latest id to reopen the stream, and a header contains it.
        event.id = event.id.filter(|id| id.len() <= super::client::MAX_ID);
        if event.data.as_ref().is_some_and(|data| has_too_many(data.as_bytes())) {
            let why = format!("it sent a message of more than {MAX_VALUES} JSON values");
            return Err(SseError::Body(Box::new(io::Error::other(why))));
        }
        Ok(event)
    };
    events.map(check).boxed()
}

impl StreamableHttpClient for CountedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpFault> {
        let mut limits = StreamableHttpResponseLimits::default();
        limits.max_sse_event_size = MAX_MESSAGE;
        limits.max_json_response_size = MAX_RESPONSE;
        self.post_message_with_response_limits(uri, message, session, None, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpFault> {
        let (posted, body) = (answer::PostedMessage::of(&message), serde_json::to_vec(&message)?);
        // The arguments of a call take many times as much as their text, and the server may answer late.
        drop(message);
        let body = Bytes::from(body);
        let post = |token: Option<String>| {
            let request = self.http.post(&*uri).header(CONTENT_TYPE, "application/json").body(body.clone());
            let request = with_headers(request, (session.as_deref(), None), token.as_deref(), headers.clone());
            async {
                let response = request.send().await.map_err(HttpFault::Client)?;
                answer::answer(response, &posted, (session.is_some(), limits), &self.budget).await
            }
        };
        self.login.authorize(post).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpFault> {
        let delete = |token| self.http.delete_session(Arc::clone(&uri), Arc::clone(&session), token, headers.clone());
        self.login.authorize(delete).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<SseEvents, HttpFault> {
        self.get_stream_with_max_sse_event_size(uri, session, last, None, headers, MAX_MESSAGE).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<SseEvents, HttpFault> {
        tokio::time::sleep(self.opened.pause()).await;
        let open =
            |token| self.open_stream(Arc::clone(&uri), (session.clone(), last.clone()), token, headers.clone(), most);
        self.login.authorize(open).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::iter;

    use super::*;

    /// Without it, a stream that ends at once is reopened a thousand times a second. The control: one after a pause.
    #[tokio::test(start_paused = true)]
    async fn streams_are_opened_at_a_bounded_rate() {
        let opened = OpenedStreams::default();
        let pauses: Vec<u64> = (0..=FAST_REOPENS).map(|_| opened.pause().as_secs()).collect();
        assert_eq!((&pauses[..3], pauses[FAST_REOPENS - 1], pauses[FAST_REOPENS]), (&[0, 1, 1][..], 1, 15));
        tokio::time::sleep(REOPEN_WINDOW + REOPEN_DELAY).await;
        assert_eq!(opened.pause(), Duration::ZERO);
    }

    /// Endless comments must not keep a CPU busy. The control: without the pauses, all chunks are read at once.
    #[tokio::test(start_paused = true)]
    async fn endless_comments_are_read_at_a_bounded_rate() {
        let read = async |bytes: usize| {
            let chunks = iter((0..100_000).map(|_| Ok(": x\n\n".repeat(bytes / 5))));
            let read = paced(chunks, StreamBudget::default().open().unwrap(), MAX_MESSAGE)
                .take_until(tokio::time::sleep(Duration::from_secs(10)));
            read.filter(|chunk| std::future::ready(chunk.is_ok())).count().await
        };
        let (small, large) = (read(5).await, read(80_000).await);
        assert!((9_990..=10_000).contains(&small) && (990..=1_000).contains(&large), "{small}, {large}");
        assert_eq!(iter(0..100_000).take_until(tokio::time::sleep(Duration::from_secs(10))).count().await, 100_000);
    }

    /// The bytes of one message are counted across chunks. The control: messages that end.
    #[tokio::test(start_paused = true)]
    async fn endless_message_of_a_stream_is_refused() {
        let read = async |part: &'static str| {
            let chunks = iter((0..3).map(|_| Ok(part)));
            paced(chunks, StreamBudget::default().open().unwrap(), 10)
                .map(|chunk| chunk.is_ok())
                .collect::<Vec<_>>()
                .await
        };
        assert_eq!(read("data: \n").await, [true, false, false]);
        for ended in ["data\n\n", "data\r\n\r\n", "data\r\r", "data\n\r", "\ndata\r\n\r"] {
            assert_eq!(read(ended).await, [true; 3], "{ended:?}");
        }
        // CR LF is one line end, also across chunks.
        assert_eq!(read("\ndata\r").await, [true, false, false]);
    }

    /// Each open stream holds an unfinished message, and the parser keeps the memory of a finished one. The control: streams that were dropped.
    #[tokio::test]
    async fn open_streams_of_a_connection_are_bounded() {
        let budget = StreamBudget::default();
        let line = format!("{}\n", "x".repeat(MAX_MESSAGE - 1));
        for end in ["", "\n"] {
            let read =
                |open: &mut OpenMessage| open.add(line.as_bytes(), MAX_MESSAGE).map_err(|error| error.to_string());
            let mut open: Vec<OpenMessage> = (0..MAX_STREAMS).map(|_| budget.open().unwrap()).collect();
            assert!(budget.open().is_none());
            let (last, others) = open.split_last_mut().unwrap();
            for open in others.iter_mut().take(MAX_HELD / MAX_MESSAGE) {
                assert_eq!((read(open), open.add(end.as_bytes(), MAX_MESSAGE).is_ok()), (Ok(()), true));
            }
            assert!(read(last).unwrap_err().contains("more than 16777216 bytes"));
            drop(open);
            assert_eq!(read(&mut budget.open().unwrap()), Ok(()));
        }
    }

    /// The library would keep the id of a stream that it reopens. The control: a shorter id.
    #[tokio::test]
    async fn long_id_of_an_event_is_dropped() {
        let id = async |bytes: usize| {
            let event = Sse::default().id("x".repeat(bytes));
            let read = limit_values(iter([Ok(event)]).boxed()).next().await.unwrap().unwrap();
            read.id.map(|id| id.len())
        };
        let most = crate::mcp::client::MAX_ID;
        assert_eq!((id(most).await, id(most + 1).await), (Some(most), None));
    }

    /// Without the limit, a queue of such messages takes gigabytes. The control: a message with half of the values is accepted.
    #[tokio::test]
    async fn values_of_a_stream_are_counted() {
        let read = async |values: usize| {
            let event = Sse::default().data(format!("[{}0]", "0,".repeat(values)));
            limit_values(futures_util::stream::iter([Ok(event)]).boxed())
                .next()
                .await
                .unwrap()
                .map_err(|error| error.to_string())
        };
        assert!(read(MAX_VALUES).await.unwrap_err().contains("more than 100000 JSON values"));
        assert!(read(MAX_VALUES / 2).await.is_ok());
    }
}
