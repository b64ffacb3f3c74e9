//! Environment variables: each value with a fixed key has one.

use serde_json::Value;

use super::key::Key;
use super::shape::Shape;

pub(super) const PREFIX: &str = "SUBTEND_";

/// Prefixes of variables that are not part of the configuration.
const OTHERS: [&str; 9] = ["BASE_URL", "DATA", "DRILL_", "FAULT", "PROVIDER_", "STORE", "TEST_", "TRUST", "WORKER_"];

/// Variables with a special name instead of one derived from the key.
const NAMED: [(&str, &[&str]); 4] = [
    ("ENABLED", &["subagents", "enabled"]),
    ("MAX_CONCURRENT", &["limits", "live_runs"]),
    ("TIMEOUT_MS", &["limits", "run_ms"]),
    ("MODEL", &["llm", "model"]),
];

pub(super) fn name(key: &Key) -> String {
    let named = NAMED.iter().find(|(_, names)| key.names() == *names);
    let rest = named.map_or_else(|| derived_name(key), |(name, _)| (*name).to_owned());
    format!("{PREFIX}{rest}")
}

fn derived_name(key: &Key) -> String {
    let mut name = String::new();
    for c in key.names().join("_").chars() {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

/// Returns whether a variable is not part of the configuration.
pub(super) fn is_foreign(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_none_or(|rest| OTHERS.iter().any(|other| rest.starts_with(other)))
}

/// Parses the text of a variable. A text of the wrong type is returned unchanged, and refused by the later check.
pub(super) fn value(shape: Shape, text: &str) -> Value {
    let text = text.trim();
    let read = match shape.type_of() {
        "boolean" => text.parse::<bool>().ok().map(Value::from),
        "integer" => text.parse::<u64>().ok().map(Value::from),
        "number" => text.parse::<f64>().ok().map(Value::from),
        "array" => Some(text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect()),
        _ => None,
    };
    read.unwrap_or_else(|| text.into())
}
