//! `get_tools` and `use_tool`: access to tools whose schemas are not shown to the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use subtend_session::authority::Access;
use subtend_session::call::ToolEffect;
use subtend_session::dialect::discovery;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::bounded;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput};

pub use subtend_session::dialect::discovery::{GET, USE};

/// Maximum bytes of one tool's description in a listing.
const MAX_DESCRIPTION: usize = 200;
const MAX_UNKNOWN: usize = 20;
/// Maximum bytes of a query. Each of its words is searched in all tools, on a thread that other sessions need.
const MAX_QUERY: usize = 1 << 10;

const ABOUT_GET: &str = "\
List the tools that you can use in addition to those that you see, or describe some of them. Without arguments, returns each name \
with its purpose; with `query`, only tools that match all of its words; with `tools`, the whole description and the parameters of \
the named tools.

Use it before you conclude that something cannot be done, and before the first use of a tool whose parameters you do not know.";

const ABOUT_USE: &str = "\
Call a tool that get_tools lists, by its name and with its arguments as an object. The result is that of the tool. Call tools \
that you see by their own names instead.";

pub fn specs() -> [ToolSpec; 2] {
    let get = json!({
        "type": "object",
        "properties": {
            "tools": {"type": "array", "items": {"type": "string"}, "description": "Tools to describe in full."},
            "query": {"type": "string", "description": "Words that the name or description of a listed tool must contain."},
        },
        "additionalProperties": false,
    });
    let call = json!({
        "type": "object",
        "properties": {
            "tool": {"type": "string", "minLength": 1, "description": "The tool, as get_tools names it."},
            "args": {"type": "object", "description": "Its arguments; leave it out for none."},
        },
        "required": ["tool"],
        "additionalProperties": false,
    });
    [
        ToolSpec { name: GET.into(), description: ABOUT_GET.into(), schema: Arc::new(get) },
        ToolSpec { name: USE.into(), description: ABOUT_USE.into(), schema: Arc::new(call) },
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetArguments {
    tools: Option<Vec<String>>,
    query: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UseArguments {
    #[expect(dead_code, reason = "the field is only checked: displays read it from the arguments")]
    tool: String,
    #[expect(dead_code, reason = "the field is only checked: displays read it from the arguments")]
    args: Option<Value>,
}

/// Parses a call of `use_tool` into the named tool and its arguments. Refuses reserved tools, including `use_tool` and `get_tools`.
///
/// # Errors
/// If the arguments are invalid or the tool cannot be called.
pub fn parse_use(args: &str) -> Result<(String, String), ToolError> {
    let _: UseArguments = super::arguments(USE, args, "tool and args")?;
    let (tool, nested) = discovery::resolve(USE, args)
        .ok_or_else(|| ToolError::bad_args("the tool is empty: name one that get_tools lists"))?;
    if super::is_locked(&tool) {
        let shown = bounded::shorten(&tool, 60);
        return Err(ToolError::bad_args(format!(
            "{shown} cannot be called by {USE}: it calls tools that {GET} lists; call a tool that you are shown by its own name"
        )));
    }
    Ok((tool, nested))
}

/// `get_tools` for a session that may use `all` tools, of which the model sees `shown`.
#[derive(Debug)]
pub struct GetTools {
    spec: ToolSpec,
    all: Arc<[ToolSpec]>,
    shown: BTreeSet<Text>,
}

impl GetTools {
    /// Parses a call of `get_tools` into the tool and its checked arguments.
    ///
    /// # Errors
    /// If the arguments are invalid.
    pub fn parse_call(args: &str, all: &Arc<[ToolSpec]>, shown: &[Text]) -> Result<(Arc<dyn Tool>, Value), ToolError> {
        let GetArguments { tools, query } = super::arguments(GET, args, "tools and query")?;
        super::check_count("tools", tools.as_ref().map_or(0, Vec::len))?;
        let bytes = query.as_ref().map_or(0, String::len);
        if bytes > MAX_QUERY {
            return Err(ToolError::bad_args(format!(
                "the query has {bytes} bytes; the limit is {MAX_QUERY}: use fewer words"
            )));
        }
        let [spec, _] = specs();
        let tool = Self { spec, all: Arc::clone(all), shown: shown.iter().cloned().collect() };
        Ok((Arc::new(tool), json!({"tools": tools, "query": query})))
    }

    /// Lists the tools that are not offered in full, one line each.
    fn search(&self, query: &str, max: usize) -> Value {
        let words: BTreeSet<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let fits = |tool: &&ToolSpec| {
            let text = format!("{}\n{}", tool.name, tool.description).to_lowercase();
            !self.shown.contains(&tool.name) && words.iter().all(|word| text.contains(word))
        };
        let line = |tool: &ToolSpec| {
            let about = tool.description.split_whitespace().collect::<Vec<_>>().join(" ");
            json!({"name": *tool.name, "description": bounded::shorten(&about, MAX_DESCRIPTION)})
        };
        let (tools, omitted) = take_within(self.all.iter().filter(fits), line, max);
        listing(tools, omitted, "give a `query`", &[] as &[&str])
    }

    fn describe(&self, named: &[String], max: usize) -> Value {
        let mut seen = BTreeSet::new();
        let names = || named.iter().map(|name| name.trim());
        let found = names().filter(|name| seen.insert(*name)).filter_map(|name| self.find(name));
        let whole =
            |tool: &ToolSpec| json!({"name": *tool.name, "description": *tool.description, "parameters": *tool.schema});
        let (tools, omitted) = take_within(found, whole, max);
        let unknown = names().filter(|name| self.find(name).is_none()).take(MAX_UNKNOWN);
        let unknown: Vec<_> = unknown.map(|name| bounded::shorten(name, 64)).collect();
        listing(tools, omitted, "name fewer at a time", &unknown)
    }

    fn find(&self, name: &str) -> Option<&ToolSpec> {
        self.all.iter().find(|tool| *tool.name == *name)
    }
}

/// Returns the entries of the first tools, which fit into `max` bytes, and the number of omitted tools.
fn take_within<'a>(
    mut all: impl Iterator<Item = &'a ToolSpec>,
    entry: impl Fn(&'a ToolSpec) -> Value,
    max: usize,
) -> (Vec<Value>, usize) {
    let (mut budget, mut kept) = (max, Vec::new());
    for tool in all.by_ref() {
        let one = entry(tool);
        match budget.checked_sub(one.to_string().len().saturating_add(1)) {
            Some(rest) => {
                budget = rest;
                kept.push(one);
            }
            // The others are only counted: a model may name many tools with large schemas.
            None => return (kept, all.count().saturating_add(1)),
        }
    }
    (kept, 0)
}

fn listing(tools: Vec<Value>, omitted: usize, hint: &str, unknown: &[impl AsRef<str>]) -> Value {
    let mut listing = Map::from_iter([("tools".to_owned(), Value::Array(tools))]);
    if omitted > 0 {
        listing.insert("more".to_owned(), format!("{omitted} more are not shown: {hint}").into());
    }
    if !unknown.is_empty() {
        listing.insert("unknown".to_owned(), unknown.iter().map(|name| Value::from(name.as_ref())).collect());
    }
    Value::Object(listing)
}

impl Tool for GetTools {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    fn leaves_process(&self) -> bool {
        false
    }

    /// Returns no accesses, because the tool lists only what the session may use.
    fn access(&self, _args: Option<&Value>) -> Vec<Access> {
        Vec::new()
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        // Bytes reserved for the rest of the result.
        const REST: usize = 4 << 10;
        let max = usize::try_from(call.max_bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(REST.min(usize::try_from(call.max_bytes / 2).unwrap_or(REST)));
        let named: Option<Vec<String>> =
            call.args.get("tools").cloned().and_then(|named| serde_json::from_value(named).ok());
        let listing = match named.filter(|named| !named.is_empty()) {
            Some(named) => self.describe(&named, max),
            None => self.search(call.args.get("query").and_then(Value::as_str).unwrap_or_default(), max),
        };
        std::future::ready(Ok(ToolOutput::text(listing.to_string()))).boxed()
    }
}

#[cfg(test)]
mod tests;
