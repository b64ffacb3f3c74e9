//! Dialects: families of tools that a model sees over the same few commands.
//!
//! A dialect is thin: it names parameters, and reads a call into a [`Request`]. What becomes of it is the same for all.

use std::num::NonZeroU64;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::place::Mode;
use subtend_session::unseen::is_unseen;

pub use subtend_session::place::Source;

use crate::result::ToolError;
use crate::{arguments, bounded, near};

pub use template::OfferedTemplate;

pub mod discovery;
pub mod manage;
pub mod minion;
pub mod spawn;
pub mod spawn_task;
pub mod subagent;
pub mod task;
pub mod template;

/// Bytes of one prompt.
pub const MAX_PROMPT: usize = 1 << 20;
/// Bytes of one call's metadata, as JSON.
pub const MAX_METADATA: usize = 64 << 10;
/// Bytes of a label.
pub const MAX_LABEL: usize = 200;
/// Bytes of a first line as a label, at most.
const MAX_FIRST_LINE: usize = 80;

/// Files, or tools, that one call names.
pub const MAX_NAMED: usize = 256;

/// What a call asks for that opens a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A new child.
    Start(Box<StartRequest>),
    /// An ended child that is to go on.
    Continue(ContinueRequest),
}

impl Request {
    /// Returns what a new child is to be, if it asks for one.
    pub fn start(&self) -> Option<&StartRequest> {
        if let Self::Start(start) = self { Some(start) } else { None }
    }

    /// Whether the call waits.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Start(start) => start.mode,
            Self::Continue(again) => again.mode,
        }
    }

    /// The dialect of the call.
    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Start(start) => start.dialect,
            Self::Continue(again) => again.dialect,
        }
    }
}

/// A new child, and all that a dialect can say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    /// The dialect of the call.
    pub dialect: Dialect,
    pub agent: Text,
    pub prompt: Text,
    /// Whether the call waits.
    pub mode: Mode,
    /// What it is called in the words of its call; the start of its prompt where the call gives no name.
    pub label: Option<Text>,
    /// Its title in listings, where the call itself names it.
    pub title: Option<Text>,
    /// A JSON object that is carried to the child as it is, and means nothing to subtend.
    pub metadata: Option<Text>,
    /// Turn allowance, where the call names one.
    pub turns: Option<u32>,
    /// Output tokens of each of its model calls at most, where the call names a cap (B18).
    pub output_tokens: Option<NonZeroU64>,
    /// The tools that it is offered at most; `None`: all that its caller has.
    pub tools: Option<Vec<Text>>,
    /// The profile that it is made by.
    pub profile: Option<Text>,
    /// The template that it is made by (M10).
    pub template: Option<Text>,
    /// The system prompt that its template fills in.
    pub body: Option<Text>,
    /// A system prompt of the call's own, appended to the others.
    pub system: Option<Text>,
    /// Text that goes into its first user message.
    pub context: Option<Text>,
    /// Files that go into it.
    pub files: Vec<Text>,
    /// Tools whose schemas go into it, by the group that the call names.
    pub prefetch: Vec<(Text, Vec<Text>)>,
}

impl StartRequest {
    /// A child of `agent` that is told `prompt`, and nothing else said.
    pub(crate) fn plain(dialect: Dialect, agent: Text, prompt: Text, mode: Mode) -> Self {
        Self {
            dialect,
            agent,
            prompt,
            mode,
            label: None,
            title: None,
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

/// An ended child that is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueRequest {
    /// The dialect of the call: only one that it started itself may be meant.
    pub dialect: Dialect,
    /// Its id, as the model wrote it: only one of the caller's own may be meant.
    pub task: Text,
    /// The agent that the model takes it to be, if it said so: it must be that one.
    pub agent: Option<Text>,
    pub prompt: Text,
    /// Whether the call waits.
    pub mode: Mode,
    /// Turn allowance, where the call names one.
    pub turns: Option<u32>,
    /// The tools that it is offered from here on; those that it has where the call does not say.
    pub tools: Option<Vec<Text>>,
}

/// A profile, as calls and prompts name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedProfile {
    pub name: Text,
    pub description: Text,
    /// The agent whose manifest counts; the caller's own where it names none.
    pub agent: Option<Text>,
    /// Turn allowance and tools are the profile's to say when the child is born.
    pub tools: Vec<Text>,
}

/// What may be opened in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// The dialects that it is offered.
    pub dialects: Vec<Dialect>,
    /// The session's own agent: that of children of a call that names none.
    pub own: Text,
    /// Agents that may be started, with their descriptions; those that need an approval are among them.
    pub agents: Vec<(Text, Text)>,
    /// Those of them that descriptions and errors name: without an approver none that need an approval.
    pub shown: Vec<(Text, Text)>,
    /// Profiles that may be named.
    pub profiles: Vec<OfferedProfile>,
    /// Templates of minions that may be named.
    pub templates: Vec<OfferedTemplate>,
    /// Tools that a call may give to a child: those that the session itself may be offered.
    pub tools: Vec<Text>,
    /// Those of them that errors name: without an approver none that need an approval.
    pub shown_tools: Vec<Text>,
    /// Whether the session was itself started by a call.
    pub nested: bool,
    /// Where its calls come from.
    pub source: Source,
}

impl Offered {
    /// Whether `dialect` is offered.
    pub fn has(&self, dialect: Dialect) -> bool {
        self.dialects.contains(&dialect)
    }

    /// Returns the tools of the dialects that are offered; `manage` adds `check_task` and `cancel_task` to `task`.
    pub fn specs(&self, manage: bool) -> Vec<ToolSpec> {
        let (shown, mut specs) = (&self.shown, Vec::new());
        if self.has(Dialect::Task) && !shown.is_empty() {
            specs.push(task::spec(shown));
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

    /// Reads a call of a tool that opens runs; `None` where `tool` is none of those that are offered.
    ///
    /// # Errors
    /// With what the model is told, in the shape of its dialect.
    pub fn read(&self, tool: &str, args: &str) -> Option<Result<Request, ToolError>> {
        let (dialect, read) = match tool {
            task::NAME => (Dialect::Task, task::parse as fn(&str, &Self) -> Result<Request, ToolError>),
            spawn::NAME => (Dialect::Spawn, spawn::parse as _),
            spawn_task::NAME => (Dialect::SpawnTask, spawn_task::parse as _),
            minion::NAME => (Dialect::Minion, minion::parse as _),
            subagent::NAME => (Dialect::Subagent, subagent::parse as _),
            _ => return None,
        };
        // Said in its own shape also where it is not offered: who asks may be a model that saw it elsewhere.
        if let Some(refused) = (dialect == Dialect::Subagent).then(|| subagent::refusal(self)).flatten() {
            return Some(Err(refused));
        }
        self.has(dialect).then(|| read(args, self))
    }

    /// Checks that each tool that a call names can be given to a child; those that start or end runs are left out later
    /// (S4).
    pub(crate) fn can_give(&self, key: &str, named: &[Text]) -> Result<(), ToolError> {
        let lacks = |name: &&Text| !is_locked(name) && !self.tools.contains(name);
        let lacking: Vec<&str> = named.iter().filter(lacks).map(|name| bounded::head(name, 100)).collect();
        let Some(first) = lacking.first() else { return Ok(()) };
        let offered: Vec<&str> = self.shown_tools.iter().map(|name| &**name).collect();
        let meant = near::near(first, &offered).first().map(|name| format!(" Did you mean `{name}`?"));
        let valid = match offered.is_empty() {
            true => "You have none to give.".to_owned(),
            false => format!("Valid: {}.", near::listed(&offered)),
        };
        Err(ToolError::bad_args(format!(
            "{key} names tools that are not available: {}.{} {valid}",
            near::listed(&lacking),
            meant.unwrap_or_default()
        )))
    }

    /// The agent `asked`, if it may be started.
    pub(crate) fn agent(&self, tool: &str, asked: &str) -> Result<Text, ToolError> {
        match self.agents.iter().find(|(name, _)| **name == *asked) {
            Some((agent, _)) => Ok(Arc::clone(agent)),
            None => Err(unknown(tool, asked, &self.shown)),
        }
    }
}

/// Whether `tool` opens runs, or is about runs that were opened: no other tool can have its name (G15).
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
    // Names that differ in case alone are one name to a model.
    LOCKED.iter().any(|locked| locked.eq_ignore_ascii_case(tool))
}

/// Reads the arguments of `tool`, which takes those that `takes` names.
pub(crate) fn arguments<T: DeserializeOwned>(tool: &str, args: &str, takes: &str) -> Result<T, ToolError> {
    // Most arguments fit as they are. The others are read again, so that the error says what is wrong.
    if args.len() <= MAX_PROMPT
        && args.trim_ascii_start().starts_with('{')
        && let Ok(fit) = serde_json::from_str(args)
    {
        return Ok(fit);
    }
    let mut value = arguments::parse(tool, args).map_err(ToolError::bad_args)?;
    value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(whole);
    serde_json::from_value(value).map_err(|error| {
        let error = error.to_string();
        let shown = bounded::shown(&error, 300);
        ToolError::bad_args(format!("the arguments of {tool} do not fit: {shown}; it takes {takes}"))
    })
}

/// A number that some models write as `5.0` where they mean 5: to JSON they are the same.
fn whole(value: &mut Value) {
    let number = value.as_f64().filter(|number| value.is_f64() && *number >= 0.0 && number.fract() == 0.0);
    if let Some(number) = number.and_then(|number| format!("{number:.0}").parse::<u64>().ok()) {
        *value = number.into();
    }
}

/// Checks that a prompt is neither empty nor too long; `named` is the argument, `reader` the child that reads it.
pub(crate) fn says_something(named: &str, reader: &str, prompt: &str) -> Result<(), ToolError> {
    if prompt.trim().is_empty() {
        return Err(ToolError::bad_args(format!(
            "the {named} is empty: the {reader} sees nothing else, so tell it all it needs"
        )));
    }
    if prompt.len() > MAX_PROMPT {
        return Err(ToolError::bad_args(format!(
            "the {named} has {} bytes; {MAX_PROMPT} is the most: put long material into a file and name its path",
            prompt.len()
        )));
    }
    Ok(())
}

/// A text beside the prompt that is not too much.
pub(crate) fn beside(named: &str, text: Option<String>) -> Result<Option<Text>, ToolError> {
    let text = text.filter(|text| !text.trim().is_empty());
    match text.as_ref().map(String::len).filter(|length| *length > MAX_PROMPT) {
        Some(length) => Err(ToolError::bad_args(format!(
            "the {named} has {length} bytes; {MAX_PROMPT} is the most: put long material into a file and name its path"
        ))),
        None => Ok(text.map(Text::from)),
    }
}

/// No more than [`MAX_NAMED`] of what a call names.
pub(crate) fn not_too_many(named: &str, count: usize) -> Result<(), ToolError> {
    if count > MAX_NAMED {
        return Err(ToolError::bad_args(format!(
            "there are {count} {named}; {MAX_NAMED} is the most that a call can name"
        )));
    }
    Ok(())
}

/// Metadata as it is carried, if it is not too much.
pub(crate) fn metadata(metadata: Option<Map<String, Value>>) -> Result<Option<Text>, ToolError> {
    let metadata = metadata.map(|metadata| Value::Object(metadata).to_string());
    if let Some(length) = metadata.as_ref().map(String::len).filter(|length| *length > MAX_METADATA) {
        return Err(ToolError::bad_args(format!(
            "the metadata has {length} bytes; {MAX_METADATA} is the most: it is for labels, so put content into the prompt"
        )));
    }
    Ok(metadata.map(Text::from))
}

/// Whether `text` is one line of visible words with single spaces between them.
fn is_plain_line(text: &str) -> bool {
    let words = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    words && !text.is_empty() && !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  ")
}

/// The start of `text` as a label: one line, without characters that a terminal obeys. An import refuses those.
pub(crate) fn label(text: &str) -> Option<Text> {
    if text.len() <= MAX_LABEL && is_plain_line(text) {
        return Some(text.into());
    }
    let plain: String = text.chars().filter(|c| c.is_whitespace() || !is_unseen(*c)).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then(|| bounded::shown(&line, MAX_LABEL).as_ref().into())
}

/// The first line of `text` as a label. There is one in each birth of the default dialect, so it is a short one.
pub(crate) fn first_line(text: &str) -> Option<Text> {
    label(bounded::head(text.trim_start().lines().next().unwrap_or_default(), MAX_FIRST_LINE))
}

/// Names of tools with commas between them.
pub(crate) fn names(list: &str) -> Vec<Text> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Text::from).collect()
}

fn unknown(tool: &str, asked: &str, agents: &[(Text, Text)]) -> ToolError {
    let names: Vec<&str> = agents.iter().map(|(name, _)| &**name).collect();
    let shown = bounded::shown(asked, 100);
    if names.is_empty() {
        return ToolError::refused(format!(
            "no agent `{shown}`: no agents can be started here, so do the work yourself"
        ));
    }
    let meant = near::near(asked, &names).first().map(|name| format!(" Did you mean `{name}`?")).unwrap_or_default();
    ToolError::bad_args(format!("no agent `{shown}` can be started by {tool}.{meant} Valid: {}.", near::listed(&names)))
}

/// The agents in a description, one a line.
pub(crate) fn listed(agents: &[(Text, Text)]) -> String {
    let line = |(name, about): &(Text, Text)| {
        let about: Vec<&str> = about.split_whitespace().collect();
        format!("\n- {name}: {}", bounded::shown(&about.join(" "), 1000))
    };
    agents.iter().map(line).collect()
}
