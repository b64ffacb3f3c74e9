//! The JSON Schema of `subtend.yaml`: made from the types that it is read into, and what a file is checked by.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use subtend_session::limits::Limits;

use super::Config;

/// Returns the JSON Schema of `subtend.yaml`, for editors.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema: Value = settings.into_generator().into_root_schema_for::<Config>().into();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    settle(&mut schema, Some(&defaults));
    schema
}

/// Gives each value its default, and forbids keys that mean nothing. What a table's own default is says nothing besides.
fn settle(node: &mut Value, default: Option<&Value>) {
    let Value::Object(node) = node else { return };
    node.remove("default");
    if let Some(Value::Object(fields)) = node.get_mut("properties") {
        for (name, field) in fields.iter_mut() {
            settle(field, default.and_then(|default| default.get(name)));
        }
        node.entry("additionalProperties").or_insert(Value::Bool(false));
        return;
    }
    match node.get_mut("additionalProperties") {
        Some(entry) => settle(entry, None),
        None => {
            if let Some(default) = default.filter(|default| !default.is_null()) {
                node.insert("default".to_owned(), default.clone());
            }
        }
    }
}

/// Each limit with its description.
const LIMITS: [(&str, &str); 33] = [
    ("max_depth", "Subagents below subagents: a child at this depth is the last."),
    ("live_runs", "Runs of subagents that work at the same time, in one tree; more wait."),
    ("live_person_runs", "Runs that persons opened in branches of one tree, at the same time."),
    ("spawns", "Subagents that one run may start, with all below it."),
    ("turns", "Answers of a model in one run, where its agent says nothing."),
    ("run_ms", "Working time of a subagent's run."),
    ("queue_ms", "How long a subagent waits to begin."),
    ("turn_ms", "One model call with all its attempts."),
    ("first_byte_ms", "Silence of a model before its first sign of life."),
    ("stall_ms", "Silence of a model between two signs of life."),
    ("tool_ms", "One call of a tool."),
    ("grace_ms", "Time that what is ended has to end by itself."),
    ("attempts", "Attempts of one model call."),
    ("backoff_ms", "The wait before a second attempt; it doubles with each."),
    ("calls_per_answer", "Calls of tools in one answer."),
    (
        "argument_bytes",
        "Arguments of all calls of one answer together; a call that does not fit is refused and not recorded.",
    ),
    ("local_calls", "Reading calls of one answer that run at the same time."),
    ("queue", "Inputs that wait for one session."),
    ("input_bytes", "One input."),
    ("tool_result_bytes", "One result of a tool."),
    ("result_bytes", "One subagent's answer, as its caller's model reads it."),
    ("notices_bytes", "All answers of subagents that come to a model at once."),
    ("recorded_bytes", "Text of answers, results and notices that one run records; above it the run ends."),
    ("output_tokens", "Output tokens of one model call."),
    (
        "compact_at",
        "Percent of the model's context window at which old messages are summarised and hidden before the next call; 0 never. Where it is \
         set, the window must be known; where it is not, 80 where the window is known.",
    ),
    ("tokens", "Tokens of a person's run and of all that it starts, in and out."),
    ("cost_micro", "Money of a person's run and of all that it starts, in millionths of a US dollar."),
    ("wall_ms", "Wall-clock time of a person's run."),
    ("ask_ms", "How long a question waits for a person; then it is denied."),
    ("check_ms", "How long a check waits for its task; the task continues."),
    ("detached_ms", "Wall-clock time of a run without an owner, and working time of a background process."),
    ("inherited_bytes", "Bytes that a branch may inherit from its origin."),
    ("park", "Whether a run waits for the reset of a provider's usage limit; `off` fails at once."),
];

/// Returns the schema of limits: what may be given is found by trying, so that it cannot differ from what is taken.
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
    let takes = |value: Value| serde_json::from_value::<Limits>(json!({ (name): value })).ok();
    if takes(json!("off")).is_some() {
        return json!({"enum": ["on", "off", true, false], "description": about});
    }
    let least = u32::from(takes(json!(0)).is_none_or(|limits| limits.check().is_err()));
    let mut number = Map::from_iter([("type".to_owned(), json!("integer")), ("minimum".to_owned(), json!(least))]);
    if takes(json!(u64::MAX)).is_none() {
        number.insert("maximum".to_owned(), json!(u32::MAX));
    }
    let mut limit = number;
    if takes(Value::Null).is_some() {
        limit = Map::from_iter([("anyOf".to_owned(), json!([limit, {"const": "none"}]))]);
    }
    limit.insert("description".to_owned(), about.into());
    Value::Object(limit)
}

/// The price of one model, in US dollars per million tokens.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "prices are read into the hub's own type; this says its form")]
struct PriceForm {
    /// Input, cached one aside.
    #[schemars(range(min = 0, max = 1_000_000))]
    input: f64,
    /// Output, reasoning aside.
    #[schemars(range(min = 0, max = 1_000_000))]
    output: f64,
    /// Input read from a cache.
    #[schemars(range(min = 0, max = 1_000_000))]
    cache_read: Option<f64>,
    /// Input written to a cache.
    #[schemars(range(min = 0, max = 1_000_000))]
    cache_new: Option<f64>,
    /// Reasoning; as output if not given.
    #[schemars(range(min = 0, max = 1_000_000))]
    reasoning: Option<f64>,
}

pub(super) fn prices(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema!({"type": "object"});
    schema.insert("additionalProperties".to_owned(), PriceForm::json_schema(generator).into());
    schema
}

/// Returns the text of a schema as it is shipped: pretty, keys in the order of the alphabet, texts on one line.
pub fn shipped(schema: &Value) -> String {
    let text = serde_json::to_string_pretty(&sorted(schema)).unwrap_or_default();
    text + "\n"
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            Value::Object(entries.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        // Where a line of our source ends means nothing to a reader.
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
