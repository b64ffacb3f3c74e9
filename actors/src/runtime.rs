//! The runtime: an instance that owns sessions, their actors and their journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Map, Value};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::{AppendError, Journal, ReadError};
use subtend_session::authority::{Authority, TooManyRules};
use subtend_session::creation;
use subtend_session::ids::{Interned, SessionId, Text};
use subtend_session::limits::{BadLimit, Limits};
use subtend_session::place::{OnRestart, Place, Source};
use subtend_session::title::{self, BadTitle};
use subtend_session::values::check_metadata;
use subtend_tools::display::RenderedCall;

use crate::handle::SessionHandle;
use crate::observe::event::Subscription;
use crate::observe::event::subscription::SubscriptionScope;
use crate::recovery::boot::BootReport;
use crate::runtime::components::Components;
use crate::spawn::agents::Agents;
use crate::spawn::proposing::allowed_turns;

pub mod builder;
pub(crate) mod components;
pub mod environment;
mod figures;
mod importing;
mod limit_changes;
mod opening;
mod start_error;

pub use limit_changes::AboveSlots;
pub use start_error::StartError;

/// A running instance. Several instances in one process are independent.
///
/// Dropping it without [`Runtime::shutdown`] stops all work and leaves open runs in the journal, which the next start sweeps; a warning is logged.
pub struct Runtime {
    pub(crate) components: Arc<Components>,
    report: BootReport,
    /// The tokio runtime in which this instance was started. [`Drop`] needs it, because it may run outside of tokio.
    tokio: tokio::runtime::Handle,
    down: bool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("boot", &self.report).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    pub agent: Text,
    /// The id of the session: opening one with the same id again returns the existing session. The default is a new id.
    pub id: Option<SessionId>,
    pub title: Option<Text>,
    /// Metadata of the host, as JSON text of at most 64 KiB and 10,000 values.
    pub metadata: Option<Text>,
    /// The limits; the default is the runtime's.
    pub limits: Option<Limits>,
    /// The model, by name; the default is the manifest's, then the runtime's.
    pub model: Option<Text>,
    /// Whether runs fail or resume after a restart of the host. This also applies to children whose agents do not
    /// choose. The default is the manifest's.
    pub on_restart: Option<OnRestart>,
    /// The source of the session's calls: sessions of an MCP client and their children are not offered internal tools.
    pub source: Source,
    /// Servers of the models, recorded for later processes ([`SessionCreated::servers`]).
    ///
    /// [`SessionCreated::servers`]: subtend_session::record::SessionCreated::servers
    pub servers: Vec<Text>,
    /// The absolute path of the directory whose environment is loaded; the default is the runtime's own environment.
    /// See [`Builder::environments`](builder::Builder::environments).
    pub workspace: Option<Text>,
    /// The policy that replaces the environment's; the environment's bounds still apply.
    pub policy: Option<Authority>,
    /// Rules of the session in addition to its policy. They only lower what the session may do.
    pub restriction: Option<Authority>,
    /// Changes to the limits of the environment, by name; null removes a limit.
    pub limit_changes: Map<String, Value>,
    /// Whether those changes may only lower limits.
    pub only_lower_limits: bool,
}

impl OpenOptions {
    /// Returns options for a session of `agent`, with defaults.
    pub fn agent(agent: impl Into<Text>) -> Self {
        Self { agent: agent.into(), ..Self::default() }
    }
}

impl From<&str> for OpenOptions {
    fn from(agent: &str) -> Self {
        Self::agent(agent)
    }
}

impl From<String> for OpenOptions {
    fn from(agent: String) -> Self {
        Self::agent(agent)
    }
}

impl From<Text> for OpenOptions {
    fn from(agent: Text) -> Self {
        Self::agent(agent)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenSessionError {
    #[error("unknown agent `{name}`; agents that can open a session: {pickable}")]
    UnknownAgent {
        name: Text,
        /// The agents that can open a session, as one text.
        pickable: String,
    },
    /// Only other agents can start the agent.
    #[error("agent `{name}` is a subagent, which only other agents start; agents that can open a session: {pickable}")]
    NotPrimary {
        name: Text,
        /// The agents that people may pick, as one text.
        pickable: String,
    },
    /// The model is unknown or cannot be used.
    #[error("{0}")]
    Model(String),
    #[error("{0}")]
    Workspace(String),
    /// The environments in use leave no room for another one ([`crate::Options::environments`]): try again later.
    #[error("{0}")]
    Memory(String),
    #[error(transparent)]
    Limits(#[from] BadLimit),
    #[error(transparent)]
    AboveSlots(#[from] AboveSlots),
    /// A limit that is unknown, or has an invalid value.
    #[error("{0}")]
    LimitChange(String),
    #[error(transparent)]
    Rules(#[from] TooManyRules),
    #[error(transparent)]
    Title(#[from] BadTitle),
    /// The metadata has too many bytes or values, or nests too deep.
    #[error("{0}")]
    Metadata(String),
    /// Money is limited, but the cost of the session's model is unknown.
    #[error("money is limited (cost_micro), and the model `{0}` has no price. Set its price, or limit tokens instead")]
    NoPrice(Text),
    #[error(
        "compact_at needs a context window, and that of the model `{0}` is unknown. Set it in `llm.context_windows`, or remove the limit"
    )]
    NoWindow(Text),
    #[error("session {0} was deleted: its id cannot be used again")]
    Deleted(SessionId),
    /// The session with that id cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the runtime is shut down")]
    Stopped,
    #[error("the limits cannot be recorded: {0}")]
    Unrecordable(#[from] serde_json::Error),
    #[error("cannot record the session: {0}")]
    Journal(#[from] AppendError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// True if all work ended within the grace.
    pub drained: bool,
    pub actors: usize,
    /// Number of live tasks of turns, tools and services. It should be zero.
    pub tasks: usize,
    /// Total number of completions that arrived too late.
    pub stale: u64,
}

impl Runtime {
    pub(crate) fn new(components: Arc<Components>) -> Self {
        Self { components, report: BootReport::default(), tokio: tokio::runtime::Handle::current(), down: false }
    }

    pub(crate) fn swept(&mut self, report: BootReport) {
        self.report = report;
    }

    /// Completes deletions that a crash interrupted: all sessions below a deleted one are deleted too.
    pub(crate) async fn complete_deletions(&self) -> Result<(), ReadError> {
        for id in self.components.log.journal.unfinished_deletions()? {
            let root = self.components.log.journal.head(id)?.map_or(id, |head| head.root);
            let session = SessionHandle { sessions: Arc::clone(&self.components.sessions), id, root };
            if let Err(error) = session.delete(true).await {
                tracing::warn!(session = %id, %error, "cannot complete a deletion; the next start continues it");
            }
        }
        Ok(())
    }

    pub fn boot(&self) -> &BootReport {
        &self.report
    }

    pub fn journal(&self) -> &Journal {
        &self.components.log.journal
    }

    /// Opens a root session by an agent's name, or with [`OpenOptions`]. Its first input opens its first run.
    ///
    /// ```
    /// # fn example(runtime: &subtend_actors::Runtime) -> Result<(), subtend_actors::OpenSessionError> {
    /// let session = runtime.open("general")?;
    /// # drop(session);
    /// # Ok(())
    /// # }
    /// ```
    /// # Durability
    /// The session is in the log, and durable at the latest with the receipt of its first input.
    /// # Blocking
    /// It loads the environment, and creates a model to learn its price or its window: call it where a thread may wait.
    pub fn open(&self, options: impl Into<OpenOptions>) -> Result<SessionHandle, OpenSessionError> {
        self.open_root(options.into(), false)
    }

    /// Opens a session as [`Runtime::open`] does, and returns the events of its tree from the first record on, which [`SessionHandle::watch`] may
    /// miss. The events of an existing session start with the call.
    /// # Durability
    /// As [`Runtime::open`]; the first event comes once the session is durable.
    pub fn open_watched(
        &self,
        options: impl Into<OpenOptions>,
    ) -> Result<(SessionHandle, Subscription), OpenSessionError> {
        let mut options = options.into();
        let id = *options.id.get_or_insert_with(|| self.components.host.ids.session());
        let events = self.subscribe(Some(id));
        let session = self.open_root(options, false)?;
        // An existing session is not always a root.
        let events = if session.is_root() { events } else { session.watch() };
        Ok((session, events))
    }

    /// Opens a root session; with `task`, also for an agent that only other agents start.
    pub(crate) fn open_root(&self, options: OpenOptions, task: bool) -> Result<SessionHandle, OpenSessionError> {
        if self.components.life.gate.is_closed() {
            return Err(OpenSessionError::Stopped);
        }
        if let Some(existing) = options.id.map_or(Ok(None), |id| self.find_open(id))? {
            return Ok(existing);
        }
        let agents = self.environment(&options)?;
        let name = options.agent;
        let manifest = agent_for(&agents, &name, task)?;
        let limits =
            limit_changes::session_limits(&agents, options.limits, options.limit_changes, options.only_lower_limits)?;
        if let Some(title) = &options.title {
            title::check(title)?;
        }
        let metadata = options.metadata.as_deref().unwrap_or_default();
        check_metadata("the metadata", metadata).map_err(OpenSessionError::Metadata)?;
        if let Some(pool) = options.model.as_ref().filter(|model| model.starts_with("pool:"))
            && !agents.models.models.has_pool(pool)
        {
            let why = format!("unknown pool {pool:?}: name a pool of the builder, as `pool:NAME`, or a model");
            return Err(OpenSessionError::Model(why));
        }
        let inherited: Text = options.model.clone().unwrap_or_else(|| agents.default_model.clone());
        let template = agents.template(&name, &inherited, options.source);
        let template = template.map_err(|_| unknown_agent(&agents, &name, task))?;
        // With a workspace, this model is the environment's default. Several named models form a pool of another name.
        let named = options.model.map(|model| match &options.workspace {
            Some(_) => agents.default_model.clone(),
            None => model,
        });
        let model = named.as_ref().unwrap_or(&template.created.model);
        let bounded = limits.as_ref().or(agents.limits.body.as_deref());
        if let Some(lacking) = bounded
            .and_then(|limits| limits.cost_micro)
            .and_then(|_| self.components.calls.unpriced_model_of(&agents.models.models, model))
        {
            return Err(OpenSessionError::NoPrice(lacking));
        }
        if bounded.is_some_and(|limits| agents.models.lacks_window(limits, model)) {
            return Err(OpenSessionError::NoWindow(model.clone()));
        }
        let given = options.id;
        let session = given.unwrap_or_else(|| self.components.host.ids.session());
        let mut created = template.created.clone();
        created.place = Place::Root;
        created.worktree =
            agents.own_worktree(session, template.isolation, None).map_err(OpenSessionError::Workspace)?;
        created.task = task;
        created.short = session.short();
        created.title = options.title;
        created.metadata = options.metadata;
        created.servers = options.servers;
        created.on_restart = options.on_restart.unwrap_or(created.on_restart);
        if let Some(model) = named {
            created.model = model;
        }
        if let Some(limits) = limits {
            created.limits = Interned::new(Arc::new(limits))?;
        }
        let turns = created.limits.body.as_ref().map(|limits| allowed_turns(manifest, limits));
        created.turns = turns.filter(|_| manifest.turns.is_some());
        let policy = match options.policy {
            Some(policy) => Some(policy.meet(&agents.bounds)),
            None => agents.policy.body.as_deref().cloned(),
        };
        let policy = match options.restriction {
            Some(rules) => policy.map(|policy| policy.meet(&rules)),
            None => policy,
        };
        let ceiling = policy.map(|policy| policy.meet(&agents.ceiling_of(manifest)));
        if let Some(ceiling) = ceiling {
            ceiling.check_size()?;
            created.system =
                agents.system_under(&template, &ceiling.meet(&template.manifest), manifest.tools.as_ref())?;
            created.ceiling = Interned::new(Arc::new(ceiling))?;
        }
        created.check_names().map_err(|why| OpenSessionError::Model(format!("{why}: no import would take it")))?;
        self.components.environments.on_opened(session, &agents, options.workspace.is_none());
        match (
            self.components.log.append_root(creation::root(session, created), self.components.host.clock.wall_ms()),
            given,
        ) {
            (Ok(()), _) => {
                Ok(SessionHandle { sessions: Arc::clone(&self.components.sessions), id: session, root: session })
            }
            // Another caller opened the session meanwhile.
            (Err(error), Some(id)) => self.find_open(id)?.ok_or(OpenSessionError::Journal(error)),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn find_open(&self, id: SessionId) -> Result<Option<SessionHandle>, OpenSessionError> {
        match self.components.log.journal.head(id)? {
            None => Ok(None),
            Some(head) if head.deleted => Err(OpenSessionError::Deleted(id)),
            Some(head) => {
                Ok(Some(SessionHandle { sessions: Arc::clone(&self.components.sessions), id, root: head.root }))
            }
        }
    }

    /// Returns the agents and their manifests, as the next session without a workspace gets them. If they cannot be loaded, returns those of the last
    /// session.
    pub fn catalog(&self) -> Catalog {
        let environments = &self.components.environments;
        let agents = environments.open_home().unwrap_or_else(|why| {
            tracing::warn!(%why, "cannot reload the runtime's own environment");
            environments.home()
        });
        Catalog::clone(&agents.catalog)
    }

    /// Returns the agents that a person may pick for a session or an input ([`crate::Input::agent`]).
    pub fn agents(&self) -> Vec<Text> {
        self.catalog().pickable().map(|manifest| Arc::clone(&manifest.name)).collect()
    }

    /// Registers an agent while sessions are running, and returns the agent of that name that it replaces.
    ///
    /// Sessions that are opened later have it, in every workspace, even if a file defines the name. Opened trees keep their agents until
    /// [`SessionHandle::reload`].
    /// # Durability
    /// None: a registration lasts as long as the runtime. After a restart, register again before the first session is opened.
    pub fn register_agent(&self, manifest: Manifest) -> Option<Arc<Manifest>> {
        self.components.environments.register(Arc::clone(&manifest.name), Some(manifest))
    }

    /// Returns whether an agent may be registered or removed: a host should refuse clients more than 1,000 different names, which the runtime keeps as
    /// long as it runs.
    pub fn has_room_for_agent(&self, name: &str) -> bool {
        self.components.environments.has_room_for(name)
    }

    /// Removes an agent while sessions are running, and returns it.
    ///
    /// Sessions that are opened later lack it, in every workspace, even if a file defines it. Opened trees keep it until [`SessionHandle::reload`].
    /// # Durability
    /// As [`Runtime::register_agent`].
    pub fn remove_agent(&self, name: &str) -> Option<Arc<Manifest>> {
        self.components.environments.register(name.into(), None)
    }

    /// Returns a session of the journal.
    /// # Errors
    /// The error of reading the journal.
    pub fn session(&self, id: SessionId) -> Result<Option<SessionHandle>, ReadError> {
        let head = self.components.log.journal.head(id)?.filter(|head| !head.is_erased());
        Ok(head.map(|head| SessionHandle { sessions: Arc::clone(&self.components.sessions), id, root: head.root }))
    }

    /// Subscribes to the events of one tree or of all trees: first the text so far of running streams, then later records once they are durable.
    ///
    /// To read earlier records from the journal, call `journal().settled()` first: an appended record that is not durable yet is in neither.
    pub fn subscribe(&self, root: Option<SessionId>) -> Subscription {
        self.components.log.events.subscribe(root.map_or(SubscriptionScope::All, SubscriptionScope::Tree))
    }

    /// Returns the display of a call: its tool's name and icon, and its arguments and result in the tool's wording.
    pub fn render_call(&self, tool: &str, args: &str, result: Option<&str>) -> RenderedCall {
        self.components.environments.home().tools.render_call(tool, args, result)
    }

    /// Waits until no service of the host is running: its titles and summaries are set or have failed. A shutdown ends running ones.
    pub async fn services_done(&self) {
        self.components.services.done(None).await;
    }

    /// Shuts down: refuses new work, lets running work finish within `grace`, then stops it, owned runs before their owners.
    ///
    /// Unfinished runs remain in the journal for the next start. Afterwards no actor and no task of the runtime is alive.
    /// # Cancel safety
    /// Dropping the future drops the runtime, which stops all work at once.
    pub async fn shutdown(mut self, grace: Duration) -> ShutdownReport {
        let components = Arc::clone(&self.components);
        components.life.stop(true);
        // No caller waits for services.
        components.services.stop(None);
        components.life.tasks.close();
        let drained = tokio::time::timeout(grace, components.life.tasks.wait()).await.is_ok();
        components.halt();
        components.life.stop_watching();
        components.cells.stop_deepest_first().await;
        components.directory.clear();
        components.waiters.close();
        // The actors have ended and stopped their work, whose tasks end at their next poll.
        components.life.ended().await;
        components.log.events.close();
        let report = ShutdownReport {
            drained,
            actors: components.cells.live(),
            tasks: components.life.tasks.len(),
            stale: components.life.stale.load(Ordering::Relaxed),
        };
        if let Err(error) = components.log.journal.clone().close().await {
            tracing::error!(%error, "the journal did not close cleanly");
        }
        self.down = true;
        report
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.down {
            return;
        }
        let components = &self.components;
        components.life.stop(false);
        components.halt();
        components.life.stop_watching();
        components.waiters.close();
        components.log.events.close();
        components.directory.clear();
        // Spawned on the starting runtime: actors hold the cells, and would run forever after a drop outside of tokio.
        self.tokio.spawn(components.cells.kill());
        tracing::warn!("the runtime was dropped without a shutdown; open runs are swept at the next start");
    }
}

/// Returns the agent of a new session; with `task`, also one that only other agents start.
pub(crate) fn agent_for<'a>(agents: &'a Agents, name: &Text, task: bool) -> Result<&'a Manifest, OpenSessionError> {
    let manifest = agents.catalog.get(name).ok_or_else(|| unknown_agent(agents, name, task))?;
    match manifest.mode {
        AgentMode::Primary | AgentMode::All => Ok(manifest),
        AgentMode::Subagent if fits(manifest, task) => Ok(manifest),
        AgentMode::Subagent => {
            Err(OpenSessionError::NotPrimary { name: name.clone(), pickable: pickable(agents, task) })
        }
    }
}

fn fits(manifest: &Manifest, task: bool) -> bool {
    manifest.pickable() || (task && manifest.spawnable())
}

fn pickable(agents: &Agents, task: bool) -> String {
    let fit = agents.catalog.all().filter(|manifest| fits(manifest, task));
    fit.map(|manifest| &*manifest.name).collect::<Vec<_>>().join(", ")
}

fn unknown_agent(agents: &Agents, name: &Text, task: bool) -> OpenSessionError {
    let refusal = agents.catalog.refusal(name).map(|why| format!("; {why}")).unwrap_or_default();
    OpenSessionError::UnknownAgent { name: name.clone(), pickable: pickable(agents, task) + &refusal }
}
