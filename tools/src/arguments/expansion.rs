//! Limits the work of the validator while it compiles a schema.
//!
//! The validator compiles most parts once. But it visits combined parts (`allOf`, `$ref`, `if` and others) again for each `unevaluated…`
//! keyword and for each part of `anyOf` and `oneOf`. So a schema of a few kilobytes can exhaust the memory.

use std::collections::HashMap;

use serde_json::Value;

use super::checks::{target, unevaluated_keywords};
use super::patterns::number;

/// Maximum number of combined parts. A part counts once for each reference to it.
const MAX_PARTS: u64 = 1 << 18;
/// Maximum number of values compiled for `unevaluated…` keywords. A value counts once for each reference to it.
const MAX_COMPILED: u64 = 1 << 16;

/// Returns the reason why a schema is refused, if it is. The caller has checked its nesting.
pub(super) fn unsupported_reason(schema: &Value) -> Option<String> {
    let mut parts = Expansion { root: schema, known: HashMap::new(), weigh: |_: &Value| 1 };
    if parts.sum_counts(schema, &|_| true) > MAX_PARTS {
        return Some(format!(
            "a reference leads back to itself, or its combined parts are more than {MAX_PARTS}, counted once for each reference"
        ));
    }
    let mut compiled = Expansion { root: schema, known: HashMap::new(), weigh: size };
    let is_origin =
        |part: &Value| part.as_object().is_some_and(|fields| fields.keys().any(|key| key.starts_with("unevaluated")));
    let sum = compiled.sum_counts(schema, &is_origin).saturating_mul(unevaluated_keywords(schema).into());
    (sum > MAX_COMPILED).then(|| {
        format!("`unevaluatedProperties` and `unevaluatedItems` in it apply to more than {MAX_COMPILED} values")
    })
}

/// Counts combined parts, weighted by `weigh`.
struct Expansion<'a, F> {
    root: &'a Value,
    /// The count of each part. It is `u64::MAX` during the count, to detect cycles.
    known: HashMap<*const Value, u64>,
    weigh: F,
}

impl<'a, F: Fn(&Value) -> u64> Expansion<'a, F> {
    /// Returns the sum of the counts of all parts of `schema` for which `is_origin` is true.
    fn sum_counts(&mut self, schema: &'a Value, is_origin: &dyn Fn(&Value) -> bool) -> u64 {
        let own = if schema.is_object() && is_origin(schema) { self.count(schema) } else { 0 };
        let below: Vec<&Value> = match schema {
            Value::Object(fields) => fields.values().collect(),
            Value::Array(items) => items.iter().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        below.into_iter().fold(own, |sum, part| {
            if sum > MAX_PARTS { sum } else { sum.saturating_add(self.sum_counts(part, is_origin)) }
        })
    }

    /// Returns the number of parts that `schema` combines, including itself.
    fn count(&mut self, schema: &'a Value) -> u64 {
        let Value::Object(fields) = schema else { return 1 };
        let at = std::ptr::from_ref(schema);
        if let Some(known) = self.known.get(&at) {
            return *known;
        }
        self.known.insert(at, u64::MAX);
        let mut sum = (self.weigh)(schema);
        for (key, part) in fields {
            let combined = match (&**key, part) {
                // A `$ref` within a plain value, such as `default`, may have no target.
                ("$ref", Value::String(place)) => target(self.root, place).map_or(0, |target| self.count(target)),
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => self.count_all(parts),
                ("not" | "if" | "then" | "else", part) => self.count(part),
                ("dependentSchemas" | "dependencies", Value::Object(parts)) => self.count_all(parts.values()),
                _ => 0,
            };
            sum = sum.saturating_add(combined);
        }
        self.known.insert(at, sum);
        sum
    }

    fn count_all(&mut self, parts: impl IntoIterator<Item = &'a Value>) -> u64 {
        parts.into_iter().fold(0, |sum: u64, part| sum.saturating_add(self.count(part)))
    }
}

/// Returns the number of values in a part.
fn size(part: &Value) -> u64 {
    match part {
        Value::Object(fields) => fields.values().map(size).fold(1, u64::saturating_add),
        Value::Array(items) => items.iter().map(size).fold(1, u64::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => number(1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Returns a chain of definitions: `part` makes one from a reference to the next, and `last` is the final one.
    fn chain(levels: usize, part: impl Fn(Value) -> Value, last: &Value) -> Map<String, Value> {
        let name = |n: usize| format!("d{n}");
        let next = |n: usize| json!({"$ref": format!("#/$defs/d{}", n + 1)});
        let mut defs: Map<String, Value> = (0..levels).map(|n| (name(n), part(next(n)))).collect();
        defs.insert(name(levels), last.clone());
        defs
    }

    /// The controls: the same schemas with one reference each.
    #[test]
    fn schemas_that_expand_are_refused() {
        let text = json!({"type": "string"});
        let combine = |times: usize| {
            move |next: Value| match times % 3 {
                0 => json!({"allOf": vec![next; times]}),
                1 => json!({"anyOf": vec![next; times]}),
                _ => json!({"if": next, "then": next, "else": next}),
            }
        };
        let attacks: [(usize, usize); 3] = [(40, 3), (20, 4), (40, 2)];
        for (levels, times) in attacks {
            for keyword in ["unevaluatedItems", "unevaluatedProperties", "minItems"] {
                let schema = |times: usize, levels: usize| {
                    let part =
                        json!({"$ref": "#/$defs/d0", "anyOf": vec![json!({"$ref": "#/$defs/d0"}); 3], keyword: 0});
                    json!({"type": "object", "properties": {"p": part}, "$defs": chain(levels, combine(times), &text)})
                };
                assert!(unsupported_reason(&schema(times, levels)).is_some(), "{keyword} {times}");
                assert_eq!(unsupported_reason(&schema(1, levels)), None, "{keyword} {times}");
            }
        }
    }

    /// The property is missing in the arguments. The control: a reference one list item deeper is accepted.
    #[test]
    fn reference_that_leads_to_itself_is_refused() {
        let endless = json!({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}});
        assert!(unsupported_reason(&endless).is_some_and(|why| why.starts_with("a reference leads back to itself")));
        let list =
            json!({"type": "object", "properties": {"a": {"items": {"anyOf": [{"$ref": "#/properties/a"}, {}]}}}});
        assert_eq!(unsupported_reason(&list), None);
    }

    #[test]
    fn large_parts_of_unevaluated_keywords_are_refused() {
        let fields: Map<String, Value> = (0..300).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
        let schema = |keyword: &str, times: usize| {
            let parts = vec![json!({"$ref": "#/$defs/d"}); times];
            json!({"type": "object", "allOf": parts, keyword: false, "$defs": {"d": {"properties": fields}}})
        };
        assert!(unsupported_reason(&schema("unevaluatedProperties", 200)).is_some());
        assert_eq!(unsupported_reason(&schema("unevaluatedProperties", 20)), None);
        assert_eq!(unsupported_reason(&schema("additionalProperties", 200)), None);
    }
}
