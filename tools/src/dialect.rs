//! Dialects: families of tools that start or continue runs. Each dialect has its own parameters, and parses a call into a [`Request`].

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::{Map, Value};
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::place::{Isolation, Mode};
use subtend_session::title::one_line;
use subtend_session::unseen::is_unseen;
use subtend_session::values::check_metadata;

pub use subtend_session::place::Source;

use crate::result::ToolError;
use crate::{bounded, near};

pub(crate) use reading::arguments;
pub use template::OfferedTemplate;

pub mod discovery;
pub mod manage;
pub mod minion;
mod reading;
pub mod spawn;
pub mod spawn_task;
pub mod subagent;
pub mod task;
pub mod template;

pub const MAX_PROMPT: usize = 1 << 20;
pub const MAX_LABEL: usize = 200;
/// Maximum bytes of a label taken from a first line.
const MAX_FIRST_LINE: usize = 80;

/// Maximum number of files or tools that one call names.
pub const MAX_NAMED: usize = 256;

/// The request of a call that opens a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Start(Box<StartRequest>),
    Continue(ContinueRequest),
}

impl Request {
    pub fn start(&self) -> Option<&StartRequest> {
        if let Self::Start(start) = self { Some(start) } else { None }
    }

    pub fn mode(&self) -> Mode {
        match self {
            Self::Start(start) => start.mode,
            Self::Continue(request) => request.mode,
        }
    }

    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Start(start) => start.dialect,
            Self::Continue(request) => request.dialect,
        }
    }
}

/// The start of a child, with all parameters of all dialects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    pub dialect: Dialect,
    pub agent: Text,
    pub prompt: Text,
    pub mode: Mode,
    /// A short name for the child: from the call, or the start of the prompt.
    pub label: Option<Text>,
    /// Title in listings, if the call sets one.
    pub title: Option<Text>,
    /// Isolation of the child's working directory, if the call sets one.
    pub isolation: Option<Isolation>,
    /// A JSON object passed to the child unchanged.
    pub metadata: Option<Text>,
    pub turns: Option<u32>,
    /// Output token limit of each model call of the child, if the call sets one.
    pub output_tokens: Option<NonZeroU64>,
    /// The tools that the child may be offered; `None` for all tools of its caller.
    pub tools: Option<Vec<Text>>,
    pub profile: Option<Text>,
    /// The template that fills in the prompts.
    pub template: Option<Text>,
    /// The system prompt from the template.
    pub body: Option<Text>,
    /// The system prompt of the call, appended to the others.
    pub system: Option<Text>,
    /// Additional text for the first user message.
    pub context: Option<Text>,
    pub files: Vec<Text>,
    /// Tools whose schemas are part of the first user message, grouped as in the call.
    pub prefetch: Vec<(Text, Vec<Text>)>,
}

impl StartRequest {
    pub(crate) fn plain(dialect: Dialect, agent: Text, prompt: Text, mode: Mode) -> Self {
        Self {
            dialect,
            agent,
            prompt,
            mode,
            label: None,
            title: None,
            isolation: None,
            metadata: None,
            turns: None,
            output_tokens: None,
            tools: None,
            profile: None,
            template: None,
            body: None,
            system: None,
            context: None,
            files: Vec::new(),
            prefetch: Vec::new(),
        }
    }
}

/// The continuation of an ended child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueRequest {
    pub dialect: Dialect,
    /// The child's id as the model wrote it. The id must be that of one of the caller's children.
    pub task: Text,
    /// The agent, if the model named one. The child must have this agent.
    pub agent: Option<Text>,
    pub prompt: Text,
    pub mode: Mode,
    pub turns: Option<u32>,
    /// The tools of the child from now on; `None` leaves them unchanged.
    pub tools: Option<Vec<Text>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedProfile {
    pub name: Text,
    pub description: Text,
    /// The agent of the profile; `None` for the caller's agent.
    pub agent: Option<Text>,
    /// The default tools of the child.
    pub tools: Vec<Text>,
}

/// The agents, profiles and templates with which a session may start children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    pub dialects: Vec<Dialect>,
    /// The session's own agent: the default for children.
    pub own: Text,
    /// Agents that may be started, with their descriptions, including those that need approval.
    pub agents: Vec<(Text, Text)>,
    /// The agents that descriptions and errors name. Without an approver, they omit agents that need approval.
    pub shown: Vec<(Text, Text)>,
    pub profiles: Vec<OfferedProfile>,
    pub templates: Vec<OfferedTemplate>,
    /// Tools that a call may give to a child: all tools that the session may be offered.
    pub tools: Vec<Text>,
    /// The tools that errors name. Without an approver, they omit tools that need approval.
    pub shown_tools: Vec<Text>,
    /// True if a call started this session.
    pub nested: bool,
    /// The origin of the session's calls.
    pub source: Source,
    /// True if a call of `task` may request a worktree.
    pub can_isolate: bool,
}

impl Offered {
    pub fn has(&self, dialect: Dialect) -> bool {
        self.dialects.contains(&dialect)
    }

    /// Returns the tools of the offered dialects. With `manage`, `check_task` and `cancel_task` are added to `task`.
    pub fn specs(&self, manage: bool) -> Vec<ToolSpec> {
        let (shown, mut specs) = (&self.shown, Vec::new());
        if self.has(Dialect::Task) && !shown.is_empty() {
            specs.push(task::spec(shown, self.can_isolate));
        }
        if self.has(Dialect::SpawnTask) && !shown.is_empty() {
            specs.push(spawn_task::spec(shown));
        }
        if ((self.has(Dialect::Task) && manage) || self.has(Dialect::SpawnTask)) && !shown.is_empty() {
            specs.extend(manage::specs(self.has(Dialect::Task)));
        }
        if self.has(Dialect::Spawn) {
            specs.extend(spawn::specs(&self.profiles));
        }
        if self.has(Dialect::Minion) {
            specs.push(minion::spec(&self.templates));
        }
        if self.has(Dialect::Subagent) && self.source == Source::Internal {
            specs.push(subagent::spec(shown));
        }
        specs
    }

    /// Parses a call of a tool that opens runs. Returns `None` if `tool` is not offered.
    ///
    /// # Errors
    /// Returns an error for the model, in the format of the dialect.
    pub fn read(&self, tool: &str, args: &str) -> Option<Result<Request, ToolError>> {
        let (dialect, read) = match tool {
            task::NAME => (Dialect::Task, task::parse as fn(&str, &Self) -> Result<Request, ToolError>),
            spawn::NAME => (Dialect::Spawn, spawn::parse as _),
            spawn_task::NAME => (Dialect::SpawnTask, spawn_task::parse as _),
            minion::NAME => (Dialect::Minion, minion::parse as _),
            subagent::NAME => (Dialect::Subagent, subagent::parse as _),
            _ => return None,
        };
        // A model may call `subagent` although it is not offered. The refusal has the format of that dialect.
        if let Some(refused) = (dialect == Dialect::Subagent).then(|| subagent::refusal(self)).flatten() {
            return Some(Err(refused));
        }
        self.has(dialect).then(|| read(args, self))
    }

    /// Checks that each named tool can be given to a child. Accepts tools that start or end runs, which are removed later.
    pub(crate) fn check_tools(&self, key: &str, named: &[Text]) -> Result<(), ToolError> {
        let is_unknown = |name: &&Text| !is_locked(name) && !self.tools.contains(name);
        let unknown: Vec<&str> = named.iter().filter(is_unknown).map(|name| bounded::head(name, 100)).collect();
        let Some(first) = unknown.first() else { return Ok(()) };
        let offered: Vec<&str> = self.shown_tools.iter().map(|name| &**name).collect();
        let suggestion = near::similar_names(first, &offered).first().map(|name| format!(" Did you mean `{name}`?"));
        let valid = match offered.is_empty() {
            true => "You have no tools to give.".to_owned(),
            false => format!("Valid: {}.", near::list_names(&offered)),
        };
        Err(ToolError::bad_args(format!(
            "{key} names tools that are not available: {}.{} {valid}",
            near::list_names(&unknown),
            suggestion.unwrap_or_default()
        )))
    }

    pub(crate) fn find_agent(&self, tool: &str, requested: &str) -> Result<Text, ToolError> {
        match self.agents.iter().find(|(name, _)| **name == *requested) {
            Some((agent, _)) => Ok(Arc::clone(agent)),
            None => Err(unknown_agent(tool, requested, &self.shown)),
        }
    }
}

/// Returns whether the name `tool` is reserved for starting and managing runs.
pub fn is_locked(tool: &str) -> bool {
    const LOCKED: [&str; 11] = [
        task::NAME,
        manage::CHECK,
        manage::CANCEL,
        spawn::NAME,
        spawn::AWAIT,
        spawn_task::NAME,
        minion::NAME,
        minion::RETURN,
        subagent::NAME,
        discovery::GET,
        discovery::USE,
    ];
    // Models do not distinguish names by case.
    LOCKED.iter().any(|locked| locked.eq_ignore_ascii_case(tool))
}

/// Checks that a prompt is neither empty nor too long. `named` is the name of the argument, `reader` the child that receives it.
pub(crate) fn check_prompt(named: &str, reader: &str, prompt: &str) -> Result<(), ToolError> {
    if prompt.trim().is_empty() {
        return Err(ToolError::bad_args(format!(
            "the {named} is empty: the {reader} sees nothing else, so include everything that it needs"
        )));
    }
    if prompt.len() > MAX_PROMPT {
        return Err(ToolError::bad_args(format!(
            "the {named} has {} bytes; the limit is {MAX_PROMPT}: put long material into a file and name its path",
            prompt.len()
        )));
    }
    Ok(())
}

/// Checks the length of an optional text. A blank text counts as missing.
pub(crate) fn optional_text(named: &str, text: Option<String>) -> Result<Option<Text>, ToolError> {
    let text = text.filter(|text| !text.trim().is_empty());
    match text.as_ref().map(String::len).filter(|length| *length > MAX_PROMPT) {
        Some(length) => Err(ToolError::bad_args(format!(
            "the {named} has {length} bytes; the limit is {MAX_PROMPT}: put long material into a file and name its path"
        ))),
        None => Ok(text.map(Text::from)),
    }
}

pub(crate) fn check_count(named: &str, count: usize) -> Result<(), ToolError> {
    if count > MAX_NAMED {
        return Err(ToolError::bad_args(format!("the call names {count} {named}; the limit is {MAX_NAMED}")));
    }
    Ok(())
}

pub(crate) fn metadata(metadata: Option<Map<String, Value>>) -> Result<Option<Text>, ToolError> {
    let Some(metadata) = metadata.map(|metadata| Value::Object(metadata).to_string()) else { return Ok(None) };
    check_metadata("the metadata", &metadata)
        .map_err(|why| ToolError::bad_args(format!("{why}: metadata is for labels, so put content into the prompt")))?;
    Ok(Some(metadata.into()))
}

/// Returns the start of `text` as a label of one line. Removes terminal control characters, because an import refuses them.
pub(crate) fn label(text: &str) -> Option<Text> {
    let is_kept = |c: char| c.is_whitespace() || !is_unseen(c);
    let kept = if text.chars().all(is_kept) {
        text.into()
    } else {
        text.chars().filter(|c| is_kept(*c)).collect::<Cow<'_, str>>()
    };
    let line = one_line(&kept);
    (!line.is_empty()).then(|| bounded::shorten(&line, MAX_LABEL).as_ref().into())
}

/// Returns the first line as a label, short because the journal has one for each child of the default dialect.
pub(crate) fn first_line(text: &str) -> Option<Text> {
    label(bounded::head(text.trim_start().lines().next().unwrap_or_default(), MAX_FIRST_LINE))
}

/// Splits a comma-separated list of names.
pub(crate) fn names(list: &str) -> Vec<Text> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Text::from).collect()
}

fn unknown_agent(tool: &str, requested: &str, agents: &[(Text, Text)]) -> ToolError {
    let names: Vec<&str> = agents.iter().map(|(name, _)| &**name).collect();
    let shown = bounded::shorten(requested, 100);
    if names.is_empty() {
        return ToolError::refused(format!(
            "no agent `{shown}`: no agents can be started here, so do the work yourself"
        ));
    }
    let suggestion = near::similar_names(requested, &names)
        .first()
        .map(|name| format!(" Did you mean `{name}`?"))
        .unwrap_or_default();
    ToolError::bad_args(format!(
        "no agent `{shown}` can be started by {tool}.{suggestion} Valid: {}.",
        near::list_names(&names)
    ))
}

pub(crate) fn list_agents(agents: &[(Text, Text)]) -> String {
    let line = |(name, about): &(Text, Text)| {
        let about: Vec<&str> = about.split_whitespace().collect();
        format!("\n- {name}: {}", bounded::shorten(&about.join(" "), 1000))
    };
    agents.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_deeply_nested_metadata_is_refused() {
        let nested = |levels: usize| {
            let text = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
            metadata(serde_json::from_str(&text).expect("an object"))
        };
        let refused = nested(102).expect_err("too deep").message;
        assert!(
            refused.contains("nests more than 100 arrays and objects: metadata is for labels, so put content"),
            "{refused}"
        );
        assert!(nested(100).expect("metadata").is_some());
    }
}
