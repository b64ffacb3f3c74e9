//! Single HTTP requests. The IP address of each connection is checked.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Request, Response, Url};
use rustls::ClientConfig;

use super::hosts::{InternalHost, is_local, is_public, literal};
use super::tls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit between two parts of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

pub trait Resolver: Send + Sync + 'static {
    /// Returns the addresses of a host. It is called once for each connection.
    fn addresses(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

#[derive(Clone, Copy, Debug)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn addresses(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        async move { Ok(tokio::net::lookup_host((&*host, 0)).await?.map(|found| found.ip()).collect()) }.boxed()
    }
}

/// Error for an internal address of an unlisted host.
#[derive(Debug, thiserror::Error)]
#[error("its address is internal")]
struct InternalAddress;

/// A resolver that fails for internal addresses of unlisted hosts.
struct CheckedResolver {
    resolver: Arc<dyn Resolver>,
    is_listed: bool,
}

impl CheckedResolver {
    async fn addresses(
        resolver: &dyn Resolver,
        host: &str,
        is_listed: bool,
    ) -> Result<Vec<IpAddr>, Box<dyn Error + Send + Sync>> {
        let found = resolver.addresses(host).await?;
        // The client may connect to any of the addresses, so none of them may be internal.
        if !is_listed && !found.iter().all(|ip| is_public(*ip)) {
            return Err(Box::new(InternalAddress));
        }
        Ok(found)
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, is_listed) = (Arc::clone(&self.resolver), self.is_listed);
        Box::pin(async move {
            let found = Self::addresses(&*resolver, name.as_str(), is_listed).await?;
            Ok(Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

/// The hosts that a client may reach.
pub(crate) enum AllowedHosts {
    /// Public hosts, and the listed ones.
    Public(Vec<InternalHost>),
    /// All hosts, for an address configured by the user.
    #[cfg_attr(not(feature = "web"), expect(dead_code, reason = "only web tools use it"))]
    All,
}

pub(crate) enum RequestFailed {
    /// The address is internal, and its host is not listed.
    Internal,
    Client(String),
    Sending(reqwest::Error),
}

/// Makes requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CheckedClient(Arc<ClientParts>);

struct ClientParts {
    allowed_hosts: AllowedHosts,
    resolver: Arc<dyn Resolver>,
    proxies: Matcher,
    /// The configuration is created once, because creating it reads the system's root certificates.
    tls: OnceLock<Result<ClientConfig, String>>,
}

impl CheckedClient {
    pub(crate) fn new(allowed_hosts: AllowedHosts, resolver: Arc<dyn Resolver>) -> Self {
        Self(Arc::new(ClientParts { allowed_hosts, resolver, proxies: Matcher::from_system(), tls: OnceLock::new() }))
    }

    /// Checks the address of a request, and sends it. Does not follow redirects.
    ///
    /// Must run on a thread of its own ([`run_separately`](crate::threads::run_separately)).
    pub(crate) async fn send(&self, request: Request) -> Result<Response, RequestFailed> {
        let url = request.url();
        let is_listed = match &self.0.allowed_hosts {
            AllowedHosts::Public(hosts) => hosts.iter().any(|host| host.matches(url)),
            AllowedHosts::All => true,
        };
        if !is_listed && literal(url).is_some_and(|ip| !is_public(ip)) {
            return Err(RequestFailed::Internal);
        }
        let is_proxied =
            !is_local(url) && url.as_str().parse().is_ok_and(|uri| self.0.proxies.intercept(&uri).is_some());
        if is_proxied && !is_listed && literal(url).is_none() {
            // The proxy resolves the name again. If the system cannot resolve the name, the proxy decides.
            let host = url.host_str().unwrap_or_default();
            let found = CheckedResolver::addresses(&*self.0.resolver, host, false).await;
            if found.is_err_and(|error| error.is::<InternalAddress>()) {
                return Err(RequestFailed::Internal);
            }
        }
        let client = self.client(url, is_listed, is_proxied).map_err(RequestFailed::Client)?;
        client.execute(request).await.map_err(RequestFailed::of)
    }

    /// Creates a client for one request, so that connections are not reused.
    fn client(&self, url: &Url, is_listed: bool, is_proxied: bool) -> Result<reqwest::Client, String> {
        let tls = match url.scheme() {
            "https" => self.0.tls.get_or_init(|| tls(true).map_err(|error| error.to_string())).clone()?,
            _ => tls(false).map_err(|error| error.to_string())?,
        };
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(Policy::none())
            .referer(false)
            .user_agent(concat!("subtend/", env!("CARGO_PKG_VERSION")));
        let builder = match is_proxied {
            // The user configured the proxy, so its address is not checked.
            true => builder,
            false => {
                builder.no_proxy().dns_resolver(CheckedResolver { resolver: Arc::clone(&self.0.resolver), is_listed })
            }
        };
        builder.build().map_err(|error| error.to_string())
    }
}

impl RequestFailed {
    fn of(error: reqwest::Error) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(at) = cause {
            if at.is::<InternalAddress>() {
                return Self::Internal;
            }
            cause = at.source();
        }
        Self::Sending(error)
    }
}
