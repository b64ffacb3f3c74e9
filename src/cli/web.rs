use std::sync::Arc;

#[cfg(feature = "web")]
use subtend::config::SearchConfig;
use subtend::config::{EngineName, Web};
use subtend_tools::http::{BadHost, InternalHost};
use subtend_tools::secrets::Secrets;
use subtend_tools::tool::Tool;
#[cfg(feature = "web")]
use subtend_tools::web::{self, Engine, WebSettings};

use super::fail::Fail;

/// Returns the web tools. They do not send addresses or queries that contain one of `secrets`.
#[cfg(feature = "web")]
pub(crate) fn tools(config: &Web, secrets: &Secrets) -> Result<Vec<Arc<dyn Tool>>, Fail> {
    let settings = WebSettings { internal_hosts: internal_hosts(config)?, engine: engine(&config.search) };
    web::tools(&settings, secrets).map_err(|error| Fail::Usage(format!("`web_search` cannot be offered: {error}")))
}

pub(crate) fn internal_hosts(config: &Web) -> Result<Vec<InternalHost>, Fail> {
    let hosts = config.internal_hosts.iter().map(|host| host.parse());
    hosts.collect::<Result<_, BadHost>>().map_err(|error| Fail::Usage(error.to_string()))
}

#[cfg(not(feature = "web"))]
pub(crate) fn tools(_: &Web, _: &Secrets) -> Result<Vec<Arc<dyn Tool>>, Fail> {
    Ok(Vec::new())
}

#[cfg(feature = "web")]
fn engine(search: &SearchConfig) -> Option<Engine> {
    match search.engine? {
        EngineName::Searxng => Some(Engine::Searxng { url: search.url.as_ref()?.to_string() }),
        EngineName::Brave => Some(Engine::Brave { key: key(search.key_variable())? }),
    }
}

fn key(variable: &str) -> Option<String> {
    std::env::var(variable).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty())
}

/// Returns the key of the search engine with the name of its variable.
pub(crate) fn secret(config: &Web) -> Option<(String, String)> {
    let variable = config.search.key_variable();
    Some((variable.to_owned(), key(variable)?))
}

/// Describes the web tools: reachable hosts, search engine, and the reason if a tool is missing.
pub(crate) fn describe(config: &Web) -> Vec<String> {
    if !cfg!(feature = "web") {
        return vec!["`fetch` and `web_search` are not offered: this build lacks the feature `web`".to_owned()];
    }
    let mut about = Vec::new();
    let search = &config.search;
    match search.engine {
        None => about.push("`web_search` is not offered: no search engine is configured (`web.search`)".to_owned()),
        Some(EngineName::Brave) if key(search.key_variable()).is_none() => {
            let variable = search.key_variable();
            about
                .push(format!("`web_search` is not offered: the variable {variable} with the key of Brave is not set"));
        }
        Some(EngineName::Brave) => about.push("`web_search` asks Brave".to_owned()),
        Some(EngineName::Searxng) => {
            about.push(format!("`web_search` asks {}", search.url.as_deref().unwrap_or_default()));
        }
    }
    if !config.internal_hosts.is_empty() {
        about.push(format!("`fetch` may also reach {}", config.internal_hosts.join(", ")));
    }
    about
}
