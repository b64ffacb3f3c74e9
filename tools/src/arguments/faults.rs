//! Finds schemas that cannot be used to check arguments.

use std::collections::HashMap;

use serde_json::Value;

use super::checks::{MAX_CHECKS, MAX_UNEVALUATED, count, target, unevaluated_keywords};
use super::expansion;
use super::patterns;

/// Maximum nesting of a schema, including its references. The validator needs stack space for each level.
const MAX_LEVELS: usize = 128;

pub(super) fn unsupported_reason(schema: &Value) -> Option<String> {
    if let Some(why) = unsupported_reference(schema, schema, schema) {
        return Some(why);
    }
    if nesting(schema, schema, 0, &mut HashMap::new()) > MAX_LEVELS {
        return Some(format!("with its references it has more than {MAX_LEVELS} levels"));
    }
    if unevaluated_keywords(schema) > MAX_UNEVALUATED {
        return Some(format!("it has more than {MAX_UNEVALUATED} of `unevaluatedProperties` and `unevaluatedItems`"));
    }
    if let Some(why) = expansion::unsupported_reason(schema).or_else(|| patterns::unsupported_reason(schema)) {
        return Some(why);
    }
    let no_args = Value::Object(serde_json::Map::new());
    (count(schema, &no_args) > MAX_CHECKS).then(|| format!("a check against it takes more than {MAX_CHECKS} steps"))
}

/// Returns the reason why a reference in `schema` may lead outside of `root`, if one may.
fn unsupported_reference(root: &Value, top: &Value, schema: &Value) -> Option<String> {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(items) => return items.iter().find_map(|item| unsupported_reference(root, top, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    let old = || root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"));
    for (key, value) in fields {
        let found = match (&**key, value) {
            ("$ref", Value::String(place)) if target(root, place).is_none() => Some(format!(
                "`$ref` leads to `{place}`, which is not a pointer within the schema, such as `#/$defs/name`"
            )),
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => Some(format!("`{key}` is not supported")),
            ("$schema", Value::String(_)) if !std::ptr::eq(schema, top) => {
                Some("`$schema` within it is not supported".into())
            }
            ("$id", Value::String(_)) if !std::ptr::eq(schema, top) => Some("`$id` within it is not supported".into()),
            ("id", Value::String(_)) if old() && !std::ptr::eq(schema, top) => {
                Some("`id` within it is not supported".into())
            }
            // These keywords hold plain values, which may look like references.
            ("const" | "default" | "enum" | "example" | "examples", _) => unsupported_reference(root, top, value)
                .filter(|_| {
                    let has = |key| has_key(value, key);
                    has("$id") || has("$schema") || has("id") && old()
                }),
            _ => unsupported_reference(root, top, value),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key(key) || fields.values().any(|value| has_key(value, key)),
        Value::Array(items) => items.iter().any(|item| has_key(item, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the nesting with references. `known` caches that of each reference; it is 0 during the count.
fn nesting<'a>(root: &'a Value, schema: &'a Value, depth: usize, known: &mut HashMap<*const Value, usize>) -> usize {
    if depth > MAX_LEVELS {
        return usize::MAX;
    }
    let depth = depth.saturating_add(1);
    let deepest = match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match (&**key, value) {
                ("$ref", Value::String(place)) => target(root, place).map_or(0, |target| {
                    let at = std::ptr::from_ref(target);
                    if let Some(levels) = known.get(&at) {
                        return *levels;
                    }
                    known.insert(at, 0);
                    let found = nesting(root, target, depth, known);
                    known.insert(at, found);
                    found
                }),
                _ => nesting(root, value, depth, known),
            })
            .max(),
        Value::Array(items) => items.iter().map(|item| nesting(root, item, depth, known)).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    deepest.unwrap_or(0).saturating_add(1)
}
