//! Language models of providers, over HTTP.
//!
//! A request is written for its protocol (`render`), and an answer is read from the frames of its stream (`frames`, `gather`). A
//! server may be hostile or broken: all that it sends is bounded.

mod address;
mod body;
mod claude;
mod client;
mod fault;
mod frames;
mod gather;
mod key;
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

/// A model of a provider.
///
/// Its calls are tried once: retries, time limits and limits of concurrency are the caller's.
pub struct Provider {
    name: Text,
    quotas: [Text; 2],
    client: Arc<Client>,
}

/// Why a provider's model cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider's own server takes no call without a key.
    #[error("there is no key for {protocol}: set {variable}, or give the base URL of a server that needs none")]
    NoKey {
        /// The provider.
        protocol: Protocol,
        /// The environment variable that is not set.
        variable: &'static str,
    },
    /// The key cannot be sent.
    #[error("the key in {source_name} cannot be one: it is empty, or has a blank or a sign that no header takes")]
    BadKey {
        /// The environment variable, or what else gave it.
        source_name: &'static str,
    },
    /// `OLLAMA_HOST` is no address.
    #[error("OLLAMA_HOST cannot be used: {0}")]
    BadHost(&'static str),
    /// The system's part of it failed.
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
}

impl Provider {
    /// Makes the model that `target` names. Nothing is sent before the first call.
    ///
    /// Without a key in `target` the provider's variable is read: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY` or `GEMINI_API_KEY`.
    /// A server with a base URL of its own may need none. For Ollama `OLLAMA_HOST` tells where the server is.
    ///
    /// # Errors
    /// When a key is needed and missing, or the client cannot be made.
    pub fn new(target: Target) -> Result<Self, ProviderError> {
        Self::with_variables(target, |name| std::env::var(name).ok())
    }

    fn with_variables(
        target: Target,
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let name: Text = target.to_string().into();
        let elsewhere = target.address.as_ref().map(address::Address::host);
        let provider = match elsewhere {
            Some(host) => format!("{}@{host}", target.protocol),
            None => target.protocol.word().to_owned(),
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
        // The quota names the model with its provider.
        self.quotas.first().and_then(|name| windows::known(name))
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
