//! Models that agent files name and that there are not: their sessions are answered by the default model, which nobody asked for.

use subtend::config::{DefaultModel, Loaded};
use subtend_agents::catalog::{Catalog, Problem, ProblemKind};
use subtend_agents::manifest::{Manifest, Source};
use subtend_models::spec::ModelSpec;

/// The models that may be named where agents work.
struct Known {
    /// Those that were named for all, the one that stands in first, and the members of pools.
    named: Vec<String>,
    /// Names of pools.
    pools: Vec<String>,
    /// Whether one of the models is a provider's. Where all answer without a server, that is meant for every agent.
    providers: bool,
}

/// What is wrong with agent files: what the catalogue found, and models that they name and that there are not. `words` are those of
/// `--model` or its variable.
pub(crate) fn problems(catalog: &Catalog, loaded: &Loaded, words: Option<&str>) -> Vec<Problem> {
    let known = Known::of(loaded, words);
    let unknown = catalog.all().filter_map(|manifest| known.missed(manifest));
    catalog.problems().iter().cloned().chain(unknown).collect()
}

impl Known {
    fn of(loaded: &Loaded, words: Option<&str>) -> Self {
        let pools = &loaded.config.llm.pools;
        let mut named: Vec<String> = match (words, loaded.default_model()) {
            (Some(words), _) => each(words),
            (None, DefaultModel::Model(words)) => each(&words),
            (None, DefaultModel::Pool(pool)) => {
                pools.get(&pool).into_iter().flatten().map(ToString::to_string).collect()
            }
            (None, DefaultModel::Unsaid) => vec!["offline".to_owned()],
        };
        named.extend(pools.values().flatten().map(ToString::to_string));
        let providers = named.iter().any(|name| !calls_nobody(name));
        Self { named, pools: pools.keys().map(ToString::to_string).collect(), providers }
    }

    /// What to say of a manifest whose model there is not.
    fn missed(&self, manifest: &Manifest) -> Option<Problem> {
        let (Source::File(path), Some(model)) = (&manifest.source, &manifest.model) else { return None };
        let why = self.why_not(model)?;
        let taken = self.named.first().map_or("offline", String::as_str);
        let message = format!("`model`: the default one, `{taken}`, answers instead, since {why}");
        Some(Problem { path: path.clone(), kind: ProblemKind::Warning, message })
    }

    fn why_not(&self, model: &str) -> Option<String> {
        if self.named.iter().any(|name| name == model) {
            return None;
        }
        if let Some(pool) = model.strip_prefix("pool:") {
            let there_are = if self.pools.is_empty() { "none".to_owned() } else { self.pools.join(", ") };
            let unknown = || format!("there is no pool `{pool}` under `llm.pools`; there are: {there_are}");
            return (!self.pools.iter().any(|name| name == pool)).then(unknown);
        }
        if self.pools.iter().any(|name| name == model) {
            return Some(format!("`{model}` is a pool, and no model: write `pool: {model}`"));
        }
        match ModelSpec::parse(model) {
            Err(bad) => Some(bad.to_string()),
            Ok(ModelSpec::Offline | ModelSpec::Scripted(_)) if self.providers => Some(format!(
                "`{model}` answers only where it is named for all, by `--model` or in `subtend.yaml`, and here it is not"
            )),
            Ok(_) => None,
        }
    }
}

/// Models with commas between; a script's file may have one in its name.
fn each(words: &str) -> Vec<String> {
    match words.trim() {
        word if word.starts_with("scripted:") => vec![word.to_owned()],
        words => words.split(',').map(|word| word.trim().to_owned()).collect(),
    }
}

fn calls_nobody(name: &str) -> bool {
    matches!(ModelSpec::parse(name), Ok(ModelSpec::Offline | ModelSpec::Scripted(_)))
}

#[cfg(test)]
mod tests {
    use subtend::config::{Layer, Origin};

    use super::*;

    fn why(config: &str, words: Option<&str>, model: &str) -> Option<String> {
        let layer = Layer::file(Origin::Project("subtend.yaml".into()), config).expect("a layer");
        Known::of(&Loaded::of([layer]).expect("a configuration"), words).why_not(model)
    }

    #[test]
    fn a_model_is_known_as_a_providers_a_pools_or_by_its_name() {
        let pools = "llm: {pools: {cheap: [ollama/small, offline]}}";
        for known in ["anthropic/claude-x", "ollama/small", "offline", "pool:cheap"] {
            assert_eq!(why(pools, Some("anthropic/claude-x"), known), None, "{known}");
        }
        assert_eq!(why("", None, "scripted:x.json"), None, "where nothing calls a server, that is meant for all");
        let said = |config, words, model| why(config, words, model).expect("it is unknown");
        assert!(
            said("", None, "claude-x").starts_with("there is no model `claude-x`: did you mean `anthropic/claude-x`?")
        );
        assert!(said("", Some("offline"), "antropic/x").contains("did you mean `anthropic/x`?"));
        assert_eq!(said(pools, None, "cheap"), "`cheap` is a pool, and no model: write `pool: cheap`");
        assert_eq!(said(pools, None, "pool:dear"), "there is no pool `dear` under `llm.pools`; there are: cheap");
        assert_eq!(said("", None, "pool:dear"), "there is no pool `dear` under `llm.pools`; there are: none");
        let alone =
            "`offline` answers only where it is named for all, by `--model` or in `subtend.yaml`, and here it is not";
        assert_eq!(said("llm: {model: anthropic/claude-x}", None, "offline"), alone);
    }

    #[test]
    fn the_model_that_answers_instead_is_the_first_that_was_named() {
        let taken = |config: &str, words: Option<&str>| {
            let layer = Layer::file(Origin::Project("subtend.yaml".into()), config).expect("a layer");
            Known::of(&Loaded::of([layer]).expect("a configuration"), words).named.first().cloned()
        };
        let pools = "llm: {default_pool: cheap, pools: {cheap: [ollama/small, offline]}}";
        assert_eq!(taken(pools, None).as_deref(), Some("ollama/small"));
        assert_eq!(taken(pools, Some("openai/a, offline")).as_deref(), Some("openai/a"));
        assert_eq!(taken("llm: {model: gemini/x}", None).as_deref(), Some("gemini/x"));
        assert_eq!(taken("", Some("scripted:a,b.json")).as_deref(), Some("scripted:a,b.json"));
    }
}
