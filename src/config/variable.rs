//! Variables of the environment: each value that has a key of its own has one.

use serde_json::Value;

use super::key::Key;
use super::shape::Shape;

/// The prefix of all variables.
pub(super) const PREFIX: &str = "SUBTEND_";

/// Variables that say something else than a value of the configuration, by their beginnings.
const OTHERS: [&str; 8] = ["DATA", "BASE_URL", "DRILL_", "FAULT", "PROVIDER_", "TEST_", "TRUST", "WORKER_"];

/// Those with a name of their own, instead of one made of the key.
const NAMED: [(&str, &[&str]); 4] = [
    ("ENABLED", &["subagents", "enabled"]),
    ("MAX_CONCURRENT", &["limits", "live_runs"]),
    ("TIMEOUT_MS", &["limits", "run_ms"]),
    ("MODEL", &["llm", "model"]),
];

pub(super) fn name(key: &Key) -> String {
    let named = NAMED.iter().find(|(_, names)| key.names() == *names);
    let rest = named.map_or_else(|| made(key), |(name, _)| (*name).to_owned());
    format!("{PREFIX}{rest}")
}

fn made(key: &Key) -> String {
    let mut name = String::new();
    for c in key.names().join("_").chars() {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

pub(super) fn is_other(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_none_or(|rest| OTHERS.iter().any(|other| rest.starts_with(other)))
}

/// Returns what a variable's text says; where it cannot be read as what it must be, the text itself, which the check refuses.
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
