//! The HTTP client of servers that are reached by address.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::Handle;

use crate::http::tls;
use crate::threads::ServerThread;

const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of one message. The library reads it into trees, without a count of its values: they take sixty times as much.
const MESSAGE: usize = 4 << 20;

pub(super) fn transport(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<(StreamableHttpClientTransport<reqwest::Client>, ServerThread), String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let bad = || format!("the header `{}` cannot be sent", crate::escape::exact(name));
        let name: HeaderName = name.parse().map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom);
    config.max_json_response_size = MESSAGE;
    config.max_sse_event_size = MESSAGE;
    let client = client(url).map_err(|error| error.to_string())?;
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
