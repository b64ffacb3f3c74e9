//! Counts the checks that a schema requires before the validator makes them.
//!
//! The validator makes all checks on the caller's thread. A schema of some kilobytes can require more of them than a machine can make in
//! a year, for example forty definitions that each refer twice to the next.

use std::collections::HashMap;

use serde_json::Value;

/// Maximum number of checks for one call. A million take less than a second.
pub(super) const MAX_CHECKS: u64 = 1 << 20;
/// Maximum nesting of a schema including its references: the validator needs stack space for each level.
const MAX_LEVELS: usize = 128;
/// Maximum depth of one check, through a schema and the arguments.
const MAX_DEPTH: usize = 512;
/// Maximum number of `unevaluated…` keywords. The check of each repeats the checks of its neighbours.
const MAX_UNEVALUATED: u32 = 8;
/// Number of checks that one pattern counts as, besides its text.
const PATTERN_COST: u64 = 100;

/// Returns the reason that a schema cannot be used to check arguments, if there is one.
pub(super) fn unsupported_reason(schema: &Value) -> Option<String> {
    if let Some(why) = unsupported_reference(schema, schema, schema) {
        return Some(why);
    }
    if nesting(schema, schema, 0, &mut HashMap::new()) > MAX_LEVELS {
        return Some(format!("with its references it has more than {MAX_LEVELS} levels"));
    }
    if unevaluated(schema) > MAX_UNEVALUATED {
        return Some(format!("it has more than {MAX_UNEVALUATED} of `unevaluatedProperties` and `unevaluatedItems`"));
    }
    let no_args = Value::Object(serde_json::Map::new());
    (count(schema, &no_args) > MAX_CHECKS).then(|| format!("a check against it takes more than {MAX_CHECKS} steps"))
}

/// Returns the number of checks that `args` need. The validator stops at the first failed check; this count does not.
pub(super) fn count(schema: &Value, args: &Value) -> u64 {
    let repeated = 3_u64.saturating_pow(unevaluated(schema));
    CheckCounter { root: schema, known: HashMap::new(), steps: 0 }.count(schema, args, 0).saturating_mul(repeated)
}

/// Returns the reason that a reference in `schema` may lead outside of `root`, if there is one.
fn unsupported_reference(root: &Value, top: &Value, schema: &Value) -> Option<String> {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(items) => return items.iter().find_map(|item| unsupported_reference(root, top, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    let old = || root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"));
    for (key, value) in fields {
        let found = match (&**key, value) {
            ("$ref", Value::String(place)) if target(root, place).is_none() => {
                Some(format!("`$ref` leads to `{place}`, which is not a place in it, such as `#/$defs/name`"))
            }
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => Some(format!("`{key}` is not supported")),
            ("$id", Value::String(_)) if !std::ptr::eq(schema, top) => Some("`$id` within it is not supported".into()),
            ("id", Value::String(_)) if old() && !std::ptr::eq(schema, top) => {
                Some("`id` within it is not supported".into())
            }
            // These hold values, which may look like references.
            ("const" | "default" | "enum" | "example" | "examples", _) => unsupported_reference(root, top, value)
                .filter(|_| has_key(value, "$id") || has_key(value, "id") && old()),
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

fn unevaluated(schema: &Value) -> u32 {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| u32::from(key.starts_with("unevaluated")).saturating_add(unevaluated(value)))
            .fold(0, u32::saturating_add),
        Value::Array(items) => items.iter().map(unevaluated).fold(0, u32::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns the part of `root` that a reference names.
fn target<'a>(root: &'a Value, place: &str) -> Option<&'a Value> {
    root.pointer(place.strip_prefix('#')?)
}

/// Returns the number of levels of a schema including its references. `known` caches each reference, with 0 while it is being counted.
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

struct CheckCounter<'a> {
    root: &'a Value,
    /// Number of checks of a referenced part against a value; `u64::MAX` while it is being counted.
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
        let Value::Object(fields) = schema else { return 1 };
        let mut sum: u64 = 1;
        for (key, part) in fields {
            sum = sum.saturating_add(self.keyword(key, part, value, depth.saturating_add(1)));
            if sum > MAX_CHECKS {
                return u64::MAX;
            }
        }
        sum
    }

    fn keyword(&mut self, key: &str, part: &'a Value, value: &'a Value, depth: usize) -> u64 {
        match (key, part) {
            ("$ref", Value::String(place)) => self.reference(place, value, depth),
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => u64::MAX,
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => self.all(parts, value, depth),
            ("not" | "if" | "then" | "else", _) => self.count(part, value, depth),
            ("dependentSchemas" | "dependencies", Value::Object(parts)) => self.all(parts.values(), value, depth),
            ("properties", Value::Object(parts)) => {
                let found = parts.iter().filter_map(|(name, part)| Some((part, value.get(name)?)));
                self.pairs(found, depth)
            }
            ("patternProperties", Value::Object(parts)) => {
                let names = children(value).fold(0_u64, |sum, _| sum.saturating_add(PATTERN_COST));
                let names = names.saturating_mul(u64::try_from(parts.len()).unwrap_or(u64::MAX));
                names.saturating_add(
                    self.pairs(parts.values().flat_map(|part| children(value).map(move |child| (part, child))), depth),
                )
            }
            ("prefixItems" | "items", Value::Array(parts)) => {
                self.pairs(parts.iter().zip(value.as_array().into_iter().flatten()), depth)
            }
            ("propertyNames", _) => {
                let one = self.count(part, &Value::Null, depth);
                one.saturating_add(PATTERN_COST)
                    .saturating_mul(children(value).fold(0_u64, |sum, _| sum.saturating_add(1)))
            }
            ("additionalProperties" | "unevaluatedProperties", _) => {
                self.pairs(children(value).map(|child| (part, child)), depth)
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", _) => {
                self.pairs(value.as_array().into_iter().flatten().map(|item| (part, item)), depth)
            }
            ("pattern", _) => {
                let bytes = value.as_str().map_or(0, str::len);
                PATTERN_COST.saturating_add(u64::try_from(bytes / 8).unwrap_or(u64::MAX))
            }
            _ => 0,
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

    fn all(&mut self, parts: impl IntoIterator<Item = &'a Value>, value: &'a Value, depth: usize) -> u64 {
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

fn children(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(serde_json::Map::values)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a schema with `length` definitions, each of which refers to the next one `times` times.
    fn chain(length: usize, times: usize) -> Value {
        let next = |n: usize| vec![json!({"$ref": format!("#/$defs/d{}", n + 1)}); times];
        let mut defs: serde_json::Map<String, Value> =
            (0..length).map(|n| (format!("d{n}"), json!({"allOf": next(n)}))).collect();
        defs.insert(format!("d{length}"), json!({"type": "string"}));
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    /// The control: with one reference each, the count is linear.
    #[test]
    fn doubling_references_exceed_the_limit() {
        let doubling = chain(25, 2);
        assert_eq!(unsupported_reason(&doubling), None, "nothing is checked if the property is missing");
        assert_eq!([count(&doubling, &json!({})), count(&doubling, &json!({"a": "x"}))], [1, u64::MAX]);
        assert_eq!(count(&chain(25, 1), &json!({"a": "x"})), 53);
        let mut at_once = chain(25, 2);
        at_once["allOf"] = json!([{"$ref": "#/$defs/d0"}]);
        assert_eq!(unsupported_reason(&at_once).unwrap(), "a check against it takes more than 1048576 steps");
    }

    #[test]
    fn long_chain_or_loop_is_refused() {
        assert_eq!(unsupported_reason(&chain(3_000, 1)).unwrap(), "with its references it has more than 128 levels");
        let endless = json!({"type": "object", "$ref": "#"});
        assert_eq!(unsupported_reason(&endless).unwrap(), "a check against it takes more than 1048576 steps");
        // The control: a tree schema refers to itself one level deeper.
        let tree = json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}});
        assert_eq!(unsupported_reason(&tree), None);
        assert_eq!(count(&tree, &json!({"children": [{}, {"children": [{}]}]})), 9);
    }

    /// A model could be led to write such arguments: each level doubles the checks.
    #[test]
    fn nested_arguments_that_double_checks_are_counted() {
        let twice = json!([{"$ref": "#"}, {"$ref": "#"}]);
        let schema = json!({"type": "object", "properties": {"a": {"allOf": twice}}});
        assert_eq!(unsupported_reason(&schema), None);
        let nested = |depth| (0..depth).fold(json!({}), |args, _| json!({"a": args}));
        assert!(count(&schema, &nested(4)) < 200);
        assert_eq!(count(&schema, &nested(40)), u64::MAX);
    }

    #[test]
    fn reference_must_stay_within_the_schema() {
        let reason = |schema: Value| unsupported_reason(&schema).unwrap_or_default();
        assert!(
            reason(json!({"properties": {"a": {"$ref": "#name"}}})).starts_with("`$ref` leads to `#name`, which is")
        );
        assert!(reason(json!({"properties": {"a": {"$dynamicRef": "#a"}}})).contains("`$dynamicRef` is not supported"));
        assert!(reason(json!({"default": {"$id": "x:y"}, "$ref": "#/default"})).contains("`$id` within it"));
        assert_eq!(reason(json!({"$id": "x:y", "default": {"$ref": "any", "id": "a"}})), "");
        assert_eq!(
            reason(json!({"properties": {"id": {"type": "string"}, "$ref": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"enum": [1]}}})),
            ""
        );
        let unevaluated = (0..20).fold(json!({}), |inner, _| json!({"unevaluatedItems": false, "anyOf": [inner]}));
        assert!(reason(unevaluated).starts_with("it has more than 8 of"));
    }

    #[test]
    fn pattern_counts_as_many_checks() {
        let schema = json!({"patternProperties": {"a": {}, "b": {}}, "properties": {"c": {"pattern": "d"}}});
        assert_eq!(count(&schema, &json!({"a": 1, "c": "x".repeat(800)})), 1 + 400 + 4 + 1 + 200);
    }
}
