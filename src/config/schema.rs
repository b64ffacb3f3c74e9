//! The JSON Schema of `subtend.yaml`, generated from the types of the configuration. Files are checked against it.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use subtend_session::limits::{Limits, MAX_DEPTH};

use super::Config;

/// Returns the JSON Schema of `subtend.yaml`, for editors.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema: Value = settings.into_generator().into_root_schema_for::<Config>().into();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    add_defaults(&mut schema, Some(&defaults));
    schema
}

/// Adds the default of each value, and forbids unknown keys. Defaults of whole tables are removed as redundant.
fn add_defaults(node: &mut Value, default: Option<&Value>) {
    let Value::Object(node) = node else { return };
    node.remove("default");
    if let Some(Value::Object(fields)) = node.get_mut("properties") {
        for (name, field) in fields.iter_mut() {
            add_defaults(field, default.and_then(|default| default.get(name)));
        }
        node.entry("additionalProperties").or_insert(Value::Bool(false));
        return;
    }
    match node.get_mut("additionalProperties") {
        Some(entry) => add_defaults(entry, None),
        None => {
            if let Some(default) = default.filter(|default| !default.is_null()) {
                node.insert("default".to_owned(), default.clone());
            }
        }
    }
}

/// Descriptions of all limits.
const LIMITS: [(&str, &str); 33] = [
    ("max_depth", "Maximum depth of subagents, detached ones included."),
    ("live_runs", "Maximum number of concurrent runs of subagents in a tree; more are queued."),
    ("live_person_runs", "Maximum number of concurrent runs that users opened in branches of a tree."),
    (
        "spawns",
        "Maximum number of subagents that a run and its descendants may start; each detached run has a number of its own.",
    ),
    ("turns", "Maximum number of model answers in a run, unless its agent sets another one."),
    ("run_ms", "Maximum working time of a subagent's run."),
    ("queue_ms", "Maximum time for which a subagent waits for a slot."),
    ("turn_ms", "Maximum time of a model call with all its attempts."),
    ("first_byte_ms", "Maximum time until the first sign of life of a model."),
    ("stall_ms", "Maximum time between two signs of life of a model."),
    ("tool_ms", "Maximum time of a tool call."),
    ("grace_ms", "Grace period of cancelled calls and runs."),
    ("attempts", "Maximum number of attempts of a model call."),
    ("backoff_ms", "Delay before the second attempt; it doubles with each further one."),
    ("calls_per_answer", "Maximum number of tool calls in an answer."),
    (
        "argument_bytes",
        "Maximum size of the arguments of all calls of an answer; a call that exceeds it is refused and not recorded.",
    ),
    ("local_calls", "Maximum number of concurrent read-only calls of an answer."),
    ("queue", "Maximum number of queued inputs of a session."),
    ("input_bytes", "Maximum size of an input."),
    ("tool_result_bytes", "Maximum size of a tool result."),
    ("result_bytes", "Maximum size of a subagent's answer in the context of its caller's model."),
    ("notices_bytes", "Maximum size of all answers of subagents that a model receives at once."),
    (
        "recorded_bytes",
        "Maximum size of answers, results and notices that a run records; the run ends when it exceeds it.",
    ),
    ("output_tokens", "Maximum number of output tokens of a model call."),
    (
        "compact_at",
        "Percentage of the model's context window at which old messages are summarised and hidden before the next call; 0 disables it. If it is \
         set, the window must be known; if not, it is 80 for models whose window is known.",
    ),
    (
        "tokens",
        "Maximum number of input and output tokens of a user's run and its descendants; each detached run has a budget of its own.",
    ),
    (
        "cost_micro",
        "Maximum cost of a user's run and its descendants, in millionths of a US dollar; each detached run has a budget of its own.",
    ),
    ("wall_ms", "Maximum wall-clock time of a user's run."),
    ("ask_ms", "Maximum time for which a call waits for an approval; then it is denied."),
    ("check_ms", "Maximum time for which `check_task` waits; the task continues."),
    ("detached_ms", "Maximum wall-clock time of a detached run, and of a background process."),
    ("inherited_bytes", "Maximum number of bytes that a branch inherits from its origin."),
    ("park", "`on`: a run waits for the reset of a provider's usage limit; `off`: it fails at once."),
];

/// Returns the schema of limits. Allowed values are found by deserialising samples, so that it agrees with the parser.
pub(super) fn limits(_: &mut SchemaGenerator) -> Schema {
    let mut fields = Map::new();
    if let Ok(Value::Object(all)) = serde_json::to_value(Limits::default()) {
        for name in all.keys() {
            let about = LIMITS.iter().find(|(of, _)| of == name).map_or("", |(_, about)| about);
            fields.insert(name.clone(), limit(name, about));
        }
    }
    let mut schema = json_schema!({"type": "object"});
    schema.insert("properties".to_owned(), Value::Object(fields));
    schema
}

fn limit(name: &str, about: &str) -> Value {
    let parses_as = |value: Value| serde_json::from_value::<Limits>(json!({ (name): value })).ok();
    if parses_as(json!("off")).is_some() {
        return json!({"enum": ["on", "off", true, false], "description": about});
    }
    let minimum = u32::from(parses_as(json!(0)).is_none_or(|limits| limits.check().is_err()));
    let mut number = Map::from_iter([("type".to_owned(), json!("integer")), ("minimum".to_owned(), json!(minimum))]);
    if parses_as(json!(u64::MAX)).is_none() {
        let maximum = if name == "max_depth" { MAX_DEPTH } else { u32::MAX };
        number.insert("maximum".to_owned(), json!(maximum));
    }
    let mut limit = number;
    if parses_as(Value::Null).is_some() {
        limit = Map::from_iter([("anyOf".to_owned(), json!([limit, {"const": "none"}]))]);
    }
    limit.insert("description".to_owned(), about.into());
    Value::Object(limit)
}

/// The price of one model, in US dollars per million tokens.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "prices are parsed into another type; this one only defines the schema")]
struct PriceForm {
    /// Input without cached tokens.
    #[schemars(range(min = 0, max = 1_000_000))]
    input: f64,
    /// Output without reasoning tokens.
    #[schemars(range(min = 0, max = 1_000_000))]
    output: f64,
    /// Input read from a cache.
    #[schemars(range(min = 0, max = 1_000_000))]
    cache_read: Option<f64>,
    /// Input written to a cache.
    #[schemars(range(min = 0, max = 1_000_000))]
    cache_new: Option<f64>,
    /// Reasoning. Default: the price of output.
    #[schemars(range(min = 0, max = 1_000_000))]
    reasoning: Option<f64>,
}

pub(super) fn prices(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema!({"type": "object"});
    schema.insert("additionalProperties".to_owned(), PriceForm::json_schema(generator).into());
    schema
}

/// Formats a schema for files: pretty-printed, keys sorted, texts on one line.
pub fn format_for_file(schema: &Value) -> String {
    let text = serde_json::to_string_pretty(&sort_keys(schema)).unwrap_or_default();
    text + "\n"
}

fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            Value::Object(entries.into_iter().map(|(name, value)| (name.clone(), sort_keys(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sort_keys).collect()),
        // Line breaks come from the source code, and have no meaning.
        Value::String(text) => text.replace('\n', " ").into(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_describes_and_accepts_every_limit() {
        let schema = schema();
        let limits = schema["properties"]["limits"]["properties"].as_object().unwrap();
        let silent: Vec<_> =
            limits.iter().filter(|(_, limit)| limit["description"] == "").map(|(name, _)| name).collect();
        assert_eq!((silent, limits.len()), (Vec::<&String>::new(), LIMITS.len()));
        let bare = |name: &str| {
            let mut limit = limits[name].clone();
            limit.as_object_mut().unwrap().remove("description");
            limit
        };
        assert_eq!(bare("turns"), json!({"type": "integer", "minimum": 1, "maximum": u32::MAX, "default": 50}));
        assert_eq!(bare("spawns"), json!({"type": "integer", "minimum": 0, "maximum": u32::MAX, "default": 200}));
        let number = json!({"type": "integer", "minimum": 1});
        assert_eq!(bare("run_ms"), json!({"anyOf": [number, {"const": "none"}], "default": 480_000}));
        assert_eq!(bare("tokens"), json!({"anyOf": [number, {"const": "none"}]}));
    }
}
