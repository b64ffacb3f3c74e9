//! The shape of a configuration, derived from its schema: known keys, and their allowed values.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use subtend_agents::form::{self, SchemaMismatch};

use super::error::BadValue;
use super::key::{BadKey, Key};
use super::near::{hint, near};

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape(&'static Value);

pub(super) enum ShapeKind {
    Table(&'static Map<String, Value>),
    Map(Shape),
    Leaf,
}

#[derive(Debug, Default)]
pub(super) struct ConfigFindings {
    pub(super) values: Vec<(Key, Value)>,
    /// Unknown keys, with suggestions.
    pub(super) unknown: Vec<(Key, Option<String>)>,
}

impl Shape {
    pub(super) fn whole() -> Self {
        static SCHEMA: LazyLock<Value> = LazyLock::new(super::schema::schema);
        Self(&SCHEMA)
    }

    pub(super) fn kind(self) -> ShapeKind {
        match (self.0.get("properties"), self.0.get("additionalProperties")) {
            (Some(Value::Object(fields)), _) => ShapeKind::Table(fields),
            (_, Some(entry @ Value::Object(_))) => ShapeKind::Map(Self(entry)),
            (_, _) => ShapeKind::Leaf,
        }
    }

    pub(super) fn type_of(self) -> &'static str {
        form::type_of(self.0)
    }

    pub(super) fn field(self, name: &str) -> Option<Self> {
        form::below(self.0, name).map(Self)
    }

    /// Returns the names of its known keys, sorted.
    pub(super) fn names(self) -> Vec<&'static str> {
        let fields = self.0.get("properties").and_then(Value::as_object);
        let mut names: Vec<_> = fields.into_iter().flat_map(|fields| fields.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn at(self, key: &Key) -> Result<Self, BadKey> {
        key.names().iter().try_fold(self, |here, name| {
            let bad = |hint| BadKey { key: key.to_string(), hint };
            here.field(name).ok_or_else(|| match here.kind() {
                ShapeKind::Leaf => bad(format!(": its parent is {}", form::allowed(here.0))),
                ShapeKind::Table(_) | ShapeKind::Map(_) if near(name, here.names()).is_some() => {
                    bad(hint(name, here.names()))
                }
                ShapeKind::Table(_) | ShapeKind::Map(_) => bad(format!("; known keys: {}", here.names().join(", "))),
            })
        })
    }

    /// Returns all values with fixed keys, without those in maps whose keys users choose.
    pub(super) fn leaves(self) -> Vec<(Key, Self)> {
        let mut leaves = Vec::new();
        self.gather(&Key::whole(), &mut leaves);
        leaves
    }

    fn gather(self, key: &Key, leaves: &mut Vec<(Key, Self)>) {
        match self.kind() {
            ShapeKind::Table(fields) => {
                fields.iter().for_each(|(name, field)| Self(field).gather(&key.with(name), leaves))
            }
            ShapeKind::Map(_) => {}
            ShapeKind::Leaf => leaves.push((key.clone(), self)),
        }
    }

    /// Checks a value, and splits it into values that are resolved separately. Nulls are ignored.
    pub(super) fn parse(self, key: &Key, mut value: Value) -> Result<ConfigFindings, BadValue> {
        let mut found = ConfigFindings::default();
        form::without_nulls(&mut value);
        if value.is_null() {
            return Ok(found);
        }
        let of = |at: &[String]| at.iter().fold(key.clone(), |key, name| key.with(name));
        let bad = |at: &[String], value, allowed| BadValue { key: of(at), value, allowed };
        let schema_mismatches =
            form::schema_mismatches(self.0, &value).map_err(|why| bad(&[], form::shown(&value), why))?;
        for mismatch in schema_mismatches {
            match mismatch {
                SchemaMismatch::Value { at, value, allowed } => return Err(bad(&at, value, allowed)),
                SchemaMismatch::Unknown { at } => {
                    let Some((name, parents)) = at.split_last() else { continue };
                    let table = parents.iter().try_fold(self, |here, name| here.field(name));
                    let suggestion = table.and_then(|table| near(name, table.names()));
                    found.unknown.push((of(&at), suggestion.map(str::to_owned)));
                    let parents = parents.iter().try_fold(&mut value, |value, name| value.get_mut(name));
                    parents.and_then(Value::as_object_mut).map(|map| map.remove(name));
                }
            }
        }
        self.split(key, value, &mut found)?;
        Ok(found)
    }

    /// Splits a value. Entries of a map with user-chosen keys are resolved separately, tables as a whole.
    fn split(self, key: &Key, value: Value, found: &mut ConfigFindings) -> Result<(), BadValue> {
        match (self.kind(), value) {
            (ShapeKind::Table(fields), Value::Object(map)) => map.into_iter().try_for_each(|(name, value)| {
                fields.get(&name).map_or(Ok(()), |field| Self(field).split(&key.with(&name), value, found))
            }),
            (ShapeKind::Map(entry), Value::Object(map)) => map.into_iter().try_for_each(|(name, value)| {
                let key = key.with(&name);
                match entry.kind() {
                    ShapeKind::Table(_) => found.values.push((key, value)),
                    ShapeKind::Map(_) | ShapeKind::Leaf => entry.split(&key, value, found)?,
                }
                Ok(())
            }),
            (_, value) if value == "none" && self.has_none() => {
                found.values.push((key.clone(), Value::Null));
                Ok(())
            }
            // JSON Schema accepts 2.0 as an integer.
            (_, value) if self.type_of() == "integer" && value.as_u64().is_none() => {
                Err(BadValue { key: key.clone(), value: form::shown(&value), allowed: form::allowed(self.0) })
            }
            (_, value) => {
                found.values.push((key.clone(), value));
                Ok(())
            }
        }
    }

    fn has_none(self) -> bool {
        let forms = self.0.get("anyOf").and_then(Value::as_array);
        forms.into_iter().flatten().any(|form| form.get("const").is_some_and(|word| word == "none"))
    }
}
