//! Configuration: `subtend.yaml` of a workspace and of its user, and variables `SUBTEND_*`.
//!
//! A value comes, in increasing precedence, from its default, the user's file, the workspace's file, an environment
//! variable, or an option of the command. Each key is resolved separately, and [`Loaded::values`] names its origin. A
//! pool, a price and a profile are resolved as a whole.
//!
//! ```
//! use subtend::config::{Layer, Loaded, Origin};
//!
//! let project = Layer::file(Origin::Project("subtend.yaml".into()), "limits: {turns: 20, live_runs: 2}")?;
//! let variables = Layer::variables([("SUBTEND_MAX_CONCURRENT", "1")])?;
//! let loaded = Loaded::of([project, variables])?;
//! assert_eq!((loaded.config.limits.turns, loaded.config.limits.live_runs), (20, 1));
//! # Ok::<(), subtend::config::ConfigError>(())
//! ```
//!
//! Permissions of agents are not part of the configuration, because the file of a workspace could raise them. Addresses
//! of model providers are not part of it either, because API keys are sent there.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_actors::Options;
use subtend_actors::prices::Prices;
use subtend_agents::dialect::{Dialects, MinionOptions, SubagentOptions};
use subtend_agents::profile::{Profile, Profiles, Reader};
use subtend_agents::template::MinionTemplate;
use subtend_models::windows::{ByModel, Windows};
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::limits::Limits;
use subtend_tools::commands::{CommandLimits, Commands};
use subtend_tools::option::ToolOptions;

pub use edit::{EditError, set};
pub use error::{BadValue, ConfigError};
pub use key::{BadKey, Key};
pub use layer::Layer;
pub use loaded::check::script as script_refused;
pub use loaded::{DefaultModel, Loaded, Setting};
pub use origin::{Origin, Warning};
pub use project_access::{PROJECT_ACCESS, ProjectAccess};
pub use remote_tool::RemoteToolConfig;
pub use schema::{format_for_file, schema};

mod edit;
mod error;
mod key;
mod layer;
mod loaded;
mod near;
mod origin;
mod project_access;
mod remote_tool;
mod schema;
mod shape;
#[cfg(test)]
mod tests;
mod variable;

/// Name of the file, in a workspace and in the user's configuration directory.
pub const FILE: &str = "subtend.yaml";

/// Maximum size of a file in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The content of `subtend.yaml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// The agent of new sessions.
    pub agent: Text,
    /// Services of the host for sessions: titles and summaries.
    pub sessions: SessionsConfig,
    /// Bounds of the process that runs sessions.
    pub host: HostConfig,
    /// Language models.
    pub llm: Llm,
    /// Subagents, independent of the tools that start them.
    pub subagents: Subagents,
    /// Tools by which models start subagents, and options of tools.
    pub tools: Tools,
    /// Tool servers of the Model Context Protocol.
    pub mcp: Mcp,
    /// Remote tools by name; a `subtend worker` on this or another machine answers their calls.
    pub remote_tools: BTreeMap<Text, RemoteToolConfig>,
    /// Commands of the tool `shell`.
    pub shell: Shell,
    /// The web: the hosts that `fetch` reaches, and the search engine of `web_search`.
    pub web: Web,
    /// Limits of a run and its descendants. Times are in milliseconds, sizes in bytes; `none` removes a limit.
    #[schemars(schema_with = "schema::limits")]
    pub limits: Limits,
    /// Prices of models, in US dollars per million tokens, by the name of the model; a name may end with `*`.
    #[schemars(schema_with = "schema::prices")]
    pub prices: Prices,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            agent: "general".into(),
            sessions: SessionsConfig::default(),
            host: HostConfig::default(),
            llm: Llm::default(),
            subagents: Subagents::default(),
            tools: Tools::default(),
            mcp: Mcp::default(),
            remote_tools: BTreeMap::new(),
            shell: Shell::default(),
            web: Web::default(),
            limits: Limits::default(),
            prices: Prices::new(),
        }
    }
}

/// Services of the host for sessions. By default they run if the model of sessions is a provider's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionsConfig {
    /// True if the agent `title` generates titles of new sessions. Default: true if a provider's model answers.
    pub titles: Option<bool>,
    /// True if the agent `summary` summarises closed sessions. Default: true if a provider's model answers.
    pub summaries: Option<bool>,
}

/// Bounds of the process that runs sessions, over all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// Maximum number of concurrent runs of subagents, over all trees; the same number again for runs that users opened.
    /// Upper bound of `live_runs` and `live_person_runs`.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub slots: u32,
    /// Maximum number of queued inputs in the inbox of a session.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub inbox: u32,
    /// Maximum number of events by which a slow reader may lag behind.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub events: u32,
    /// Time in ms for which an idle session stays in memory.
    #[schemars(range(min = 1))]
    pub idle_ms: u64,
    /// Maximum size of all worktrees of the store in MiB. A small one counts as 32 MiB.
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    pub worktree_mib: u32,
}

impl Default for HostConfig {
    fn default() -> Self {
        let Options { slots, inbox, events, idle, .. } = Options::default();
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let worktree_mib = subtend_tools::worktree::DEFAULT_MEBIBYTES;
        Self { slots: count(slots), inbox: count(inbox), events: count(events), idle_ms, worktree_mib }
    }
}

impl HostConfig {
    /// Returns the limits that exceed a bound of the host, with their values. Such limits would have no effect.
    ///
    /// ```
    /// use subtend::config::HostConfig;
    /// use subtend::session::Limits;
    ///
    /// let limits = Limits { live_runs: 1000, ..Limits::default() };
    /// assert_eq!(HostConfig::default().exceeded_by(&limits), [("live_runs", 1000)]);
    /// ```
    pub fn exceeded_by(&self, limits: &Limits) -> Vec<(&'static str, u32)> {
        let bounded = [("live_runs", limits.live_runs), ("live_person_runs", limits.live_person_runs)];
        bounded.into_iter().filter(|(_, limit)| *limit > self.slots).collect()
    }
}

/// Language models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Llm {
    /// Model of sessions whose agent does not name one: `offline`, or a provider's as `PROVIDER/MODEL`. Several are separated
    /// by commas: if one fails, the next is called.
    pub model: Option<Text>,
    /// Pool of sessions whose agent does not name a model; replaces `model`.
    pub default_pool: Option<Text>,
    /// Pools: named lists of models. If one model fails, the next is called.
    pub pools: BTreeMap<Text, Vec<Text>>,
    /// Context windows of models in tokens, by the name of the model; a name may end with `*`. Default: the known ones.
    pub context_windows: BTreeMap<Text, NonZeroU64>,
    /// Maximum number of output tokens of a model call, by the name of the model; a name may end with `*`.
    /// `limits.output_tokens`, an agent and a call can only lower it.
    pub output_tokens: BTreeMap<Text, NonZeroU64>,
}

impl Llm {
    /// Returns the context windows, for [`Builder::context_windows`](crate::Builder::context_windows).
    pub fn windows(&self) -> Windows {
        Windows::new(self.context_windows.clone())
    }

    /// Returns the caps on output tokens, for [`Builder::output_tokens`](crate::Builder::output_tokens).
    pub fn caps(&self) -> ByModel {
        ByModel::new(self.output_tokens.clone())
    }
}

/// Subagents, independent of the tools that start them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Subagents {
    /// True if models may start subagents. If false, no tool for it is offered; existing children can still be read.
    pub enabled: bool,
    /// True if running agents of a tree may send messages to each other, by the tool `message`.
    pub messages: bool,
}

impl Default for Subagents {
    fn default() -> Self {
        Self { enabled: true, messages: false }
    }
}

/// Tools by which models start subagents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tools {
    /// `task`.
    pub task: ToolSwitch,
    /// `spawn` and `spawn_await`.
    pub spawn: Spawn,
    /// `spawn_task`, `check_task` and `cancel_task`.
    pub spawn_task: ToolSwitch,
    /// `minion`.
    pub minion: Minion,
    /// `subagent`.
    pub subagent: Subagent,
    /// Options that other tools declare, by the names of tool and option: a text, true or false. Missing required options are
    /// filled in.
    pub options: BTreeMap<Text, BTreeMap<Text, OptionValue>>,
}

impl Default for Tools {
    /// Enables `task` and disables the other dialects.
    fn default() -> Self {
        let [task, off] = [true, false].map(|enabled| ToolSwitch { enabled });
        Self {
            task,
            spawn: Spawn::default(),
            spawn_task: off,
            minion: Minion::default(),
            subagent: Subagent::default(),
            options: BTreeMap::new(),
        }
    }
}

/// A tool that can be switched on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolSwitch {
    /// True if the tool is offered to sessions.
    pub enabled: bool,
}

/// `spawn` and `spawn_await`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Spawn {
    /// True if the tool is offered to sessions.
    pub enabled: bool,
    /// Named ways to start a child.
    pub profiles: BTreeMap<Text, Profile>,
}

/// `minion`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Minion {
    /// True if the tool is offered to sessions.
    pub enabled: bool,
    /// Its options.
    pub options: MinionOptions,
    /// Named parameters of minions, which a call may choose.
    pub templates: BTreeMap<Text, MinionTemplate>,
}

/// `subagent`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Subagent {
    /// True if the tool is offered to sessions.
    pub enabled: bool,
    /// Its options.
    pub options: SubagentOptions,
}

/// MCP servers of the user, in every workspace. A workspace names its own in `.mcp.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Mcp {
    /// Servers by name.
    pub servers: BTreeMap<Text, McpServer>,
}

/// A server: a command, or an address. `${NAME}` and `${NAME:-default}` are expanded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpServer {
    /// Program of a server that communicates over stdin and stdout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Text>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Text>,
    /// Environment variables of the program, in addition to those of shell commands.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<Text, Text>,
    /// Address of a server with streamable HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Text>,
    /// Headers of every HTTP request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<Text, Text>,
    /// Time limit of a call in milliseconds, in addition to the limit of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout: Option<u64>,
    /// True if its process starts in the workspace. Use it only for programs that do not run files of the workspace, as npx
    /// does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_workspace: bool,
}

/// Value of a tool option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OptionValue {
    /// True or false.
    Flag(bool),
    /// A text, or the name of a model.
    Text(Text),
}

/// Commands of the tool `shell`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Shell {
    /// Environment variables that commands get in addition to the usual ones (`PATH`, `HOME`, `LANG`, toolchains): names, or
    /// prefixes followed by `*`. Keys are passed to commands only if they are named here.
    pub environment: Vec<Text>,
    /// Maximum number of concurrent processes and threads of a command; applies to the superuser only if a control group can
    /// be created.
    #[schemars(range(min = 1))]
    pub processes: u64,
    /// Maximum memory of a process, in bytes.
    #[schemars(range(min = 1))]
    pub memory_bytes: u64,
    /// Maximum size of a file that a command writes, in bytes.
    #[schemars(range(min = 1))]
    pub file_bytes: u64,
    /// Maximum number of open files of a process.
    #[schemars(range(min = 1))]
    pub open_files: u64,
    /// Maximum CPU time of a process, in seconds.
    #[schemars(range(min = 1))]
    pub cpu_seconds: u64,
}

impl Default for Shell {
    fn default() -> Self {
        let CommandLimits { processes, memory_bytes, file_bytes, open_files, cpu_seconds } = CommandLimits::default();
        Self { environment: Vec::new(), processes, memory_bytes, file_bytes, open_files, cpu_seconds }
    }
}

/// The web: the hosts that `fetch` reaches, and the search engine of `web_search`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Web {
    /// Hosts of your own network or this machine that `fetch` may reach: names or addresses, optionally with a port
    /// (`localhost:8080`). All other hosts must have public addresses.
    pub internal_hosts: Vec<Text>,
    /// The search engine of `web_search`; without it the tool is not offered.
    pub search: SearchConfig,
}

/// The search engine of `web_search`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SearchConfig {
    /// `searxng`, another engine with its protocol, or `brave`.
    pub engine: Option<EngineName>,
    /// Address of a SearXNG server, such as `http://localhost:8888`.
    pub url: Option<Text>,
    /// Environment variable with the key of Brave. Default: `BRAVE_API_KEY`.
    pub key_variable: Option<Text>,
}

/// A search engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// SearXNG, or another engine with its protocol.
    Searxng,
    /// Brave Search.
    Brave,
}

impl SearchConfig {
    /// Returns the name of the variable with the key.
    pub fn key_variable(&self) -> &str {
        self.key_variable.as_deref().unwrap_or("BRAVE_API_KEY")
    }
}

impl Tools {
    fn offered_dialects(&self) -> Vec<Dialect> {
        let is_offered = |dialect: &Dialect| match dialect {
            Dialect::Task => self.task.enabled,
            Dialect::Spawn => self.spawn.enabled,
            Dialect::SpawnTask => self.spawn_task.enabled,
            Dialect::Minion => self.minion.enabled,
            Dialect::Subagent => self.subagent.enabled,
        };
        Dialect::ALL.into_iter().filter(is_offered).collect()
    }
}

impl Config {
    /// Returns the options of a runtime: titles, summaries and bounds of the host. `calls` is true if a provider's model
    /// answers.
    pub fn options(&self, calls: bool) -> Options {
        let count = |of: u32| usize::try_from(of).unwrap_or(usize::MAX);
        Options {
            titles: self.sessions.titles.unwrap_or(calls),
            summaries: self.sessions.summaries.unwrap_or(calls),
            slots: count(self.host.slots),
            inbox: count(self.host.inbox),
            events: count(self.host.events),
            idle: std::time::Duration::from_millis(self.host.idle_ms),
            ..Options::default()
        }
    }

    /// Returns the dialects offered to sessions, with their profiles; `read` reads files of profiles in the workspace.
    ///
    /// # Errors
    /// When a profile cannot be used, for example because its prompt file is missing.
    pub fn dialects(&self, read: Reader<'_>) -> Result<Dialects, subtend_agents::profile::BadProfile> {
        Ok(Dialects {
            enabled: self.subagents.enabled,
            offered: self.tools.offered_dialects(),
            profiles: Profiles::load(self.tools.spawn.profiles.clone(), read)?,
            minion: self.tools.minion.options.clone(),
            templates: self.tools.minion.templates.clone(),
            subagent: self.tools.subagent.options.clone(),
        })
    }

    /// Returns the settings of commands, for [`Registry::workspace_tools_with`](subtend_tools::registry::Registry::workspace_tools_with).
    pub fn commands(&self) -> Commands {
        let Shell { environment, processes, memory_bytes, file_bytes, open_files, cpu_seconds } = self.shell.clone();
        Commands { environment, limits: CommandLimits { processes, memory_bytes, file_bytes, open_files, cpu_seconds } }
    }

    /// Returns the values of tool options, for [`Builder::tool_options`](crate::Builder::tool_options).
    pub fn tool_options(&self) -> ToolOptions {
        let value = |value: &OptionValue| match value {
            OptionValue::Flag(flag) => Value::Bool(*flag),
            OptionValue::Text(text) => Value::from(&**text),
        };
        let values = |values_of: &BTreeMap<Text, OptionValue>| {
            values_of.iter().map(|(id, value_given)| (id.to_string(), value(value_given))).collect()
        };
        self.tools.options.iter().map(|(tool, options)| (tool.clone(), values(options))).collect()
    }
}
