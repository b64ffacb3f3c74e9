//! Which models answer: read from the command line, made, and given to the runtime.

use std::sync::Arc;

use subtend::config::{DefaultModel, Key, Loaded, Origin, script_refused};
use subtend_actors::builder::Builder;
use subtend_actors::prices::Prices;
use subtend_agents::manifest::Manifest;
use subtend_models::closure::fn_model;
use subtend_models::model::{Model, ModelError};
use subtend_models::spec::{BadModel, ModelSpec};
use subtend_models::throttle::Rates;
use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;

use super::super::fail::Fail;
use source::Enabled;

use source::Chosen;

mod source;

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
    /// between: where one fails, the next is asked. The variable `SUBTEND_MODEL` names one too, but no script
    #[arg(long, value_name = "MODEL[,MODEL…]")]
    model: Option<String>,

    /// What the variable says.
    #[arg(skip = variable())]
    variable: Option<String>,

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
    enabled: Enabled,
    rates: Rates,
    /// Who chose the models that answer by default.
    chosen: Chosen,
    /// Whether agents that name a provider's model get it: not where `offline` or a script was asked for.
    providers: bool,
    /// Whether one of the models that sessions use by default, or a pool's, calls a server.
    calls: bool,
}

impl ModelArgs {
    /// Whether a model was named.
    pub(super) fn is_given(&self) -> bool {
        self.words().is_some()
    }

    /// What `--model` or its variable says.
    pub(super) fn words(&self) -> Option<&str> {
        self.model.as_deref().or(self.variable.as_deref())
    }

    /// Reads and makes what was chosen: here, else by the session `own` that the command is about, else in the configuration.
    ///
    /// # Errors
    /// [`Fail::Usage`] for a model that is named and cannot answer: an unknown one, a script that cannot be read, a missing key; and
    /// for one that only `--model` may name, or only the person may enable.
    pub(crate) fn choose(&self, said: &Loaded, own: Option<&str>) -> Result<Choice, Fail> {
        let urls: Vec<&str> = self.base_url.iter().map(String::as_str).collect();
        let servers = Servers::read(urls.iter().copied().filter(|url| !(url.is_empty() && is_empty(BASE_URL))))?;
        let rates = self.rates()?;
        let enabled = Enabled::of(said, self.words().into_iter().chain(own), servers.of("ollama").is_some());
        let (asked, chosen) = match (&self.model, &self.variable, own) {
            (Some(words), ..) => (DefaultModel::Model(words.as_str().into()), Chosen::Option),
            (None, Some(words), _) => (DefaultModel::Model(words.as_str().into()), Chosen::Variable),
            (None, None, Some(own)) => (restored(own, said), Chosen::Session),
            (None, None, None) => (said.default_model(), Chosen::by_config(said)),
        };
        if let (Chosen::Variable, DefaultModel::Model(words)) = (&chosen, &asked)
            && matches!(ModelSpec::parse(words), Ok(ModelSpec::Scripted(_)))
        {
            return Err(Fail::Usage(format!("{MODEL}: {}", script_refused(words))));
        }
        allowed(said, enabled)?;
        let (models, calls) = match &asked {
            DefaultModel::Model(words) => models(words, &servers).map_err(|error| match &chosen {
                Chosen::Session => Fail::Usage(format!(
                    "the session's own model `{words}` cannot answer: {error}; name another one with --model"
                )),
                Chosen::Option | Chosen::Variable | Chosen::Agent(_) | Chosen::Config(..) | Chosen::Nowhere => {
                    Fail::Usage(format!("{error} (--model or SUBTEND_MODEL)"))
                }
            })?,
            DefaultModel::Pool(pool) => {
                (Named::new(), said.config.llm.pools.get(&**pool).is_some_and(|members| call_servers(members)))
            }
            DefaultModel::Unsaid => models("offline", &servers).map_err(Fail::Usage)?,
        };
        // Naming a model that calls no server means that none is called, whatever agents and pools name.
        let named = self.words().is_some() || (own.is_none() && asked != DefaultModel::Unsaid);
        let providers = calls || !named;
        let calls = calls || (providers && said.config.llm.pools.values().any(|members| call_servers(members)));
        let (pools, members) = pools(said, &servers, providers)?;
        let default_pool = match asked {
            DefaultModel::Pool(pool) => Some(pool.to_string()),
            DefaultModel::Model(_) | DefaultModel::Unsaid => None,
        };
        Ok(Choice { models, default_pool, pools, members, servers, enabled, rates, chosen, providers, calls })
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

/// The model that a session was opened with, as words or as a pool of the configuration.
fn restored(own: &str, said: &Loaded) -> DefaultModel {
    match own.strip_prefix("pool:") {
        Some(pool) if said.config.llm.pools.contains_key(pool) => DefaultModel::Pool(pool.into()),
        // What `--model A,B` named is a pool of that name.
        Some(words) if words.contains(',') => DefaultModel::Model(words.into()),
        Some(_) | None => DefaultModel::Model(own.into()),
    }
}

/// Refuses a script that a file names. Other models are made when they are first asked.
pub(super) fn no_script(model: &str) -> Result<(), String> {
    match ModelSpec::parse(model) {
        Ok(ModelSpec::Scripted(_)) => Err(script_refused(model)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses a default model of the workspace's file that the person has not enabled. Those of pools, agents and tools are refused
/// where they are asked.
fn allowed(said: &Loaded, enabled: Enabled) -> Result<(), Fail> {
    let key = Key::from(["llm", "model"]);
    let (origin, model) = (said.origin(&key), said.config.llm.model.as_deref());
    match model.filter(|_| matches!(origin, Origin::Project(_))).and_then(|model| enabled.refused(model)) {
        Some(why) => Err(Fail::Usage(format!("{origin}: `{key}`: {why}"))),
        None => Ok(()),
    }
}

/// The models that `words` name, and whether one of them is a provider's.
fn models(words: &str, servers: &Servers) -> Result<(Named, bool), String> {
    let words: Vec<&str> = match words {
        // A script's file may have a comma in its name.
        word if word.trim_start().starts_with("scripted:") => vec![word],
        words => words.split(',').map(str::trim).collect(),
    };
    let mut models = Vec::with_capacity(words.len());
    let mut providers = false;
    let several = words.len() > 1;
    for word in words {
        if several && word.is_empty() {
            return Err("a model is missing before or after a comma".to_owned());
        }
        let spec = ModelSpec::parse(word).map_err(|error| error.to_string())?;
        let calls_nobody = matches!(spec, ModelSpec::Offline | ModelSpec::Scripted(_));
        providers |= !calls_nobody;
        let spec = servers.place(spec, calls_nobody)?;
        let model = spec.build().map_err(|error| error.to_string())?;
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
                let spec = servers.place(spec, true).map_err(refused)?;
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
        self.calls
    }

    /// The name that sessions have for the models that answer by default.
    pub(super) fn name(&self) -> Text {
        match (&self.default_pool, &*self.models) {
            (Some(pool), _) => format!("pool:{pool}").into(),
            (None, [(name, _)]) => name.as_str().into(),
            (None, several) => {
                let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                format!("pool:{}", names.join(",")).into()
            }
        }
    }

    /// A model that answers by default, calls a server and has no price.
    pub(super) fn lacks_price(&self, prices: &Prices) -> Option<&str> {
        let lacks = |name: &&str| call_servers(&[(*name).into()]) && prices.of([*name]).is_none();
        match &self.default_pool {
            Some(pool) => {
                let members = self.pools.iter().find(|(name, _)| name == pool).map(|(_, members)| members);
                members.into_iter().flatten().map(String::as_str).find(lacks)
            }
            None => self.models.iter().map(|(name, _)| name.as_str()).find(lacks),
        }
    }

    /// Whether the built-in rules answer for everybody: they know neither a title nor a summary.
    pub(crate) fn is_offline(&self) -> bool {
        let alone = self.default_pool.is_none() && self.pools.is_empty();
        alone && matches!(&*self.models, [(name, _)] if name == "offline")
    }

    /// The model of a session that `agent` answers, and who chose it: as the runtime finds it.
    pub(super) fn told(&self, agent: Option<&Manifest>) -> (Text, Chosen) {
        let default = || (self.name(), self.chosen.clone());
        let Some(manifest) = agent.filter(|_| !matches!(self.chosen, Chosen::Option | Chosen::Variable)) else {
            return default();
        };
        let model = match (&manifest.pool, &manifest.model) {
            (Some(pool), _) => {
                self.pools.iter().any(|(name, _)| **name == **pool).then(|| format!("pool:{pool}").into())
            }
            (None, Some(model)) => (self.providers || !call_servers(&[Text::clone(model)])).then(|| Text::clone(model)),
            (None, None) => None,
        };
        model.map_or_else(default, |model| (model, Chosen::by_agent(manifest)))
    }

    /// Gives the models to the runtime.
    pub(crate) fn give(self, builder: Builder) -> Builder {
        let Self { mut models, default_pool, pools, members, servers, enabled, rates, chosen: _, providers, calls: _ } =
            self;
        let mut builder = builder.rates(rates).model_source(move |name| servers.model(name, enabled, providers));
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
            // By its name too: what the source makes of that would be another one.
            return builder.named_model(model.name(), Arc::clone(&model)).model(model);
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

    fn place(&self, spec: ModelSpec, calls_nobody: bool) -> Result<ModelSpec, String> {
        // One that is meant for a provider says nothing against a model beside it that calls no server.
        let meant_for_all = self.0.iter().any(|(provider, _)| provider.is_none());
        if calls_nobody && !meant_for_all {
            return Ok(spec);
        }
        let Some(url) = self.of(&spec.to_string()).map(str::to_owned) else { return Ok(spec) };
        spec.with_base_url(&url).map_err(|error| format!("{error} (--base-url or SUBTEND_BASE_URL)"))
    }

    /// The model that an agent or an option of a tool names. One that cannot be made answers with why, so that its run says so.
    /// Without `providers`, the default model answers for theirs, and for names that mean nothing. Such a name comes from a file or from
    /// a call of a model: neither makes a script answer.
    fn model(&self, name: &str, enabled: Enabled, providers: bool) -> Option<Arc<dyn Model>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(model: &str, base_url: &[&str], calls: u32) -> String {
        let base_url = base_url.iter().map(|url| (*url).to_owned()).collect();
        let args = ModelArgs { model: Some(model.to_owned()), variable: None, base_url, calls, calls_per_minute: None };
        args.choose(&Loaded::of([]).expect("a configuration"), None)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
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
            let args = ModelArgs {
                model: Some(model.to_owned()),
                variable: None,
                base_url: vec![],
                calls: 1,
                calls_per_minute: None,
            };
            args.choose(&Loaded::of([]).expect("a configuration"), None).map(|choice| choice.calls_servers()).ok()
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

    #[test]
    fn a6_a_sessions_own_model_answers_where_none_is_named() {
        let args = ModelArgs { model: None, variable: None, base_url: vec![], calls: 1, calls_per_minute: None };
        let chosen = |own: &str| {
            let choice = args.choose(&Loaded::of([]).expect("a configuration"), Some(own));
            choice.map(|choice| choice.name().to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen("ollama/small"), Ok("ollama/small".to_owned()));
        assert_eq!(chosen("pool:ollama/a,ollama/b"), Ok("pool:ollama/a,ollama/b".to_owned()));
        let error = chosen("scripted:/gone.json").expect_err("it is missing");
        assert!(
            error.starts_with(
                "the session's own model `scripted:/gone.json` cannot answer: the script /gone.json cannot be read"
            ) && error.ends_with("; name another one with --model"),
            "{error}"
        );
    }
}
