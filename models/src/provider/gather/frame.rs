//! Reads fields of the frames of an answer.

use serde_json::Value;

pub(super) fn text<'a>(frame: &'a Value, pointer: &str) -> Option<&'a str> {
    frame.pointer(pointer).and_then(Value::as_str)
}

pub(super) fn list<'a>(frame: &'a Value, pointer: &str) -> &'a [Value] {
    frame.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the arguments of a call as text. Some servers send a JSON value instead.
pub(super) fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
