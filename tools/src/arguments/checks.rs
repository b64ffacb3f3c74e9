//! Estimates the work of the validator before it runs.
//!
//! The validator makes all checks on the caller's thread. A schema of a few kilobytes can require more checks than a machine can make
//! in a year: for example, forty definitions that each refer twice to the next.

use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::patterns::{self, number};

/// Maximum number of checks for one call. A million checks take less than a second.
pub(super) const MAX_CHECKS: u64 = 1 << 20;
/// Maximum depth of one check, through a schema and the arguments.
const MAX_DEPTH: usize = 512;
/// Maximum number of `unevaluated…` keywords. Each one repeats the checks of its sibling keywords.
pub(super) const MAX_UNEVALUATED: u32 = 8;
/// Maximum bytes of a reference, because each check resolves it again.
const MAX_REFERENCE: usize = 512;
/// Bytes of text that are hashed, counted or compared in the time of one check.
const TEXT: usize = 64;
/// The number of items below which the validator compares each pair.
const FEW: u64 = 16;
/// Keywords whose cost is known: those matched below, and those whose check takes constant time.
const KNOWN_KEYWORDS: [&str; 52] = [
    "$anchor",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$recursiveAnchor",
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "id",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Sample property names of 16, 32, … bytes, for the cost of `propertyNames`.
static NAMES: LazyLock<Vec<Value>> =
    LazyLock::new(|| (4..=12).map(|power| Value::String("x".repeat(1 << power))).collect());

/// Returns an upper bound of the checks for `args`: the count does not stop at the first failed check.
pub(super) fn count(schema: &Value, args: &Value) -> u64 {
    let repeated = 3_u64.saturating_pow(unevaluated_keywords(schema));
    CheckCounter { root: schema, known: HashMap::new(), steps: 0 }.count(schema, args, 0).saturating_mul(repeated)
}

pub(super) fn unevaluated_keywords(schema: &Value) -> u32 {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| u32::from(key.starts_with("unevaluated")).saturating_add(unevaluated_keywords(value)))
            .fold(0, u32::saturating_add),
        Value::Array(items) => items.iter().map(unevaluated_keywords).fold(0, u32::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns the part of `root` that a reference names. Returns `None` for `%` and a lone `~`, which the validator decodes in its own way.
pub(super) fn target<'a>(root: &'a Value, place: &str) -> Option<&'a Value> {
    let pointer = place.strip_prefix('#').filter(|pointer| pointer.len() < MAX_REFERENCE && !pointer.contains('%'))?;
    let plain = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    root.pointer(pointer).filter(|_| plain)
}

struct CheckCounter<'a> {
    root: &'a Value,
    /// The number of checks of each referenced part against each value. It is `u64::MAX` during the count, to detect
    /// cycles.
    known: HashMap<(*const Value, *const Value), u64>,
    steps: u64,
}

impl<'a> CheckCounter<'a> {
    /// Returns the number of checks of `value` against the part `schema`, or `u64::MAX` if a limit is exceeded.
    fn count(&mut self, schema: &'a Value, value: &'a Value, depth: usize) -> u64 {
        self.steps = self.steps.saturating_add(1);
        if self.steps > MAX_CHECKS || depth > MAX_DEPTH {
            return u64::MAX;
        }
        let fields = match schema {
            Value::Object(fields) => fields,
            // In `dependencies`, an array lists the names that one property requires.
            Value::Array(names) => return number(names.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 1,
        };
        let mut sum = number(fields.len() / 8).saturating_add(1);
        for (key, part) in fields {
            sum = sum.saturating_add(self.keyword(key, part, value, depth.saturating_add(1)));
            if sum > MAX_CHECKS {
                return u64::MAX;
            }
        }
        sum
    }

    /// Returns the number of checks of one keyword. The time is at most proportional to the result.
    fn keyword(&mut self, key: &str, part: &'a Value, value: &'a Value, depth: usize) -> u64 {
        match (key, part) {
            ("$ref", Value::String(place)) => self.reference(place, value, depth),
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => self.count_all(parts, value, depth),
            ("not" | "if" | "then" | "else", _) => self.count(part, value, depth),
            ("dependentSchemas" | "dependencies", Value::Object(parts)) => self.count_all(parts.values(), value, depth),
            ("prefixItems" | "items", Value::Array(parts)) => {
                self.pairs(parts.iter().zip(value.as_array().into_iter().flatten()), depth)
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", _) => {
                self.pairs(value.as_array().into_iter().flatten().map(|item| (part, item)), depth)
            }
            (
                "properties" | "patternProperties" | "propertyNames" | "additionalProperties" | "unevaluatedProperties",
                _,
            ) => value.as_object().map_or(0, |fields| self.fields(key, part, fields, depth)),
            _ => count_flat(key, part, value),
        }
    }

    /// Returns the number of checks of a keyword for the properties of an object.
    fn fields(&mut self, key: &str, part: &'a Value, fields: &'a Map<String, Value>, depth: usize) -> u64 {
        match (key, part) {
            ("properties", Value::Object(parts)) if fields.len() < parts.len() => {
                let found = fields.iter().filter_map(|(name, value)| Some((parts.get(name)?, value)));
                names(fields).saturating_add(self.pairs(found, depth))
            }
            ("properties", Value::Object(parts)) => {
                let found = parts.iter().filter_map(|(name, part)| Some((part, fields.get(name)?)));
                names(parts).saturating_add(self.pairs(found, depth))
            }
            ("patternProperties", Value::Object(parts)) => {
                let mut matches: u64 = 0;
                for pattern in parts.keys() {
                    // Counted twice, because `additionalProperties` matches the patterns again.
                    let once = fields.keys().map(|name| patterns::matching_cost(pattern, name.len()).saturating_mul(2));
                    matches = once.fold(matches, u64::saturating_add);
                    if matches > MAX_CHECKS {
                        return u64::MAX;
                    }
                }
                let pairs = parts.values().flat_map(|part| fields.values().map(move |value| (part, value)));
                matches.saturating_add(self.pairs(pairs, depth))
            }
            ("propertyNames", _) => {
                let longest = fields.keys().map(String::len).max().unwrap_or(0);
                let name = NAMES.iter().find(|name| name.as_str().is_some_and(|name| name.len() >= longest));
                let one = name.map_or(u64::MAX, |name| self.count(part, name, depth));
                one.saturating_mul(number(fields.len()))
            }
            _ => names(fields).saturating_add(self.pairs(fields.values().map(|value| (part, value)), depth)),
        }
    }

    fn reference(&mut self, place: &str, value: &'a Value, depth: usize) -> u64 {
        let Some(target) = target(self.root, place) else { return u64::MAX };
        let key = (std::ptr::from_ref(target), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.known.insert(key, u64::MAX);
        let found = self.count(target, value, depth);
        self.known.insert(key, found);
        found
    }

    fn count_all(&mut self, parts: impl IntoIterator<Item = &'a Value>, value: &'a Value, depth: usize) -> u64 {
        self.pairs(parts.into_iter().map(|part| (part, value)), depth)
    }

    fn pairs(&mut self, pairs: impl Iterator<Item = (&'a Value, &'a Value)>, depth: usize) -> u64 {
        let mut sum: u64 = 0;
        for (part, value) in pairs {
            sum = sum.saturating_add(self.count(part, value, depth));
            if sum > MAX_CHECKS {
                return u64::MAX;
            }
        }
        sum
    }
}

/// Returns the number of checks of a keyword that contains no schema.
fn count_flat(key: &str, part: &Value, value: &Value) -> u64 {
    match (key, part, value) {
        ("title" | "description" | "$comment" | "default" | "examples", ..) => 0,
        ("$dynamicRef" | "$recursiveRef", Value::String(_), _) => u64::MAX,
        ("enum", Value::Array(choices), _) => {
            let is_text = |choice: &Value| matches!(choice, Value::String(_) | Value::Null);
            // The validator finds strings by hash and compares other values one by one.
            let found = if choices.iter().all(is_text) { text_cost(value) } else { compare_cost(part) };
            number(choices.len() / 16).saturating_add(found)
        }
        ("const", ..) => compare_cost(part),
        ("required", Value::Array(needed), Value::Object(fields)) => number(needed.len().min(fields.len())),
        ("dependentRequired", Value::Object(parts), Value::Object(_)) => compare_cost(part).max(names(parts)),
        ("uniqueItems", Value::Bool(true), Value::Array(items)) => {
            // Hashes of numbers and objects may collide on purpose, so all pairs count.
            let all = number(items.len());
            let alike = if items.iter().all(Value::is_string) { 0 } else { all.saturating_mul(all) / 64 };
            compare_cost(value).saturating_mul(FEW.min(all)).saturating_add(alike)
        }
        ("maxLength" | "minLength", ..) => text_cost(value),
        ("contentEncoding" | "contentMediaType", _, Value::String(text)) => number(text.len()),
        ("pattern", Value::String(pattern), Value::String(text)) => patterns::matching_cost(pattern, text.len()),
        _ if KNOWN_KEYWORDS.binary_search(&key).is_ok() => 0,
        // The validator knows this keyword, but its cost is unknown here.
        _ if [Draft::Draft4, Draft::Draft202012].iter().any(|draft| draft.is_known_keyword(key)) => u64::MAX,
        _ => 0,
    }
}

/// Returns the cost of comparing or hashing a value.
fn compare_cost(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => {
            fields.values().map(compare_cost).fold(names(fields).saturating_add(1), u64::saturating_add)
        }
        Value::Array(items) => items.iter().map(compare_cost).fold(1, u64::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text_cost(value),
    }
}

/// Returns the cost of reading a string; 1 for other values.
fn text_cost(value: &Value) -> u64 {
    number(value.as_str().map_or(0, str::len) / TEXT).saturating_add(1)
}

/// Returns the cost of looking up all names of one object in another.
fn names(fields: &Map<String, Value>) -> u64 {
    fields.keys().map(|name| number(name.len() / TEXT).saturating_add(1)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
