//! Servers that are called instead of the providers' own, and the models that are called there.

use std::sync::Arc;

use subtend_models::closure::fn_model;
use subtend_models::model::{Model, ModelError};
use subtend_models::spec::{BadModel, ModelSpec};
use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;

use super::super::super::fail::Fail;
use super::no_script;
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
    /// Those of the session that the command is about: they count where none is given for the provider.
    own: Vec<NamedServer>,
    /// Whether a model that calls no server is a contradiction to one that is given for all.
    is_asked_for: bool,
}

fn split(word: &str) -> NamedServer {
    // An equals sign may also be in a URL's query.
    let of = word.split_once('=').filter(|(provider, _)| !provider.contains([':', '/']));
    of.map_or((None, word.to_owned()), |(provider, url)| (Some(provider.to_owned()), url.to_owned()))
}

fn find<'a>(servers: &'a [NamedServer], provider: &str) -> Option<&'a str> {
    let own = servers.iter().find(|(of, _)| of.as_deref() == Some(provider));
    own.or_else(|| servers.iter().find(|(of, _)| of.is_none())).map(|(_, url)| url.as_str())
}

impl Servers {
    /// Reads those that are given, and takes the session's `own` besides.
    pub(super) fn read<'a>(names: impl Iterator<Item = &'a str>, own: &[Text]) -> Result<Self, Fail> {
        let mut servers: Vec<NamedServer> = Vec::new();
        for word in names {
            let (provider, url) = split(word);
            if servers.iter().any(|(before, _)| *before == provider) {
                let what = provider.as_deref().unwrap_or("all providers");
                return Err(Fail::Usage(format!(
                    "two base URLs are given for {what}: give one (--base-url or SUBTEND_BASE_URL)"
                )));
            }
            if let Some(provider) = &provider {
                check(provider, &url)?;
            }
            servers.push((provider, url));
        }
        Ok(Self { given: servers, own: own.iter().map(|word| split(word)).collect(), is_asked_for: true })
    }

    pub(super) fn by_default(self) -> Self {
        Self { is_asked_for: false, ..self }
    }

    pub(super) fn base_urls(&self) -> Vec<Text> {
        let word = |(provider, url): &NamedServer| match provider {
            Some(provider) => format!("{provider}={url}").into(),
            None => url.as_str().into(),
        };
        self.given.iter().map(word).collect()
    }

    /// Refuses the provider's own server for an imported session that used others: the user decides which server gets
    /// the conversation and the key.
    pub(super) fn not_imported(&self, own: &[Text]) -> Result<(), Fail> {
        let Some(first) = own.first().filter(|_| self.given.is_empty()) else { return Ok(()) };
        Err(Fail::Usage(format!(
            "the session was imported, and its models were called at {first}: say where to call them with --base-url, such as \
             `--base-url {first}` if you trust that server"
        )))
    }

    /// Returns the server for a model of `name`: its provider's, or the one that was given for all.
    pub(super) fn of(&self, name: &str) -> Option<&str> {
        let provider = name.split_once('/').map_or(name, |(provider, _)| provider);
        find(&self.given, provider).or_else(|| find(&self.own, provider))
    }

    pub(super) fn place(&self, spec: ModelSpec, calls_nobody: bool) -> Result<ModelSpec, String> {
        // A server of one provider does not exclude a local model.
        let meant_for_all = self.given.iter().any(|(provider, _)| provider.is_none());
        if calls_nobody && !(meant_for_all && self.is_asked_for) {
            return Ok(spec);
        }
        let Some(url) = self.of(&spec.to_string()).map(str::to_owned) else { return Ok(spec) };
        spec.with_base_url(&url).map_err(|error| format!("{error} (--base-url or SUBTEND_BASE_URL)"))
    }

    /// Returns the model that an agent or tool option names. A model that cannot be built answers with the reason, as
    /// does an unknown name. Without `providers`, the default model answers for provider models.
    pub(super) fn model(&self, name: &str, enabled: Enabled, providers: bool) -> Option<Arc<dyn Model>> {
        let failing = |kind: ModelFail, why: String| {
            let answer = move |_, _| std::future::ready(Err(ModelError::new(kind, why.clone())));
            Some(Arc::new(fn_model(name, answer)) as Arc<dyn Model>)
        };
        let spec = ModelSpec::parse(name);
        if let Err(why) = no_script(name) {
            return failing(ModelFail::InvalidRequest, why);
        }
        if let Ok(spec @ ModelSpec::Offline) = &spec {
            return spec.build().map_or_else(|error| failing(ModelFail::InvalidRequest, error.to_string()), Some);
        }
        if !providers {
            return None;
        }
        if let Some(why) = enabled.refused(name) {
            return failing(ModelFail::Auth, why);
        }
        let made = match spec {
            Ok(spec) => self.place(spec, false).and_then(|spec| spec.build().map_err(|error| error.to_string())),
            Err(error) => return failing(ModelFail::InvalidRequest, error.to_string()),
        };
        made.map_or_else(|why| failing(ModelFail::Auth, why), Some)
    }
}
