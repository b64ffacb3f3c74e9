//! Arguments of calls: parsed once and checked against the schema. Errors tell the model how to correct the call.

mod checks;
mod expansion;
mod faults;
mod patterns;

use jsonschema::{PatternOptions, ValidationOptions, Validator};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use subtend_session::values::{MAX_VALUES, has_too_many, parse_recorded};

use crate::bounded;

pub(crate) const MAX_BYTES: usize = 8 << 20;
const MAX_ERRORS: usize = 8;
/// Maximum bytes of one error, which may quote a whole argument.
const MAX_ERROR: usize = 300;

/// Maximum number of checks for which all errors are listed. Listing them repeats all checks.
const MAX_EXPLAINED_CHECKS: u64 = 1 << 16;
/// Backtracking limit for one pattern on one text.
const BACKTRACK_LIMIT: usize = 20_000;

/// A schema that checks arguments in bounded time.
#[derive(Debug)]
pub(crate) struct ArgumentSchema {
    schema: Value,
    validator: Validator,
}

#[cfg(any(test, feature = "mcp"))]
impl ArgumentSchema {
    /// Returns whether `args` are valid. Returns false if the check would take too long.
    pub(crate) fn is_valid(&self, args: &Value) -> bool {
        checks::count(&self.schema, args) <= checks::MAX_CHECKS && self.validator.is_valid(args)
    }
}

/// Compiles the schema of a tool of this process.
pub(crate) fn compile(schema: &Value) -> Result<ArgumentSchema, String> {
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACK_LIMIT)
        .size_limit(patterns::SIZE)
        .dfa_size_limit(patterns::SIZE);
    build(schema.clone(), jsonschema::options().with_pattern_options(patterns))
}

/// Compiles a schema from an MCP server without the patterns that need backtracking. The server checks those.
#[cfg(feature = "mcp")]
pub(crate) fn compile_foreign(schema: &Value) -> Result<ArgumentSchema, String> {
    let mut schema = schema.clone();
    patterns::remove_backtracking(&mut schema);
    let patterns = PatternOptions::regex().size_limit(patterns::SIZE).dfa_size_limit(patterns::SIZE);
    build(schema, jsonschema::options().with_pattern_options(patterns))
}

#[cfg(feature = "mcp")]
pub(crate) fn patterns_of(schema: &Value) -> usize {
    patterns::number_of(schema)
}

fn build(mut schema: Value, options: ValidationOptions<'_>) -> Result<ArgumentSchema, String> {
    let Some(fields) = schema.as_object_mut() else {
        return Err("it is not a JSON object".into());
    };
    if fields.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its `type` must be `object`: arguments are always an object".into());
    }
    // The id is removed, so that references resolve within the schema. An id could also collide with that of a schema
    // in the library.
    fields.retain(|key, value| !(matches!(&**key, "$id" | "id") && value.is_string()));
    if let Some(why) = faults::unsupported_reason(&schema) {
        return Err(bounded::shorten(&why, MAX_ERROR).into_owned());
    }
    // Formats are not checked, because some of them, such as `regex`, take long.
    match options.should_validate_formats(false).build(&schema) {
        Ok(validator) => Ok(ArgumentSchema { schema, validator }),
        Err(error) => Err(bounded::shorten(&error.to_string(), MAX_ERROR).into_owned()),
    }
}

pub(crate) fn parse(tool: &str, args: &str) -> Result<Value, String> {
    if args.len() > MAX_BYTES {
        let length = args.len();
        return Err(format!("the arguments of {tool} have {length} bytes; the limit is {MAX_BYTES}: split the work"));
    }
    // A session that was imported may have calls that no limit of an answer has counted.
    if has_too_many(args.as_bytes()) {
        return Err(format!("the arguments of {tool} have more than {MAX_VALUES} JSON values: split the work"));
    }
    if args.trim_ascii().is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match parse_recorded(args) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(value) => {
            let found = kind(&value);
            Err(format!(
                "the arguments of {tool} are {found}, not an object: call it again with {{\"name\": value, ...}}"
            ))
        }
        Err(error) => Err(unreadable(tool, args, &error)),
    }
}

pub(crate) fn validate(tool: &str, schema: &ArgumentSchema, args: Value) -> Result<Value, String> {
    let (validator, checks) = (&schema.validator, checks::count(&schema.schema, &args));
    if checks > checks::MAX_CHECKS {
        return Err(format!(
            "the arguments of {tool} need more than {} checks against its schema: call it again with fewer or less nested values",
            checks::MAX_CHECKS
        ));
    }
    if validator.is_valid(&args) {
        return Ok(args);
    }
    if checks > MAX_EXPLAINED_CHECKS {
        return Err(format!("the arguments of {tool} do not fit its schema: correct them and call {tool} again"));
    }
    let mut message = format!("the arguments of {tool} do not fit its schema:\n");
    let mut errors = validator.iter_errors(&args);
    let line = |error: jsonschema::ValidationError<'_>| {
        let path = error.instance_path().to_string();
        let at = if path.is_empty() { "the arguments" } else { &path };
        format!("- {at}: {}\n", bounded::shorten(&error.to_string(), MAX_ERROR))
    };
    let mut lines: Vec<String> = errors.by_ref().take(MAX_ERRORS).map(line).collect();
    lines.sort_unstable();
    message.extend(lines);
    if errors.next().is_some() {
        message.push_str("- and more\n");
    }
    message.push_str(&format!("Correct them and call {tool} again."));
    Err(message)
}

/// Converts schema-valid arguments to `A`. This can fail, because the type may require more than its schema.
pub(crate) fn convert<A: DeserializeOwned>(tool: &str, args: Value) -> Result<A, String> {
    serde_path_to_error::deserialize(args).map_err(|error| {
        let path = pointer(error.path());
        let at = if path.is_empty() { "the arguments" } else { &path };
        let why = error.inner().to_string();
        let why = bounded::shorten(&why, MAX_ERROR);
        format!("the arguments of {tool} do not fit:\n- {at}: {why}\nCorrect them and call {tool} again.")
    })
}

fn pointer(path: &Path) -> String {
    let mut out = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => out.push_str(&format!("/{index}")),
            Segment::Map { key } => out.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
            // A variant of an enum is not a level of the arguments.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    out
}

fn unreadable(tool: &str, args: &str, error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let at = if line > 1 { format!("line {line}, column {column}") } else { format!("column {column}") };
    if error.is_eof() {
        return format!(
            "the arguments of {tool} break off at {at}: the answer was probably too long and was truncated. Call {tool} again with \
             complete JSON, and with less text if it was long."
        );
    }
    let text = error.to_string();
    let why = text.split(" at line ").next().unwrap_or(&text);
    let bad_line = args.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let before = bad_line.get(..bad_line.floor_char_boundary(column)).unwrap_or_default();
    let near = before.get(before.ceil_char_boundary(before.len().saturating_sub(30))..).unwrap_or_default();
    format!("the arguments of {tool} are not JSON: {why} at {at}, after `{near}`. Call {tool} again with valid JSON.")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_arguments_are_an_empty_object() {
        assert_eq!(["", " \n", "{}"].map(|args| parse("list", args)), [(); 3].map(|()| Ok(json!({}))));
    }

    #[test]
    fn truncated_arguments_error_names_the_position() {
        assert_eq!(
            parse("write", r#"{"path": "a", "content": "half"#).unwrap_err(),
            "the arguments of write break off at column 30: the answer was probably too long and was truncated. Call write again with \
             complete JSON, and with less text if it was long."
        );
    }

    #[test]
    fn syntax_error_names_position_and_cause() {
        assert_eq!(
            parse("read", r#"{"path": a}"#).unwrap_err(),
            "the arguments of read are not JSON: expected value at column 10, after `{\"path\": a`. Call read again with \
             valid JSON."
        );
        assert!(parse("read", "{\n\"päth\" 1}").unwrap_err().contains("line 2, column"));
        assert!(parse("read", &"[".repeat(100_000)).unwrap_err().contains("recursion limit"));
    }

    /// The control: the same text in a string is one value.
    #[test]
    fn arguments_of_too_many_values_are_not_parsed() {
        let values = "{},".repeat(MAX_VALUES);
        let refused = parse("read", &format!("{{\"a\":[{values}0]}}")).unwrap_err();
        assert_eq!(refused, "the arguments of read have more than 100000 JSON values: split the work");
        assert_eq!(parse("read", &json!({"a": values}).to_string()), Ok(json!({"a": values})));
    }

    #[test]
    fn non_object_arguments_are_refused() {
        let found = ["null", "true", "1", "\"{\"", "[]"].map(|args| parse("read", args).unwrap_err());
        let expected = ["null", "a boolean", "a number", "a string", "an array"].map(|kind| {
            format!("the arguments of read are {kind}, not an object: call it again with {{\"name\": value, ...}}")
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn oversized_arguments_are_refused_without_parsing() {
        let args = " ".repeat(MAX_BYTES + 1);
        assert_eq!(
            parse("read", &args).unwrap_err(),
            "the arguments of read have 8388609 bytes; the limit is 8388608: split the work"
        );
    }

    #[test]
    fn schema_errors_are_listed_with_their_paths() {
        let schema = json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer", "minimum": 1}},
            "required": ["path"],
            "additionalProperties": false,
        });
        let validator = compile(&schema).unwrap();
        assert_eq!(validate("read", &validator, json!({"path": "a"})), Ok(json!({"path": "a"})));
        assert_eq!(
            validate("read", &validator, json!({"lines": "x", "colour": 1})).unwrap_err(),
            "the arguments of read do not fit its schema:\n\
             - /lines: \"x\" is not of type \"integer\"\n\
             - the arguments: \"path\" is a required property\n\
             - the arguments: Additional properties are not allowed ('colour' was unexpected)\n\
             Correct them and call read again."
        );
    }

    #[test]
    fn message_of_many_errors_and_long_values_is_short() {
        let schema = json!({"type": "object", "additionalProperties": {"type": "integer"}});
        let validator = compile(&schema).unwrap();
        let args: serde_json::Map<String, Value> =
            (0..100).map(|n| (format!("a{n}"), json!("x".repeat(10_000)))).collect();
        let message = validate("t", &validator, Value::Object(args)).unwrap_err();
        assert!(message.len() < 4000 && message.contains("- and more"), "{}", message.len());
    }

    #[test]
    fn compile_requires_an_object_schema() {
        assert_eq!(compile(&json!(true)).unwrap_err(), "it is not a JSON object");
        assert_eq!(
            compile(&json!({"type": "string"})).unwrap_err(),
            "its `type` must be `object`: arguments are always an object"
        );
        assert!(compile(&json!({"type": "object", "properties": {"a": {"type": "strin"}}})).is_err());
        assert!(compile(&json!({"type": "object", "$ref": "http://127.0.0.1:1/schema.json"})).is_err());
    }
}
