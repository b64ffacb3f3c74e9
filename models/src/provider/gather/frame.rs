//! Reading frames.

use serde_json::Value;

/// The text at `pointer`.
pub(super) fn text<'a>(frame: &'a Value, pointer: &str) -> Option<&'a str> {
    frame.pointer(pointer).and_then(Value::as_str)
}

/// The list at `pointer`; an empty one where there is none.
pub(super) fn list<'a>(frame: &'a Value, pointer: &str) -> &'a [Value] {
    frame.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Arguments that came as JSON rather than as text: text all the same, as some servers write it.
pub(super) fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
