use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};
use subtend_session::ids::Text;
use subtend_session::settings::Settings;
use subtend_session::unseen::is_unseen;

use crate::form::{SchemaMismatch, schema_mismatches, shown, without_nulls};
use crate::manifest::{Manifest, Source, first_sentence};
use crate::name::{self, BadName};
use crate::permissions;
use crate::schema::{self, FrontMatter, Tools};

/// The maximum number of unknown keys that the warnings for a file list.
pub(crate) const MAX_UNKNOWN: usize = 16;

/// Maximum number of parts, other than texts, of the values that a file's unknown keys keep.
const MAX_KEPT: usize = 100;

/// Maximum bytes of the name of a model.
const MAX_MODEL: usize = 512;

pub(crate) mod unknown;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadManifest {
    #[error("has no front matter: begin the file with a line `---`, then YAML, then another line `---`")]
    NoFrontMatter,
    #[error("the front matter has no end: close it with a line `---`")]
    Unclosed,
    #[error("the front matter is not valid YAML: {0}")]
    Yaml(String),
    #[error("is not valid TOML: {0}")]
    Toml(String),
    #[error("has no `mode`: add `mode: primary`, `mode: subagent` or `mode: all`")]
    NoMode,
    #[error("has no prompt: write it below the front matter")]
    NoPrompt,
    #[error("`{key}` {why}")]
    Field { key: String, why: String },
    #[error(transparent)]
    Name(#[from] BadName),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) manifest: Manifest,
    pub(crate) warnings: Vec<String>,
}

/// Parses `text`; `stem` is the default name. Errors do not name the file; the caller adds its name.
pub(crate) fn parse(text: &str, stem: &str, source: Source) -> Result<Parsed, BadManifest> {
    let (yaml, body) = split(text)?;
    let mut map = yaml_map(yaml)?;
    // An empty key has no effect. An empty map of permissions is reported, because its author expects an effect.
    if let Some(permissions) = map.get_mut("permissions").filter(|value| value.is_null()) {
        *permissions = Value::Object(Map::new());
    }
    map.retain(|_, value| !value.is_null());
    let name = name_in(&map, stem);
    name::check(&name)?;
    if !map.contains_key("mode") {
        return Err(BadManifest::NoMode);
    }
    if body.trim().is_empty() {
        return Err(BadManifest::NoPrompt);
    }
    let field = |key: &str, why: String| BadManifest::Field { key: key.to_owned(), why };
    let rules = map.get("permissions").map(permissions::parse).transpose();
    let rules = rules.map_err(|why| field("permissions", why))?;
    let mut extra: BTreeMap<_, _> = map
        .iter()
        .filter(|(key, _)| !schema::keys().any(|known| known == *key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let front = check_schema(Value::Object(map))?;
    if let (Some(model), Some(_)) = (&front.model, &front.pool) {
        let why =
            format!("cannot be combined with `model` ({model}): a pool names its own models. Remove one of the two.");
        return Err(field("pool", why));
    }
    if let Some((key, why)) = extra.iter().find_map(|(key, value)| Some((key, unknown::refused(key, value)?))) {
        return Err(field(key, why));
    }
    drop_large(&mut extra);
    let mut warnings = Vec::new();
    warnings.extend(rules.as_ref().and_then(permissions::no_effect_reason).map(str::to_owned));
    warnings.extend(rules.iter().flat_map(permissions::without_address));
    let keys = || schema::keys().collect::<Vec<_>>().join(", ");
    let unknown = |key: &String| format!("unknown key `{key}` is kept without effect; the keys are {}", keys());
    warnings.extend(extra.keys().take(MAX_UNKNOWN).map(unknown));
    let more = extra.len().saturating_sub(MAX_UNKNOWN);
    warnings.extend((more > 0).then(|| format!("{more} more unknown keys are kept without effect")));
    let FrontMatter { output_tokens, temperature, top_p, effort, .. } = front;
    let trimmed = |text: Option<Text>| text.map(|text| Text::from(text.trim()));
    let is = |flag: Option<bool>| flag.unwrap_or(false);
    let manifest = Manifest {
        name,
        mode: front.mode,
        description: trimmed(front.description).unwrap_or_else(|| first_sentence(body).into()),
        model: trimmed(front.model),
        pool: trimmed(front.pool),
        settings: Settings { output_tokens, temperature, top_p, effort },
        tools: front.tools.map(tools).transpose()?,
        rules,
        bounds: Vec::new(),
        inspectable: is(front.inspectable),
        caller: front.caller.is_some(),
        turns: front.turns,
        detached: is(front.detached),
        isolation: front.isolation.unwrap_or_default(),
        on_restart: front.on_restart,
        body: body.into(),
        hidden: is(front.hidden),
        plan_exit: is(front.plan_exit),
        skills: Vec::new(),
        instructions: front.instructions.unwrap_or(true),
        extra,
        source,
    };
    with_valid_model(Parsed { manifest, warnings })
}

/// Refuses the name of a model that an import would refuse: one session with it would keep the whole store from being imported.
pub(crate) fn with_valid_model(parsed: Parsed) -> Result<Parsed, BadManifest> {
    let fits = |model: &Text| model.len() <= MAX_MODEL && !model.contains(is_unseen);
    if parsed.manifest.model.as_ref().is_none_or(fits) {
        return Ok(parsed);
    }
    let why = format!("must have at most {MAX_MODEL} bytes, and no control or invisible characters");
    Err(BadManifest::Field { key: "model".to_owned(), why })
}

fn check_schema(mut front: Value) -> Result<FrontMatter, BadManifest> {
    without_nulls(&mut front);
    for mismatch in schema_mismatches(&schema::SCHEMA, &front).map_err(BadManifest::Yaml)? {
        let SchemaMismatch::Value { at, value, allowed } = mismatch else { continue };
        return Err(match at.first() {
            Some(key) if key == "tools" => tools_error(&value),
            _ => BadManifest::Field { key: at.join("."), why: format!("must be {allowed}, not {value}") },
        });
    }
    serde_json::from_value(front).map_err(|error| BadManifest::Yaml(error.to_string()))
}

fn tools(tools: Tools) -> Result<Vec<Text>, BadManifest> {
    let names: Vec<Text> = match tools {
        Tools::List(names) => names,
        Tools::Text(text) => text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Text::from).collect(),
    };
    if let Some(bad) = names.iter().find(|name| !is_tool_name(name)) {
        return Err(tools_error(&shown(&Value::from(&**bad))));
    }
    let names = without_repeats(names);
    if names.len() > MAX_TOOLS {
        let why = format!("lists {} tools; the limit is {MAX_TOOLS}", names.len());
        return Err(BadManifest::Field { key: "tools".to_owned(), why });
    }
    Ok(names)
}

/// Each session of the agent keeps such a list, and each missing tool is a warning.
const MAX_TOOLS: usize = 256;

fn without_repeats(names: Vec<Text>) -> Vec<Text> {
    let mut seen = HashSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

fn tools_error(value: &str) -> BadManifest {
    let why = format!("must list tools by name ({TOOL_NAMES}), not {value}");
    BadManifest::Field { key: "tools".to_owned(), why }
}

pub(crate) fn name(text: &str, stem: &str) -> String {
    let map = split(text).ok().and_then(|(yaml, _)| yaml_map(yaml).ok()).unwrap_or_default();
    name_in(&map, stem).to_string()
}

fn name_in(map: &Map<String, Value>, stem: &str) -> Text {
    map.get("name").and_then(Value::as_str).unwrap_or(stem).trim().into()
}

/// Splits front matter and body. The front matter keeps its opening line, so that YAML errors have the line numbers of the file.
pub(crate) fn split(text: &str) -> Result<(&str, &str), BadManifest> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut at = 0_usize;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let is_fence = line.trim_end() == "---";
        let next = at.saturating_add(line.len());
        match (number, is_fence) {
            (0, false) => return Err(BadManifest::NoFrontMatter),
            (0, true) | (_, false) => at = next,
            (_, true) => {
                let (yaml, body) = (text.get(..at).unwrap_or_default(), text.get(next..).unwrap_or_default());
                return Ok((yaml, body.trim_start_matches(['\r', '\n'])));
            }
        }
    }
    Err(if text.trim().is_empty() { BadManifest::NoFrontMatter } else { BadManifest::Unclosed })
}

pub(crate) fn yaml_map(yaml: &str) -> Result<Map<String, Value>, BadManifest> {
    match crate::yaml::parse(yaml).map_err(BadManifest::Yaml)? {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err(BadManifest::Yaml(format!("it must be a map of keys to values, not {}", shown(&other))))
        }
    }
}

/// Replaces values of too many parts by null: a part takes hundreds of times its size in memory.
pub(crate) fn drop_large(kept: &mut BTreeMap<String, Value>) {
    let mut remaining = MAX_KEPT;
    for value in kept.values_mut() {
        match remaining.checked_sub(parts(value)) {
            Some(rest) => remaining = rest,
            None => *value = Value::Null,
        }
    }
}

fn parts(value: &Value) -> usize {
    match value {
        Value::String(_) => 0,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::Array(items) => items.iter().map(parts).fold(1, usize::saturating_add),
        Value::Object(map) => map.values().map(parts).fold(map.len().saturating_add(1), usize::saturating_add),
    }
}

/// The maximum length of a tool name in bytes, as providers accept it.
const MAX_TOOL_NAME: usize = 64;
/// The maximum length of the full name of a server's tool in bytes. Models see a shorter name.
const MAX_SERVER_TOOL_NAME: usize = 320;
// A session of the agent records the name, and an import must take it.
const _: () = assert!(MAX_SERVER_TOOL_NAME < subtend_session::names::MAX_NAME);

/// The rule of [`is_tool_name`] in words, for errors.
pub(crate) const TOOL_NAMES: &str = "1 to 64 of a-z, A-Z, 0-9, `-` and `_`, or 320 if they begin with `mcp__`";

pub(crate) fn is_tool_name(name: &str) -> bool {
    let most = if name.starts_with("mcp__") { MAX_SERVER_TOOL_NAME } else { MAX_TOOL_NAME };
    (1..=most).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests;
