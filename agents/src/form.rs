//! Checks of user-written files against their JSON Schema, with readable errors.

use std::collections::BTreeSet;

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::LocationSegment;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaMismatch {
    /// A key that the schema does not have.
    Unknown {
        /// The path to the key, which ends with its name.
        at: Vec<String>,
    },
    /// A value that is not valid for its key.
    Value {
        at: Vec<String>,
        /// The value, shortened for display.
        value: String,
        allowed: String,
    },
}

/// Returns the mismatches. `schema` must not contain references. An error means that it is not valid.
pub fn schema_mismatches(schema: &Value, value: &Value) -> Result<Vec<SchemaMismatch>, String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| format!("its schema is not valid: {error}"))?;
    let (mut schema_mismatches, mut refused) = (Vec::new(), BTreeSet::new());
    for error in validator.iter_errors(value) {
        let names = error.instance_path().segments().map_while(|segment| match segment {
            LocationSegment::Property(name) => Some(name.into_owned()),
            LocationSegment::Index(_) => None,
        });
        let at: Vec<String> = names.collect();
        if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
            let key = |name: &String| SchemaMismatch::Unknown { at: at.iter().chain([name]).cloned().collect() };
            schema_mismatches.extend(unexpected.iter().map(key));
            continue;
        }
        // Only one mismatch is reported per path, because a list may have thousands of invalid items.
        if !refused.insert(at.clone()) {
            continue;
        }
        let found = at.iter().try_fold(value, |value, name| value.get(name)).unwrap_or(value);
        let node = at.iter().try_fold(schema, |node, name| below(node, name)).unwrap_or(schema);
        let allowed = if let ValidationErrorKind::Required { property } = error.kind() {
            format!("a map that also has the key `{}`", property.as_str().unwrap_or_default())
        } else {
            allowed(node)
        };
        schema_mismatches.push(SchemaMismatch::Value { at, value: shown(found), allowed });
    }
    Ok(schema_mismatches)
}

/// Returns the schema of the entry `name` in a map that has this schema.
pub fn below<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    let known = node.get("properties").and_then(|fields| fields.get(name));
    known.or_else(|| node.get("additionalProperties").filter(|entry| entry.is_object()))
}

/// Describes in words the values that this schema allows.
pub fn allowed(node: &Value) -> String {
    if node.get("properties").is_some() || node.get("additionalProperties").is_some() {
        return "a map of keys to values".to_owned();
    }
    forms(node).map(form).collect::<Vec<_>>().join(", or ")
}

/// Returns the type of this schema's values. If there are several types, `string` is preferred.
pub fn type_of(node: &Value) -> &str {
    let types = || forms(node).filter_map(type_name);
    types().find(|name| *name == "string").or_else(|| types().next()).unwrap_or("string")
}

fn type_name(form: &Value) -> Option<&str> {
    let of = form.get("type")?;
    of.as_str().or_else(|| of.as_array()?.first()?.as_str())
}

fn forms(node: &Value) -> impl Iterator<Item = &Value> {
    let several = node.get("anyOf").and_then(Value::as_array);
    let one = std::iter::once(node).filter(move |_| several.is_none());
    several.into_iter().flatten().chain(one).filter(|form| form.get("type").is_none_or(|of| of != "null"))
}

fn form(node: &Value) -> String {
    let one_of = node.get("oneOf").and_then(Value::as_array).into_iter().flatten().filter_map(|one| one.get("const"));
    let words = node.get("enum").and_then(Value::as_array).into_iter().flatten();
    let words: Vec<&str> = node.get("const").into_iter().chain(one_of).chain(words).filter_map(Value::as_str).collect();
    if let Some((last, words)) = words.split_last() {
        return if words.is_empty() { (*last).to_owned() } else { format!("{} or {last}", words.join(", ")) };
    }
    let bounds = |what: &str| {
        let bound = |name| node.get(name).filter(|bound| !bound.is_null());
        match (bound("minimum"), bound("maximum")) {
            (Some(least), Some(most)) => format!("{what} from {least} to {most}"),
            (Some(least), None) => format!("{what} of at least {least}"),
            (None, Some(most)) => format!("{what} of at most {most}"),
            (None, None) => what.to_owned(),
        }
    };
    match type_of(node) {
        "boolean" => "true or false".to_owned(),
        "integer" => bounds("a whole number"),
        "number" => bounds("a number"),
        "array" => "a list of strings".to_owned(),
        "object" => "a map of keys to values".to_owned(),
        _ => "a string".to_owned(),
    }
}

/// Returns a value for display in an error: shortened, and on one line.
pub fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let mut text = StartOf { bytes: Vec::new(), most: 4 * (LONGEST + 1) };
    // An error only means that the value was truncated at the limit.
    drop(serde_json::to_writer(&mut text, value));
    let text = String::from_utf8_lossy(&text.bytes);
    if text.chars().count() <= LONGEST {
        text.into_owned()
    } else {
        text.chars().take(LONGEST).chain(['…']).collect()
    }
}

/// A writer that keeps the first `most` bytes and fails after them.
struct StartOf {
    bytes: Vec<u8>,
    most: usize,
}

impl std::io::Write for StartOf {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.most.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        // Returning 0 makes `write_all` fail, which ends the serialization.
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Removes nulls. A key without a value is treated like an absent key.
pub fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
