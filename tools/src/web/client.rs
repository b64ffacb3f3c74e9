//! The HTTP client of the web tools, which sends single requests to checked addresses.

use std::sync::Arc;

use reqwest::header::{HeaderMap, HeaderValue, LOCATION};
use reqwest::{Method, Request, StatusCode, Url};

use super::address::harmless_url;
use super::page::{self, Page, no_answer_error};
use crate::http::checked::{AllowedHosts, CheckedClient, RequestFailed, Resolver};
use crate::threads;
use crate::tool::ToolError;

pub(super) struct WebAnswer {
    pub(super) status: StatusCode,
    pub(super) location: Option<String>,
    /// The page, for a success status.
    pub(super) page: Option<Page>,
}

/// Makes requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct WebClient(CheckedClient);

impl WebClient {
    pub(super) fn new(allowed_hosts: AllowedHosts, resolver: Arc<dyn Resolver>) -> Self {
        Self(CheckedClient::new(allowed_hosts, resolver))
    }

    /// Checks an address, requests it, and reads the page of a successful answer. Does not follow redirects.
    pub(super) async fn get(&self, url: &Url, headers: HeaderMap) -> Result<WebAnswer, ToolError> {
        let (client, url) = (self.clone(), url.clone());
        let answered = threads::run_separately(async move { client.answer(&url, headers).await }).await;
        answered.map_err(client_error)?
    }

    async fn answer(&self, url: &Url, headers: HeaderMap) -> Result<WebAnswer, ToolError> {
        let mut request = Request::new(Method::GET, url.clone());
        *request.headers_mut() = headers;
        let response = self.0.send(request).await.map_err(|error| match error {
            RequestFailed::Internal => internal(url),
            RequestFailed::Client(why) => client_error(why),
            RequestFailed::Sending(error) => no_answer_error(url, &error),
        })?;
        let status = response.status();
        let location = response.headers().get(LOCATION);
        let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned());
        let page = if status.is_success() { Some(page::read(url, response).await?) } else { None };
        Ok(WebAnswer { status, location, page })
    }
}

fn client_error(why: String) -> ToolError {
    ToolError::failed(format!("cannot create an HTTP client: {why}"))
}

/// Returns the headers of a request that accepts these content types.
pub(super) fn accept_header(types: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(reqwest::header::ACCEPT, HeaderValue::from_static(types))])
}

/// Returns the error for an internal address. The error omits the IP address, so that a model cannot explore the internal network.
fn internal(url: &Url) -> ToolError {
    let host = harmless_url(url.host_str().unwrap_or_default());
    ToolError::refused(format!(
        "`{host}` is refused: its address is not public. The user can list the host under `web.internal_hosts` in their own \
         configuration"
    ))
}
