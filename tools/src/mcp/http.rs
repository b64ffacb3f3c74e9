//! The HTTP client for servers with an address.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthClient, AuthorizationManager};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use subtend_session::values::{MAX_VALUES, has_too_many};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::http::tls;
use crate::threads::ServerThread;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of one message of a stream. The values of such messages are counted.
const MAX_MESSAGE: usize = 4 << 20;
/// Maximum bytes of one response. Its values are not counted, and parsed values take sixty times as much memory.
const MAX_RESPONSE: usize = 1 << 20;
/// Capacity of each of the two message queues.
const QUEUE_CAPACITY: usize = 1;
/// Minimum time before a stream is reopened, regardless of the server's `retry`.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// Number of reopened streams within [`REOPEN_WINDOW`] after which [`MAX_REOPEN_DELAY`] applies.
const FAST_REOPENS: usize = 60;
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(15);
const REOPEN_WINDOW: Duration = Duration::from_mins(10);

/// Returns a transport that authorizes itself with the tokens of `manager`.
pub(super) fn transport(
    url: &str,
    headers: &BTreeMap<String, String>,
    manager: AuthorizationManager,
) -> Result<(StreamableHttpClientTransport<AuthClient<CountedClient>>, ServerThread), String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let invalid = || format!("the header `{}` is invalid", crate::escape::exact(name));
        let name: HeaderName = name.parse().map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom);
    config.max_json_response_size = MAX_RESPONSE;
    config.max_sse_event_size = MAX_MESSAGE;
    config.channel_buffer_capacity = QUEUE_CAPACITY;
    let http = client(url).map_err(|error| error.to_string())?;
    // It adds the token of a login, and renews it.
    let client = AuthClient::new(CountedClient { http, opened: Arc::default() }, manager);
    let thread = ServerThread::start()?;
    // The transport spawns its tasks on the entered runtime.
    let entered = thread.handle().map(Handle::enter);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    drop(entered);
    Ok((transport, thread))
}

/// Returns a client that does not follow redirects, which would receive the headers.
fn client(url: &str) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls(url.starts_with("https://"))?)
        .connect_timeout(CONNECT_TIMEOUT)
        // Without compression, the size limits hold for the decoded message.
        .no_gzip()
        .redirect(Policy::none())
        .user_agent(concat!("subtend/", env!("CARGO_PKG_VERSION")))
        .build()?)
}

/// A client that counts the values of each stream message before it is parsed, and opens streams at a bounded rate.
#[derive(Clone)]
pub(super) struct CountedClient {
    http: reqwest::Client,
    /// Times at which streams were opened within [`REOPEN_WINDOW`].
    opened: Arc<Mutex<VecDeque<Instant>>>,
}

type SseEvents = BoxStream<'static, Result<Sse, SseError>>;
type HttpFault = StreamableHttpError<reqwest::Error>;

impl CountedClient {
    /// Records the opening of a stream, and returns the time to wait before it.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Ends a stream at a message with too many values.
fn limit_values(events: SseEvents) -> SseEvents {
    let check = |event: Result<Sse, SseError>| {
        let event = event?;
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
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpFault> {
        let mut limits = StreamableHttpResponseLimits::default();
        limits.max_sse_event_size = MAX_MESSAGE;
        limits.max_json_response_size = MAX_RESPONSE;
        self.post_message_with_response_limits(uri, message, session, auth, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpFault> {
        let posted = self.http.post_message_with_response_limits(uri, message, session, auth, headers, limits);
        let answered = posted.await?;
        if let StreamableHttpPostResponse::Sse(events, session) = answered {
            return Ok(StreamableHttpPostResponse::Sse(limit_values(events), session));
        }
        Ok(answered)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpFault> {
        self.http.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<SseEvents, HttpFault> {
        self.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, MAX_MESSAGE).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<SseEvents, HttpFault> {
        tokio::time::sleep(self.pause()).await;
        // The id goes into a header, and the server chooses it.
        let last = last.filter(|last| last.len() <= super::client::MAX_ID);
        let stream = self.http.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, most);
        stream.await.map(limit_values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `retry: 0`, a stream that ends at once was reopened a thousand times a second. The control: after a pause it opens at once.
    #[tokio::test(start_paused = true)]
    async fn streams_are_opened_at_a_bounded_rate() {
        let counted = CountedClient { http: client("http://localhost").unwrap(), opened: Arc::default() };
        let pauses: Vec<u64> = (0..=FAST_REOPENS).map(|_| counted.pause().as_secs()).collect();
        assert_eq!((&pauses[..3], pauses[FAST_REOPENS - 1], pauses[FAST_REOPENS]), (&[0, 1, 1][..], 1, 15));
        tokio::time::sleep(REOPEN_WINDOW + REOPEN_DELAY).await;
        assert_eq!(counted.pause(), Duration::ZERO);
    }

    /// A queue of such messages took gigabytes. The control: a message with half of the values is accepted.
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
