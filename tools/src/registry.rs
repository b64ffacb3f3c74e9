//! The registry of tools by name, and the classification of calls.

mod listed;
mod live;
mod rendered_call;
mod ruling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::{CallKind, Invalid, ToolEffect};
use subtend_session::command::NeededApproval;
use subtend_session::ids::{SessionId, Text};
use subtend_session::message::ToolSpec;

use crate::arguments::{self, ArgumentSchema};
use crate::builtin;
use crate::commands::Commands;
use crate::dialect::{self, minion};
use crate::guard::Guard;
use crate::near;
use crate::option::{self, BadOption};
use crate::plan_exit;
use crate::redacted;
use crate::secrets::Secrets;
use crate::tool::{Tool, ToolError};

pub(crate) use listed::SERVER_TOOL_PREFIX;
pub use listed::list_contains;
#[cfg(feature = "mcp")]
pub(crate) use listed::{parts, short_name};
pub use live::LiveTools;
pub use ruling::{Ruling, mark};

/// Tools by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry {
    tools: Arc<BTreeMap<Text, RegisteredTool>>,
    live: Option<Arc<dyn LiveTools>>,
}

struct RegisteredTool {
    tool: Arc<dyn Tool>,
    /// Compiled once, because calls are checked often; `None` for a tool that checks the arguments itself.
    schema: Option<ArgumentSchema>,
}

#[derive(Default)]
pub struct RegistryBuilder {
    tools: BTreeMap<Text, RegisteredTool>,
    secrets: Secrets,
    live: Option<Arc<dyn LiveTools>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("duplicate tool name `{name}`: rename one of the tools")]
    Duplicate { name: Text },
    /// The name is reserved.
    #[error("the tool name `{name}` is reserved for subtend itself: choose another")]
    Locked { name: Text },
    /// Providers reject the name.
    #[error("invalid tool name `{name}`: use 1 to 64 of the characters a-z A-Z 0-9 _ -")]
    BadName { name: Text },
    #[error(
        "the tool `{name}` has no description, so models cannot know when to use it: add a doc comment to its \
         arguments' struct"
    )]
    NoDescription { name: Text },
    #[error("the options of the tool `{name}` cannot be used: {why}")]
    BadOption { name: Text, why: BadOption },
    /// The schema is invalid, or does not describe an object.
    #[error("the schema of the tool `{name}` cannot be used: {why}")]
    BadSchema { name: Text, why: String },
}

#[derive(Clone)]
pub enum Classified {
    Ready {
        tool: Arc<dyn Tool>,
        /// The arguments, valid against the schema.
        args: Value,
        kind: CallKind,
        /// The access shown in records and approvals: with `ask`, one that needs approval, otherwise an allowed one. `None` if the call needs no
        /// access, or if it is denied and will be refused when it starts.
        access: Option<Access>,
        ask: NeededApproval,
    },
    Invalid {
        kind: Invalid,
        /// The error message for the model.
        message: Text,
    },
}

impl RegistryBuilder {
    /// Adds a tool and compiles its schema.
    ///
    /// # Errors
    /// If the name is taken, reserved or invalid, the schema does not describe an object, or the options are invalid.
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Result<Self, RegistryError> {
        self.add(tool)?;
        Ok(self)
    }

    /// Adds a tool like [`RegistryBuilder::tool`]. The builder stays usable after an error.
    pub(crate) fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = self.check_name(&tool)?;
        let schema = match arguments::compile(&tool.spec().schema) {
            Ok(schema) => Some(schema),
            Err(why) => return Err(RegistryError::BadSchema { name, why }),
        };
        self.tools.insert(name, RegisteredTool { tool, schema });
        Ok(())
    }

    /// Adds a tool with an untrusted schema. Its check may take long, so the tool checks its arguments itself.
    #[cfg(feature = "mcp")]
    pub(crate) fn add_foreign(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = self.check_name(&tool)?;
        self.tools.insert(name, RegisteredTool { tool, schema: None });
        Ok(())
    }

    fn check_name(&self, tool: &Arc<dyn Tool>) -> Result<Text, RegistryError> {
        let name = tool.spec().name.clone();
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > listed::MAX_NAME || !name.chars().all(valid) {
            return Err(RegistryError::BadName { name });
        }
        if dialect::is_locked(&name) {
            return Err(RegistryError::Locked { name });
        }
        if self.tools.contains_key(&name) {
            return Err(RegistryError::Duplicate { name });
        }
        if let Err(why) = option::check_declared(tool.options()) {
            return Err(RegistryError::BadOption { name, why });
        }
        Ok(name)
    }

    /// Adds a source of dynamic tools. They cannot replace tools of the registry.
    pub fn live(self, live: Arc<dyn LiveTools>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// Adds several tools.
    ///
    /// # Errors
    /// The errors of [`RegistryBuilder::tool`].
    pub fn tools(self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, RegistryError> {
        tools.into_iter().try_fold(self, Self::tool)
    }

    /// Redacts these values in results, errors and progress of all tools.
    pub fn secrets(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    pub fn build(self) -> Registry {
        let Self { tools, secrets, live } = self;
        let redacted = |entry: RegisteredTool| RegisteredTool { tool: redacted::wrap(&secrets, entry.tool), ..entry };
        Registry { tools: Arc::new(tools.into_iter().map(|(name, entry)| (name, redacted(entry))).collect()), live }
    }
}

impl Registry {
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::default()
    }

    /// Returns the workspace tools: `list`, `read`, `search`, `write`, `edit`, `shell`, `process`.
    ///
    /// With a guard, processes of `shell` end when the runtime ends. A session with limited permissions gets a sandboxed shell if the system
    /// supports it (see [`sandbox`](crate::sandbox)). Without a guard, such a session gets no shell.
    pub fn workspace_tools(guard: Option<Guard>) -> Vec<Arc<dyn Tool>> {
        Self::workspace_tools_with(guard, Commands::default())
    }

    /// Returns [`Registry::workspace_tools`] with settings for commands.
    pub fn workspace_tools_with(guard: Option<Guard>, commands: Commands) -> Vec<Arc<dyn Tool>> {
        builtin::tools(guard, commands)
    }

    /// Returns the registry as `session` sees it. `None` if it sees what all sessions see.
    pub fn of_session(&self, session: SessionId) -> Option<Self> {
        let live = self.live.as_ref()?.of_session(session)?;
        Some(Self { tools: Arc::clone(&self.tools), live: Some(live) })
    }

    /// Returns a static tool of the registry.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name).map(|entry| &entry.tool)
    }

    /// Returns the effects that a call of `name` may have. `name` may be a dynamic tool.
    pub fn effect(&self, name: &str) -> Option<ToolEffect> {
        let own = self.get(name).map(|tool| tool.effect());
        own.or_else(|| self.live.as_ref()?.tools().effect(name))
    }

    /// Returns a number that changes whenever the tools do.
    pub fn generation(&self) -> u64 {
        self.live.as_ref().map_or(0, |live| live.generation())
    }

    /// Starts the sources of dynamic tools. Returns `None` if their current tools are known. The future has a time limit.
    pub fn settle(&self) -> Option<BoxFuture<'static, ()>> {
        self.live.as_ref()?.settle()
    }

    pub fn names(&self) -> impl Iterator<Item = &Text> {
        self.tools.keys()
    }

    /// Returns an error with a suggestion if no tool has this name. Returns `None` if the tool exists in the registry or a dialect, or is
    /// `plan_exit`.
    pub fn missing_reason(&self, name: &str) -> Option<String> {
        let of_server = name.starts_with(SERVER_TOOL_PREFIX);
        if self.tools.contains_key(name) || dialect::is_locked(name) || name == plan_exit::NAME || of_server {
            return None;
        }
        if minion::WEB.contains(&name) {
            return Some(missing_web_tool_reason(name));
        }
        let names: Vec<&str> = self.tools.keys().map(|name| &**name).collect();
        let near = near::similar_names(name, &names)
            .first()
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Some(format!("unknown tool `{name}`{near}"))
    }

    /// Returns the tools for a model, sorted by name: those that the authority may allow, restricted to `only` if given.
    ///
    /// With an `approver`, the result includes tools that always need approval. A later call of such a tool is denied if no approver is attached
    /// then.
    pub fn offered(&self, authority: &Authority, only: Option<&[Text]>, approver: bool) -> Vec<ToolSpec> {
        let tools = self.tools.values().map(|entry| &entry.tool);
        let own =
            tools.filter(|tool| is_offered(tool.as_ref(), authority, only, approver)).map(|tool| tool.spec().clone());
        let Some(live) = &self.live else { return own.collect() };
        let mut all: Vec<ToolSpec> = own.collect();
        let more = live.tools().offered(authority, only, approver).into_iter();
        all.extend(more.filter(|spec| !self.tools.contains_key(&spec.name)));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Classifies a call of `tool` with the arguments written by the model.
    ///
    /// Empty arguments count as `{}`: some providers send nothing for a tool without arguments. For `approver`, see
    /// [`Registry::offered`]; for `granted`, see [`Registry::check`].
    pub fn classify(
        &self,
        tool: &str,
        args: &str,
        authority: &Authority,
        only: Option<&[Text]>,
        approver: bool,
        granted: &dyn Fn(&Access) -> bool,
    ) -> Classified {
        self.classify_offered(tool, args, authority, only, approver, granted).unwrap_or_else(|| {
            let offered = self.offered(authority, only, approver);
            let message = self.unknown_tool_error(tool, offered.iter().map(|spec| &*spec.name));
            Classified::Invalid { kind: Invalid::UnknownTool, message }
        })
    }

    /// Classifies a call like [`Registry::classify`]. Returns `None` if no tool with this name is offered.
    ///
    /// Does not build the error for an unknown tool, which compares all names. See [`Registry::unknown_tool_error`].
    pub fn classify_offered(
        &self,
        tool: &str,
        args: &str,
        authority: &Authority,
        only: Option<&[Text]>,
        approver: bool,
        granted: &dyn Fn(&Access) -> bool,
    ) -> Option<Classified> {
        let entry = self.tools.get(tool).filter(|entry| is_offered(entry.tool.as_ref(), authority, only, approver));
        let Some(entry) = entry else {
            let live = self.live.as_ref().filter(|_| !self.tools.contains_key(tool))?;
            return Self::classify_live(live.as_ref(), (tool, args), authority, only, approver, granted);
        };
        let parsed = arguments::parse(tool, args).and_then(|args| match &entry.schema {
            Some(schema) => arguments::validate(tool, schema, args),
            None => Ok(args),
        });
        Some(Self::ready(&entry.tool, parsed, authority, granted))
    }

    fn ready(
        tool: &Arc<dyn Tool>,
        parsed: Result<Value, String>,
        authority: &Authority,
        granted: &dyn Fn(&Access) -> bool,
    ) -> Classified {
        let args = match parsed {
            Ok(args) => args,
            Err(message) => return Classified::Invalid { kind: Invalid::BadArgs, message: message.into() },
        };
        let kind = CallKind::Local(tool.effect());
        let (access, ask) = Self::ruling(tool.as_ref(), &args, authority, granted).into_need();
        Classified::Ready { tool: Arc::clone(tool), args, kind, access, ask }
    }

    /// Classifies a call of a dynamic tool. Leaves the check of a tool that is not known yet to the start of the call.
    fn classify_live(
        live: &dyn LiveTools,
        (tool, args): (&str, &str),
        authority: &Authority,
        only: Option<&[Text]>,
        approver: bool,
        granted: &dyn Fn(&Access) -> bool,
    ) -> Option<Classified> {
        let tools = live.tools();
        if tools.get(tool).is_none()
            && let Some(unlisted) = live.find_unlisted(tool)
            && is_offered(unlisted.as_ref(), authority, only, approver)
        {
            return Some(Self::ready(&unlisted, arguments::parse(tool, args), authority, granted));
        }
        tools.classify_offered(tool, args, authority, only, approver, granted)
    }

    /// Returns the error for a model that called the tool `requested`, which is not offered to it.
    pub fn unknown_tool_error<'a>(&self, requested: &str, offered: impl Iterator<Item = &'a str>) -> Text {
        let names: Vec<&str> = offered.collect();
        let known = self.tools.contains_key(requested);
        near::message(requested, known, &names).into()
    }

    /// Checks a call when it runs: every access must be allowed or approved.
    ///
    /// `granted` returns whether an access was permanently allowed in this session. For an approved call, it returns true for every access: the
    /// approver saw the most important access, and the approval covers the whole call. A grant overrides `Ask` and never `Deny`.
    ///
    /// # Errors
    /// If a path in the arguments cannot be in the workspace. If the authority denies an access or an approval is missing, the error is marked
    /// as denied and contains action and resource.
    pub fn check(
        &self,
        tool: &dyn Tool,
        args: &Value,
        authority: &Authority,
        granted: &dyn Fn(&Access) -> bool,
    ) -> Result<(), ToolError> {
        match Self::ruling(tool, args, authority, granted) {
            Ruling::Allowed(_) => Ok(()),
            Ruling::Asked(access, _) => {
                Err(ruling::denied_error(tool, &access, "requires approval, and this call was not approved"))
            }
            Ruling::Denied(error) => Err(error),
        }
    }

    /// Returns all accesses of a call as shown in records and approvals. `granted` receives these (see [`Registry::check`]).
    pub fn accesses(tool: &dyn Tool, args: &Value) -> Vec<Access> {
        ruling::accesses(tool, args)
    }

    /// Returns the ruling on a call. For `granted`, see [`Registry::check`].
    pub fn ruling(tool: &dyn Tool, args: &Value, authority: &Authority, granted: &dyn Fn(&Access) -> bool) -> Ruling {
        Ruling::of(tool, args, authority, granted)
    }
}

fn missing_web_tool_reason(name: &str) -> String {
    let why = match name {
        _ if !cfg!(feature = "web") => "this build has no web tools (feature `web`)",
        "web_search" => "no search engine is configured (`web.search` in your own subtend.yaml)",
        _ => "the host has no web tools",
    };
    format!("the tool `{name}` is missing: {why}")
}

fn is_offered(tool: &dyn Tool, authority: &Authority, only: Option<&[Text]>, approver: bool) -> bool {
    let listed = only.is_none_or(|only| list_contains(only, tool.full_name()));
    let permitted = |access: &Access| match authority.best(&access.action) {
        Verdict::Allow => true,
        Verdict::Ask => approver,
        Verdict::Deny => false,
    };
    listed && tool.exclusion_error(authority).is_none() && tool.access(None).iter().all(permitted)
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

impl fmt::Debug for RegistryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

impl fmt::Debug for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { tool, args, kind, access, ask } => f
                .debug_struct("Ready")
                .field("tool", &tool.spec().name)
                .field("args", args)
                .field("kind", kind)
                .field("access", access)
                .field("ask", ask)
                .finish(),
            Self::Invalid { kind, message } => {
                f.debug_struct("Invalid").field("kind", kind).field("message", message).finish()
            }
        }
    }
}
