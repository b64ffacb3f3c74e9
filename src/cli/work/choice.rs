//! Which models answer: read from the command line, made, and given to the runtime.

use std::sync::Arc;

use subtend::config::{DefaultModel, Loaded};
use subtend_actors::builder::Builder;
use subtend_models::closure::fn_model;
use subtend_models::model::{Model, ModelError};
use subtend_models::spec::{BadModel, ModelSpec};
use subtend_models::throttle::Rates;
use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;

use super::super::fail::Fail;

/// Models by name.
type Named = Vec<(String, Arc<dyn Model>)>;
/// Pools, with the names of their models.
type Pools = Vec<(String, Vec<String>)>;

const MODEL: &str = "SUBTEND_MODEL";
const BASE_URL: &str = "SUBTEND_BASE_URL";

/// Options that choose models.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Models")]
pub(crate) struct ModelArgs {
    /// Model: `offline` (rules, no network; also if none is named), `scripted:FILE` (answers from a file), or a provider's:
    /// `anthropic/MODEL`, `openai/MODEL`, `openai-responses/MODEL`, `gemini/MODEL`, `ollama/MODEL`. Several, with commas
    /// between: where one fails, the next is asked
    #[arg(long, value_name = "MODEL[,MODEL…]", env = MODEL)]
    model: Option<String>,

    /// Server that speaks the provider's protocol, instead of the provider's own, such as `http://127.0.0.1:8080`; with
    /// PROVIDER= before it for that provider only, and then it may be given again
    #[arg(long, value_name = "[PROVIDER=]URL", env = BASE_URL)]
    base_url: Vec<String>,

    /// Calls to one model, and to all models of one provider, at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    calls: u32,

    /// Calls to one model, and to all models of one provider, that begin in a minute
    #[arg(long, value_name = "N")]
    calls_per_minute: Option<u32>,
}

/// The models of a run.
pub(crate) struct Choice {
    /// Those that answer where an agent names none; several are a pool of their own.
    models: Named,
    /// The pool that answers there instead.
    default_pool: Option<String>,
    /// Pools of the configuration, and those of their models that call no server.
    pools: Pools,
    members: Named,
    servers: Servers,
    rates: Rates,
    /// Whether agents that name a provider's model get it: not where `offline` or a script was asked for.
    providers: bool,
}

impl ModelArgs {
    /// Whether a model was named.
    pub(super) fn is_given(&self) -> bool {
        self.words().is_some()
    }

    /// What `--model` or its variable says. A variable that is empty says nothing.
    pub(super) fn words(&self) -> Option<&str> {
        self.model.as_deref().filter(|words| !(words.is_empty() && is_empty(MODEL)))
    }

    /// Reads and makes what was chosen, here or in the configuration.
    pub(crate) fn choose(&self, said: &Loaded) -> Result<Choice, Fail> {
        let urls: Vec<&str> = self.base_url.iter().map(String::as_str).collect();
        let servers = Servers::read(urls.iter().copied().filter(|url| !(url.is_empty() && is_empty(BASE_URL))))?;
        let rates = self.rates()?;
        let configured = said.default_model();
        let (words, default_pool) = match (self.words(), &configured) {
            (Some(words), _) => (words, None),
            (None, DefaultModel::Model(words)) => (&**words, None),
            (None, DefaultModel::Pool(pool)) => ("", Some(pool.to_string())),
            (None, DefaultModel::Unsaid) => ("offline", None),
        };
        let (models, mut providers) = match &default_pool {
            Some(pool) => {
                (Named::new(), said.config.llm.pools.get(&**pool).is_some_and(|members| call_servers(members)))
            }
            None => models(words, &servers)?,
        };
        // Who names a model that calls nobody is not to have another one called by a pool.
        if self.words().is_none() && configured == DefaultModel::Unsaid {
            providers |= said.config.llm.pools.values().any(|members| call_servers(members));
        }
        let (pools, members) = pools(said, &servers, providers)?;
        Ok(Choice { models, default_pool, pools, members, servers, rates, providers })
    }

    fn rates(&self) -> Result<Rates, Fail> {
        for (option, calls) in [("--calls", Some(self.calls)), ("--calls-per-minute", self.calls_per_minute)] {
            if calls == Some(0) {
                return Err(Fail::Usage(format!(
                    "`{option} 0` would let no call start: give 1 or more, or leave it out"
                )));
            }
        }
        Ok(Rates { concurrent: Some(self.calls), requests_per_minute: self.calls_per_minute, ..Rates::default() })
    }
}

/// What the variable says that stands for `--model`, for verbs that call no model.
pub(crate) fn variable() -> Option<String> {
    std::env::var(MODEL).ok().filter(|words| !words.is_empty())
}

/// Whether one of these models is a provider's.
fn call_servers(members: &[Text]) -> bool {
    let calls_nobody = |spec| matches!(spec, Ok(ModelSpec::Offline | ModelSpec::Scripted(_)));
    !members.iter().all(|member| calls_nobody(ModelSpec::parse(member)))
}

/// The models that `words` name, and whether one of them is a provider's.
fn models(words: &str, servers: &Servers) -> Result<(Named, bool), Fail> {
    let words: Vec<&str> = match words {
        // A script's file may have a comma in its name.
        word if word.trim_start().starts_with("scripted:") => vec![word],
        words => words.split(',').map(str::trim).collect(),
    };
    let said = |error: BadModel| Fail::Usage(format!("{error} (--model or SUBTEND_MODEL)"));
    let mut models = Vec::with_capacity(words.len());
    let mut providers = false;
    let several = words.len() > 1;
    for word in words {
        if several && word.is_empty() {
            return Err(Fail::Usage(
                "a model is missing before or after a comma (--model or SUBTEND_MODEL)".to_owned(),
            ));
        }
        let spec = ModelSpec::parse(word).map_err(said)?;
        let calls_nobody = matches!(spec, ModelSpec::Offline | ModelSpec::Scripted(_));
        providers |= !calls_nobody;
        let spec = servers.place(spec, calls_nobody)?;
        let model = spec.build().map_err(|error| Fail::Usage(error.to_string()))?;
        models.push((model.name().to_owned(), model));
    }
    Ok((models, providers))
}

/// The pools of the configuration, and those of their models that call no server; the others are made when they are first asked.
/// Without `providers`, a pool with a provider's model is left out: agents that want it use their caller's model.
fn pools(said: &Loaded, servers: &Servers, providers: bool) -> Result<(Pools, Named), Fail> {
    let (mut pools, mut made) = (Vec::new(), Named::new());
    for (name, members) in &said.config.llm.pools {
        let mut local = Vec::new();
        for member in members {
            let refused = |error: String| Fail::Usage(format!("the pool `{name}`: {error}"));
            let spec = ModelSpec::parse(member).map_err(|error| refused(error.to_string()))?;
            if matches!(spec, ModelSpec::Offline | ModelSpec::Scripted(_)) {
                let spec = servers.place(spec, true)?;
                local.push((member.to_string(), spec.build().map_err(|error| refused(error.to_string()))?));
            }
        }
        if providers || local.len() == members.len() {
            pools.push((name.to_string(), members.iter().map(ToString::to_string).collect()));
            made.extend(local);
        }
    }
    Ok((pools, made))
}

/// Whether the variable is set to nothing, as shells do that pass on one that they do not have.
fn is_empty(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value.is_empty())
}

impl Choice {
    /// Whether a provider's model may answer: then calls may cost money, and what a model says is worth a title.
    pub(crate) fn calls_servers(&self) -> bool {
        self.providers
    }

    /// Whether the built-in rules answer for everybody: they know neither a title nor a summary.
    pub(crate) fn is_offline(&self) -> bool {
        let alone = self.default_pool.is_none() && self.pools.is_empty();
        alone && matches!(&*self.models, [(name, _)] if name == "offline")
    }

    /// Gives the models to the runtime.
    pub(crate) fn give(self, builder: Builder) -> Builder {
        let Self { mut models, default_pool, pools, members, servers, rates, providers } = self;
        let mut builder = builder.rates(rates);
        if providers {
            builder = builder.model_source(move |name| servers.model(name));
        }
        for (name, model) in members {
            builder = builder.named_model(name, model);
        }
        for (name, members) in pools {
            builder = builder.pool(&name, members);
        }
        if let Some(pool) = default_pool {
            return builder.default_model(format!("pool:{pool}"));
        }
        if models.len() == 1
            && let Some((_, model)) = models.pop()
        {
            return builder.model(model);
        }
        let names: Vec<String> = models.iter().map(|(name, _)| name.clone()).collect();
        let pool = names.join(",");
        for (name, model) in models {
            builder = builder.named_model(name, model);
        }
        builder.pool(&pool, names).default_model(format!("pool:{pool}"))
    }
}

/// Whether there is such a provider and such a server: a name that nothing goes by would send the calls, and the key, to the
/// provider's own server.
fn check(provider: &str, url: &str) -> Result<(), Fail> {
    let placed = ModelSpec::parse(&format!("{provider}/model")).and_then(|spec| spec.with_base_url(url));
    placed.map(drop).map_err(|error| {
        let unknown = format!(
            "there is no provider `{provider}`: write PROVIDER=URL with `anthropic`, `openai`, `openai-responses`, \
             `gemini` or `ollama`"
        );
        let error = if matches!(error, BadModel::Unknown { .. }) { unknown } else { error.to_string() };
        Fail::Usage(format!("{error} (--base-url or SUBTEND_BASE_URL)"))
    })
}

/// Servers that are called instead of the providers' own.
struct Servers(Vec<(Option<String>, String)>);

impl Servers {
    fn read<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, Fail> {
        let mut servers: Vec<(Option<String>, String)> = Vec::new();
        for word in words {
            // An equals sign may also stand in a URL's query.
            let of = word.split_once('=').filter(|(provider, _)| !provider.contains([':', '/']));
            let (provider, url) = of.map_or((None, word), |(provider, url)| (Some(provider.to_owned()), url));
            if servers.iter().any(|(before, _)| *before == provider) {
                let what = provider.as_deref().unwrap_or("all providers");
                return Err(Fail::Usage(format!(
                    "there are two base URLs for {what} (--base-url or SUBTEND_BASE_URL)"
                )));
            }
            if let Some(provider) = &provider {
                check(provider, url)?;
            }
            servers.push((provider, url.to_owned()));
        }
        Ok(Self(servers))
    }

    /// The server for a model of `name`: its provider's, or the one that was given for all.
    fn of(&self, name: &str) -> Option<&str> {
        let provider = name.split_once('/').map_or(name, |(provider, _)| provider);
        let own = self.0.iter().find(|(of, _)| of.as_deref() == Some(provider));
        own.or_else(|| self.0.iter().find(|(of, _)| of.is_none())).map(|(_, url)| url.as_str())
    }

    fn place(&self, spec: ModelSpec, calls_nobody: bool) -> Result<ModelSpec, Fail> {
        // One that is meant for a provider says nothing against a model beside it that calls no server.
        let meant_for_all = self.0.iter().any(|(provider, _)| provider.is_none());
        if calls_nobody && !meant_for_all {
            return Ok(spec);
        }
        let Some(url) = self.of(&spec.to_string()).map(str::to_owned) else { return Ok(spec) };
        spec.with_base_url(&url).map_err(|error| Fail::Usage(format!("{error} (--base-url or SUBTEND_BASE_URL)")))
    }

    /// The model that an agent names. One that cannot be made answers with why, so that its run says so.
    fn model(&self, name: &str) -> Option<Arc<dyn Model>> {
        let spec = ModelSpec::parse(name).ok()?;
        if matches!(spec, ModelSpec::Offline | ModelSpec::Scripted(_)) {
            return None;
        }
        let made = self.place(spec, false).map_err(|error| error.to_string());
        let made = made.and_then(|spec| spec.build().map_err(|error| error.to_string()));
        Some(made.unwrap_or_else(|why| {
            let answer = move |_, _| std::future::ready(Err(ModelError::new(ModelFail::Auth, why.clone())));
            Arc::new(fn_model(name, answer))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(model: &str, base_url: &[&str], calls: u32) -> String {
        let base_url = base_url.iter().map(|url| (*url).to_owned()).collect();
        let args = ModelArgs { model: Some(model.to_owned()), base_url, calls, calls_per_minute: None };
        args.choose(&Loaded::of([]).expect("a configuration")).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_server_of_no_provider_is_refused() {
        let no_provider = "there is no provider `opnai`: write PROVIDER=URL with `anthropic`, `openai`, \
                           `openai-responses`, `gemini` or `ollama` (--base-url or SUBTEND_BASE_URL)";
        assert_eq!(said("offline", &["opnai=http://127.0.0.1:1"], 16), no_provider);
        assert_eq!(
            said("offline", &["anthropic=nowhere"], 16),
            "`nowhere` cannot be used as a base URL: it is no address: write http://HOST:PORT or https://HOST \
             (--base-url or SUBTEND_BASE_URL)"
        );
        assert_eq!(said("offline", &["anthropic=http://127.0.0.1:1"], 16), "");
    }

    #[test]
    fn a_providers_model_is_told_from_those_that_call_nobody() {
        let calls = |model: &str| {
            let args = ModelArgs { model: Some(model.to_owned()), base_url: vec![], calls: 1, calls_per_minute: None };
            args.choose(&Loaded::of([]).expect("a configuration")).map(|choice| choice.calls_servers()).ok()
        };
        assert_eq!(
            [calls("offline"), calls("ollama/llama3"), calls("offline,ollama/llama3")],
            [false, true, true].map(Some)
        );
    }

    #[test]
    fn what_would_let_nothing_through_is_refused() {
        assert_eq!(said("offline", &[], 0), "`--calls 0` would let no call start: give 1 or more, or leave it out");
        assert_eq!(said("offline,", &[], 1), "a model is missing before or after a comma (--model or SUBTEND_MODEL)");
    }
}
