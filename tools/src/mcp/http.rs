//! The HTTP client of servers that are reached by address.

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

const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of one message of a stream, whose values are counted.
const MESSAGE: usize = 4 << 20;
/// Bytes of one response. The library reads it into trees, without a count of its values: they take sixty times as much.
const RESPONSE: usize = 1 << 20;
/// Messages that wait to be taken, in each of two queues.
const WAITING: usize = 1;
/// Time before a stream is opened again, whatever its server says, and where that was often within [`LATELY`].
const AGAIN: Duration = Duration::from_secs(1);
const OFTEN: usize = 60;
const LONGEST: Duration = Duration::from_secs(15);
const LATELY: Duration = Duration::from_mins(10);

pub(super) fn transport(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<(StreamableHttpClientTransport<CountedClient>, ServerThread), String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let bad = || format!("the header `{}` cannot be sent", crate::escape::exact(name));
        let name: HeaderName = name.parse().map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom);
    config.max_json_response_size = RESPONSE;
    config.max_sse_event_size = MESSAGE;
    config.channel_buffer_capacity = WAITING;
    let http = client(url).map_err(|error| error.to_string())?;
    let client = CountedClient { http, opened: Arc::default() };
    let thread = ServerThread::start()?;
    // The transport starts its tasks here, and they open the connections.
    let entered = thread.handle().map(Handle::enter);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    drop(entered);
    Ok((transport, thread))
}

/// Redirects are not followed: the headers would go along.
fn client(url: &str) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls(url.starts_with("https://"))?)
        .connect_timeout(CONNECT)
        // The size of a message is bounded as it is sent.
        .no_gzip()
        .redirect(Policy::none())
        .user_agent(concat!("subtend/", env!("CARGO_PKG_VERSION")))
        .build()?)
}

/// A client that counts the values of each message of a stream before they are read, and opens streams at a bounded rate.
#[derive(Clone)]
pub(super) struct CountedClient {
    http: reqwest::Client,
    /// When streams were opened lately.
    opened: Arc<Mutex<VecDeque<Instant>>>,
}

type SseEvents = BoxStream<'static, Result<Sse, SseError>>;
type HttpFault = StreamableHttpError<reqwest::Error>;

impl CountedClient {
    /// Returns how long to wait before a stream is opened.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        while opened.front().is_some_and(|first| now.duration_since(*first) > LATELY) {
            opened.pop_front();
        }
        let lately = opened.len();
        opened.push_back(now);
        match lately {
            0 => Duration::ZERO,
            1..OFTEN => AGAIN,
            _ => LONGEST,
        }
    }
}

/// Ends a stream at a message of too many values.
fn counted(events: SseEvents) -> SseEvents {
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
        limits.max_sse_event_size = MESSAGE;
        limits.max_json_response_size = RESPONSE;
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
            return Ok(StreamableHttpPostResponse::Sse(counted(events), session));
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
        self.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, MESSAGE).await
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
        // The server chooses the id, which goes into a header.
        let last = last.filter(|last| last.len() <= super::client::ID);
        let stream = self.http.get_stream_with_max_sse_event_size(uri, session, last, auth, headers, most);
        stream.await.map(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `retry: 0` had a stream that ends at once opened a thousand times in a second. The control: after a while it is opened at once.
    #[tokio::test(start_paused = true)]
    async fn streams_are_opened_at_a_bounded_rate() {
        let counted = CountedClient { http: client("http://localhost").unwrap(), opened: Arc::default() };
        let pauses: Vec<u64> = (0..=OFTEN).map(|_| counted.pause().as_secs()).collect();
        assert_eq!((&pauses[..3], pauses[OFTEN - 1], pauses[OFTEN]), (&[0, 1, 1][..], 1, 15));
        tokio::time::sleep(LATELY + AGAIN).await;
        assert_eq!(counted.pause(), Duration::ZERO);
    }

    /// A queue of such messages took gigabytes. The control: half of the values are a message.
    #[tokio::test]
    async fn values_of_a_stream_are_counted() {
        let read = async |values: usize| {
            let event = Sse::default().data(format!("[{}0]", "0,".repeat(values)));
            counted(futures_util::stream::iter([Ok(event)]).boxed())
                .next()
                .await
                .unwrap()
                .map_err(|error| error.to_string())
        };
        assert!(read(MAX_VALUES).await.unwrap_err().contains("more than 100000 JSON values"));
        assert!(read(MAX_VALUES / 2).await.is_ok());
    }
}
