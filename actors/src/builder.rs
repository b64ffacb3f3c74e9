//! The builder of a runtime.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use subtend_agents::catalog::Catalog;
use subtend_journal::{Journal, OpenError};
use subtend_models::model::Model;
use subtend_session::authority::{Authority, RuleSet};
use subtend_session::command::{Command, Deadline};
use subtend_session::ids::{Interned, Text};
use subtend_session::limits::Limits;
use subtend_supervision::{
    Gate, Ledger, Slots, StartError as SupervisorsError, StormLimit, StormSeen, Supervisors, Timers, TokenTree,
};
use subtend_tools::policy::HostPolicy;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::{Workspace, WorkspaceError};
use tokio_util::sync::CancellationToken;

use crate::boot::{BootError, BootProgress};
use crate::directory::Directory;
use crate::faults::Faults;
use crate::hub::{Hub, HubCell, upgrade};
use crate::lane::Item;
use crate::mint::Mint;
use crate::offer::Offers;
use crate::options::Options;
use crate::publisher::Publisher;
use crate::runtime::Runtime;
use crate::ticket::Timer;
use crate::waiters::Waiters;

/// What a runtime is made of. Everything has a default but the model.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    journal: Option<Journal>,
    workspace: Option<Arc<Workspace>>,
    catalog: Option<Catalog>,
    tools: Option<Registry>,
    models: HashMap<Text, Arc<dyn Model>>,
    fallback: Option<Arc<dyn Model>>,
    limits: Limits,
    policy: RuleSet,
    options: Options,
    faults: Faults,
    on_boot: Box<dyn Fn(BootProgress) + Send + Sync>,
}

/// Why a runtime did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No model was given.
    #[error("a runtime needs a model: give one with `model`")]
    NoModel,
    /// The journal could not be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The workspace could not be opened.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The supervisors did not start.
    #[error("the supervisors did not start: {0}")]
    Supervisors(#[from] SupervisorsError),
    /// Limits or policy cannot be written as JSON.
    #[error("limits or policy cannot be recorded: {0}")]
    Unrecordable(#[from] serde_json::Error),
    /// The boot sweep failed.
    #[error(transparent)]
    Boot(#[from] BootError),
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            journal: None,
            workspace: None,
            catalog: None,
            tools: None,
            models: HashMap::new(),
            fallback: None,
            limits: Limits::default(),
            policy: HostPolicy::default_for_workspace(),
            options: Options::default(),
            faults: Faults::default(),
            on_boot: Box::new(|_| ()),
        }
    }
}

impl Builder {
    /// Where everything is recorded; in memory if not given.
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// The directory that tools work in; the current one if not given.
    pub fn workspace(mut self, workspace: Arc<Workspace>) -> Self {
        self.workspace = Some(workspace);
        self
    }

    /// The agents; the built-in ones if not given.
    pub fn catalog(mut self, catalog: Catalog) -> Self {
        self.catalog = Some(catalog);
        self
    }

    /// The tools; none if not given.
    pub fn tools(mut self, tools: Registry) -> Self {
        self.tools = Some(tools);
        self
    }

    /// The model that answers for every name without a model of its own.
    pub fn model(mut self, model: Arc<dyn Model>) -> Self {
        self.fallback = Some(model);
        self
    }

    /// The model of one name.
    pub fn named_model(mut self, name: impl Into<Text>, model: Arc<dyn Model>) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Limits of every session.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What root sessions may do at most.
    pub fn policy(mut self, policy: RuleSet) -> Self {
        self.policy = policy;
        self
    }

    /// Bounds and switches of the runtime.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Faults, for tests.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Takes progress of the boot sweep.
    pub fn on_boot(mut self, progress: impl Fn(BootProgress) + Send + Sync + 'static) -> Self {
        self.on_boot = Box::new(progress);
        self
    }

    /// Starts the runtime: sweeps what was in flight when the journal was last in use, then takes new work.
    ///
    /// # Errors
    /// [`StartError`]; the journal is closed then, with what the sweep had recorded.
    ///
    /// # Durability
    /// When it returns, every run that a former host left in flight has its end, and every owner its notice.
    pub async fn start(self) -> Result<Runtime, StartError> {
        let on_boot = self.on_boot;
        let fallback = self.fallback.ok_or(StartError::NoModel)?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => {
                Journal::open(Box::new(subtend_journal::memory::Memory::new()), subtend_journal::Options::default())?
            }
        };
        let workspace = match self.workspace {
            Some(workspace) => workspace,
            None => Arc::new(Workspace::open(PathBuf::from("."))?),
        };
        let cell: HubCell = Arc::new(OnceLock::new());
        let hub = Arc::new(Hub {
            events: Publisher::start(journal.clone(), self.options.events),
            journal,
            catalog: self.catalog.unwrap_or_else(Catalog::builtin),
            tools: self.tools.unwrap_or_else(|| Registry::builder().build()),
            models: self.models,
            fallback,
            workspace_path: workspace.path().to_path_buf(),
            workspace,
            limits: Interned::new(Arc::new(self.limits))?,
            policy: Interned::new(Arc::new(Authority::of(self.policy)))?,
            directory: Directory::new(),
            supervisors: supervisors(&cell)?,
            slots: slots(&cell, self.options.slots),
            ledger: Ledger::new(),
            timers: timers(&cell),
            tokens: TokenTree::new(),
            mint: Mint::new(self.options.seed),
            options: self.options,
            offers: Offers::default(),
            waiters: Waiters::default(),
            gate: Gate::new(),
            closing: std::sync::Mutex::default(),
            defs: std::sync::Mutex::default(),
            stale: AtomicU64::new(0),
            tasks: tokio_util::task::TaskTracker::new(),
            boot: std::sync::Mutex::default(),
            faults: self.faults,
            watch: std::sync::Mutex::default(),
            stopping: AtomicBool::new(false),
            halt: CancellationToken::new(),
            tokio: tokio::runtime::Handle::current(),
        });
        if cell.set(Arc::downgrade(&hub)).is_err() {
            tracing::error!("the hub's cell was set twice");
        }
        watch_poison(&hub);
        // Before the sweep: one that fails, or is given up on the way, has actors and tasks to end.
        let mut runtime = Runtime::new(Arc::clone(&hub));
        match hub.boot(&*on_boot).await {
            Ok(report) => {
                runtime.swept(report);
                Ok(runtime)
            }
            Err(error) => {
                runtime.shutdown(std::time::Duration::ZERO).await;
                Err(error.into())
            }
        }
    }
}

/// More failures in a window than any number of bad sessions explains: the runtime takes nothing new, and says so.
fn storm(cell: &HubCell, seen: &StormSeen) {
    tracing::error!(
        ?seen,
        "session actors fail in a storm: the runtime takes no new work; shut it down and look at the log"
    );
    if let Some(hub) = upgrade(cell) {
        hub.gate.close();
    }
}

fn supervisors(cell: &HubCell) -> Result<Supervisors, SupervisorsError> {
    let (exits, storms) = (Arc::clone(cell), Arc::clone(cell));
    Supervisors::start_with(
        2_000,
        Arc::new(move |exit| {
            if let Some(hub) = upgrade(&exits) {
                hub.exited(&exit);
            }
        }),
        StormLimit::default(),
        Arc::new(move |seen| storm(&storms, &seen)),
    )
}

fn slots(cell: &HubCell, global: usize) -> Slots<subtend_session::ids::SessionId, crate::ticket::Ticket> {
    let cell = Arc::clone(cell);
    Slots::new(
        global,
        Arc::new(move |ticket: crate::ticket::Ticket, slot| {
            // Without a hub the slot is dropped, which returns it.
            if let Some(hub) = upgrade(&cell) {
                hub.timers.disarm(&Timer::Deadline(ticket.session, Deadline::Queue(ticket.run)));
                hub.deliver(ticket.session, Item::Granted(ticket, slot));
            }
        }),
    )
}

fn timers(cell: &HubCell) -> Timers<Timer> {
    let cell = Arc::clone(cell);
    Timers::start(Arc::new(move |timer| {
        let Some(hub) = upgrade(&cell) else { return };
        match timer {
            Timer::Deadline(session, deadline) => hub.tell(session, Command::Deadline(deadline)),
            Timer::Idle(session) => {
                if hub.directory.with(session, |_| ()).is_some() {
                    hub.deliver(session, Item::Idle);
                }
            }
        }
    }))
}

/// A poisoned journal stops the whole runtime: nothing after the failed append is ever shown (J-9).
fn watch_poison(hub: &Arc<Hub>) {
    let (journal, weak) = (hub.journal.clone(), Arc::downgrade(hub));
    let watch = tokio::spawn(async move {
        let poison = journal.on_poison().await;
        let Some(hub) = weak.upgrade() else { return };
        tracing::error!(%poison, "the journal failed: the runtime stops");
        hub.stopping.store(true, Ordering::Release);
        hub.gate.close();
        hub.halt.cancel();
        hub.timers.shutdown();
        hub.waiters.close();
        hub.directory.clear();
        hub.supervisors.shutdown(std::time::Duration::ZERO).await;
    });
    hub.watch_with(watch.abort_handle());
}
