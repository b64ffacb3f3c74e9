//! The checks that a schema asks for, counted before they are made. A schema of some kilobytes may ask for more of them than a machine makes
//! in a year (forty definitions that each refer twice to the next), and the validator makes them all, on the thread of its caller.

use std::collections::HashMap;

use serde_json::Value;

/// Checks of the arguments of one call. A million take less than a second.
pub(super) const MOST: u64 = 1 << 20;
/// Levels of a schema with what it refers to: the validator needs stack for each.
const LEVELS: usize = 128;
/// Levels of one check, through a schema and the arguments.
const DEPTH: usize = 512;
/// Keywords whose check repeats the checks next to it.
const UNEVALUATED: u32 = 8;
/// What one pattern counts for; its text counts too.
const PATTERN: u64 = 100;

/// Returns why no arguments could be checked against a schema.
pub(super) fn fault(schema: &Value) -> Option<String> {
    if let Some(why) = misplaced(schema, schema, schema) {
        return Some(why);
    }
    if levels(schema, schema, 0, &mut HashMap::new()) > LEVELS {
        return Some(format!("with what it refers to it has more than {LEVELS} levels"));
    }
    if unevaluated(schema) > UNEVALUATED {
        return Some(format!("it has more than {UNEVALUATED} of `unevaluatedProperties` and `unevaluatedItems`"));
    }
    let none = Value::Object(serde_json::Map::new());
    (count(schema, &none) > MOST).then(|| format!("a check against it takes more than {MOST} steps"))
}

/// Returns how many checks `args` take. The validator stops at the first that fails; this does not.
pub(super) fn count(schema: &Value, args: &Value) -> u64 {
    let repeated = 3_u64.saturating_pow(unevaluated(schema));
    Checks { root: schema, known: HashMap::new(), steps: 0 }.of(schema, args, 0).saturating_mul(repeated)
}

/// Returns what in `schema` makes references to anything else than a place in it.
fn misplaced(root: &Value, top: &Value, schema: &Value) -> Option<String> {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(items) => return items.iter().find_map(|item| misplaced(root, top, item)),
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
            // Values, which may look like anything.
            ("const" | "default" | "enum" | "example" | "examples", _) => {
                misplaced(root, top, value).filter(|_| has_key(value, "$id") || has_key(value, "id") && old())
            }
            _ => misplaced(root, top, value),
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

/// Returns the place in `root` that a reference names.
fn target<'a>(root: &'a Value, place: &str) -> Option<&'a Value> {
    root.pointer(place.strip_prefix('#')?)
}

/// Returns the levels of a schema with all that it refers to, each of these once: 0 while it is counted.
fn levels<'a>(root: &'a Value, schema: &'a Value, above: usize, known: &mut HashMap<*const Value, usize>) -> usize {
    if above > LEVELS {
        return usize::MAX;
    }
    let above = above.saturating_add(1);
    let below = match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match (&**key, value) {
                ("$ref", Value::String(place)) => target(root, place).map_or(0, |target| {
                    let at = std::ptr::from_ref(target);
                    if let Some(levels) = known.get(&at) {
                        return *levels;
                    }
                    known.insert(at, 0);
                    let found = levels(root, target, above, known);
                    known.insert(at, found);
                    found
                }),
                _ => levels(root, value, above, known),
            })
            .max(),
        Value::Array(items) => items.iter().map(|item| levels(root, item, above, known)).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    below.unwrap_or(0).saturating_add(1)
}

struct Checks<'a> {
    root: &'a Value,
    /// What a part that is referred to takes at a value; all, while it is counted.
    known: HashMap<(*const Value, *const Value), u64>,
    steps: u64,
}

impl<'a> Checks<'a> {
    /// Returns the checks of `value` against the part `schema`; all, if it cannot be said.
    fn of(&mut self, schema: &'a Value, value: &'a Value, depth: usize) -> u64 {
        self.steps = self.steps.saturating_add(1);
        if self.steps > MOST || depth > DEPTH {
            return u64::MAX;
        }
        let Value::Object(fields) = schema else { return 1 };
        let mut sum: u64 = 1;
        for (key, part) in fields {
            sum = sum.saturating_add(self.keyword(key, part, value, depth.saturating_add(1)));
            if sum > MOST {
                return u64::MAX;
            }
        }
        sum
    }

    fn keyword(&mut self, key: &str, part: &'a Value, value: &'a Value, depth: usize) -> u64 {
        match (key, part) {
            ("$ref", Value::String(place)) => self.referred(place, value, depth),
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => u64::MAX,
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => self.all(parts, value, depth),
            ("not" | "if" | "then" | "else", _) => self.of(part, value, depth),
            ("dependentSchemas" | "dependencies", Value::Object(parts)) => self.all(parts.values(), value, depth),
            ("properties", Value::Object(parts)) => {
                let found = parts.iter().filter_map(|(name, part)| Some((part, value.get(name)?)));
                self.pairs(found, depth)
            }
            ("patternProperties", Value::Object(parts)) => {
                let names = children(value).fold(0_u64, |sum, _| sum.saturating_add(PATTERN));
                let names = names.saturating_mul(u64::try_from(parts.len()).unwrap_or(u64::MAX));
                names.saturating_add(
                    self.pairs(parts.values().flat_map(|part| children(value).map(move |child| (part, child))), depth),
                )
            }
            ("prefixItems" | "items", Value::Array(parts)) => {
                self.pairs(parts.iter().zip(value.as_array().into_iter().flatten()), depth)
            }
            ("propertyNames", _) => {
                let one = self.of(part, &Value::Null, depth);
                one.saturating_add(PATTERN).saturating_mul(children(value).fold(0_u64, |sum, _| sum.saturating_add(1)))
            }
            ("additionalProperties" | "unevaluatedProperties", _) => {
                self.pairs(children(value).map(|child| (part, child)), depth)
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", _) => {
                self.pairs(value.as_array().into_iter().flatten().map(|item| (part, item)), depth)
            }
            ("pattern", _) => {
                let bytes = value.as_str().map_or(0, str::len);
                PATTERN.saturating_add(u64::try_from(bytes / 8).unwrap_or(u64::MAX))
            }
            _ => 0,
        }
    }

    fn referred(&mut self, place: &str, value: &'a Value, depth: usize) -> u64 {
        let Some(target) = target(self.root, place) else { return u64::MAX };
        let key = (std::ptr::from_ref(target), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.known.insert(key, u64::MAX);
        let found = self.of(target, value, depth);
        self.known.insert(key, found);
        found
    }

    fn all(&mut self, parts: impl IntoIterator<Item = &'a Value>, value: &'a Value, depth: usize) -> u64 {
        self.pairs(parts.into_iter().map(|part| (part, value)), depth)
    }

    fn pairs(&mut self, pairs: impl Iterator<Item = (&'a Value, &'a Value)>, depth: usize) -> u64 {
        let mut sum: u64 = 0;
        for (part, value) in pairs {
            sum = sum.saturating_add(self.of(part, value, depth));
            if sum > MOST {
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

    /// Definitions that each refer to the next one, `times` times.
    fn chain(length: usize, times: usize) -> Value {
        let next = |n: usize| vec![json!({"$ref": format!("#/$defs/d{}", n + 1)}); times];
        let mut defs: serde_json::Map<String, Value> =
            (0..length).map(|n| (format!("d{n}"), json!({"allOf": next(n)}))).collect();
        defs.insert(format!("d{length}"), json!({"type": "string"}));
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    /// The control: definitions that refer to the next one once are as many checks as they are.
    #[test]
    fn checks_of_doubling_references_are_counted() {
        let doubling = chain(25, 2);
        assert_eq!(fault(&doubling), None, "without the property nothing is checked");
        assert_eq!([count(&doubling, &json!({})), count(&doubling, &json!({"a": "x"}))], [1, u64::MAX]);
        assert_eq!(count(&chain(25, 1), &json!({"a": "x"})), 53);
        let mut at_once = chain(25, 2);
        at_once["allOf"] = json!([{"$ref": "#/$defs/d0"}]);
        assert_eq!(fault(&at_once).unwrap(), "a check against it takes more than 1048576 steps");
    }

    #[test]
    fn long_chains_and_loops_are_refused() {
        assert_eq!(fault(&chain(3_000, 1)).unwrap(), "with what it refers to it has more than 128 levels");
        let endless = json!({"type": "object", "$ref": "#"});
        assert_eq!(fault(&endless).unwrap(), "a check against it takes more than 1048576 steps");
        // The control: a schema of trees refers to itself, a level below.
        let tree = json!({"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}});
        assert_eq!(fault(&tree), None);
        assert_eq!(count(&tree, &json!({"kids": [{}, {"kids": [{}]}]})), 9);
    }

    /// What a model may be led to write: each level of the arguments doubles the checks.
    #[test]
    fn checks_that_double_with_the_arguments_are_counted() {
        let twice = json!([{"$ref": "#"}, {"$ref": "#"}]);
        let schema = json!({"type": "object", "properties": {"a": {"allOf": twice}}});
        assert_eq!(fault(&schema), None);
        let nested = |depth| (0..depth).fold(json!({}), |args, _| json!({"a": args}));
        assert!(count(&schema, &nested(4)) < 200);
        assert_eq!(count(&schema, &nested(40)), u64::MAX);
    }

    #[test]
    fn references_lead_to_places_of_the_schema() {
        let says = |schema: Value| fault(&schema).unwrap_or_default();
        assert!(says(json!({"properties": {"a": {"$ref": "#name"}}})).starts_with("`$ref` leads to `#name`, which is"));
        assert!(says(json!({"properties": {"a": {"$dynamicRef": "#a"}}})).contains("`$dynamicRef` is not supported"));
        assert!(says(json!({"default": {"$id": "x:y"}, "$ref": "#/default"})).contains("`$id` within it"));
        assert_eq!(says(json!({"$id": "x:y", "default": {"$ref": "any", "id": "a"}})), "");
        assert_eq!(
            says(json!({"properties": {"id": {"type": "string"}, "$ref": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"enum": [1]}}})),
            ""
        );
        let unevaluated = (0..20).fold(json!({}), |below, _| json!({"unevaluatedItems": false, "anyOf": [below]}));
        assert!(says(unevaluated).starts_with("it has more than 8 of"));
    }

    #[test]
    fn patterns_are_more_than_one_check() {
        let schema = json!({"patternProperties": {"a": {}, "b": {}}, "properties": {"c": {"pattern": "d"}}});
        assert_eq!(count(&schema, &json!({"a": 1, "c": "x".repeat(800)})), 1 + 400 + 4 + 1 + 200);
    }
}
