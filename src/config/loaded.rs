//! A configuration merged from its layers.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use subtend_session::ids::Text;

use super::error::{BadValue, ConfigError};
use super::key::{BadKey, Key};
use super::layer::Layer;
use super::origin::{Origin, Warning};
use super::shape::{Shape, ShapeKind};
use super::{Config, project_access, variable};

pub(super) mod check;

/// A configuration, with the origin of each value.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The effective configuration.
    pub config: Config,
    /// Every value, in the order of the keys.
    pub values: Vec<Setting>,
    /// Warnings about values that have no effect, or an unexpected one.
    pub warnings: Vec<Warning>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its key.
    pub key: Key,
    /// Its value; null if it is not set.
    pub value: Value,
    /// Its source.
    pub origin: Origin,
    /// Environment variable that can set it, if there is one.
    pub variable: Option<String>,
}

/// The model of sessions whose agent does not name one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultModel {
    /// No source names one.
    Unset,
    /// A model, or several separated by commas.
    Model(Text),
    /// A pool.
    Pool(Text),
}

impl Loaded {
    /// Merges layers. The value of a key comes from the origin with the highest precedence. Among equals, the later
    /// layer applies.
    ///
    /// # Errors
    /// When values conflict, for example if a named pool does not exist.
    pub fn of(layers: impl IntoIterator<Item = Layer>) -> Result<Self, ConfigError> {
        let (mut entries, mut warnings) = (Vec::new(), Vec::new());
        for layer in layers {
            entries.extend(layer.values);
            warnings.extend(layer.warnings);
        }
        entries.sort_by_key(|(_, _, origin)| origin.rank());
        project_access::check(&entries)?;
        let unreadable = |error: serde_json::Error| ConfigError::Conflict {
            origin: Origin::Default,
            why: format!("the values cannot be read together: {error}"),
        };
        let mut tree = serde_json::to_value(Config::default()).map_err(unreadable)?;
        for (key, value, _) in &entries {
            insert(&mut tree, key.names(), value.clone());
        }
        let config: Config = serde_json::from_value(tree).map_err(unreadable)?;
        let values = settings(&config, &entries).map_err(unreadable)?;
        let mut loaded = Self { config, values, warnings };
        let more = check::check_combinations(&loaded)?;
        loaded.warnings.extend(more);
        Ok(loaded)
    }

    /// Returns the origin of `key`: of its value, of the first value below it, or of the value that contains it.
    pub fn origin(&self, key: &Key) -> Origin {
        let found = self.values.iter().find(|setting| key.contains(&setting.key) || setting.key.contains(key));
        found.map_or(Origin::Default, |setting| setting.origin.clone())
    }

    /// Returns the origin of each entry of the map `key`. Makes one pass over the values, because a file may have
    /// thousands of entries.
    pub fn origins(&self, key: &Key) -> BTreeMap<String, Origin> {
        let at = key.names().len();
        let below = self.values.iter().filter(|setting| key.contains(&setting.key));
        let mut found = BTreeMap::new();
        for setting in below {
            let Some(name) = setting.key.names().get(at) else { continue };
            found.entry(name.clone()).or_insert_with(|| setting.origin.clone());
        }
        found
    }

    /// Returns the values at and below `key`, with their origins. A key without value and default is null.
    ///
    /// # Errors
    /// [`BadKey`] if the key is unknown, with a suggestion.
    pub fn at(&self, key: &Key) -> Result<Vec<Setting>, BadKey> {
        Shape::whole().at(key)?;
        let below: Vec<_> = self.values.iter().filter(|setting| key.contains(&setting.key)).cloned().collect();
        if !below.is_empty() {
            return Ok(below);
        }
        // The key is within a value that is resolved as a whole, or it has no value.
        let within = |whole: &Setting| {
            let rest = key.names().get(whole.key.names().len()..)?;
            let value =
                rest.iter().try_fold(&whole.value, |value, name| value.get(name)).filter(|value| !value.is_null())?;
            Some((value.clone(), whole.origin.clone()))
        };
        let whole = self.values.iter().find(|setting| setting.key.contains(key));
        let (value, origin) = whole.and_then(within).unwrap_or((Value::Null, Origin::Default));
        Ok(vec![Setting { key: key.clone(), value, origin, variable: None }])
    }

    /// Returns the model of sessions whose agent does not name one. If both a model and a pool are set, the origin with
    /// higher precedence decides.
    pub fn default_model(&self) -> DefaultModel {
        let rank = |name| self.origin(&Key::from(["llm", name])).rank();
        let prefers_model = rank("model") > rank("default_pool");
        match (&self.config.llm.model, &self.config.llm.default_pool) {
            (Some(model), pool) if prefers_model || pool.is_none() => DefaultModel::Model(model.clone()),
            (_, Some(pool)) => DefaultModel::Pool(pool.clone()),
            (_, None) => DefaultModel::Unset,
        }
    }
}

impl Key {
    /// Parses `text` as the value of this key in `subtend.yaml`.
    ///
    /// # Errors
    /// [`BadKey`] if the key is unknown; the inner [`BadValue`] if the value is invalid.
    pub fn value(&self, text: &str) -> Result<Result<Value, BadValue>, BadKey> {
        let here = Shape::whole().at(self)?;
        let items = match here.kind() {
            ShapeKind::Leaf => variable::value(here, text),
            ShapeKind::Table(_) | ShapeKind::Map(_) => {
                subtend_agents::yaml::parse(text).unwrap_or_else(|_| text.into())
            }
        };
        // A list may also be written in YAML.
        let items =
            if text.trim_start().starts_with('[') { subtend_agents::yaml::parse(text).unwrap_or(items) } else { items };
        let unknown = here.parse(self, items.clone()).map(|found| found.unknown.into_iter().next());
        Ok(match unknown {
            Err(bad) => Err(bad),
            Ok(Some((key, _))) => {
                let allowed = "left out: the key is unknown".to_owned();
                Err(BadValue { key, value: subtend_agents::form::shown(&items), allowed })
            }
            Ok(None) => Ok(items),
        })
    }
}

fn insert(tree: &mut Value, names: &[String], value: Value) {
    let Some((name, rest)) = names.split_first() else {
        *tree = value;
        return;
    };
    if !tree.is_object() {
        *tree = Value::Object(Map::new());
    }
    if let Value::Object(map) = tree {
        insert(map.entry(name.clone()).or_insert(Value::Null), rest, value);
    }
}

fn settings(config: &Config, values: &[(Key, Value, Origin)]) -> Result<Vec<Setting>, serde_json::Error> {
    let (tree, mut settings) = (serde_json::to_value(config)?, Vec::new());
    list(Shape::whole(), &Key::whole(), &tree, &mut settings);
    // The last value of a key wins.
    let last: BTreeMap<&Key, &Origin> = values.iter().map(|(key, _, origin)| (key, origin)).collect();
    for setting in &mut settings {
        setting.origin = last.get(&setting.key).map_or(Origin::Default, |origin| (*origin).clone());
    }
    Ok(settings)
}

fn list(shape: Shape, key: &Key, value: &Value, settings: &mut Vec<Setting>) {
    let setting =
        |key: Key, value: &Value, variable| Setting { key, value: value.clone(), origin: Origin::Default, variable };
    match (shape.kind(), value) {
        (ShapeKind::Table(_), Value::Object(map)) => {
            for (name, field) in shape.names().into_iter().filter_map(|name| Some((name, shape.field(name)?))) {
                list(field, &key.with(name), map.get(name).unwrap_or(&Value::Null), settings);
            }
        }
        (ShapeKind::Map(entry), Value::Object(map)) if matches!(entry.kind(), ShapeKind::Map(_)) && !map.is_empty() => {
            map.iter().for_each(|(name, value)| list(entry, &key.with(name), value, settings));
        }
        (ShapeKind::Map(_), Value::Object(map)) if !map.is_empty() => {
            settings.extend(map.iter().map(|(name, value)| setting(key.with(name), value, None)));
        }
        (ShapeKind::Leaf, value) => settings.push(setting(key.clone(), value, Some(variable::name(key)))),
        (ShapeKind::Table(_) | ShapeKind::Map(_), value) => settings.push(setting(key.clone(), value, None)),
    }
}
