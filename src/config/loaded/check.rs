use subtend_agents::{name, template};
use subtend_models::models::MAX_MEMBERS;
use subtend_models::spec::ModelSpec;
use subtend_session::escape::on_one_line;
use subtend_tools::dialect::minion;

use super::Loaded;
use crate::config::error::ConfigError;
use crate::config::key::Key;
use crate::config::origin::{Origin, Warning};
use crate::config::{EngineName, OptionValue};

/// Maximum number of warnings of one kind that are listed.
pub(in crate::config) const MAX_WARNINGS: usize = 64;

/// Checks rules that involve several values. Returns warnings for problems that are not errors.
pub(super) fn check_combinations(loaded: &Loaded) -> Result<Vec<Warning>, ConfigError> {
    check_agent_name(loaded)?;
    models(loaded)?;
    templates(loaded)?;
    pools(loaded)?;
    options(loaded)?;
    check_numbers(loaded)?;
    shell(loaded)?;
    web(loaded)?;
    Ok(profiles(loaded))
}

fn refuse<T>(loaded: &Loaded, key: &Key, why: String) -> Result<T, ConfigError> {
    // Names and values of a file could forge a message.
    Err(ConfigError::Conflict { origin: loaded.origin(key), why: on_one_line(&format!("`{key}`: {why}")) })
}

fn shell(loaded: &Loaded) -> Result<(), ConfigError> {
    let key = Key::from(["shell", "environment"]);
    match loaded.config.commands().check() {
        Ok(()) => Ok(()),
        Err(error) => refuse(loaded, &key, error.to_string()),
    }
}

/// Refuses a search engine without its required settings, and settings of another engine.
fn web(loaded: &Loaded) -> Result<(), ConfigError> {
    let search = &loaded.config.web.search;
    let key = |name: &str| Key::from(["web", "search", name]);
    match search.engine {
        Some(EngineName::Searxng) if search.url.is_none() => {
            return refuse(loaded, &key("engine"), "is `searxng`, which needs an address: set `web.search.url`".into());
        }
        None | Some(EngineName::Brave) if search.url.is_some() => {
            return refuse(
                loaded,
                &key("url"),
                "is for `web.search.engine: searxng`: set that engine, or omit this key".into(),
            );
        }
        None | Some(EngineName::Searxng) if search.key_variable.is_some() => {
            return refuse(
                loaded,
                &key("key_variable"),
                "is for `web.search.engine: brave`: set that engine, or omit this key".into(),
            );
        }
        None | Some(_) => {}
    }
    #[cfg(feature = "web")]
    {
        for host in &loaded.config.web.internal_hosts {
            if let Err(error) = host.parse::<subtend_tools::web::InternalHost>() {
                return refuse(loaded, &Key::from(["web", "internal_hosts"]), error.to_string());
            }
        }
        if let Some(Err(error)) = search.url.as_deref().map(subtend_tools::web::check_engine) {
            return refuse(loaded, &key("url"), error.to_string());
        }
    }
    Ok(())
}

fn check_agent_name(loaded: &Loaded) -> Result<(), ConfigError> {
    match name::check(&loaded.config.agent) {
        Ok(()) => Ok(()),
        Err(error) => refuse(loaded, &Key::from(["agent"]), error.to_string()),
    }
}

fn models(loaded: &Loaded) -> Result<(), ConfigError> {
    let llm = &loaded.config.llm;
    let key = Key::from(["llm", "model"]);
    if let Some(text) = &llm.model {
        check_models(loaded, &key, text)?;
    }
    if let Some(text) = &loaded.config.tools.minion.options.model {
        check_minion_model(loaded, &Key::from(["tools", "minion", "options", "model"]), text)?;
    }
    let key = Key::from(["tools", "minion", "options", "model"]);
    let minion = &loaded.config.tools.minion;
    // The model is filled in when `minion` is enabled, so an empty one was removed explicitly.
    if minion.enabled && minion.options.model.is_none() && loaded.origin(&key) != Origin::Default {
        return refuse(loaded, &key, "is empty, and required while `minion` is enabled: name a model".into());
    }
    let pool_key = Key::from(["llm", "default_pool"]);
    if llm.model.is_some()
        && llm.default_pool.is_some()
        && loaded.origin(&Key::from(["llm", "model"])).rank() == loaded.origin(&pool_key).rank()
    {
        return refuse(loaded, &pool_key, "cannot be combined with `llm.model`: omit one of them".into());
    }
    match &llm.default_pool {
        Some(pool) if !llm.pools.contains_key(pool) => {
            let known: Vec<&str> = llm.pools.keys().map(|name| &**name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            refuse(loaded, &pool_key, format!("unknown pool `{pool}`; pools under `llm.pools`: {known}"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses an unknown model of minions, because another model would answer instead.
fn check_minion_model(loaded: &Loaded, key: &Key, text: &str) -> Result<(), ConfigError> {
    let pools = &loaded.config.llm.pools;
    let is_pool = text.strip_prefix("pool:").is_some_and(|pool| pools.contains_key(pool));
    if is_pool { Ok(()) } else { check_models(loaded, key, text) }
}

fn templates(loaded: &Loaded) -> Result<(), ConfigError> {
    let templates = &loaded.config.tools.minion.templates;
    let key = |name: &str| Key::from(["tools", "minion", "templates", name]);
    if let Err(error) = template::check(templates) {
        return refuse(loaded, &key(&error.template), error.why);
    }
    let named = templates.iter().filter_map(|(name, template)| Some((name, template.model.as_ref()?)));
    named.into_iter().try_for_each(|(name, model)| check_minion_model(loaded, &key(name).with("model"), model))
}

fn check_models(loaded: &Loaded, key: &Key, text: &str) -> Result<(), ConfigError> {
    // The file name of a script may contain a comma.
    let names = if text.trim_start().starts_with("scripted:") { vec![text] } else { text.split(',').collect() };
    names.into_iter().try_for_each(|word| check_model(loaded, key, word))
}

/// Refuses unknown models and scripts: a file of the workspace must not replace a model.
fn check_model(loaded: &Loaded, key: &Key, word: &str) -> Result<(), ConfigError> {
    match ModelSpec::parse(word) {
        Ok(ModelSpec::Scripted(_)) => refuse(loaded, key, script(word)),
        Ok(_) => Ok(()),
        Err(error) => refuse(loaded, key, error.to_string()),
    }
}

/// Returns the error for a script that a file or a variable names.
pub fn script(word: &str) -> String {
    format!("`{word}` is a script, which only the command line can name: add `--model {word}`")
}

/// Refuses scripts in tool options that name a model, and options of `minion`, which has its own key.
fn options(loaded: &Loaded) -> Result<(), ConfigError> {
    for (tool, values) in &loaded.config.tools.options {
        if let Some(id) = values.keys().next().filter(|_| **tool == *minion::NAME) {
            let why = "the options of `minion` are under `tools.minion.options`";
            return refuse(loaded, &Key::from(["tools", "options", tool, id]), why.into());
        }
        for (id, value) in values {
            if let OptionValue::Text(text) = value
                && let Ok(ModelSpec::Scripted(_)) = ModelSpec::parse(text)
            {
                return refuse(loaded, &Key::from(["tools", "options", tool, id]), script(text));
            }
        }
    }
    Ok(())
}

fn pools(loaded: &Loaded) -> Result<(), ConfigError> {
    for (pool, members) in &loaded.config.llm.pools {
        let key = Key::from(["llm", "pools", pool]);
        if name::check(pool).is_err() {
            return refuse(
                loaded,
                &key,
                "the name of a pool must have 1 to 64 characters of a-z, 0-9, `-` and `_`".into(),
            );
        }
        if members.is_empty() || members.len() > MAX_MEMBERS {
            return refuse(loaded, &key, format!("names {} models: it must have 1 to {MAX_MEMBERS}", members.len()));
        }
        for (at, member) in members.iter().enumerate() {
            if members.iter().take(at).any(|before| before == member) {
                return refuse(loaded, &key, format!("names `{member}` twice: name each model once"));
            }
            check_model(loaded, &key, member)?;
        }
    }
    Ok(())
}

fn check_numbers(loaded: &Loaded) -> Result<(), ConfigError> {
    if let Err(error) = loaded.config.limits.check() {
        return refuse(loaded, &Key::from(["limits", error.name]), error.to_string());
    }
    match loaded.config.prices.check() {
        Ok(()) => Ok(()),
        Err((model, error)) => refuse(loaded, &Key::from(["prices", &model]), error.to_string()),
    }
}

/// Warns about profiles with a missing pool. Such a profile is still used, with the caller's model.
fn profiles(loaded: &Loaded) -> Vec<Warning> {
    let config = &loaded.config;
    let named = config.tools.spawn.profiles.iter().filter_map(|(name, profile)| Some((name, profile.pool.as_ref()?)));
    let missing: Vec<_> = named.filter(|(_, pool)| !config.llm.pools.contains_key(*pool)).collect();
    let more = missing.len().saturating_sub(MAX_WARNINGS);
    let mut warnings: Vec<Warning> = Vec::new();
    for (name, pool) in missing.into_iter().take(MAX_WARNINGS) {
        let key = Key::from(["tools", "spawn", "profiles", name]);
        let pool = on_one_line(pool);
        let message = format!("`{key}` names the pool `{pool}`, which does not exist: the caller's model is used");
        warnings.push(Warning { origin: loaded.origin(&key), message });
    }
    if let (Some(last), true) = (warnings.last(), more > 0) {
        let message = format!("{more} more profiles under `tools.spawn.profiles` name pools that do not exist");
        warnings.push(Warning { origin: last.origin.clone(), message });
    }
    warnings
}
