use std::collections::BTreeSet;
use std::sync::Arc;

use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_journal::Journal;
use subtend_models::model::{IntoModel, Model};
use subtend_models::throttle::{Rates, Throttles};
use subtend_models::windows::{ByModel, Windows};
use subtend_session::authority::RuleSet;
use subtend_session::ids::{SessionId, Text};
use subtend_session::limits::Limits;
use subtend_supervision::{Budgets, Lease, Ledger};
use subtend_tools::checkpoint::Checkpoints;
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;
use subtend_tools::worktree::Worktrees;
use tokio_util::sync::CancellationToken;

use crate::approvals::Approver;
use crate::approvals::open_asks::Approvals;
use crate::calls::model_calls::ModelCalls;
use crate::calls::prices::Prices;
use crate::calls::tool_directory::remove_left_worktrees;
use crate::clock::{Clock, IdGenerator};
use crate::faults::Faults;
use crate::hooks::Hooks;
use crate::host::HostParts;
use crate::life::Lifecycle;
use crate::log::Log;
use crate::recovery::boot::{BootError, BootFailure, BootProgress};
use crate::recovery::merges::finish_merges;
use crate::recovery::restores;
use crate::runtime::Runtime;
use crate::runtime::components::Components;
use crate::runtime::environment::{Environment, SharedParts};
use crate::runtime::start_error::StartError;
use crate::spawn::environments::{Environments, Load, LoadHome};
use crate::values::environment_key::EnvironmentKey;
use crate::values::options::Options;

/// A function that loads the environment of a workspace, or returns the reason why it cannot.
type Loader = dyn Fn(&EnvironmentKey) -> Result<Environment, String> + Send + Sync;

/// A function that reloads the runtime's own environment if it changed.
type HomeLoader = dyn Fn() -> Result<Option<Environment>, String> + Send + Sync;

/// The parts of a runtime. All parts except the model have defaults.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    journal: Option<Journal>,
    home: Environment,
    load: Option<Box<Loader>>,
    load_home: Option<Box<HomeLoader>>,
    home_root: Option<SessionId>,
    rates: Rates,
    named_rates: Vec<(Text, Rates)>,
    throttles: Option<Throttles>,
    prices: Prices,
    options: Options,
    faults: Faults,
    hooks: Option<Arc<dyn Hooks>>,
    on_boot: Box<dyn Fn(BootProgress) + Send + Sync>,
    worktrees: Option<Arc<Worktrees>>,
    checkpoints: Option<Checkpoints>,
    lease: Lease,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            journal: None,
            home: Environment::default(),
            load: None,
            load_home: None,
            home_root: None,
            rates: Rates::default(),
            named_rates: Vec::new(),
            throttles: None,
            prices: Prices::new(),
            options: Options::default(),
            faults: Faults::default(),
            hooks: None,
            on_boot: Box::new(|_| ()),
            worktrees: None,
            checkpoints: None,
            lease: Lease::default(),
        }
    }
}

impl Runtime {
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets the journal; the default is in memory.
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Sets the environment of sessions without a workspace, replacing earlier settings. The builder's other methods change parts of it.
    pub fn environment(mut self, home: Environment) -> Self {
        self.home = home;
        self
    }

    /// Keeps the tree below this root in the runtime's own environment, even if the root was opened with another one.
    pub fn home_root(mut self, root: Option<SessionId>) -> Self {
        self.home_root = root;
        self
    }

    /// Sets the loader for other workspaces. It runs when a session is opened in one ([`OpenOptions::workspace`]), and at the first use of such a
    /// session. Without a loader every session uses the runtime's own environment.
    ///
    /// `load` reads files and must not call the runtime. If it fails, opening a session there is refused with its error, and so is every input to
    /// sessions there. The error should name the workspace and the remedy.
    ///
    /// [`OpenOptions::workspace`]: crate::OpenOptions::workspace
    pub fn environments(
        mut self,
        load: impl Fn(&EnvironmentKey) -> Result<Environment, String> + Send + Sync + 'static,
    ) -> Self {
        self.load = Some(Box::new(load));
        self
    }

    /// Sets the function that reloads the runtime's own environment, whenever a session is opened without a workspace and at
    /// [`SessionHandle::reload`](crate::SessionHandle::reload). Without it the environment never changes.
    ///
    /// `load` reads files and must not call the runtime. It returns `None` if nothing changed since its last call: each returned environment stays in
    /// memory for the trees that were opened with it. If it fails, the opening is refused with its error.
    pub fn home_loader(
        mut self,
        load: impl Fn() -> Result<Option<Environment>, String> + Send + Sync + 'static,
    ) -> Self {
        self.load_home = Some(Box::new(load));
        self
    }

    /// Sets the directory of tools; the default is the current one.
    pub fn workspace(mut self, workspace: impl Into<Arc<Workspace>>) -> Self {
        self.home = self.home.workspace(workspace);
        self
    }

    /// Sets the agents; the default is the built-in agents.
    pub fn catalog(mut self, catalog: Catalog) -> Self {
        self.home = self.home.catalog(catalog);
        self
    }

    /// Sets the tools; by default there are no tools.
    pub fn tools(mut self, tools: Registry) -> Self {
        self.home = self.home.tools(tools);
        self
    }

    /// Sets the model that answers for every model name that is not set otherwise.
    pub fn model(mut self, model: impl IntoModel) -> Self {
        self.home = self.home.model(model);
        self
    }

    pub fn named_model(mut self, name: impl Into<Text>, model: impl IntoModel) -> Self {
        self.home = self.home.named_model(name, model);
        self
    }

    /// Sets a source of models for names without a model of their own, such as `anthropic/…`.
    pub fn model_source(mut self, source: impl Fn(&str) -> Option<Arc<dyn Model>> + Send + Sync + 'static) -> Self {
        self.home = self.home.model_source(source);
        self
    }

    /// Adds a pool, as [`Environment::pool`] does.
    pub fn pool<M: Into<Text>>(mut self, name: &str, models: impl IntoIterator<Item = M>) -> Self {
        self.home = self.home.pool(name, models);
        self
    }

    /// Sets the model or pool (`pool:NAME`) of sessions whose agent does not name one; the default is [`Builder::model`].
    pub fn default_model(mut self, name: impl Into<Text>) -> Self {
        self.home = self.home.default_model(name);
        self
    }

    /// Sets the default quotas of one model, and of all models of one provider.
    pub fn rates(mut self, rates: Rates) -> Self {
        self.rates = rates;
        self
    }

    /// Sets the quota of `PROVIDER/MODEL`, or of `PROVIDER` for all of its models together.
    pub fn rates_of(mut self, quota: impl Into<Text>, rates: Rates) -> Self {
        self.named_rates.push((quota.into(), rates));
        self
    }

    /// Sets the prices of models. They determine the cost of answers that report none, and the reservations of money
    /// budgets ([`Limits::cost_micro`]). By default no price is set.
    pub fn prices(mut self, prices: Prices) -> Self {
        self.prices = prices;
        self
    }

    /// Sets context windows of models, replacing those that the models report.
    pub fn context_windows(mut self, windows: Windows) -> Self {
        self.home = self.home.context_windows(windows);
        self
    }

    /// Sets caps on the output tokens of one call, by model. Limits, agents and calls of `subagent` can only lower them.
    pub fn output_tokens(mut self, caps: ByModel) -> Self {
        self.home = self.home.output_tokens(caps);
        self
    }

    /// Sets the limits of every session. The start refuses a limit above [`Options::slots`], which could not take effect.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.home = self.home.limits(limits);
        self
    }

    pub fn policy(mut self, policy: RuleSet) -> Self {
        self.home = self.home.policy(policy);
        self
    }

    /// Adds rules that no policy can widen. All added rules apply.
    pub fn bounds(mut self, rules: RuleSet) -> Self {
        self.home = self.home.bounds(rules);
        self
    }

    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Shares the quotas of providers with other runtimes of this process, instead of using rates of its own.
    pub fn throttles(mut self, throttles: Throttles) -> Self {
        self.throttles = Some(throttles);
        self
    }

    /// Starts model and tool calls only while `lease` is held, and stops the runtime when it ends: another process may take over the store then.
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    pub fn hooks(mut self, hooks: Arc<dyn Hooks>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Sets the dialects that models are offered, with profiles and options; the default is only `task`.
    pub fn dialects(mut self, dialects: Dialects) -> Self {
        self.home = self.home.dialects(dialects);
        self
    }

    /// Sets option values of tools, as [`Environment::tool_options`] does.
    pub fn tool_options(mut self, options: ToolOptions) -> Self {
        self.home = self.home.tool_options(options);
        self
    }

    /// Sets the checkpoints, which keep the earlier contents of files that sessions replace, so that a rollback or a
    /// branch can restore them. Their directory belongs to the store.
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = Some(checkpoints);
        self
    }

    /// Sets the worktrees for sessions with one of their own (`isolation: worktree`). Without them, such a session cannot start.
    pub fn worktrees(mut self, worktrees: Worktrees) -> Self {
        self.worktrees = Some(Arc::new(worktrees));
        self
    }

    /// Receives progress of the boot sweep.
    pub fn on_boot(mut self, progress: impl Fn(BootProgress) + Send + Sync + 'static) -> Self {
        self.on_boot = Box::new(progress);
        self
    }

    /// Starts the runtime: sweeps the runs in flight of an earlier process, then accepts new work.
    /// # Errors
    /// [`StartError`]; the journal is then closed, including the records of the sweep.
    /// # Durability
    /// When this returns, every run that an earlier process left in flight has its end, and every owner its notice.
    pub async fn start(self) -> Result<Runtime, StartError> {
        Ok(self.begin(|_| ()).await?.0)
    }

    /// Starts the runtime as [`Builder::start`] does, with an approver attached: a resumed run (`on_restart: resume`) asks again during the start,
    /// before [`Runtime::approver`] can be called, and would be denied without one.
    /// # Errors, durability
    /// As [`Builder::start`].
    pub async fn start_attended(self) -> Result<(Runtime, Approver), StartError> {
        self.begin(Runtime::approver).await
    }

    /// Starts the runtime, and calls `before_resume` with it before any run resumes.
    async fn begin<A: Send>(
        self,
        before_resume: impl FnOnce(&Runtime) -> A + Send,
    ) -> Result<(Runtime, A), StartError> {
        let on_boot = self.on_boot;
        let throttles = match self.throttles {
            Some(shared) => shared.for_runtime(),
            None => throttles(self.rates, self.named_rates)?,
        };
        self.prices.check().map_err(|(name, bad)| StartError::Price(name, bad))?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => {
                Journal::open(Box::new(subtend_journal::memory::Memory::new()), subtend_journal::Options::default())?
            }
        };
        let checkpoints = self.checkpoints.clone();
        let shared = SharedParts {
            journal: journal.clone(),
            options: self.options.clone(),
            faults: self.faults.clone(),
            approvals: Arc::new(Approvals::default()),
            worktrees: self.worktrees,
            checkpoints: self.checkpoints,
            cached: Arc::default(),
        };
        let home = self.home.agents(shared.clone(), &self.prices, None)?;
        let load_home = self.load_home.map(|load| loading_home(load, shared.clone(), self.prices.clone()));
        let load = self.load.map(|load| loading(load, shared, self.prices.clone()));
        let environments = Environments::new(home, (load, load_home), self.home_root);
        let halt = CancellationToken::new();
        let calls = ModelCalls {
            throttles,
            cooled: tokio::sync::Notify::new(),
            parked: Default::default(),
            prices: self.prices,
            ledger: Ledger::new(),
            budgets: Budgets::default(),
            journal: journal.clone(),
            hooks: self.hooks.clone(),
            halt: halt.clone(),
            lease: self.lease.clone(),
        };
        let (life, log) = (Lifecycle::new(journal.clone(), halt, self.lease), Log::new(journal, self.options.events));
        let clock = Clock::new(self.options.seed.is_some());
        let ids = IdGenerator::new(self.options.seed, clock);
        let host = HostParts { options: self.options, hooks: self.hooks, faults: self.faults, clock, ids };
        let components = Components::new(host, (life, log), (environments, calls));
        // Created before the sweep, so that a start that fails or is dropped ends its actors and tasks.
        let mut runtime = Runtime::new(Arc::clone(&components));
        let met = before_resume(&runtime);
        let booted = async {
            let (saved, journal) = (checkpoints.as_ref(), runtime.journal());
            let found = restores::settle(saved, journal).await;
            let (merged, unmerged) = finish_merges(components.environments.home().worktrees.clone()).await;
            let rows = journal.start_rows()?;
            let (open, has_deleted): (BTreeSet<SessionId>, bool) =
                (rows.inflight.iter().map(|(session, _)| *session).collect(), rows.has_deleted);
            restores::remove_temporary_files(saved, journal, open.clone()).await;
            let mut report = components.recovery.boot(rows, &*on_boot).await?;
            report.restored = found.restored;
            report.merged = merged;
            report.failures.extend(found.failed.map(|why| BootFailure { session: None, why }));
            report.failures.extend(unmerged);
            report.unrecorded = restores::unfinished_writes(saved, journal, open).await;
            if has_deleted {
                runtime.complete_deletions().await?;
            }
            restores::erase_deleted(saved, runtime.journal()).await;
            Ok::<_, BootError>(report)
        };
        match booted.await {
            Ok(report) => {
                runtime.swept(report);
                if let Some(worktrees) = components.environments.home().worktrees.clone() {
                    let life = &components.life;
                    life.tasks.spawn(remove_left_worktrees(worktrees, runtime.journal().clone(), life.halt.clone()));
                }
                Ok((runtime, met))
            }
            Err(error) => {
                runtime.shutdown(std::time::Duration::ZERO).await;
                Err(error.into())
            }
        }
    }
}

fn loading_home(load: Box<HomeLoader>, shared: SharedParts, prices: Prices) -> Box<LoadHome> {
    Box::new(move || {
        let agents = load()?.map(|environment| environment.agents(shared.clone(), &prices, None));
        agents.transpose().map_err(|error| error.to_string())
    })
}

fn loading(load: Box<Loader>, shared: SharedParts, prices: Prices) -> Box<Load> {
    Box::new(move |key| {
        let environment = load(key)?;
        let agents = environment.agents(shared.clone(), &prices, Some(key.workspace.clone()));
        agents.map_err(|error| format!("the workspace {} cannot be used: {error}", key.workspace))
    })
}

fn throttles(rates: Rates, named: Vec<(Text, Rates)>) -> Result<Throttles, StartError> {
    let all = named.iter().map(|(name, rates)| (name.clone(), rates)).chain([("every model".into(), &rates)]);
    for (name, rates) in all {
        rates.check().map_err(|bad| StartError::Rates(name, bad))?;
    }
    Ok(Throttles::new(rates, named))
}
