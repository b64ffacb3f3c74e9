//! Language models of providers, over HTTP. `render` writes the request of a protocol; `frames` and `gather` read the stream of the answer. A
//! server may be hostile or broken, so all its data is limited in size.

mod address;
mod body;
mod claude;
mod client;
mod fault;
mod frames;
mod gather;
mod key;
mod mask;
mod near;
mod protocol;
mod reasoning;
#[cfg(feature = "fuzzing")]
pub mod recorded;
mod render;
mod retry_after;
mod scrub;
mod stream;
mod target;
mod threads;

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use subtend_session::ids::Text;

use self::client::Client;
pub use self::key::Key;
pub use self::protocol::Protocol;
pub use self::target::{BadTarget, Target};
use crate::model::{Answer, Deltas, Model, ModelError, Request};
use crate::windows;

/// A model of a provider. A call is tried once: the caller is responsible for retries, time limits and concurrency.
pub struct Provider {
    name: Text,
    quotas: [Text; 2],
    client: Arc<Client>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider's own server needs a key.
    #[error("no key for {protocol}. Set {variable}, or give the base URL of a server that needs no key")]
    NoKey { protocol: Protocol, variable: &'static str },
    /// The key is not a valid header.
    #[error("the key in {source_name} is invalid: it is empty, or has a character that HTTP headers do not allow")]
    BadKey { source_name: &'static str },
    #[error("OLLAMA_HOST is invalid: {0}")]
    BadHost(&'static str),
    #[error("the HTTP client cannot be created: {0}")]
    Client(String),
}

impl Provider {
    /// Creates the model of `target`, without network access.
    ///
    /// Without a key in `target`, the key comes from the variable of the provider: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY` or `GEMINI_API_KEY`. With
    /// a base URL, no key is required. For Ollama, `OLLAMA_HOST` is the address of the server.
    /// # Errors
    /// If a required key is missing, or the client cannot be created.
    pub fn new(target: Target) -> Result<Self, ProviderError> {
        Self::with_variables(target, |name| std::env::var(name).ok())
    }

    fn with_variables(
        target: Target,
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let name: Text = target.to_string().into();
        let elsewhere = target.address.as_ref().map(|address| address.server(target.protocol));
        let provider = match elsewhere {
            Some(server) => format!("{}@{server}", target.protocol),
            None => target.protocol.as_str().to_owned(),
        };
        let quotas = [format!("{provider}/{}", target.model).into(), provider.into()];
        let client = Arc::new(Client::new(target, variable)?);
        Ok(Self { name, quotas, client })
    }
}

impl Model for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    fn quotas(&self) -> &[Text] {
        &self.quotas
    }

    fn context_window(&self) -> Option<u64> {
        // The name of this quota is the model with its provider.
        self.quotas.first().and_then(|name| windows::well_known_window(name))
    }

    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        stream::answer(Arc::clone(&self.client), request, deltas).boxed()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("name", &self.name).field("quotas", &self.quotas).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
