//! Sanitizes the tool descriptions of a server, which are untrusted data.

use std::collections::BTreeSet;
use std::time::Duration;

use rmcp::model::Tool;
use serde_json::{Value, json};
use subtend_session::message::ToolSpec;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::names::{ANSWERS, ToolName};
use super::question::{self, Question};
use crate::arguments;
use crate::bounded::{head, shorten};
use crate::escape::harmless;

/// Maximum bytes of a description.
const MAX_DESCRIPTION: usize = 2_048;
/// Maximum bytes of a name.
const MAX_NAME: usize = 256;
/// Maximum bytes of a schema.
const MAX_SCHEMA: usize = 64 << 10;
/// Maximum number of patterns in all schemas of a server, because each pattern is compiled.
const MAX_PATTERNS: usize = 256;
/// Maximum time for all schemas of a server.
const MAX_CHECK_TIME: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(super) struct SanitizedTool {
    pub(super) names: ToolName,
    /// The name used by the server.
    pub(super) remote: String,
    pub(super) spec: ToolSpec,
    pub(super) purpose: Purpose,
}

impl SanitizedTool {
    /// Adds the argument for answers to the schema.
    pub(super) fn add_answers_argument(&mut self, questions: &[Question]) {
        let mut schema = Value::clone(&self.spec.schema);
        let field = question::schema(questions);
        if let Some(fields) = schema.as_object_mut()
            && let Some(fields) = fields.entry("properties").or_insert_with(|| json!({})).as_object_mut()
        {
            fields.insert(ANSWERS.to_owned(), field);
        }
        self.spec.schema = schema.into();
    }
}

/// Escapes and shortens a description.
fn bound_description(text: &str) -> String {
    // An escape is longer than its character, so the limit applies before and after escaping.
    let escaped = harmless(head(text, MAX_DESCRIPTION));
    match text.len().max(escaped.len()) > MAX_DESCRIPTION {
        true => format!("{}… ({} bytes in all)", head(&escaped, MAX_DESCRIPTION), text.len()),
        false => escaped,
    }
}

/// The purpose of a request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A call of one of the server's tools.
    Tool,
    Resources,
    Prompts,
}

/// Returns the usable tools, the problems of the others, and the full text of each tool, for a comparison with earlier texts.
///
/// Compiles each schema. Stops before the next schema when `stop` is cancelled.
pub(super) fn all(
    server: &str,
    tools: &[Tool],
    stop: &CancellationToken,
) -> (Vec<SanitizedTool>, Vec<String>, Vec<(String, String)>) {
    let (mut described, mut problems, mut seen_tools): (Vec<SanitizedTool>, _, _) =
        (Vec::new(), Vec::new(), Vec::new());
    let (mut taken, mut patterns, begun) = (BTreeSet::new(), 0, Instant::now());
    for (tool, at) in tools.iter().zip(0_usize..) {
        if stop.is_cancelled() || begun.elapsed() > MAX_CHECK_TIME {
            let seconds = MAX_CHECK_TIME.as_secs();
            problems.push(format!("all but {at} of its tools are ignored: their schemas took more than {seconds} s"));
            break;
        }
        match sanitize(server, tool, &mut patterns) {
            Ok(tool) if !taken.insert(tool.names.name.clone()) => {
                problems.push(format!("a second tool with the name `{}` is ignored", tool.names.name));
            }
            Ok(offered) => {
                seen_tools.push((offered.names.name.to_string(), text(tool)));
                described.push(offered);
            }
            Err(why) => {
                problems.push(format!("its tool `{}` is ignored: {why}", harmless(&shorten(&tool.name, 100))));
            }
        }
    }
    (described, problems, seen_tools)
}

/// Returns all texts of a tool that a model would read.
fn text(tool: &Tool) -> String {
    let schema = serde_json::to_string(&*tool.input_schema).unwrap_or_default();
    // The title is part of the text too, as one line of JSON. So a server cannot move text between title and schema unnoticed.
    let title = tool.title.as_ref().map(|title| format!("\n{}", json!(title))).unwrap_or_default();
    format!("{}\n{}\n{schema}{title}", tool.name, tool.description.as_deref().unwrap_or_default())
}

/// Sanitizes one tool, and adds its number of patterns to `patterns`, the total of this server.
fn sanitize(server: &str, tool: &Tool, patterns: &mut usize) -> Result<SanitizedTool, String> {
    if tool.name.trim().is_empty() {
        return Err("it has no name".to_owned());
    }
    if tool.name.len() > MAX_NAME {
        return Err(format!("its name has {} bytes; the limit is {MAX_NAME}", tool.name.len()));
    }
    let names = ToolName::of(server, &tool.name);
    let mut schema = Value::Object((*tool.input_schema).clone());
    let size = schema.to_string().len();
    if size > MAX_SCHEMA {
        return Err(format!("its schema has {size} bytes; the limit is {MAX_SCHEMA}"));
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("type").or_insert_with(|| "object".into());
    }
    make_harmless(&mut schema);
    let with_own = patterns.saturating_add(arguments::patterns_of(&schema));
    if with_own > MAX_PATTERNS && with_own > *patterns {
        return Err(format!("with it the tools of this server have more than {MAX_PATTERNS} patterns"));
    }
    *patterns = with_own;
    arguments::compile_foreign(&schema).map_err(|why| format!("its schema cannot be used: {why}"))?;
    let description = tool.description.as_deref().filter(|text| !text.trim().is_empty());
    let description = match description.or(tool.title.as_deref()) {
        Some(text) => bound_description(text.trim()),
        None => format!("A tool of the MCP server {server} that has no description."),
    };
    let spec = ToolSpec { name: names.name.clone(), description: description.into(), schema: schema.into() };
    Ok(SanitizedTool { names, remote: tool.name.to_string(), spec, purpose: Purpose::Tool })
}

/// Escapes the texts of a schema. Does not change values with which arguments are compared.
fn make_harmless(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                if let (Value::String(text), "description" | "title") = (&mut *value, key.as_str()) {
                    *text = harmless(text);
                } else {
                    make_harmless(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_harmless),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(value: Value) -> Tool {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn server_texts_become_bounded_and_printable() {
        let schema = json!({"properties": {"a": {"description": "x\u{202e}y", "enum": ["\u{200b}"]}}});
        let listed =
            tool(json!({"name": "t", "description": format!("\u{1b}[2J{}", "d".repeat(9_000)), "inputSchema": schema}));
        let (tools, problems, _) = all("s", &[listed], &CancellationToken::new());
        assert_eq!(problems, [""; 0]);
        let spec = &tools[0].spec;
        assert!(spec.description.starts_with("<U+001B>[2Jddd") && spec.description.len() < 2_200);
        let expected =
            json!({"properties": {"a": {"description": "x<U+202E>y", "enum": ["\u{200b}"]}}, "type": "object"});
        assert_eq!(*spec.schema, expected);
    }

    /// The control: a text of exactly the maximum length is not shortened.
    #[test]
    fn escapes_do_not_extend_a_description_beyond_its_bound() {
        assert_eq!(bound_description(&"d".repeat(MAX_DESCRIPTION)), "d".repeat(MAX_DESCRIPTION));
        for text in ["\u{1b}".repeat(MAX_DESCRIPTION), "\u{202e}".repeat(1_000_000)] {
            let escaped = bound_description(&text);
            let bytes = format!("… ({} bytes in all)", text.len());
            assert!(escaped.ends_with(&bytes) && escaped.len() <= MAX_DESCRIPTION + bytes.len(), "{escaped}");
        }
    }

    #[test]
    fn invalid_tools_do_not_affect_others() {
        let listed = [
            json!({"name": "a b", "inputSchema": {"type": "object"}}),
            json!({"name": "a_b", "inputSchema": {"type": "object"}}),
            json!({"name": "array", "inputSchema": {"type": "array"}}),
            json!({"name": "odd", "inputSchema": {"type": "object", "properties": 3}}),
            json!({"name": "large", "inputSchema": {"type": "object", "title": "x".repeat(70_000)}}),
            json!({"name": " ", "inputSchema": {"type": "object"}}),
            json!({"name": "n".repeat(257), "inputSchema": {"type": "object"}}),
            json!({"name": "n".repeat(256), "inputSchema": {"type": "object"}}),
        ];
        let (tools, problems, _) = all("s", &listed.map(tool), &CancellationToken::new());
        let names: Vec<_> = tools.iter().map(|tool| (&*tool.names.name, tool.remote.as_str())).collect();
        assert_eq!(names[0], ("mcp__s__a_b", "a b"));
        assert_eq!((names.len(), names[1].1.len(), problems.len()), (2, 256, 6), "{problems:#?}");
    }

    /// Patterns are compiled before the user approves a call. The control: tools without patterns, and tools within the limit, are offered.
    #[test]
    fn patterns_of_a_server_are_bounded() {
        let listed: Vec<Tool> = (0..20)
            .map(|n| {
                let fields = (0..30).map(|at| (format!("p{at}"), json!({"pattern": format!("^[a-f]{{{n},}}{at}$")})));
                let fields: serde_json::Map<_, _> = if n == 19 { Default::default() } else { fields.collect() };
                tool(json!({"name": format!("t{n}"), "inputSchema": {"type": "object", "properties": fields}}))
            })
            .collect();
        let (tools, problems, _) = all("s", &listed, &CancellationToken::new());
        let names: Vec<&str> = tools.iter().map(|tool| tool.remote.as_str()).collect();
        assert_eq!(names, ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t19"]);
        assert_eq!(problems.len(), 11);
        let says = "its tool `t8` is ignored: with it the tools of this server have more than 256 patterns";
        assert_eq!(problems[0], says);
        // A tool with a pattern that takes long to compile is not offered.
        let slow =
            json!({"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"pattern": "(.{90}){9}"}}}});
        let (tools, problems, _) = all("s", &[tool(slow)], &CancellationToken::new());
        assert!(tools.is_empty() && problems[0].contains("its schema cannot be used"), "{problems:?}");
    }

    /// The control: the text of a tool without a title has no title line, so texts stored by earlier versions remain valid.
    #[test]
    fn no_two_descriptions_of_a_tool_have_the_same_text() {
        let schema = r#"{"description":"a","type":"object"}"#;
        let of = |about: &str, title: Option<&str>, schema: &str| {
            let schema: Value = serde_json::from_str(schema).unwrap();
            let mut listed = json!({"name": "t", "description": about, "inputSchema": schema});
            title.into_iter().for_each(|title| listed["title"] = title.into());
            text(&tool(listed))
        };
        assert_eq!(of("d", None, schema), format!("t\nd\n{schema}"));
        let all = [
            of("d", Some("x"), schema),
            of("d", Some(schema), schema),
            of(&format!("d\n{schema}"), None, schema),
            of(&format!("d\n{schema}"), Some("x"), schema),
            of("d", None, schema),
        ];
        let different: BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:#?}");
    }

    #[test]
    fn nothing_is_compiled_after_a_cancel() {
        let stop = CancellationToken::new();
        let listed = [tool(json!({"name": "t", "inputSchema": {"type": "object"}}))];
        assert_eq!(all("s", &listed, &stop).0.len(), 1);
        stop.cancel();
        assert_eq!(all("s", &listed, &stop).0.len(), 0);
    }
}
