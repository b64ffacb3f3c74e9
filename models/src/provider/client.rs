//! The HTTP client of one model: address, key, connections.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;

use super::ProviderError;
use super::address::Address;
use super::key::Key;
use super::protocol::Protocol;
use super::target::Target;
use super::threads;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which an idle connection is kept: shorter than the time limits of servers.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

pub(super) struct Client {
    http: reqwest::Client,
    /// The threads that read connections.
    threads: Handle,
    pub(super) protocol: Protocol,
    pub(super) model: Arc<str>,
    pub(super) key: Option<Key>,
    key_name: Option<&'static str>,
    address: Address,
    /// True if the address is the provider's own.
    is_official: bool,
}

impl Client {
    pub(super) fn new(
        target: Target,
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let Target { protocol, model, address, key } = target;
        let key_name = if key.is_some() { None } else { protocol.key_variable() };
        let key = match (key, key_name) {
            (Some(key), _) => Some(check_key(key, "the target")?),
            (None, Some(name)) => match variable(name).filter(|value| !value.trim().is_empty()) {
                Some(value) => Some(check_key(Key::new(value), name)?),
                None if address.is_some() => None,
                None => return Err(ProviderError::NoKey { protocol, variable: name }),
            },
            (None, None) => None,
        };
        let is_official = address.is_none();
        let address = match address {
            Some(address) => Ok(address),
            None => match variable("OLLAMA_HOST").filter(|host| !host.trim().is_empty()) {
                Some(host) if protocol == Protocol::Ollama => Address::of_ollama_host(&host),
                Some(_) | None => Address::home(protocol),
            },
        };
        let address = address.map_err(ProviderError::BadHost)?;
        let http = http(&address)?;
        let threads = threads::of(&address.origin()).map_err(ProviderError::Client)?;
        Ok(Self { http, threads, protocol, model, key, key_name, address, is_official })
    }

    pub(super) fn call(&self) -> RequestBuilder {
        let path = match self.protocol {
            Protocol::Anthropic => "messages".to_owned(),
            Protocol::OpenAi => "chat/completions".to_owned(),
            Protocol::OpenAiResponses => "responses".to_owned(),
            Protocol::Gemini => format!("models/{}:streamGenerateContent?alt=sse", self.model),
            Protocol::Ollama => "api/chat".to_owned(),
        };
        self.request(Method::POST, &path)
    }

    pub(super) fn list_request(&self) -> RequestBuilder {
        let path = if self.protocol == Protocol::Ollama { "api/tags" } else { "models" };
        self.request(Method::GET, path)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.address.base(self.protocol)));
        if self.protocol == Protocol::Anthropic {
            request = request.header("anthropic-version", "2023-06-01");
        }
        let Some(key) = &self.key else { return request };
        let (name, value) = match self.protocol {
            Protocol::Anthropic => (HeaderName::from_static("x-api-key"), key.reveal().to_owned()),
            Protocol::Gemini => (HeaderName::from_static("x-goog-api-key"), key.reveal().to_owned()),
            Protocol::OpenAi | Protocol::OpenAiResponses | Protocol::Ollama => {
                (AUTHORIZATION, format!("Bearer {}", key.reveal()))
            }
        };
        match HeaderValue::from_str(&value) {
            Ok(mut value) => {
                value.set_sensitive(true);
                request.header(name, value)
            }
            // The key was checked before. An invalid key would make the request fail when it is sent.
            Err(_) => request.header(name, value),
        }
    }

    /// Sends a request on separate threads, so that it cannot block limits and cancels.
    pub(super) fn send(&self, request: RequestBuilder) -> impl Future<Output = reqwest::Result<Response>> + use<> {
        TokioContext::new(request.send(), self.threads.clone())
    }

    /// Returns scheme, host and port, for errors.
    pub(super) fn origin(&self) -> String {
        self.address.origin()
    }

    /// Returns the name of the provider, or the address of the server that replaces it, for errors.
    pub(super) fn provider_name(&self) -> String {
        if self.is_official && self.protocol != Protocol::Ollama { self.protocol.to_string() } else { self.origin() }
    }

    pub(super) fn is_official(&self) -> bool {
        self.is_official
    }

    pub(super) fn is_https(&self) -> bool {
        self.address.is_https()
    }

    pub(super) fn key_name(&self) -> Option<&'static str> {
        self.key_name
    }
}

fn check_key(key: Key, source_name: &'static str) -> Result<Key, ProviderError> {
    if key.is_sendable() { Ok(key) } else { Err(ProviderError::BadKey { source_name }) }
}

/// Creates the HTTP client. It does not follow redirects, because the target would receive the key.
fn http(address: &Address) -> Result<reqwest::Client, ProviderError> {
    let failed = |error: &dyn std::fmt::Display| ProviderError::Client(error.to_string());
    let builder = reqwest::Client::builder();
    // A proxy would receive the key, often without encryption, and reach another machine.
    let builder = if address.is_local() { builder.no_proxy() } else { builder };
    builder
        .tls_backend_preconfigured(tls(address).map_err(|error| failed(&error))?)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tcp_nodelay(true)
        // Compression would delay the answer into large pieces.
        .no_gzip()
        .redirect(Policy::none())
        .user_agent(concat!("subtend/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| failed(&error))
}

/// Returns a TLS configuration with `ring` for this client only, because the process may use another crypto provider. Reads the system's root
/// certificates only if they are needed, so that local servers work without certificates.
fn tls(address: &Address) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let mut config = if address.is_https() {
        builder.with_platform_verifier()?.with_no_client_auth()
    } else {
        builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
    };
    // Offer only HTTP/1.1: the client is built without HTTP/2, so calls of a server that chose HTTP/2 would fail.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
