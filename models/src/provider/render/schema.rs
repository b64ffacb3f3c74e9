use serde_json::{Map, Value, json};

/// Forbids undeclared properties in each object, as strict generation requires. With `all_required`, also makes all properties required, because
/// OpenAI refuses optional properties.
pub(super) fn close_objects(schema: &Value, all_required: bool) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(|item| close_objects(item, all_required)).collect(),
        Value::Object(fields) => {
            let mut out: Map<String, Value> =
                fields.iter().map(|(name, field)| (name.clone(), close_objects(field, all_required))).collect();
            let properties = fields.get("properties").and_then(Value::as_object);
            if fields.get("type").and_then(Value::as_str) == Some("object") {
                out.entry("additionalProperties").or_insert(json!(false));
            }
            if let Some(properties) = properties.filter(|_| all_required && fields.contains_key("type")) {
                out.insert("required".into(), properties.keys().cloned().collect());
            }
            Value::Object(out)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_closed_at_every_depth() {
        let inner = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]});
        let schema = json!({"type": "array", "items": inner, "$defs": {"open": {"type": "object", "additionalProperties": true}}});
        let strict = |required: &[&str]| {
            let inner = json!({
                "type": "object", "properties": {"a": {"type": "string"}, "b": {}},
                "required": required, "additionalProperties": false,
            });
            json!({"type": "array", "items": inner, "$defs": {"open": {"type": "object", "additionalProperties": true}}})
        };
        assert_eq!(close_objects(&schema, false), strict(&["a"]));
        assert_eq!(close_objects(&schema, true), strict(&["a", "b"]));
    }
}
