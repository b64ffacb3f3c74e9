//! The web: `fetch` reads a page, and `web_search` asks a search engine that a person configured.
//!
//! Only public addresses are reached, and the hosts that a person lists. A name is resolved once: the addresses are checked, and the
//! connection goes to one of them. Redirects are followed here, and each is checked as the first address is. See
//! `docs/decisions/0036-web.md`.

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

pub use address::{BadHost, InternalHost};
pub use client::{Resolver, SystemResolver};
pub use search::{BadEngine, Engine};

use client::{Reached, WebClient};

/// A person's settings for the web.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSettings {
    /// Hosts that may be reached whatever their addresses are.
    pub internal_hosts: Vec<InternalHost>,
    /// The engine of `web_search`; without one there is no such tool.
    pub engine: Option<Engine>,
}

/// Returns the tools of the web. An address or a query that holds one of `secrets` is not sent.
///
/// # Errors
/// If the engine cannot be used.
pub fn tools(settings: &WebSettings, secrets: &Secrets) -> Result<Vec<Arc<dyn Tool>>, BadEngine> {
    tools_with(settings, secrets, Arc::new(SystemResolver))
}

/// Returns [`tools`] that resolve names by `resolver`.
///
/// # Errors
/// As [`tools`].
pub fn tools_with(
    settings: &WebSettings,
    secrets: &Secrets,
    resolver: Arc<dyn Resolver>,
) -> Result<Vec<Arc<dyn Tool>>, BadEngine> {
    let client = WebClient::new(Reached::Public(settings.internal_hosts.clone()), Arc::clone(&resolver));
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(fetch::Fetch::new(client, secrets.clone()))];
    if let Some(engine) = &settings.engine {
        tools.push(Arc::new(search::WebSearch::new(WebClient::new(Reached::All, resolver), engine, secrets.clone())?));
    }
    Ok(tools)
}

/// Checks the address of a SearXNG.
///
/// # Errors
/// If it cannot be used.
pub fn check_engine(url: &str) -> Result<(), BadEngine> {
    search::endpoint(url).map(drop)
}
