//! Configuration: `subtend.yaml` of a workspace and of its user, and variables `SUBTEND_*`.
//!
//! A value comes, from weakest to strongest, from its default, the user's file, the workspace's file, an environment
//! variable, or an option of the command. Each key is resolved by itself: [`Loaded::values`] names the origin of each. A pool,
//! a price and a profile are resolved as a whole.
//!
//! ```
//! use subtend::config::{Layer, Loaded, Origin};
//!
//! let project = Layer::file(Origin::Project("subtend.yaml".into()), "limits: {turns: 20, live_runs: 8}")?;
//! let variables = Layer::variables([("SUBTEND_MAX_CONCURRENT", "2")])?;
//! let loaded = Loaded::of([project, variables])?;
//! assert_eq!((loaded.config.limits.turns, loaded.config.limits.live_runs), (20, 2));
//! # Ok::<(), subtend::config::ConfigError>(())
//! ```
//!
//! Permissions of agents are not configured here: a file that comes with a workspace could raise them. Neither are the addresses
//! of model providers, since API keys are sent there.

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

pub use edit::{CannotEdit, set};
pub use error::{BadValue, ConfigError};
pub use key::{BadKey, Key};
pub use layer::Layer;
pub use loaded::check::script as script_refused;
pub use loaded::{DefaultModel, Loaded, Setting};
pub use origin::{Origin, Warning};
pub use reach::{REACH, Reach};
pub use remote_tool::RemoteToolConfig;
pub use schema::{schema, shipped};

mod edit;
mod error;
mod key;
mod layer;
mod loaded;
mod near;
mod origin;
mod reach;
mod remote_tool;
mod schema;
mod shape;
#[cfg(test)]
mod tests;
mod variable;

/// The name of the file, in a workspace and in the user's directory of configurations.
pub const FILE: &str = "subtend.yaml";

/// Bytes of one file at most.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The content of `subtend.yaml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// The agent of new sessions.
    pub agent: Text,
    /// Sessions: what the host does for them.
    pub sessions: SessionsConfig,
    /// Bounds of the process in which sessions work.
    pub host: HostConfig,
    /// Language models.
    pub llm: Llm,
    /// Subagents, independent of the tools that start them.
    pub subagents: Subagents,
    /// Tools by which models start subagents: which are offered, and their options.
    pub tools: Tools,
    /// Servers of tools that sessions may call, by the Model Context Protocol.
    pub mcp: Mcp,
    /// Tools whose calls `subtend worker` answers, on this machine or another one, by their names.
    pub remote_tools: BTreeMap<Text, RemoteToolConfig>,
    /// Commands of the tool `shell`.
    pub shell: Shell,
    /// The web: the hosts that `fetch` reaches, and the search engine of `web_search`.
    pub web: Web,
    /// Limits of a run and of all below it. Times are milliseconds, sizes bytes; `none` removes a limit.
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

/// Services of the host for sessions, by agents of its own. Left out, they run if the model of sessions is a provider's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionsConfig {
    /// Whether the agent `title` names a new session by its first message. Left out: if a provider's model answers.
    pub titles: Option<bool>,
    /// Whether the agent `summary` summarises a session that is closed. Left out: if a provider's model answers.
    pub summaries: Option<bool>,
}

/// Bounds of the process in which sessions work, over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// Runs of subagents that work at the same time, over all trees; runs that persons opened have as many for themselves. No
    /// `live_runs` or `live_person_runs` is larger.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub slots: u32,
    /// Most inputs that one session holds before it accepts them.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub inbox: u32,
    /// Events that a slow reader may lag behind.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub events: u32,
    /// How long a session without work stays in memory, in milliseconds.
    #[schemars(range(min = 1))]
    pub idle_ms: u64,
}

impl Default for HostConfig {
    fn default() -> Self {
        let Options { slots, inbox, events, idle, .. } = Options::default();
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        Self { slots: count(slots), inbox: count(inbox), events: count(events), idle_ms }
    }
}

impl HostConfig {
    /// Returns the limits that are above a bound of the host, each with its value: they would not take effect.
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
    /// The model of sessions whose agent names none: `offline`, or a provider's as `PROVIDER/MODEL`; several with commas
    /// between, of which the next is asked where one fails.
    pub model: Option<Text>,
    /// The pool of sessions whose agent names no model; instead of `model`.
    pub default_pool: Option<Text>,
    /// Pools: names for several models, which are called in their order if one fails.
    pub pools: BTreeMap<Text, Vec<Text>>,
    /// Context windows of models in tokens, by the name of the model; a name may end with `*`. Left out: the known ones.
    pub context_windows: BTreeMap<Text, NonZeroU64>,
    /// Output tokens of one model call at most, by the name of the model; a name may end with `*`. `limits.output_tokens`, an
    /// agent and a call can only lower it.
    pub output_tokens: BTreeMap<Text, NonZeroU64>,
}

impl Llm {
    /// Context windows, for [`Builder::context_windows`](crate::Builder::context_windows).
    pub fn windows(&self) -> Windows {
        Windows::new(self.context_windows.clone())
    }

    /// Caps on output tokens, for [`Builder::output_tokens`](crate::Builder::output_tokens).
    pub fn caps(&self) -> ByModel {
        ByModel::new(self.output_tokens.clone())
    }
}

/// Subagents, independent of the tools that start them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Subagents {
    /// Whether models may start any. If not, no tool for it is offered; existing children can still be read.
    pub enabled: bool,
    /// Whether running agents of a tree may write to each other, by the tool `message`.
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
    /// Options that other tools declare, by the names of tool and option; a text, true or false. Those that are left out are
    /// filled in.
    pub options: BTreeMap<Text, BTreeMap<Text, OptionValue>>,
}

impl Default for Tools {
    /// `task` is enabled by default, the others are not (K25).
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
    /// Whether sessions are offered it.
    pub enabled: bool,
}

/// `spawn` and `spawn_await`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Spawn {
    /// Whether sessions are offered it.
    pub enabled: bool,
    /// Named ways to start a child.
    pub profiles: BTreeMap<Text, Profile>,
}

/// `minion`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Minion {
    /// Whether sessions are offered it.
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
    /// Whether sessions are offered it.
    pub enabled: bool,
    /// Its options.
    pub options: SubagentOptions,
}

/// MCP servers of a person, in every workspace. A workspace names its own in `.mcp.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Mcp {
    /// Servers by name.
    pub servers: BTreeMap<Text, McpServer>,
}

/// One server: a command, or an address. `${NAME}` and `${NAME:-default}` are expanded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpServer {
    /// The program of a server that reads and writes messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Text>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Text>,
    /// Variables that it gets in addition to those of commands.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<Text, Text>,
    /// The address of a server that is reached by streamable HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Text>,
    /// Headers of every request to it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<Text, Text>,
    /// Time limit of one call in milliseconds, in addition to the limit of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout: Option<u64>,
    /// Whether its process starts in the workspace: its program must run nothing that lies there, as npx does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_workspace: bool,
}

/// The value of an option of a tool.
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
    /// Variables of the environment that commands get besides the usual ones (`PATH`, `HOME`, `LANG`, toolchains): names, or starts of
    /// names with `*` at the end. Keys reach commands only where they are named here.
    pub environment: Vec<Text>,
    /// Processes and threads of one command at the same time; those of the superuser where a control group can be made.
    #[schemars(range(min = 1))]
    pub processes: u64,
    /// Bytes of memory of one process.
    #[schemars(range(min = 1))]
    pub memory_bytes: u64,
    /// Bytes of one file that a command writes.
    #[schemars(range(min = 1))]
    pub file_bytes: u64,
    /// Open files of one process.
    #[schemars(range(min = 1))]
    pub open_files: u64,
    /// Seconds of CPU time of one process.
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
    /// Hosts of your own network, or of this machine, that `fetch` may reach: names or addresses, with a port where only that one is
    /// meant (`localhost:8080`). Without an entry only public addresses are reached.
    pub internal_hosts: Vec<Text>,
    /// The search engine of `web_search`; without one the tool is not offered.
    pub search: SearchConfig,
}

/// The search engine of `web_search`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SearchConfig {
    /// `searxng`, an engine of your own with that protocol, or `brave`.
    pub engine: Option<EngineName>,
    /// The address of a SearXNG, such as `http://localhost:8888`.
    pub url: Option<Text>,
    /// The variable of the environment that holds the key of Brave. Left out: `BRAVE_API_KEY`.
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
    /// Returns the variable that holds the key.
    pub fn key_variable(&self) -> &str {
        self.key_variable.as_deref().unwrap_or("BRAVE_API_KEY")
    }
}

impl Tools {
    fn offered(&self) -> Vec<Dialect> {
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
    /// Returns the options of a runtime: whether sessions are named and summed up, where `calls` says whether a provider's model
    /// answers, and the bounds of the host.
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

    /// Returns the dialects that sessions are offered, with their profiles; `read` reads the profiles' files in the workspace.
    ///
    /// # Errors
    /// When a profile cannot be used, for example since its prompt file is missing.
    pub fn dialects(&self, read: Reader<'_>) -> Result<Dialects, subtend_agents::profile::BadProfile> {
        Ok(Dialects {
            enabled: self.subagents.enabled,
            offered: self.tools.offered(),
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
