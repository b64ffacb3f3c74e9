//! Checks of names in agent files and profiles: models, tools, and agents.

use std::path::PathBuf;

use subtend::config::{DefaultModel, Key, Loaded, Origin, script_refused};
use subtend_agents::catalog::{AgentProblem, Catalog, ProblemKind};
use subtend_agents::manifest::{Manifest, Source};
use subtend_agents::product::Product;
use subtend_models::spec::ModelSpec;
use subtend_session::ids::Text;
use subtend_tools::dialect::minion;
use subtend_tools::registry::Registry;

use super::lookup::unusable_reason;

struct KnownModels {
    named: Vec<String>,
    pools: Vec<String>,
    /// True if only models without a server were chosen. They also answer in place of models that cannot be used.
    for_all: bool,
}

/// Returns the problems of agent files and profiles. `text` is the value of `--model` or its variable.
pub(crate) fn problems(catalog: &Catalog, loaded: &Loaded, text: Option<&str>, tools: &Registry) -> Vec<AgentProblem> {
    let known = KnownModels::from_config(loaded, text);
    let models = catalog.all().filter_map(|manifest| known.warning_for(manifest));
    let tools_of = catalog.all().flat_map(|manifest| missing_tools(manifest, tools));
    let found = catalog.problems().iter().cloned();
    let found = found
        .chain(models)
        .chain(known.minion_warnings(loaded))
        .chain(tools_of)
        .chain(profiles(loaded, catalog, tools));
    found.chain(templates(loaded, tools)).collect()
}

/// Returns a warning for each tool that a manifest lists and that does not exist. In files of other products, whose tools
/// were translated, only web tools are checked.
pub(super) fn missing_tools(manifest: &Manifest, tools: &Registry) -> Vec<AgentProblem> {
    let Some(path) = manifest.source.path() else { return Vec::new() };
    let product = product(&manifest.source);
    let is_meant = |tool: &&Text| product.is_none() || minion::WEB.contains(&&***tool);
    let listed = manifest.tools.iter().flatten().filter(is_meant).filter_map(|tool| tools.missing_reason(tool));
    let problem =
        |why| AgentProblem { product, ..warning(path.to_owned(), format!("`tools`: {why}; it is not offered")) };
    listed.take(MAX_MISSING).map(problem).collect()
}

/// Maximum number of warnings about missing tools of one agent.
const MAX_MISSING: usize = 20;

/// Returns an error for the first profile whose agent does not exist. Checks nothing if `tools.spawn` is disabled.
pub(crate) fn unusable(loaded: &Loaded, catalog: &Catalog) -> Option<String> {
    let spawn = &loaded.config.tools.spawn;
    let mut named = spawn.profiles.iter().filter(|_| spawn.enabled);
    named.find_map(|(name, profile)| {
        let agent = profile.agent.as_ref().filter(|agent| catalog.get(agent).is_none())?;
        let key = Key::from(["tools", "spawn", "profiles", name]);
        let why = unusable_reason(catalog, agent);
        Some(format!("{}: `{key}.agent`: {why}; correct the name, or leave `agent` out", loaded.origin(&key)))
    })
}

/// Returns an error for each missing agent that a profile names, and a warning for each missing tool.
fn profiles(loaded: &Loaded, catalog: &Catalog, tools: &Registry) -> Vec<AgentProblem> {
    let mut problems = Vec::new();
    let origins = loaded.origins(&Key::from(["tools", "spawn", "profiles"]));
    for (name, profile) in &loaded.config.tools.spawn.profiles {
        let key = Key::from(["tools", "spawn", "profiles", name]);
        let Some(Origin::User(path) | Origin::Project(path)) = origins.get(&**name) else { continue };
        if let Some(agent) = profile.agent.as_ref().filter(|agent| catalog.get(agent).is_none()) {
            let message = format!("`{key}.agent`: {}; the profile cannot be used", unusable_reason(catalog, agent));
            problems.push(AgentProblem { path: path.clone(), kind: ProblemKind::Refused, product: None, message });
        }
        let listed = profile.tools.iter().filter_map(|tool| tools.missing_reason(tool));
        problems.extend(listed.map(|why| warning(path.clone(), format!("`{key}.tools`: {why}; it is not offered"))));
    }
    problems
}

/// Returns a warning for each missing tool that a minion template names.
fn templates(loaded: &Loaded, tools: &Registry) -> Vec<AgentProblem> {
    let mut problems = Vec::new();
    let origins = loaded.origins(&Key::from(["tools", "minion", "templates"]));
    for (name, template) in &loaded.config.tools.minion.templates {
        let key = Key::from(["tools", "minion", "templates", name]);
        let Some(Origin::User(path) | Origin::Project(path)) = origins.get(&**name) else { continue };
        let listed = template.enabled_tools.iter().flatten().filter_map(|tool| tools.missing_reason(tool));
        let why = "calls that do not name tools fail";
        problems.extend(listed.map(|lacks| warning(path.clone(), format!("`{key}.enabledTools`: {lacks}; {why}"))));
    }
    problems
}

/// Returns the product whose file defines the agent.
pub(super) fn product(source: &Source) -> Option<Product> {
    match source {
        Source::Foreign(product, _) => Some(*product),
        Source::Builtin | Source::File(_) | Source::Host => None,
    }
}

fn warning(path: PathBuf, message: String) -> AgentProblem {
    AgentProblem { path, kind: ProblemKind::Warning, product: None, message }
}

impl KnownModels {
    fn from_config(loaded: &Loaded, text: Option<&str>) -> Self {
        let pools = &loaded.config.llm.pools;
        let mut named: Vec<String> = match (text, loaded.default_model()) {
            (Some(text), _) => split_models(text),
            (None, DefaultModel::Model(text)) => split_models(&text),
            (None, DefaultModel::Pool(pool)) => {
                pools.get(&pool).into_iter().flatten().map(ToString::to_string).collect()
            }
            (None, DefaultModel::Unset) => vec!["offline".to_owned()],
        };
        let is_chosen = text.is_some() || loaded.default_model() != DefaultModel::Unset;
        let for_all = is_chosen && named.iter().all(|name| needs_no_server(name));
        named.extend(pools.values().flatten().map(ToString::to_string));
        Self { named, pools: pools.keys().map(ToString::to_string).collect(), for_all }
    }

    /// Returns a warning if the model of a manifest cannot answer.
    fn warning_for(&self, manifest: &Manifest) -> Option<AgentProblem> {
        let (path, model) = (manifest.source.path()?, manifest.model.as_ref()?);
        let message = format!("`model`: {}", self.consequence(model)?);
        Some(AgentProblem { product: product(&manifest.source), ..warning(path.to_owned(), message) })
    }

    /// Returns what happens if a model that cannot answer is named; `None` if the model can answer.
    fn consequence(&self, model: &str) -> Option<String> {
        let why = self.why_not(model)?;
        let taken = self.named.first().map_or("offline", String::as_str);
        let script = matches!(ModelSpec::parse(model), Ok(ModelSpec::Scripted(_)));
        Some(match self.for_all && !script {
            true => format!("the default one, `{taken}`, answers instead, since {why}"),
            false => format!("its runs fail, since {why}"),
        })
    }

    /// Returns a warning for each minion model that cannot answer.
    fn minion_warnings(&self, loaded: &Loaded) -> Vec<AgentProblem> {
        let minion = &loaded.config.tools.minion;
        let own = (Key::from(["tools", "minion", "options", "model"]), minion.options.model.as_ref());
        let named = minion.templates.iter().map(|(name, template)| {
            (Key::from(["tools", "minion", "templates", &**name, "model"]), template.model.as_ref())
        });
        let all = std::iter::once(own).chain(named);
        let origins = loaded.origins(&Key::from(["tools", "minion", "templates"]));
        let problem = |(key, model): (Key, Option<&Text>)| {
            let is_template = key.names().get(2).is_some_and(|name| name == "templates");
            let of_template = key.names().get(3).filter(|_| is_template).and_then(|name| origins.get(name)).cloned();
            let (Origin::User(path) | Origin::Project(path)) = of_template.unwrap_or_else(|| loaded.origin(&key))
            else {
                return None;
            };
            Some(warning(path, format!("`{key}`: {}", self.consequence(model?).or_else(|| self.replacement(model?))?)))
        };
        if minion.enabled { all.filter_map(problem).collect() } else { Vec::new() }
    }

    /// Returns a warning if `model` is a provider's, but only models without a server were chosen: one of them answers.
    fn replacement(&self, model: &str) -> Option<String> {
        let taken = self.named.first().filter(|_| self.for_all && !needs_no_server(model))?;
        let is_named = self.named.iter().any(|name| name == model);
        (!is_named).then(|| format!("`{taken}` answers instead of `{model}`, since no model with a server is named"))
    }

    fn why_not(&self, model: &str) -> Option<String> {
        if self.named.iter().any(|name| name == model) {
            return None;
        }
        if let Some(pool) = model.strip_prefix("pool:") {
            let known = if self.pools.is_empty() { "none".to_owned() } else { self.pools.join(", ") };
            let unknown = || format!("unknown pool `{pool}`; pools under `llm.pools`: {known}");
            return (!self.pools.iter().any(|name| name == pool)).then(unknown);
        }
        if self.pools.iter().any(|name| name == model) {
            return Some(format!("`{model}` is a pool, not a model: write `pool: {model}`"));
        }
        match ModelSpec::parse(model) {
            Err(bad) => Some(bad.to_string()),
            Ok(ModelSpec::Scripted(_)) => Some(script_refused(model)),
            Ok(_) => None,
        }
    }
}

/// Splits a list of models at its commas. A script is one model: its file name may contain a comma.
fn split_models(text: &str) -> Vec<String> {
    match text.trim() {
        word if word.starts_with("scripted:") => vec![word.to_owned()],
        text => text.split(',').map(|word| word.trim().to_owned()).collect(),
    }
}

fn needs_no_server(name: &str) -> bool {
    matches!(ModelSpec::parse(name), Ok(ModelSpec::Offline | ModelSpec::Scripted(_)))
}

#[cfg(test)]
mod tests {
    use subtend::config::{Layer, Origin};

    use super::*;

    fn invalid_model_reason(config: &str, text: Option<&str>, model: &str) -> Option<String> {
        let layer = Layer::file(Origin::Project("subtend.yaml".into()), config).expect("a layer");
        KnownModels::from_config(&Loaded::of([layer]).expect("a configuration"), text).why_not(model)
    }

    #[test]
    fn model_resolves_by_provider_pool_or_name() {
        let pools = "llm: {pools: {cheap: [ollama/small, offline]}}";
        for known in ["anthropic/claude-x", "ollama/small", "offline", "pool:cheap"] {
            assert_eq!(invalid_model_reason(pools, Some("anthropic/claude-x"), known), None, "{known}");
        }
        assert!(
            invalid_model_reason("", None, "scripted:/gone.json")
                .expect("it is missing")
                .starts_with("`scripted:/gone.json` is a script, which only the command line can name")
        );
        let problem_text = |config, text, model| invalid_model_reason(config, text, model).expect("it is unknown");
        assert!(
            problem_text("", None, "claude-x")
                .starts_with("unknown model `claude-x`: did you mean `anthropic/claude-x`?")
        );
        assert!(problem_text("", Some("offline"), "antropic/x").contains("did you mean `anthropic/x`?"));
        assert_eq!(problem_text(pools, None, "cheap"), "`cheap` is a pool, not a model: write `pool: cheap`");
        assert_eq!(problem_text(pools, None, "pool:dear"), "unknown pool `dear`; pools under `llm.pools`: cheap");
        assert_eq!(problem_text("", None, "pool:dear"), "unknown pool `dear`; pools under `llm.pools`: none");
        assert_eq!(
            invalid_model_reason("llm: {model: anthropic/claude-x}", None, "offline"),
            None,
            "it needs no server"
        );
    }

    /// A file of a repository may list any number of tools. The control: a few are all named.
    #[test]
    fn missing_tools_of_an_agent_give_few_warnings() {
        use subtend_agents::manifest::AgentMode;

        let warnings = |count: usize| {
            let mut manifest = Manifest::new("mine", AgentMode::All, "You are an agent.");
            manifest.source = Source::File("mine.md".into());
            manifest.tools = Some((0..count).map(|n| format!("gone{n}").into()).collect());
            missing_tools(&manifest, &Registry::default()).into_iter().map(|problem| problem.message).collect()
        };
        let expected = |count: usize| -> Vec<String> {
            (0..count).map(|n| format!("`tools`: unknown tool `gone{n}`; it is not offered")).collect()
        };
        for (listed, named) in [(3, 3), (20, 20), (21, 20), (10_000, 20)] {
            let warnings: Vec<String> = warnings(listed);
            assert_eq!(warnings, expected(named), "{listed}");
        }
    }

    #[test]
    fn first_named_model_replaces_a_missing_one() {
        let taken = |config: &str, text: Option<&str>| {
            let layer = Layer::file(Origin::Project("subtend.yaml".into()), config).expect("a layer");
            KnownModels::from_config(&Loaded::of([layer]).expect("a configuration"), text).named.first().cloned()
        };
        let pools = "llm: {default_pool: cheap, pools: {cheap: [ollama/small, offline]}}";
        assert_eq!(taken(pools, None).as_deref(), Some("ollama/small"));
        assert_eq!(taken(pools, Some("openai/a, offline")).as_deref(), Some("openai/a"));
        assert_eq!(taken("llm: {model: gemini/x}", None).as_deref(), Some("gemini/x"));
        assert_eq!(taken("", Some("scripted:a,b.json")).as_deref(), Some("scripted:a,b.json"));
    }
}
