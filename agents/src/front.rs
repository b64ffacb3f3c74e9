//! Agent files: Markdown with YAML front matter, read into manifests.

use serde_json::{Map, Value};
use subtend_session::ids::Text;
use subtend_session::place::OnRestart;
use subtend_session::settings::{Effort, Settings};

use crate::manifest::{AgentMode, Manifest, Source, first_sentence};
use crate::name::{self, BadName};
use crate::permissions::{self, shown};

mod unknown;

/// The keys that mean something here.
pub(crate) const KEYS: [&str; 18] = [
    "name",
    "mode",
    "description",
    "model",
    "pool",
    "temperature",
    "top_p",
    "output_tokens",
    "effort",
    "tools",
    "permissions",
    "inspectable",
    "caller",
    "turns",
    "detached",
    "on_restart",
    "hidden",
    "plan_exit",
];

/// Why a file is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadManifest {
    #[error("has no front matter: begin the file with a line `---`, then YAML, then another line `---`")]
    NoFrontMatter,
    #[error("the front matter has no end: close it with a line `---`")]
    Unclosed,
    #[error("the front matter is not valid YAML: {0}")]
    Yaml(String),
    #[error("has no `mode`: add `mode: primary`, `mode: subagent` or `mode: all`")]
    NoMode,
    #[error("has no prompt: write it below the front matter")]
    NoPrompt,
    #[error("`{key}` {why}")]
    Field { key: &'static str, why: String },
    #[error("`{key}` {why}")]
    Unknown { key: String, why: String },
    #[error(transparent)]
    Name(#[from] BadName),
}

/// A manifest, with what a person should know about the file.
#[derive(Debug, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) manifest: Manifest,
    pub(crate) warnings: Vec<String>,
}

/// Reads `text`; `stem` is the name of an agent whose file gives none.
///
/// # Errors
/// With what is wrong and what to write instead; the caller names the file.
pub(crate) fn parse(text: &str, stem: &str, source: Source) -> Result<Parsed, BadManifest> {
    let (yaml, body) = split(text)?;
    let mut fields = Fields(yaml_map(yaml)?);
    let name = fields.text("name")?.unwrap_or_else(|| stem.into());
    name::check(&name)?;
    let mode = fields.mode()?;
    if body.trim().is_empty() {
        return Err(BadManifest::NoPrompt);
    }
    let mut warnings = Vec::new();
    let description = fields.text("description")?.unwrap_or_else(|| first_sentence(body).into());
    let rules = fields
        .take("permissions")
        .map(|value| permissions::parse(&value).map_err(|why| BadManifest::Field { key: "permissions", why }))
        .transpose()?;
    if rules.as_ref().is_some_and(permissions::narrows_nothing) {
        warnings.push("`permissions` only allows, which changes nothing: add `\"*\": deny` to deny the rest".into());
    }
    let (model, pool) = (fields.text("model")?, fields.text("pool")?);
    if let (Some(model), Some(_)) = (&model, &pool) {
        let why =
            format!("cannot stand beside `model` ({model}): a pool says which models there are, so leave one out");
        return Err(BadManifest::Field { key: "pool", why });
    }
    let manifest = Manifest {
        name,
        mode,
        description,
        model,
        pool,
        settings: fields.settings()?,
        tools: fields.tools()?,
        rules,
        inspectable: fields.flag("inspectable")?,
        caller: fields.caller()?,
        turns: fields.count("turns")?,
        detached: fields.flag("detached")?,
        on_restart: fields.on_restart()?,
        body: body.into(),
        hidden: fields.flag("hidden")?,
        plan_exit: fields.flag("plan_exit")?,
        extra: fields.0.into_iter().collect(),
        source,
    };
    if let Some((key, why)) = manifest.extra.iter().find_map(|(key, value)| Some((key, unknown::refused(key, value)?)))
    {
        return Err(BadManifest::Unknown { key: key.clone(), why });
    }
    let unknown = |key| format!("unknown key `{key}` is kept without effect; the keys are {}", KEYS.join(", "));
    warnings.extend(manifest.extra.keys().map(unknown));
    Ok(Parsed { manifest, warnings })
}

/// The name of the agent that a refused file was to give.
pub(crate) fn name(text: &str, stem: &str) -> String {
    let map = split(text).ok().and_then(|(yaml, _)| yaml_map(yaml).ok());
    let name = map.and_then(|map| map.get("name")?.as_str().map(|name| name.trim().to_owned()));
    name.unwrap_or_else(|| stem.to_owned())
}

/// Parts front matter, its opening line included so that YAML errors name lines of the file, and body.
fn split(text: &str) -> Result<(&str, &str), BadManifest> {
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

fn yaml_map(yaml: &str) -> Result<Map<String, Value>, BadManifest> {
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(yaml, options).map_err(|error| {
        // In the words for whoever wrote the file: the others name options of the library.
        let said = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        BadManifest::Yaml(said.split_whitespace().collect::<Vec<_>>().join(" "))
    })?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err(BadManifest::Yaml(format!("it must be a map of keys to values, not {}", shown(&other))))
        }
    }
}

/// The front matter; what is taken out of it is known, and the rest is kept as it is.
struct Fields(Map<String, Value>);

impl Fields {
    /// A key without a value is as good as no key.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| !value.is_null())
    }

    fn text(&mut self, key: &'static str) -> Result<Option<Text>, BadManifest> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_str().map(str::trim) {
            Some(text) if !text.is_empty() => Ok(Some(text.into())),
            Some(_) | None => Err(BadManifest::Field { key, why: format!("must be a text, not {}", shown(&value)) }),
        }
    }

    fn flag(&mut self, key: &'static str) -> Result<bool, BadManifest> {
        let Some(value) = self.take(key) else { return Ok(false) };
        value
            .as_bool()
            .ok_or_else(|| BadManifest::Field { key, why: format!("must be true or false, not {}", shown(&value)) })
    }

    fn mode(&mut self) -> Result<AgentMode, BadManifest> {
        let value = self.take("mode").ok_or(BadManifest::NoMode)?;
        [AgentMode::Primary, AgentMode::Subagent, AgentMode::All]
            .into_iter()
            .find(|mode| value.as_str() == Some(mode.word()))
            .ok_or_else(|| BadManifest::Field {
                key: "mode",
                why: format!("must be primary, subagent or all, not {}", shown(&value)),
            })
    }

    fn caller(&mut self) -> Result<bool, BadManifest> {
        let Some(value) = self.take("caller") else { return Ok(false) };
        if value.as_str() == Some("agent") {
            return Ok(true);
        }
        let why = format!("must be `agent` or be left out, not {}", shown(&value));
        Err(BadManifest::Field { key: "caller", why })
    }

    fn on_restart(&mut self) -> Result<OnRestart, BadManifest> {
        let Some(value) = self.take("on_restart") else { return Ok(OnRestart::Fail) };
        serde_json::from_value(value.clone()).map_err(|_| BadManifest::Field {
            key: "on_restart",
            why: format!("must be fail or resume, not {}", shown(&value)),
        })
    }

    /// A whole number of at least 1.
    fn count<N: TryFrom<u64>>(&mut self, key: &'static str) -> Result<Option<N>, BadManifest> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let count = value.as_u64().filter(|count| *count > 0).and_then(|count| N::try_from(count).ok());
        count.map(Some).ok_or_else(|| BadManifest::Field {
            key,
            why: format!("must be a whole number of at least 1, not {}", shown(&value)),
        })
    }

    fn settings(&mut self) -> Result<Settings, BadManifest> {
        Ok(Settings {
            output_tokens: self.count("output_tokens")?,
            temperature: self.number("temperature", "of at least 0", |number| number >= 0.0)?,
            top_p: self.number("top_p", "from 0 to 1", |number| (0.0..=1.0).contains(&number))?,
            effort: self.effort()?,
        })
    }

    fn number(
        &mut self,
        key: &'static str,
        allowed: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, BadManifest> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_f64().filter(|number| fits(*number)).map(Some).ok_or_else(|| BadManifest::Field {
            key,
            why: format!("must be a number {allowed}, not {}", shown(&value)),
        })
    }

    fn effort(&mut self) -> Result<Option<Effort>, BadManifest> {
        let Some(value) = self.take("effort") else { return Ok(None) };
        serde_json::from_value(value.clone()).map(Some).map_err(|_| BadManifest::Field {
            key: "effort",
            why: format!("must be none, low, medium or high, not {}", shown(&value)),
        })
    }

    /// A list of names, or the names in one text with commas between them.
    fn tools(&mut self) -> Result<Option<Vec<Text>>, BadManifest> {
        let Some(value) = self.take("tools") else { return Ok(None) };
        let wrong = |value: &Value| BadManifest::Field {
            key: "tools",
            why: format!("must list tools by name ([a-zA-Z0-9_-], at most 64 characters), not {}", shown(value)),
        };
        let names: Option<Vec<&str>> = match &value {
            Value::String(text) => Some(text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()),
            Value::Array(items) => items.iter().map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        let names = names.filter(|names| names.iter().all(|name| is_tool_name(name))).ok_or_else(|| wrong(&value))?;
        Ok(Some(names.into_iter().map(Text::from).collect()))
    }
}

pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests;
