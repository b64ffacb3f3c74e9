//! The runtime: an instance that owns sessions, their actors and their journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Map, Value};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::{AppendError, Journal, ReadError};
use subtend_session::authority::Authority;
use subtend_session::birth;
use subtend_session::ids::{Interned, SessionId, Text};
use subtend_session::limits::{BadLimit, Limits};
use subtend_session::place::{OnRestart, Place, Source};
use subtend_session::title::{self, BadTitle};
use subtend_tools::display::Shown;

use crate::handle::SessionHandle;
use crate::observe::event::Subscription;
use crate::observe::event::subscription::Scope;
use crate::recovery::boot::BootReport;
use crate::runtime::rooms::Rooms;
use crate::spawn::agents::Agents;
use crate::values::environment_key::EnvironmentKey;

pub mod builder;
pub mod environment;
mod limit_changes;
pub(crate) mod rooms;
mod start_error;

pub use start_error::StartError;

/// A running instance. Two in one process never meet.
///
/// Dropping it without [`Runtime::shutdown`] stops what runs and leaves open runs in the journal, to be swept at the next
/// start; it says so once.
pub struct Runtime {
    pub(crate) rooms: Arc<Rooms>,
    report: BootReport,
    /// Where it was started: it may be dropped elsewhere.
    tokio: tokio::runtime::Handle,
    down: bool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("boot", &self.report).finish_non_exhaustive()
    }
}

/// How a root session is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The agent.
    pub agent: Text,
    /// An id of the caller's choice: opening a session of that id again returns the one that exists. A new id if not given.
    pub id: Option<SessionId>,
    /// A title for listings.
    pub title: Option<Text>,
    /// What the host attaches: JSON text.
    pub metadata: Option<Text>,
    /// Limits of its own; the runtime's if not given.
    pub limits: Option<Limits>,
    /// The model, by name; the manifest's, or the runtime's, if not given.
    pub model: Option<Text>,
    /// What a restart of the host does with its runs; what the agent's manifest says if not given.
    pub on_restart: Option<OnRestart>,
    /// Where its calls come from: a session that an MCP client works in is not offered what is internal only (B10), nor is what it
    /// starts.
    pub source: Source,
    /// Servers that its models are called at, recorded for whoever goes on with the session ([`SessionCreated::servers`]).
    ///
    /// [`SessionCreated::servers`]: subtend_session::record::SessionCreated::servers
    pub servers: Vec<Text>,
    /// The directory that it works in, by its absolute path: its environment is loaded ([`Builder::environments`]). The runtime's own
    /// if not given.
    ///
    /// [`Builder::environments`]: builder::Builder::environments
    pub workspace: Option<Text>,
    /// What it may do at most, in place of the environment's policy; the environment's bounds hold all the same.
    pub policy: Option<Authority>,
    /// Limits that differ from those of its environment, by their names; null for none.
    pub limit_changes: Map<String, Value>,
}

impl OpenOptions {
    /// A session of `agent`, with nothing else said.
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

/// Why a root session was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSessionError {
    /// There is no such agent.
    #[error("there is no agent {name:?}; agents to open a session with: {pickable}")]
    UnknownAgent {
        /// The name.
        name: Text,
        /// Those that there are, joined.
        pickable: String,
    },
    /// The agent is for other agents only.
    #[error("agent {name:?} is a subagent: only other agents start it; agents to open a session with: {pickable}")]
    NotPrimary {
        /// The name.
        name: Text,
        /// Those that are, joined.
        pickable: String,
    },
    /// There is no such pool.
    #[error("there is no pool {0:?}: name one that the builder was given, as `pool:NAME`, or a model")]
    UnknownPool(Text),
    /// Its workspace cannot be used.
    #[error("{0}")]
    Workspace(String),
    /// Limits under which nothing could be done.
    #[error(transparent)]
    Limits(#[from] BadLimit),
    /// A limit that is unknown, or has a value that it cannot have.
    #[error("{0}")]
    LimitChange(String),
    /// A title that is none.
    #[error(transparent)]
    Title(#[from] BadTitle),
    /// Money is limited, and nobody knows what the session's model costs.
    #[error(
        "money is limited (cost_micro), and the model `{0}` has no price: give it one with `prices`, or limit tokens instead"
    )]
    NoPrice(Text),
    /// The session of that id was deleted.
    #[error("session {0} was deleted: its id cannot be used again")]
    Deleted(SessionId),
    /// The session of that id cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The runtime is shutting down.
    #[error("the runtime is shut down")]
    Stopped,
    /// The limits cannot be written as JSON.
    #[error("the limits cannot be recorded: {0}")]
    Unrecordable(#[from] serde_json::Error),
    /// The journal takes nothing.
    #[error("the session could not be recorded: {0}")]
    Journal(#[from] AppendError),
}

/// What a shutdown left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Whether everything at work ended within the grace.
    pub drained: bool,
    /// Actors that are alive: zero.
    pub actors: usize,
    /// Tasks of turns, tools and services that are alive: zero.
    pub tasks: usize,
    /// Completions that came too late, in all.
    pub stale: u64,
}

impl Runtime {
    pub(crate) fn new(rooms: Arc<Rooms>) -> Self {
        Self { rooms, report: BootReport::default(), tokio: tokio::runtime::Handle::current(), down: false }
    }

    /// The boot sweep is done.
    pub(crate) fn swept(&mut self, report: BootReport) {
        self.report = report;
    }

    /// Completes the deletions that a host began which died: whatever stands below a deleted session is deleted too.
    pub(crate) async fn complete_deletions(&self) -> Result<(), ReadError> {
        for id in self.rooms.log.journal.half_deleted()? {
            let root = self.rooms.log.journal.head(id)?.map_or(id, |head| head.root);
            let session = SessionHandle { sessions: Arc::clone(&self.rooms.sessions), id, root };
            if let Err(error) = session.delete(true).await {
                tracing::warn!(session = %id, %error, "its deletion is not complete: the next start continues it");
            }
        }
        Ok(())
    }

    /// What the boot sweep found and did.
    pub fn boot(&self) -> &BootReport {
        &self.report
    }

    /// The journal, to read.
    pub fn journal(&self) -> &Journal {
        &self.rooms.log.journal
    }

    /// Opens a root session: of an agent, by its name, or with [`OpenOptions`]. Its first input opens its first run.
    ///
    /// ```
    /// # fn example(runtime: &subtend_actors::Runtime) -> Result<(), subtend_actors::OpenSessionError> {
    /// let session = runtime.open("general")?;
    /// # drop(session);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpenSessionError`].
    ///
    /// # Durability
    /// The session is in the log, and durable at the latest with the receipt of its first input.
    pub fn open(&self, options: impl Into<OpenOptions>) -> Result<SessionHandle, OpenSessionError> {
        self.open_root(options.into(), false)
    }

    /// As [`Runtime::open`], with the events of the new session's tree from its first record on, which [`SessionHandle::watch`] of
    /// an open session may miss. The events of a session that exists begin with the call.
    ///
    /// # Errors
    /// [`OpenSessionError`].
    ///
    /// # Durability
    /// As [`Runtime::open`]; the first event comes when the session is durable.
    pub fn open_watched(
        &self,
        options: impl Into<OpenOptions>,
    ) -> Result<(SessionHandle, Subscription), OpenSessionError> {
        let mut options = options.into();
        let id = *options.id.get_or_insert_with(|| self.rooms.host.ids.session());
        let events = self.subscribe(Some(id));
        let session = self.open_root(options, false)?;
        // A session that exists may be one below a root.
        let events = if session.is_root() { events } else { session.watch() };
        Ok((session, events))
    }

    /// Opens a root session; as a task, also of an agent that only other agents start.
    pub(crate) fn open_root(&self, options: OpenOptions, task: bool) -> Result<SessionHandle, OpenSessionError> {
        if self.rooms.life.gate.is_closed() {
            return Err(OpenSessionError::Stopped);
        }
        if let Some(existing) = options.id.map_or(Ok(None), |id| self.opened(id))? {
            return Ok(existing);
        }
        let agents = self.environment(&options)?;
        let name = options.agent;
        let manifest = fitting(&agents, &name, task)?;
        let limits = self.limits_of(&agents, options.limits, options.limit_changes)?;
        if let Some(title) = &options.title {
            title::check(title)?;
        }
        if let Some(pool) = options.model.as_ref().filter(|model| model.starts_with("pool:"))
            && !agents.models.models.has_pool(pool)
        {
            return Err(OpenSessionError::UnknownPool(pool.clone()));
        }
        let inherited: Text = options.model.clone().unwrap_or_else(|| agents.default_model.clone());
        let template = agents.template(&name, &inherited, options.source);
        let template = template.map_err(|_| unknown_agent(&agents, &name, task))?;
        // The loader of an environment knows what a name stands for: several models are a pool of its own.
        let named = options.model.map(|model| match &options.workspace {
            Some(_) => agents.default_model.clone(),
            None => model,
        });
        let model = named.as_ref().unwrap_or(&template.created.model);
        let bounded = limits.as_ref().or(agents.limits.body.as_deref());
        if let Some(lacking) = bounded
            .and_then(|limits| limits.cost_micro)
            .and_then(|_| self.rooms.calls.lacks_price(&agents.models.models, model))
        {
            return Err(OpenSessionError::NoPrice(lacking));
        }
        let given = options.id;
        let session = given.unwrap_or_else(|| self.rooms.host.ids.session());
        let mut created = template.created.clone();
        created.place = Place::Root;
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
        let policy = match options.policy {
            Some(policy) => Some(policy.meet(&agents.bounds)),
            None => agents.policy.body.as_deref().cloned(),
        };
        let ceiling = policy.map(|policy| policy.meet(&agents.ceiling_of(manifest)));
        if let Some(ceiling) = ceiling {
            created.ceiling = Interned::new(Arc::new(ceiling))?;
        }
        self.rooms.environments.opened(session, &agents);
        match (self.rooms.log.append_root(birth::root(session, created), self.rooms.host.clock.wall_ms()), given) {
            (Ok(()), _) => Ok(SessionHandle { sessions: Arc::clone(&self.rooms.sessions), id: session, root: session }),
            // Another caller opened it meanwhile.
            (Err(error), Some(id)) => self.opened(id)?.ok_or(OpenSessionError::Journal(error)),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Returns the limits of a session that is opened with some of its own.
    fn limits_of(
        &self,
        agents: &Agents,
        all: Option<Limits>,
        changes: Map<String, Value>,
    ) -> Result<Option<Limits>, OpenSessionError> {
        let limits = match changes.is_empty() {
            true => all,
            false => {
                let base = all.map_or_else(|| agents.limits_body(), Arc::new);
                Some(limit_changes::changed(&base, changes, self.rooms.host.options.slots)?)
            }
        };
        limits.as_ref().map_or(Ok(()), Limits::check)?;
        Ok(limits)
    }

    /// Returns the environment that a session is opened in.
    fn environment(&self, options: &OpenOptions) -> Result<Arc<Agents>, OpenSessionError> {
        let environments = &self.rooms.environments;
        let Some(workspace) = &options.workspace else { return Ok(Arc::clone(environments.home())) };
        let (model, servers) = (options.model.clone(), options.servers.clone());
        let key = EnvironmentKey { workspace: workspace.clone(), model, opening: true, servers, imported: false };
        environments.open(&key).map_err(OpenSessionError::Workspace)
    }

    /// Returns the session that was opened with an id of the caller's choice.
    fn opened(&self, id: SessionId) -> Result<Option<SessionHandle>, OpenSessionError> {
        match self.rooms.log.journal.head(id)? {
            None => Ok(None),
            Some(head) if head.deleted => Err(OpenSessionError::Deleted(id)),
            Some(head) => Ok(Some(SessionHandle { sessions: Arc::clone(&self.rooms.sessions), id, root: head.root })),
        }
    }

    /// The agents, with what each of them is.
    pub fn catalog(&self) -> &Catalog {
        &self.rooms.environments.home().catalog
    }

    /// The agents that a person may pick: to open a session with, and for an input ([`crate::Input::agent`]).
    pub fn agents(&self) -> impl Iterator<Item = Text> {
        self.rooms.environments.home().catalog.pickable().map(|manifest| Arc::clone(&manifest.name))
    }

    /// A session that is in the journal.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn session(&self, id: SessionId) -> Result<Option<SessionHandle>, ReadError> {
        let head = self.rooms.log.journal.head(id)?.filter(|head| !head.is_erased());
        Ok(head.map(|head| SessionHandle { sessions: Arc::clone(&self.rooms.sessions), id, root: head.root }))
    }

    /// Events from here on, of one tree or of all: the text so far of what streams, then what is appended after the call,
    /// when it is durable.
    ///
    /// Whoever reads the journal for what came before waits for `journal().settled()` first: a record that was appended
    /// before the call and is not durable yet is in neither.
    pub fn subscribe(&self, root: Option<SessionId>) -> Subscription {
        self.rooms.log.events.subscribe(root.map_or(Scope::All, Scope::Tree))
    }

    /// A call as people see it: its tool by the name and sign that it has for them, what it takes and gave in its own words (M13).
    pub fn shown(&self, tool: &str, args: &str, result: Option<&str>) -> Shown {
        self.rooms.environments.home().tools.shown(tool, args, result)
    }

    /// Waits until no service of the host works for any session: until those that it names are named, and those that it sums up
    /// summed up, or neither came to anything. A shutdown ends what is at work then.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    pub async fn services_done(&self) {
        self.rooms.services.done(None).await;
    }

    /// Sessions in memory, for operators and tests.
    pub fn present(&self) -> usize {
        self.rooms.directory.len()
    }

    /// Runs that hold a slot.
    pub fn slots_in_use(&self) -> usize {
        self.rooms.cells.runs().slots.in_use()
    }

    /// Returns a count of the slots that runs below a root hold: of owned runs, and of those that persons opened.
    #[cfg(feature = "fault-points")]
    pub fn slots_of_root(&self) -> impl Fn(SessionId) -> [usize; 2] + Send + Sync + use<> {
        let rooms = Arc::downgrade(&self.rooms);
        move |root| {
            let used = |whose| rooms.upgrade().map_or(0, |rooms| rooms.cells.runs().slots.of(whose).in_use_of(root));
            [used(subtend_supervision::PoolKind::Background), used(subtend_supervision::PoolKind::Interactive)]
        }
    }

    /// Shuts down in order: refuses new work, lets what is at work finish within `grace`, then stops it, what is owned before
    /// its owners.
    ///
    /// What still runs then stays in the journal and is handled at the next start. When it returns, nothing of ours is alive.
    ///
    /// # Cancel safety
    /// Dropping the future drops the runtime: what runs is stopped at once.
    pub async fn shutdown(mut self, grace: Duration) -> ShutdownReport {
        let rooms = Arc::clone(&self.rooms);
        rooms.life.stop(true);
        // Nobody waits for them.
        rooms.services.stop(None);
        rooms.life.tasks.close();
        let drained = tokio::time::timeout(grace, rooms.life.tasks.wait()).await.is_ok();
        rooms.halt();
        rooms.life.stop_watching();
        rooms.cells.stop_deepest_first().await;
        rooms.directory.clear();
        rooms.waiters.close();
        // Actors are gone, and with them what they had at work: its tasks end at their next poll.
        rooms.life.tasks.wait().await;
        rooms.log.events.close();
        let report = ShutdownReport {
            drained,
            actors: rooms.cells.live(),
            tasks: rooms.life.tasks.len(),
            stale: rooms.life.stale.load(Ordering::Relaxed),
        };
        if let Err(error) = rooms.log.journal.clone().close().await {
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
        let rooms = &self.rooms;
        rooms.life.stop(false);
        rooms.halt();
        rooms.life.stop_watching();
        rooms.waiters.close();
        rooms.log.events.close();
        rooms.directory.clear();
        // Where it was started: actors hold the cells, and would run for ever if it is dropped outside of tokio.
        self.tokio.spawn(rooms.cells.kill());
        tracing::warn!("the runtime was dropped without a shutdown; open runs are swept at the next start");
    }
}

/// Returns the agent that a session is opened with; as a task, also one that only other agents start.
fn fitting<'a>(agents: &'a Agents, name: &Text, task: bool) -> Result<&'a Manifest, OpenSessionError> {
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
    OpenSessionError::UnknownAgent { name: name.clone(), pickable: pickable(agents, task) }
}
