//! The shape of a configuration, read from its schema: which keys there are, and what each may hold.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use subtend_agents::form::{self, Misfit};

use super::error::BadValue;
use super::key::{BadKey, Key};
use super::near::{hint, near};

/// What may be under a key: a part of the schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape(&'static Value);

/// The kinds of shapes.
pub(super) enum Kind {
    /// Keys that are known, by name.
    Table(&'static Map<String, Value>),
    /// Keys that the user names.
    Map(Shape),
    /// A value.
    Leaf,
}

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Values, each with its key.
    pub(super) values: Vec<(Key, Value)>,
    /// Keys that mean nothing, with what was probably meant.
    pub(super) unknown: Vec<(Key, Option<String>)>,
}

impl Shape {
    /// Returns the shape of a whole configuration.
    pub(super) fn whole() -> Self {
        static SCHEMA: LazyLock<Value> = LazyLock::new(super::schema::schema);
        Self(&SCHEMA)
    }

    /// Returns its kind.
    pub(super) fn kind(self) -> Kind {
        match (self.0.get("properties"), self.0.get("additionalProperties")) {
            (Some(Value::Object(fields)), _) => Kind::Table(fields),
            (_, Some(entry @ Value::Object(_))) => Kind::Map(Self(entry)),
            (_, _) => Kind::Leaf,
        }
    }

    /// Returns the type of its value.
    pub(super) fn type_of(self) -> &'static str {
        form::type_of(self.0)
    }

    /// Returns what is under `name` in it.
    pub(super) fn below(self, name: &str) -> Option<Self> {
        form::below(self.0, name).map(Self)
    }

    /// Returns the names of the keys that it knows, in the order of the alphabet.
    pub(super) fn names(self) -> Vec<&'static str> {
        let fields = self.0.get("properties").and_then(Value::as_object);
        let mut names: Vec<_> = fields.into_iter().flat_map(|fields| fields.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names
    }

    /// Returns what is under `key`.
    pub(super) fn at(self, key: &Key) -> Result<Self, BadKey> {
        key.names().iter().try_fold(self, |here, name| {
            let bad = |hint| BadKey { key: key.to_string(), hint };
            here.below(name).ok_or_else(|| match here.kind() {
                Kind::Leaf => bad(format!(": what stands above it is {}", form::allowed(here.0))),
                Kind::Table(_) | Kind::Map(_) if near(name, here.names()).is_some() => bad(hint(name, here.names())),
                Kind::Table(_) | Kind::Map(_) => bad(format!("; there are: {}", here.names().join(", "))),
            })
        })
    }

    /// Returns every value that has a key of its own, none that is below a key that users name.
    pub(super) fn leaves(self) -> Vec<(Key, Self)> {
        let mut leaves = Vec::new();
        self.gather(&Key::whole(), &mut leaves);
        leaves
    }

    fn gather(self, key: &Key, leaves: &mut Vec<(Key, Self)>) {
        match self.kind() {
            Kind::Table(fields) => fields.iter().for_each(|(name, field)| Self(field).gather(&key.with(name), leaves)),
            Kind::Map(_) => {}
            Kind::Leaf => leaves.push((key.clone(), self)),
        }
    }

    /// Checks a value, and parts it into those that are settled by themselves. What is null says nothing.
    pub(super) fn part(self, key: &Key, mut value: Value) -> Result<Found, BadValue> {
        let mut found = Found::default();
        form::without_nulls(&mut value);
        if value.is_null() {
            return Ok(found);
        }
        let of = |at: &[String]| at.iter().fold(key.clone(), |key, name| key.with(name));
        let bad = |at: &[String], value, allowed| BadValue { key: of(at), value, allowed };
        let misfits = form::misfits(self.0, &value).map_err(|why| bad(&[], form::shown(&value), why))?;
        for misfit in misfits {
            match misfit {
                Misfit::Value { at, value, allowed } => return Err(bad(&at, value, allowed)),
                Misfit::Unknown { at } => {
                    let Some((name, above)) = at.split_last() else { continue };
                    let table = above.iter().try_fold(self, |here, name| here.below(name));
                    let meant = table.and_then(|table| near(name, table.names()));
                    found.unknown.push((of(&at), meant.map(str::to_owned)));
                    let above = above.iter().try_fold(&mut value, |value, name| value.get_mut(name));
                    above.and_then(Value::as_object_mut).map(|map| map.remove(name));
                }
            }
        }
        self.split(key, value, &mut found)?;
        Ok(found)
    }

    /// A map that the user names is settled entry by entry; an entry that is a table is settled whole.
    fn split(self, key: &Key, value: Value, found: &mut Found) -> Result<(), BadValue> {
        match (self.kind(), value) {
            (Kind::Table(fields), Value::Object(map)) => map.into_iter().try_for_each(|(name, value)| {
                fields.get(&name).map_or(Ok(()), |field| Self(field).split(&key.with(&name), value, found))
            }),
            (Kind::Map(entry), Value::Object(map)) => map.into_iter().try_for_each(|(name, value)| {
                let key = key.with(&name);
                match entry.kind() {
                    Kind::Table(_) => found.values.push((key, value)),
                    Kind::Map(_) | Kind::Leaf => entry.split(&key, value, found)?,
                }
                Ok(())
            }),
            (_, value) if value == "none" && self.has_none() => {
                found.values.push((key.clone(), Value::Null));
                Ok(())
            }
            // JSON Schema takes 2.0 for a whole number.
            (_, value) if self.type_of() == "integer" && value.as_u64().is_none() => {
                Err(BadValue { key: key.clone(), value: form::shown(&value), allowed: form::allowed(self.0) })
            }
            (_, value) => {
                found.values.push((key.clone(), value));
                Ok(())
            }
        }
    }

    /// Whether its value may be `none`.
    fn has_none(self) -> bool {
        let forms = self.0.get("anyOf").and_then(Value::as_array);
        forms.into_iter().flatten().any(|form| form.get("const").is_some_and(|word| word == "none"))
    }
}
