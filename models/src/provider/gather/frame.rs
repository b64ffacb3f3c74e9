//! Access to fields of frames.

use serde_json::Value;

pub(super) fn text<'a>(frame: &'a Value, pointer: &str) -> Option<&'a str> {
    frame.pointer(pointer).and_then(Value::as_str)
}

/// Returns the list at `pointer`, or an empty one.
pub(super) fn list<'a>(frame: &'a Value, pointer: &str) -> &'a [Value] {
    frame.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns arguments that arrived as JSON instead of text, as some servers send them.
pub(super) fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
