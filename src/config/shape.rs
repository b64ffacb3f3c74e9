//! The shape of a configuration, read from its schema: which keys there are, and what each may hold.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{BadKey, BadValue};
use super::key::Key;
use super::near::{hint, near};

/// What may stand under a key.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// Keys that are known.
    Table {
        /// By name.
        fields: BTreeMap<String, Shape>,
        /// Those that must be there.
        required: Vec<String>,
    },
    /// Keys that the user names.
    Map(Box<Shape>),
    /// A value.
    Leaf(Leaf),
}

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// What it may be.
    pub(super) kind: Kind,
    /// Whether it may be `none`.
    none: bool,
}

/// What a value may be.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Flag,
    Count {
        least: u64,
        most: Option<u64>,
    },
    Number {
        least: f64,
        most: Option<f64>,
    },
    Words(Vec<String>),
    Text,
    /// A text, or true or false.
    FlagOrText,
    Texts,
}

/// What was found in one file.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Values, each with its key.
    pub(super) values: Vec<(Key, Value)>,
    /// Keys that mean nothing, with what was probably meant.
    pub(super) unknown: Vec<(Key, Option<String>)>,
}

impl Shape {
    /// The shape of a whole configuration.
    pub(super) fn whole() -> Self {
        Self::of(&super::schema::schema())
    }

    fn of(node: &Value) -> Self {
        if let Some(Value::Object(fields)) = node.get("properties") {
            let fields = fields.iter().map(|(name, field)| (name.clone(), Self::of(field))).collect();
            let required = words(node.get("required"));
            return Self::Table { fields, required };
        }
        match node.get("additionalProperties") {
            Some(entry @ Value::Object(_)) => Self::Map(Box::new(Self::of(entry))),
            Some(_) | None => Self::Leaf(Leaf::of(node)),
        }
    }

    /// What stands under `key`.
    pub(super) fn at(&self, key: &Key) -> Result<&Self, BadKey> {
        let mut here = self;
        for name in key.names() {
            let bad = |hint| BadKey { key: key.to_string(), hint };
            here = match here {
                Self::Table { fields, .. } => fields.get(name).ok_or_else(|| {
                    let known = || fields.keys().map(String::as_str);
                    let list = || format!("; there are: {}", known().collect::<Vec<_>>().join(", "));
                    bad(near(name, known()).map_or_else(list, |_| hint(name, known())))
                })?,
                Self::Map(entry) => entry,
                Self::Leaf(leaf) => return Err(bad(format!(": what stands above it is {}", leaf.allowed()))),
            };
        }
        Ok(here)
    }

    /// Every value that has a key of its own, none that stands below a key that users name.
    pub(super) fn leaves(&self) -> Vec<(Key, &Leaf)> {
        let mut leaves = Vec::new();
        self.gather(&Key::whole(), &mut leaves);
        leaves
    }

    fn gather<'a>(&'a self, key: &Key, leaves: &mut Vec<(Key, &'a Leaf)>) {
        match self {
            Self::Table { fields, .. } => fields.iter().for_each(|(name, field)| field.gather(&key.with(name), leaves)),
            Self::Map(_) => {}
            Self::Leaf(leaf) => leaves.push((key.clone(), leaf)),
        }
    }

    /// Parts a value into those that are settled by themselves, and checks each. What is null says nothing.
    pub(super) fn part(&self, key: &Key, value: Value, found: &mut Found) -> Result<(), BadValue> {
        if value.is_null() {
            return Ok(());
        }
        match self {
            Self::Table { fields, .. } => {
                for (name, value) in self.object(key, value)? {
                    match fields.get(&name) {
                        Some(field) => field.part(&key.with(&name), value, found)?,
                        None => self.unknown(key, &name, found),
                    }
                }
            }
            // Names under names: what stands there is settled by itself.
            Self::Map(entry) if matches!(**entry, Self::Map(_)) => {
                for (name, value) in self.object(key, value)? {
                    entry.part(&key.with(&name), value, found)?;
                }
            }
            Self::Map(entry) => {
                for (name, value) in self.object(key, value)? {
                    let key = key.with(&name);
                    if let Some(value) = entry.checked(&key, value, found)? {
                        found.values.push((key, value));
                    }
                }
            }
            Self::Leaf(leaf) => found.values.push((key.clone(), leaf.checked(key, value)?)),
        }
        Ok(())
    }

    /// The value without what says nothing.
    fn checked(&self, key: &Key, value: Value, found: &mut Found) -> Result<Option<Value>, BadValue> {
        if value.is_null() {
            return Ok(None);
        }
        let (fields, required) = match self {
            Self::Leaf(leaf) => return leaf.checked(key, value).map(Some),
            Self::Map(entry) => {
                let mut checked = Map::new();
                for (name, value) in self.object(key, value)? {
                    let value = entry.checked(&key.with(&name), value, found)?;
                    checked.extend(value.map(|value| (name, value)));
                }
                return Ok(Some(Value::Object(checked)));
            }
            Self::Table { fields, required } => (fields, required),
        };
        let mut checked = Map::new();
        for (name, value) in self.object(key, value)? {
            match fields.get(&name) {
                Some(field) => {
                    let value = field.checked(&key.with(&name), value, found)?;
                    checked.extend(value.map(|value| (name, value)));
                }
                None => self.unknown(key, &name, found),
            }
        }
        if let Some(missing) = required.iter().find(|name| !checked.contains_key(*name)) {
            let allowed = format!("a map that says `{missing}` too");
            return Err(BadValue { key: key.clone(), value: shown(&Value::Object(checked)), allowed });
        }
        Ok(Some(Value::Object(checked)))
    }

    fn object(&self, key: &Key, value: Value) -> Result<Map<String, Value>, BadValue> {
        match value {
            Value::Object(map) => Ok(map),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let value = shown(&other);
                Err(BadValue { key: key.clone(), value, allowed: "a map of keys to values".to_owned() })
            }
        }
    }

    fn unknown(&self, key: &Key, name: &str, found: &mut Found) {
        let near = match self {
            Self::Table { fields, .. } => near(name, fields.keys().map(String::as_str)),
            Self::Map(_) | Self::Leaf(_) => None,
        };
        found.unknown.push((key.with(name), near.map(str::to_owned)));
    }
}

impl Leaf {
    fn of(node: &Value) -> Self {
        let forms: Vec<&Value> = match node.get("anyOf") {
            Some(Value::Array(forms)) => forms.iter().collect(),
            Some(_) | None => vec![node],
        };
        let none = forms.iter().any(|form| form.get("const").is_some_and(|word| word == "none"));
        let form = forms.first().copied().unwrap_or(node);
        let consts = form.get("oneOf").and_then(Value::as_array);
        let consts: Vec<String> = consts.into_iter().flatten().filter_map(|form| text(form.get("const")?)).collect();
        let consts = if consts.is_empty() { words(form.get("enum")) } else { consts };
        let bound = |name: &str| form.get(name);
        let is = |form: &&Value, name: &str| form.get("type").is_some_and(|of| of == name);
        let either = forms.iter().any(|form| is(form, "boolean")) && forms.iter().any(|form| is(form, "string"));
        let kind = match form.get("type").map(words_of).unwrap_or_default().first().map(String::as_str) {
            _ if !consts.is_empty() => Kind::Words(consts),
            _ if either => Kind::FlagOrText,
            Some("boolean") => Kind::Flag,
            Some("integer") => Kind::Count {
                least: bound("minimum").and_then(Value::as_u64).unwrap_or_default(),
                most: bound("maximum").and_then(Value::as_u64),
            },
            Some("number") => Kind::Number {
                least: bound("minimum").and_then(Value::as_f64).unwrap_or(f64::MIN),
                most: bound("maximum").and_then(Value::as_f64),
            },
            Some("array") => Kind::Texts,
            Some(_) | None => Kind::Text,
        };
        Self { kind, none }
    }

    fn checked(&self, key: &Key, value: Value) -> Result<Value, BadValue> {
        if self.none && value == "none" {
            return Ok(Value::Null);
        }
        let fits = match &self.kind {
            Kind::Flag => value.is_boolean(),
            Kind::Count { least, most } => {
                value.as_u64().is_some_and(|count| count >= *least && most.is_none_or(|most| count <= most))
            }
            Kind::Number { least, most } => {
                value.as_f64().is_some_and(|number| number >= *least && most.is_none_or(|most| number <= most))
            }
            Kind::Words(words) => value.as_str().is_some_and(|word| words.iter().any(|known| known == word)),
            Kind::Text => value.is_string(),
            Kind::FlagOrText => value.is_boolean() || value.is_string(),
            Kind::Texts => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        };
        if fits {
            return Ok(value);
        }
        Err(BadValue { key: key.clone(), value: shown(&value), allowed: self.allowed() })
    }

    /// What it may hold, in words.
    pub(super) fn allowed(&self) -> String {
        let allowed = match &self.kind {
            Kind::Flag => "true or false".to_owned(),
            Kind::Count { least, most: None } => format!("a whole number of at least {least}"),
            Kind::Count { least, most: Some(most) } => format!("a whole number from {least} to {most}"),
            Kind::Number { least, most: None } => format!("a number of at least {least}"),
            Kind::Number { least, most: Some(most) } => format!("a number from {least} to {most}"),
            Kind::Words(words) => words.join(" or "),
            Kind::Text => "a text".to_owned(),
            Kind::FlagOrText => "a text, or true or false".to_owned(),
            Kind::Texts => "a list of texts".to_owned(),
        };
        if self.none { format!("{allowed}, or none") } else { allowed }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn words(value: Option<&Value>) -> Vec<String> {
    value.map(words_of).unwrap_or_default()
}

fn words_of(value: &Value) -> Vec<String> {
    match value {
        Value::String(word) => vec![word.clone()],
        Value::Array(words) => words.iter().filter_map(text).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// A value as an error shows it: short, on one line.
pub(super) fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain(['…']).collect() }
}
