//! Web tools: `fetch` reads a page, and `web_search` queries the search engine that the user configured.
//!
//! The tools reach only public addresses and hosts that the user listed. A name is resolved once: its addresses are checked, and the
//! connection uses one of them. Each redirect is checked like the first address. See `docs/decisions/0036-web.md`.

mod address;
mod client;
mod fetch;
mod html;
mod page;
mod search;
mod table;
mod untrusted;

use std::sync::Arc;

use crate::secrets::Secrets;
use crate::tool::Tool;

pub use crate::http::{BadHost, InternalHost, Resolver, SystemResolver};
pub use search::{BadEngine, Engine};

use crate::http::checked::AllowedHosts;
use client::WebClient;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSettings {
    /// Hosts that the tools may reach even if their addresses are internal.
    pub internal_hosts: Vec<InternalHost>,
    /// The engine of `web_search`. Without an engine, this tool does not exist.
    pub engine: Option<Engine>,
}

/// Returns the web tools. They do not send an address or a query that contains one of `secrets`.
///
/// # Errors
/// If the engine cannot be used.
pub fn tools(settings: &WebSettings, secrets: &Secrets) -> Result<Vec<Arc<dyn Tool>>, BadEngine> {
    tools_with(settings, secrets, Arc::new(SystemResolver))
}

/// Returns [`tools`] that resolve names with `resolver`.
///
/// # Errors
/// The errors of [`tools`].
pub fn tools_with(
    settings: &WebSettings,
    secrets: &Secrets,
    resolver: Arc<dyn Resolver>,
) -> Result<Vec<Arc<dyn Tool>>, BadEngine> {
    let client = WebClient::new(AllowedHosts::Public(settings.internal_hosts.clone()), Arc::clone(&resolver));
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(fetch::Fetch::new(client, secrets.clone()))];
    if let Some(engine) = &settings.engine {
        tools.push(Arc::new(search::WebSearch::new(
            WebClient::new(AllowedHosts::All, resolver),
            engine,
            secrets.clone(),
        )?));
    }
    Ok(tools)
}

/// Checks the address of a SearXNG instance.
///
/// # Errors
/// If the address cannot be used.
pub fn check_engine(url: &str) -> Result<(), BadEngine> {
    search::endpoint(url).map(drop)
}
