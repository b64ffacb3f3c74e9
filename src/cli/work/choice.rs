//! Chooses models: reads the options, builds the models, and passes them to the runtime.

use std::sync::Arc;

use subtend::config::{DefaultModel, Key, Loaded, Origin, script_refused};
use subtend_actors::Environment;
use subtend_actors::prices::Prices;
use subtend_agents::manifest::Manifest;
use subtend_models::model::Model;
use subtend_models::spec::ModelSpec;
use subtend_models::throttle::Rates;
use subtend_session::ids::Text;

use super::super::fail::Fail;
use source::Enabled;

use servers::Servers;
use source::ModelOrigin;

mod servers;
mod source;

type NamedModels = Vec<(String, Arc<dyn Model>)>;
type Pools = Vec<(String, Vec<String>)>;

const MODEL: &str = "SUBTEND_MODEL";
const BASE_URL: &str = "SUBTEND_BASE_URL";
/// Default limit of concurrent calls to one model.
const DEFAULT_CALLS: u32 = 16;

/// The models that an existing session has recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedModel<'a> {
    pub(super) model: &'a str,
    /// Servers at which its models are called instead of the providers' own.
    pub(super) servers: &'a [Text],
    pub(super) imported: bool,
}

/// Options that choose models.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Models")]
pub(crate) struct ModelArgs {
    /// Model: `offline` (fixed rules, no network; used if no model is named), `scripted:FILE` (answers from a file), or
    /// a provider's: `anthropic/MODEL`, `openai/MODEL`, `openai-responses/MODEL`, `gemini/MODEL`, `ollama/MODEL`.
    /// Several are separated by commas: if one fails, the next is called. The variable `SUBTEND_MODEL` names one too,
    /// except a script
    #[arg(long, value_name = "MODEL[,MODEL…]")]
    model: Option<String>,

    /// The value of `SUBTEND_MODEL`.
    #[arg(skip = variable())]
    variable: Option<String>,

    /// Server to call instead of the provider's own, such as `http://127.0.0.1:8080`. It must speak the protocol of the
    /// provider; with PROVIDER=, it is for that provider only; repeatable. The variable `SUBTEND_BASE_URL` names one
    /// too
    #[arg(long, value_name = "[PROVIDER=]URL")]
    base_url: Vec<String>,

    /// The value of `SUBTEND_BASE_URL`.
    #[arg(skip = value(BASE_URL))]
    base_url_variable: Option<String>,

    /// Maximum number of concurrent calls to one model, and to all models of one provider
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CALLS)]
    calls: u32,

    /// Maximum number of calls per minute to one model, and to all models of one provider
    #[arg(long, value_name = "N")]
    calls_per_minute: Option<u32>,
}

pub(crate) struct ModelSetup {
    /// Models for agents that do not name a model; several form a pool.
    models: NamedModels,
    default_pool: Option<String>,
    pools: Pools,
    /// Models of pools that do not call a server.
    members: NamedModels,
    servers: Servers,
    enabled: Enabled,
    rates: Rates,
    chosen: ModelOrigin,
    /// True if agents that name a provider's model get that model; false if `offline` or a script was chosen.
    providers: bool,
    /// True if a default model, or a model of a pool, calls a server.
    calls: bool,
}

impl ModelArgs {
    pub(super) fn for_session(model: Option<&str>, servers: &[Text]) -> Self {
        let base_url = servers.iter().map(ToString::to_string).collect();
        let model = model.map(str::to_owned);
        Self { model, variable: None, base_url, base_url_variable: None, calls: DEFAULT_CALLS, calls_per_minute: None }
    }

    /// Returns the first option that names a model or a server on the command line.
    pub(super) fn option(&self) -> Option<&'static str> {
        let given = [("--model", self.model.is_some()), ("--base-url", !self.base_url.is_empty())];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    pub(super) fn has_variables(&self) -> bool {
        self.variable.is_some() || self.base_url_variable.is_some()
    }

    /// Returns the variables whose values differ from the session's recorded models.
    pub(super) fn differing_variables(&self, own: RecordedModel<'_>) -> Vec<&'static str> {
        let is_own = |text: &str| text == own.model || own.model.strip_prefix("pool:") == Some(text);
        let model = self.variable.as_deref().is_some_and(|text| !is_own(text));
        let url = self.base_url_variable.as_deref().filter(|_| call_servers(&[own.model.into()]));
        let server = url.is_some_and(|url| !own.servers.iter().any(|server| **server == *url));
        [(MODEL, model), (BASE_URL, server)]
            .into_iter()
            .filter_map(|(name, differing)| differing.then_some(name))
            .collect()
    }

    pub(super) fn is_model_given(&self) -> bool {
        self.model_text().is_some()
    }

    pub(super) fn limits_calls(&self) -> bool {
        self.calls != DEFAULT_CALLS || self.calls_per_minute.is_some()
    }

    pub(super) fn servers(&self) -> Vec<&str> {
        match &*self.base_url {
            [] => self.base_url_variable.as_deref().into_iter().collect(),
            urls => urls.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the servers to send with the request to open a session: those of `--base-url`, or of the variable if this
    /// command also names a model that calls a server. Otherwise the host decides.
    pub(super) fn servers_of_opening(&self) -> Vec<&str> {
        let calls = |text: &str| text.split(',').any(|word| call_servers(&[word.trim().into()]));
        match self.base_url.is_empty() && !self.model_text().is_some_and(calls) {
            true => Vec::new(),
            false => self.servers(),
        }
    }

    pub(super) fn model_text(&self) -> Option<&str> {
        self.model.as_deref().or(self.variable.as_deref())
    }

    /// Builds the models of options or variables, else of the existing `session`, else of the configuration.
    pub(crate) fn choose(&self, loaded: &Loaded, session: Option<RecordedModel<'_>>) -> Result<ModelSetup, Fail> {
        // The author of an import chose the model and the servers of the session, not this user.
        let trusted = session.filter(|own| !own.imported);
        let servers = Servers::read(self.servers().into_iter(), trusted.map(|own| own.servers).unwrap_or_default())?;
        // A variable applies only to models that call a server.
        let servers = if self.base_url.is_empty() { servers.by_default() } else { servers };
        let rates = self.rates()?;
        let own = session.map(|own| own.model);
        let names = self.model_text().into_iter().chain(trusted.map(|own| own.model));
        let enabled = Enabled::detect(loaded, names, servers.for_model("ollama").is_some());
        let (default, chosen) = match (&self.model, &self.variable, own) {
            (Some(text), ..) => (DefaultModel::Model(text.as_str().into()), ModelOrigin::Option),
            (None, Some(text), _) => (DefaultModel::Model(text.as_str().into()), ModelOrigin::Variable),
            (None, None, Some(own)) => (recorded_default(own, loaded), ModelOrigin::Session),
            (None, None, None) => (loaded.default_model(), ModelOrigin::by_config(loaded)),
        };
        self.check_no_exported_script()?;
        // The recorded model may come from an import, so it must not be a script.
        if let (ModelOrigin::Session, DefaultModel::Model(text)) = (&chosen, &default) {
            check_no_scripts(text)
                .map_err(|why| Fail::Usage(format!("the session's own model cannot answer: {why}")))?;
        }
        check_enabled(loaded, enabled)?;
        let (models, calls) = match &default {
            DefaultModel::Model(text) => models(text, &servers).map_err(|error| match &chosen {
                ModelOrigin::Session => Fail::Usage(format!(
                    "the session's own model `{text}` cannot answer: {error}; name another one with --model"
                )),
                ModelOrigin::Option
                | ModelOrigin::Variable
                | ModelOrigin::Agent(_)
                | ModelOrigin::Config(..)
                | ModelOrigin::Default => Fail::Usage(with_options(&error, "(--model or SUBTEND_MODEL)")),
            })?,
            DefaultModel::Pool(pool) => {
                (NamedModels::new(), loaded.config.llm.pools.get(&**pool).is_some_and(|members| call_servers(members)))
            }
            DefaultModel::Unset => models("offline", &servers).map_err(Fail::Usage)?,
        };
        // If the user named only local models, no server is called, even if agents or pools name provider models.
        let named = self.model_text().is_some() || (own.is_none() && default != DefaultModel::Unset);
        let providers = calls || !named;
        let calls = calls || (providers && loaded.config.llm.pools.values().any(|members| call_servers(members)));
        if let Some(own) = session.filter(|own| own.imported && calls) {
            servers.check_imported(own.servers)?;
            if chosen == ModelOrigin::Session {
                enabled.check_imported(own.model)?;
            }
        }
        let (pools, members) = pools(loaded, &servers, providers)?;
        let default_pool = match default {
            DefaultModel::Pool(pool) => Some(pool.to_string()),
            DefaultModel::Model(_) | DefaultModel::Unset => None,
        };
        Ok(ModelSetup { models, default_pool, pools, members, servers, enabled, rates, chosen, providers, calls })
    }

    /// Refuses a script in the variable, unless an option names a model.
    pub(super) fn check_no_exported_script(&self) -> Result<(), Fail> {
        let exported = self.variable.as_deref().filter(|_| self.model.is_none());
        exported.map_or(Ok(()), check_no_script).map_err(|why| Fail::Usage(format!("{MODEL}: {why}")))
    }

    fn rates(&self) -> Result<Rates, Fail> {
        for (option, calls) in [("--calls", Some(self.calls)), ("--calls-per-minute", self.calls_per_minute)] {
            if calls == Some(0) {
                return Err(Fail::Usage(format!("`{option} 0` would block all calls: use 1 or more, or omit it")));
            }
        }
        Ok(Rates { concurrent: Some(self.calls), requests_per_minute: self.calls_per_minute, ..Rates::default() })
    }
}

/// Returns the value of `SUBTEND_MODEL`, for commands that do not call a model.
pub(crate) fn variable() -> Option<String> {
    value(MODEL)
}

/// Returns the value of a variable. An empty value counts as not set.
fn value(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

fn call_servers(members: &[Text]) -> bool {
    let is_local = |spec| matches!(spec, Ok(ModelSpec::Offline | ModelSpec::Scripted(_)));
    !members.iter().all(|member| is_local(ModelSpec::parse(member)))
}

/// Returns the model that a session was opened with: a list of models, or a pool of the configuration.
fn recorded_default(own: &str, loaded: &Loaded) -> DefaultModel {
    match own.strip_prefix("pool:") {
        Some(pool) if loaded.config.llm.pools.contains_key(pool) => DefaultModel::Pool(pool.into()),
        // `--model A,B` is recorded as `pool:A,B`.
        Some(text) if text.contains(',') => DefaultModel::Model(text.into()),
        Some(_) | None => DefaultModel::Model(own.into()),
    }
}

/// Refuses scripts in a list of models, before opening any file.
pub(super) fn check_no_scripts(text: &str) -> Result<(), String> {
    match text.trim_start().starts_with("scripted:") {
        true => check_no_script(text),
        false => text.split(',').map(str::trim).try_for_each(check_no_script),
    }
}

/// Refuses a script that a file names. Other models are built at their first call.
pub(super) fn check_no_script(model: &str) -> Result<(), String> {
    match ModelSpec::parse(model) {
        Ok(ModelSpec::Scripted(_)) => Err(script_refused(model)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses a default model of the workspace's file that the user has not enabled.
fn check_enabled(loaded: &Loaded, enabled: Enabled) -> Result<(), Fail> {
    let key = Key::from(["llm", "model"]);
    let (origin, model) = (loaded.origin(&key), loaded.config.llm.model.as_deref());
    match model.filter(|_| matches!(origin, Origin::Project(_))).and_then(|model| enabled.disabled_error(model)) {
        Some(why) => Err(Fail::Usage(format!("{origin}: `{key}`: {why}"))),
        None => Ok(()),
    }
}

/// Appends the related options to an error, unless it already names some.
fn with_options(error: &str, options: &str) -> String {
    if error.ends_with(')') && error.contains(" (--") { error.to_owned() } else { format!("{error} {options}") }
}

/// Builds the models of a list, and returns whether one of them calls a server.
fn models(text: &str, servers: &Servers) -> Result<(NamedModels, bool), String> {
    let names: Vec<&str> = match text {
        // The file name of a script may contain a comma.
        word if word.trim_start().starts_with("scripted:") => vec![word],
        text => text.split(',').map(str::trim).collect(),
    };
    let mut models = Vec::with_capacity(names.len());
    let mut providers = false;
    let several = names.len() > 1;
    for word in names {
        if several && word.is_empty() {
            return Err("a model is missing before or after a comma".to_owned());
        }
        let spec = ModelSpec::parse(word).map_err(|error| error.to_string())?;
        let is_local = matches!(spec, ModelSpec::Offline | ModelSpec::Scripted(_));
        providers |= !is_local;
        let spec = servers.apply(spec, is_local)?;
        let model = spec.build().map_err(|error| error.to_string())?;
        models.push((model.name().to_owned(), model));
    }
    Ok((models, providers))
}

/// Returns the configured pools and their local models. Models with a server are built at their first call. Without
/// `providers`, pools with a provider's model are left out.
fn pools(loaded: &Loaded, servers: &Servers, providers: bool) -> Result<(Pools, NamedModels), Fail> {
    let (mut pools, mut made) = (Vec::new(), NamedModels::new());
    for (name, members) in &loaded.config.llm.pools {
        let mut local = Vec::new();
        for member in members {
            let refused = |error: String| Fail::Usage(format!("the pool `{name}`: {error}"));
            let spec = ModelSpec::parse(member).map_err(|error| refused(error.to_string()))?;
            if matches!(spec, ModelSpec::Offline | ModelSpec::Scripted(_)) {
                let spec = servers.apply(spec, true).map_err(refused)?;
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

impl ModelSetup {
    /// Returns whether a provider's model may answer. Then calls may cost money, and the model can write titles.
    pub(crate) fn calls_servers(&self) -> bool {
        self.calls
    }

    /// Returns the name under which sessions record the default models.
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

    /// Returns the first default model that calls a server and has no price.
    pub(super) fn first_without_price(&self, prices: &Prices) -> Option<&str> {
        let lacks = |name: &&str| call_servers(&[(*name).into()]) && prices.of([*name]).is_none();
        match &self.default_pool {
            Some(pool) => {
                let members = self.pools.iter().find(|(name, _)| name == pool).map(|(_, members)| members);
                members.into_iter().flatten().map(String::as_str).find(lacks)
            }
            None => self.models.iter().map(|(name, _)| name.as_str()).find(lacks),
        }
    }

    /// Returns the servers that are recorded in new sessions.
    pub(super) fn recorded_servers(&self) -> Vec<Text> {
        if self.calls { self.servers.base_urls() } else { Vec::new() }
    }

    /// Returns whether the built-in `offline` model answers in all sessions. It cannot write titles or summaries.
    pub(crate) fn is_offline(&self) -> bool {
        let alone = self.default_pool.is_none() && self.pools.is_empty();
        alone && matches!(&*self.models, [(name, _)] if name == "offline")
    }

    /// Returns the model of a session of `agent`, and the source of that choice, as the runtime resolves it.
    pub(super) fn model_and_choice(&self, agent: Option<&Manifest>) -> (Text, ModelOrigin) {
        let default = || (self.name(), self.chosen.clone());
        let Some(manifest) = agent.filter(|_| !matches!(self.chosen, ModelOrigin::Option | ModelOrigin::Variable))
        else {
            return default();
        };
        let model = match (&manifest.pool, &manifest.model) {
            (Some(pool), _) => {
                self.pools.iter().any(|(name, _)| **name == **pool).then(|| format!("pool:{pool}").into())
            }
            (None, Some(model)) => (self.providers || !call_servers(&[Text::clone(model)])).then(|| Text::clone(model)),
            (None, None) => None,
        };
        model.map_or_else(default, |model| (model, ModelOrigin::by_agent(manifest)))
    }

    pub(super) fn rates(&self) -> Rates {
        self.rates
    }

    pub(crate) fn add_to(self, environment: Environment) -> Environment {
        let recorded = self.recorded_servers();
        let Self { mut models, default_pool, pools, members, servers, enabled, providers, .. } = self;
        let source = move |name: &str| servers.model(name, enabled, providers);
        let mut builder = environment.servers(recorded).model_source(source);
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
            // Also registered by its name, so that the model source does not build the model again.
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

#[cfg(test)]
mod tests {
    use subtend::config::Layer;

    use super::*;

    fn chosen_model(model: &str, base_url: &[&str], calls: u32) -> String {
        let base_url = base_url.iter().map(|url| (*url).to_owned()).collect();
        let args = ModelArgs { base_url, calls, ..ModelArgs::for_session(Some(model), &[]) };
        args.choose(&Loaded::of([]).expect("a configuration"), None)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn server_of_an_unknown_provider_is_refused() {
        let no_provider = "unknown provider `opnai`: write PROVIDER=URL with `anthropic`, `openai`, \
                           `openai-responses`, `gemini` or `ollama` (--base-url or SUBTEND_BASE_URL)";
        assert_eq!(chosen_model("offline", &["opnai=http://127.0.0.1:1"], 16), no_provider);
        assert_eq!(
            chosen_model("offline", &["anthropic=nowhere"], 16),
            "`nowhere` is not a valid base URL: it is not an address: write http://HOST:PORT or https://HOST \
             (--base-url or SUBTEND_BASE_URL)"
        );
        assert_eq!(chosen_model("offline", &["anthropic=http://127.0.0.1:1"], 16), "");
    }

    #[test]
    fn provider_models_differ_from_local_ones() {
        let calls = |model: &str| {
            let args = ModelArgs::for_session(Some(model), &[]);
            args.choose(&Loaded::of([]).expect("a configuration"), None).map(|choice| choice.calls_servers()).ok()
        };
        assert_eq!(
            [calls("offline"), calls("ollama/llama3"), calls("offline,ollama/llama3")],
            [false, true, true].map(Some)
        );
    }

    #[test]
    fn zero_calls_and_empty_model_names_are_refused() {
        assert_eq!(chosen_model("offline", &[], 0), "`--calls 0` would block all calls: use 1 or more, or omit it");
        assert_eq!(
            chosen_model("offline,", &[], 1),
            "a model is missing before or after a comma (--model or SUBTEND_MODEL)"
        );
    }

    #[test]
    fn a6_recorded_model_of_a_session_answers_by_default() {
        let args = ModelArgs::for_session(None, &[]);
        let chosen = |own: &str| {
            let own = RecordedModel { model: own, servers: &[], imported: false };
            let choice = args.choose(&Loaded::of([]).expect("a configuration"), Some(own));
            choice.map(|choice| choice.name().to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen("ollama/small"), Ok("ollama/small".to_owned()));
        assert_eq!(chosen("pool:ollama/a,ollama/b"), Ok("pool:ollama/a,ollama/b".to_owned()));
        let script = "the session's own model cannot answer: `scripted:/a.json` is a script, which only the command line can name: add `--model scripted:/a.json`";
        assert_eq!(chosen("scripted:/a.json"), Err(script.to_owned()));
    }

    /// The control: the user's own file names a model of the provider.
    #[test]
    fn recorded_model_of_an_import_must_be_enabled() {
        let args = ModelArgs::for_session(None, &[]);
        let chosen = |own: &str, file: &str| {
            let own = RecordedModel { model: own, servers: &[], imported: true };
            let layer = Layer::file(Origin::User("subtend.yaml".into()), file).expect("a file");
            let choice = args.choose(&Loaded::of([layer]).expect("a configuration"), Some(own));
            choice.map(|choice| choice.name().to_string()).map_err(|error| error.to_string())
        };
        for own in ["ollama/small", "pool:offline,ollama/small"] {
            let why = chosen(own, "{}").expect_err(own);
            let expected = "the session was imported, and its own model cannot answer: `";
            assert!(why.starts_with(expected) && why.contains("belongs to a provider that is not enabled"), "{why}");
            assert_eq!(chosen(own, "llm: {model: ollama/other}"), Ok(own.to_owned()));
        }
    }
}
