//! Parses the choice of a provider's model.

use std::fmt;

use subtend_session::ids::Text;
use subtend_session::unseen::is_unseen;

use super::address::Address;
use super::key::Key;
use super::protocol::Protocol;

/// A model of a provider or of a compatible server.
/// ```
/// use subtend_models::provider::Target;
/// let target = Target::parse("openai/qwen3:8b").and_then(|target| target.with_base_url("http://127.0.0.1:8080"));
/// assert_eq!(target.map(|target| target.to_string()), Ok("openai/qwen3:8b".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(super) protocol: Protocol,
    pub(super) model: Text,
    pub(super) address: Option<Address>,
    pub(super) key: Option<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    #[error("unknown provider `{0}`; the providers are anthropic, openai, openai-responses, gemini and ollama")]
    NoProvider(String),
    #[error("`{0}/` needs a model: write `{0}/MODEL`")]
    NoModel(&'static str),
    #[error("`{0}` is not a valid model name: it has whitespace or an unprintable character")]
    BadModelName(String),
    #[error("`{address}` is not a valid base URL: {why}")]
    BadBaseUrl { address: String, why: &'static str },
}

impl Target {
    /// Parses `anthropic/MODEL`, `openai/MODEL` (chat completions), `openai-responses/MODEL`, `gemini/MODEL` or `ollama/MODEL`. Everything after the
    /// first slash is the name of the model at the provider.
    /// # Errors
    /// If the provider or the model is missing or invalid.
    pub fn parse(spec: &str) -> Result<Self, BadTarget> {
        let spec = spec.trim();
        let (provider, model) = spec.split_once('/').unwrap_or((spec, ""));
        let shown = |text: &str| text.chars().filter(|c| !is_unseen(*c)).take(80).collect::<String>();
        let protocol = Protocol::ALL
            .into_iter()
            .find(|protocol| protocol.as_str() == provider)
            .ok_or_else(|| BadTarget::NoProvider(shown(provider)))?;
        if model.is_empty() {
            return Err(BadTarget::NoModel(protocol.as_str()));
        }
        // For Gemini, the name is part of the path, so it must not contain a character that ends a path.
        if model.len() > 256 || model.chars().any(|c| c.is_whitespace() || is_unseen(c) || matches!(c, '?' | '#')) {
            return Err(BadTarget::BadModelName(shown(model)));
        }
        Ok(Self { protocol, model: model.into(), address: None, key: None })
    }

    /// Replaces the provider's server with the server at `base_url`, which may end with `/v1`. Fails for an address without `http` or `https`.
    pub fn with_base_url(self, base_url: &str) -> Result<Self, BadTarget> {
        let address =
            Address::parse(base_url).map_err(|why| BadTarget::BadBaseUrl { address: public_address(base_url), why })?;
        Ok(Self { address: Some(address), ..self })
    }

    /// Sets a key. The environment variable of the provider is then ignored.
    #[must_use]
    pub fn with_key(self, key: Key) -> Self {
        Self { key: Some(key), ..self }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub fn model(&self) -> &str {
        &self.model
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.model)
    }
}

/// Returns an address without credentials and query.
fn public_address(address: &str) -> String {
    let bare = address.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = bare.split_once("://").map_or(("", bare), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let whole = if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") };
    whole.chars().filter(|c| !c.is_control()).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> Result<(Protocol, String), String> {
        Target::parse(spec).map(|target| (target.protocol, target.model.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn text_after_the_first_slash_is_the_model() {
        for (spec, protocol, model) in [
            ("anthropic/claude-sonnet-5", Protocol::Anthropic, "claude-sonnet-5"),
            ("openai/gpt-5.1", Protocol::OpenAi, "gpt-5.1"),
            ("openai-responses/o4-mini-high", Protocol::OpenAiResponses, "o4-mini-high"),
            ("gemini/gemini-3-pro", Protocol::Gemini, "gemini-3-pro"),
            (" ollama/hf.co/unsloth/x-GGUF:Q4_K ", Protocol::Ollama, "hf.co/unsloth/x-GGUF:Q4_K"),
        ] {
            assert_eq!(read(spec), Ok((protocol, model.into())), "{spec}");
        }
    }

    #[test]
    fn incomplete_target_is_refused_with_the_missing_part() {
        let says = |spec| read(spec).map_or_else(|says| says, |_| "accepted".into());
        assert_eq!(says("anthropic"), "`anthropic/` needs a model: write `anthropic/MODEL`");
        assert_eq!(says("openai/"), "`openai/` needs a model: write `openai/MODEL`");
        assert!(says("gemini/a b").starts_with("`a b` is not a valid model name"));
        assert!(says("ollama/a\u{202e}b").starts_with("`ab` is not a valid model name"));
        assert!(says("gemini/a?alt=x").starts_with("`a?alt=x` is not a valid model name"));
        assert_eq!(
            says("mistral/x"),
            "unknown provider `mistral`; the providers are anthropic, openai, openai-responses, gemini and ollama"
        );
    }

    #[test]
    fn refused_base_url_is_shown_without_secrets() {
        let says = Target::parse("openai/x")
            .and_then(|target| target.with_base_url("http://me:hunter2@host/v1?key=sk-1"))
            .map_or_else(|error| error.to_string(), |_| "accepted".into());
        assert!(says.starts_with("`http://host/v1` is not a valid base URL: "), "{says}");
    }
}
