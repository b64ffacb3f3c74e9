//! Servers that models call instead of the providers' own.

use std::sync::Arc;

use subtend_models::closure::UnusableModel;
use subtend_models::model::{Model, ModelError};
use subtend_models::spec::{BadModel, ModelSpec};
use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;

use super::super::super::fail::Fail;
use super::check_no_script;
use super::source::Enabled;

/// Checks provider and server: a mistyped name would send calls and the key to the provider's own server.
fn check(provider: &str, url: &str) -> Result<(), Fail> {
    let placed = ModelSpec::parse(&format!("{provider}/model")).and_then(|spec| spec.with_base_url(url));
    placed.map(drop).map_err(|error| {
        let unknown = format!(
            "unknown provider `{provider}`: write PROVIDER=URL with `anthropic`, `openai`, `openai-responses`, \
             `gemini` or `ollama`"
        );
        let error = if matches!(error, BadModel::Unknown { .. }) { unknown } else { error.to_string() };
        Fail::Usage(format!("{error} (--base-url or SUBTEND_BASE_URL)"))
    })
}

type NamedServer = (Option<String>, String);

pub(super) struct Servers {
    given: Vec<NamedServer>,
    /// Servers that the command's session has recorded, for providers without a given server.
    own: Vec<NamedServer>,
    /// True if a local model together with a server for all providers is an error.
    is_explicit: bool,
}

fn split(word: &str) -> NamedServer {
    // An equals sign may also be part of a URL's query.
    let for_model = word.split_once('=').filter(|(provider, _)| !provider.contains([':', '/']));
    for_model.map_or((None, word.to_owned()), |(provider, url)| (Some(provider.to_owned()), url.to_owned()))
}

fn find<'a>(servers: &'a [NamedServer], provider: &str) -> Option<&'a str> {
    let own = servers.iter().find(|(for_model, _)| for_model.as_deref() == Some(provider));
    own.or_else(|| servers.iter().find(|(for_model, _)| for_model.is_none())).map(|(_, url)| url.as_str())
}

impl Servers {
    /// Parses the given servers, and adds the session's `own`.
    pub(super) fn read<'a>(names: impl Iterator<Item = &'a str>, own: &[Text]) -> Result<Self, Fail> {
        let mut servers: Vec<NamedServer> = Vec::new();
        for word in names {
            let (provider, url) = split(word);
            if servers.iter().any(|(before, _)| *before == provider) {
                let what = provider.as_deref().unwrap_or("all providers");
                return Err(Fail::Usage(format!(
                    "two base URLs are given for {what}: use one (--base-url or SUBTEND_BASE_URL)"
                )));
            }
            if let Some(provider) = &provider {
                check(provider, &url)?;
            }
            servers.push((provider, url));
        }
        Ok(Self { given: servers, own: own.iter().map(|word| split(word)).collect(), is_explicit: true })
    }

    pub(super) fn by_default(self) -> Self {
        Self { is_explicit: false, ..self }
    }

    pub(super) fn base_urls(&self) -> Vec<Text> {
        let word = |(provider, url): &NamedServer| match provider {
            Some(provider) => format!("{provider}={url}").into(),
            None => url.as_str().into(),
        };
        self.given.iter().map(word).collect()
    }

    /// Refuses an imported session with other servers than the providers' own, unless the user named a server. The user
    /// must decide which server receives the conversation and the key.
    pub(super) fn check_imported(&self, own: &[Text]) -> Result<(), Fail> {
        let Some(first) = own.first().filter(|_| self.given.is_empty()) else { return Ok(()) };
        Err(Fail::Usage(format!(
            "the session was imported, and its models were called at {first}: name a server with --base-url, such as \
             `--base-url {first}` if you trust it"
        )))
    }

    /// Returns the server for the model `name`: the one given for its provider, or the one for all.
    pub(super) fn for_model(&self, name: &str) -> Option<&str> {
        let provider = name.split_once('/').map_or(name, |(provider, _)| provider);
        find(&self.given, provider).or_else(|| find(&self.own, provider))
    }

    pub(super) fn apply(&self, spec: ModelSpec, is_local: bool) -> Result<ModelSpec, String> {
        // A server for a single provider may be combined with a local model.
        let meant_for_all = self.given.iter().any(|(provider, _)| provider.is_none());
        if is_local && !(meant_for_all && self.is_explicit) {
            return Ok(spec);
        }
        let Some(url) = self.for_model(&spec.to_string()).map(str::to_owned) else { return Ok(spec) };
        spec.with_base_url(&url).map_err(|error| format!("{error} (--base-url or SUBTEND_BASE_URL)"))
    }

    /// Returns the model that an agent or a tool option names; for an unusable name, one that fails with the reason.
    /// Without `providers`, returns `None` for provider models, so that the default model answers.
    pub(super) fn model(&self, name: &str, enabled: Enabled, providers: bool) -> Option<Arc<dyn Model>> {
        let failing = |kind: ModelFail, why: String| {
            Some(Arc::new(UnusableModel::new(name, ModelError::new(kind, why))) as Arc<dyn Model>)
        };
        let spec = ModelSpec::parse(name);
        if let Err(why) = check_no_script(name) {
            return failing(ModelFail::InvalidRequest, why);
        }
        if let Ok(spec @ ModelSpec::Offline) = &spec {
            return spec.build().map_or_else(|error| failing(ModelFail::InvalidRequest, error.to_string()), Some);
        }
        if !providers {
            return None;
        }
        if let Some(why) = enabled.disabled_error(name) {
            return failing(ModelFail::Auth, why);
        }
        let made = match spec {
            Ok(spec) => self.apply(spec, false).and_then(|spec| spec.build().map_err(|error| error.to_string())),
            Err(error) => return failing(ModelFail::InvalidRequest, error.to_string()),
        };
        made.map_or_else(|why| failing(ModelFail::Auth, why), Some)
    }
}
