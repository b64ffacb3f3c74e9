//! `get_tools` and `use_tool`: access to tools that are not offered in full.

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

/// Bytes about one tool in a listing.
const ABOUT: usize = 200;
/// Unknown names in one answer.
const UNKNOWN: usize = 20;

const ABOUT_GET: &str = "\
List the tools that you can use besides those that you are shown, or describe some of them. Without arguments you get every name \
with what it is for; `query` keeps those that have all of its words; `tools` gives the whole description and the parameters of \
the tools that it names.

Use it before you conclude that something cannot be done, and before the first use of a tool whose parameters you do not know.";

const ABOUT_USE: &str = "\
Call a tool that get_tools lists: its name, and its arguments as an object by its own parameters. The result is that of the \
tool. A tool that you are shown is better called by its own name.";

pub fn specs() -> [ToolSpec; 2] {
    let get = json!({
        "type": "object",
        "properties": {
            "tools": {"type": "array", "items": {"type": "string"}, "description": "Tools to describe in full."},
            "query": {"type": "string", "description": "Words that a listed tool's name or description has."},
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
struct Got {
    tools: Option<Vec<String>>,
    query: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Used {
    #[expect(dead_code, reason = "only checked here; displays read it from the arguments")]
    tool: String,
    #[expect(dead_code, reason = "as above")]
    args: Option<Value>,
}

/// Parses a call of `use_tool`: the named tool and its arguments. Spawn tools and these two themselves cannot be called.
///
/// # Errors
/// If the arguments do not fit or the tool cannot be called.
pub fn parse_use(args: &str) -> Result<(String, String), ToolError> {
    let _: Used = super::arguments(USE, args, "tool and args")?;
    let (tool, nested) = discovery::resolve(USE, args)
        .ok_or_else(|| ToolError::bad_args("the tool is empty: name one that get_tools lists"))?;
    if super::is_locked(&tool) {
        let shown = bounded::shown(&tool, 60);
        return Err(ToolError::bad_args(format!(
            "{shown} cannot be called by {USE}: it calls tools that {GET} lists; what you are offered is called by its own name"
        )));
    }
    Ok((tool, nested))
}

/// `get_tools` of a session that may use `all` and is offered `shown` in full.
#[derive(Debug)]
pub struct GetTools {
    spec: ToolSpec,
    all: Arc<[ToolSpec]>,
    shown: BTreeSet<Text>,
}

impl GetTools {
    /// Parses a call.
    ///
    /// # Errors
    /// If the arguments do not fit.
    pub fn asked(args: &str, all: &Arc<[ToolSpec]>, shown: &[Text]) -> Result<(Arc<dyn Tool>, Value), ToolError> {
        let Got { tools, query } = super::arguments(GET, args, "tools and query")?;
        super::not_too_many("tools", tools.as_ref().map_or(0, Vec::len))?;
        let [spec, _] = specs();
        let tool = Self { spec, all: Arc::clone(all), shown: shown.iter().cloned().collect() };
        Ok((Arc::new(tool), json!({"tools": tools, "query": query})))
    }

    /// Lists the tools that are not offered in full, one line each.
    fn listed(&self, query: &str, max: usize) -> Value {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let fits = |tool: &&ToolSpec| {
            let text = format!("{}\n{}", tool.name, tool.description).to_lowercase();
            !self.shown.contains(&tool.name) && words.iter().all(|word| text.contains(word))
        };
        let line = |tool: &ToolSpec| {
            let about = tool.description.split_whitespace().collect::<Vec<_>>().join(" ");
            json!({"name": *tool.name, "description": bounded::shown(&about, ABOUT)})
        };
        let (tools, left) = within(self.all.iter().filter(fits).map(line), max);
        listing(tools, left, "say a `query`", &[] as &[&str])
    }

    fn described(&self, named: &[String], max: usize) -> Value {
        let mut seen = BTreeSet::new();
        let names = || named.iter().map(|name| name.trim());
        let found = names().filter(|name| seen.insert(*name)).filter_map(|name| self.find(name));
        let whole =
            |tool: &ToolSpec| json!({"name": *tool.name, "description": *tool.description, "parameters": *tool.schema});
        let (tools, left) = within(found.map(whole), max);
        let unknown = names().filter(|name| self.find(name).is_none()).take(UNKNOWN);
        let unknown: Vec<_> = unknown.map(|name| bounded::shown(name, 64)).collect();
        listing(tools, left, "name fewer at a time", &unknown)
    }

    fn find(&self, name: &str) -> Option<&ToolSpec> {
        self.all.iter().find(|tool| *tool.name == *name)
    }
}

/// Returns as many as fit, and the number omitted.
fn within(all: impl Iterator<Item = Value>, max: usize) -> (Vec<Value>, usize) {
    let (mut room, mut kept, mut left) = (max, Vec::new(), 0_usize);
    for one in all {
        match room.checked_sub(one.to_string().len().saturating_add(1)).filter(|_| left == 0) {
            Some(rest) => {
                room = rest;
                kept.push(one);
            }
            None => left = left.saturating_add(1),
        }
    }
    (kept, left)
}

fn listing(tools: Vec<Value>, left: usize, then: &str, unknown: &[impl AsRef<str>]) -> Value {
    let mut listing = Map::from_iter([("tools".to_owned(), Value::Array(tools))]);
    if left > 0 {
        listing.insert("more".to_owned(), format!("{left} more are not shown: {then}").into());
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

    /// Needs no access: it lists only tools that the session may use.
    fn access(&self, _args: Option<&Value>) -> Vec<Access> {
        Vec::new()
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        // Reserved for the rest of the answer.
        const REST: usize = 4 << 10;
        let max = usize::try_from(call.max_bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(REST.min(usize::try_from(call.max_bytes / 2).unwrap_or(REST)));
        let named: Option<Vec<String>> =
            call.args.get("tools").cloned().and_then(|named| serde_json::from_value(named).ok());
        let listing = match named.filter(|named| !named.is_empty()) {
            Some(named) => self.described(&named, max),
            None => self.listed(call.args.get("query").and_then(Value::as_str).unwrap_or_default(), max),
        };
        std::future::ready(Ok(ToolOutput::text(listing.to_string()))).boxed()
    }
}

#[cfg(test)]
mod tests;
