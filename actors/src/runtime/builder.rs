//! The builder of a runtime.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_journal::{Journal, OpenError};
use subtend_models::model::{IntoModel, Model};
use subtend_models::models::{BadPool, Models, Source};
use subtend_models::throttle::{BadRates, Rates, Throttles};
use subtend_models::windows::{ByModel, Windows};
use subtend_session::authority::{Authority, RuleSet};
use subtend_session::ids::{Interned, Text};
use subtend_session::limits::{BadLimit, Limits};
use subtend_supervision::{Budgets, Ledger};
use subtend_tools::option::ToolOptions;
use subtend_tools::policy::HostPolicy;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::{Workspace, WorkspaceError};
use tokio_util::sync::CancellationToken;

use crate::approvals::Approver;
use crate::approvals::questions::Approvals;
use crate::calls::model_calls::ModelCalls;
use crate::calls::prices::{BadPrice, Prices};
use crate::clock::{Clock, IdGenerator};
use crate::faults::Faults;
use crate::hooks::Hooks;
use crate::host::Host;
use crate::life::Life;
use crate::log::Log;
use crate::recovery::boot::{BootError, BootProgress};
use crate::runtime::Runtime;
use crate::runtime::rooms::Rooms;
use crate::spawn::agents::Agents;
use crate::spawn::caches::ToolSets;
use crate::spawn::tool_options::{self, BadToolOptions};
use crate::values::answering::pool_name;
use crate::values::options::Options;

/// What a runtime is made of. Everything has a default but the model.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    journal: Option<Journal>,
    workspace: Option<Arc<Workspace>>,
    catalog: Option<Catalog>,
    tools: Option<Registry>,
    models: HashMap<Text, Arc<dyn Model>>,
    source: Option<Arc<Source>>,
    pools: Vec<(Text, Vec<Text>)>,
    default_model: Option<Text>,
    fallback: Option<Arc<dyn Model>>,
    rates: Rates,
    named_rates: Vec<(Text, Rates)>,
    prices: Prices,
    windows: Windows,
    caps: ByModel,
    limits: Limits,
    policy: RuleSet,
    bounds: Authority,
    options: Options,
    faults: Faults,
    hooks: Option<Arc<dyn Hooks>>,
    dialects: Dialects,
    tool_options: ToolOptions,
    on_boot: Box<dyn Fn(BootProgress) + Send + Sync>,
}

/// Why a runtime did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No model was given.
    #[error("a runtime needs a model: give one with `model`, or name one with `default_model`")]
    NoModel,
    /// Limits under which nothing could be done.
    #[error(transparent)]
    Limits(#[from] BadLimit),
    /// A pool cannot be used.
    #[error(transparent)]
    Pool(#[from] BadPool),
    /// There is no model, and no pool, of the default's name.
    #[error("there is no model or pool {0:?}, which sessions are to use by default")]
    NoSuchDefault(Text),
    /// Rates that let nothing through.
    #[error("the rates of {0:?} cannot be used: {1}")]
    Rates(Text, #[source] BadRates),
    /// A price that cannot be reckoned with.
    #[error("the price of {0:?} cannot be used: {1}")]
    Price(Text, #[source] BadPrice),
    /// Money is limited, and nobody knows what the default model costs.
    #[error(
        "money is limited (cost_micro), and the model `{0}` has no price: give it one with `prices`, or limit tokens instead"
    )]
    NoPrice(Text),
    /// Options of a tool cannot be used.
    #[error(transparent)]
    ToolOptions(#[from] BadToolOptions),
    /// The journal could not be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The workspace could not be opened.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
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
            source: None,
            pools: Vec::new(),
            default_model: None,
            fallback: None,
            rates: Rates::default(),
            named_rates: Vec::new(),
            prices: Prices::new(),
            windows: Windows::default(),
            caps: ByModel::default(),
            limits: Limits::default(),
            policy: HostPolicy::default_for_workspace(),
            bounds: Authority::allow_all(),
            options: Options::default(),
            faults: Faults::default(),
            hooks: None,
            dialects: Dialects::default(),
            tool_options: ToolOptions::new(),
            on_boot: Box::new(|_| ()),
        }
    }
}

impl Runtime {
    /// What a runtime is made of.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Where everything is recorded; in memory if not given.
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// The directory that tools work in; the current one if not given.
    pub fn workspace(mut self, workspace: impl Into<Arc<Workspace>>) -> Self {
        self.workspace = Some(workspace.into());
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
    pub fn model(mut self, model: impl IntoModel) -> Self {
        self.fallback = Some(model.into_model());
        self
    }

    /// The model of one name.
    pub fn named_model(mut self, name: impl Into<Text>, model: impl IntoModel) -> Self {
        self.models.insert(name.into(), model.into_model());
        self
    }

    /// Makes models on demand, of names that have none of their own: of providers', such as `anthropic/…`.
    pub fn model_source(mut self, source: impl Fn(&str) -> Option<Arc<dyn Model>> + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// A pool: the name `pool:NAME` stands for these models. They are asked in this order: where one fails, the next is asked
    /// at once, and one that is known to be unwell is passed over for a while.
    pub fn pool<M: Into<Text>>(mut self, name: &str, models: impl IntoIterator<Item = M>) -> Self {
        self.pools.push((pool_name(name), models.into_iter().map(Into::into).collect()));
        self
    }

    /// The model or pool (`pool:NAME`) of sessions whose agent names none; [`Builder::model`] if not given.
    pub fn default_model(mut self, name: impl Into<Text>) -> Self {
        self.default_model = Some(name.into());
        self
    }

    /// What calls of one model may do, and what all calls of one provider may do, where nothing else is said for it.
    pub fn rates(mut self, rates: Rates) -> Self {
        self.rates = rates;
        self
    }

    /// What calls under `quota` may do: `PROVIDER/MODEL`, or `PROVIDER` for all of its models together.
    pub fn rates_of(mut self, quota: impl Into<Text>, rates: Rates) -> Self {
        self.named_rates.push((quota.into(), rates));
        self
    }

    /// What models cost. Answers that do not say what they cost are given it by their tokens, and budgets of money
    /// ([`Limits::cost_micro`]) are reserved by it; none if not given.
    pub fn prices(mut self, prices: Prices) -> Self {
        self.prices = prices;
        self
    }

    /// Context windows of models, in place of those that they tell themselves.
    pub fn context_windows(mut self, windows: Windows) -> Self {
        self.windows = windows;
        self
    }

    /// Caps on the output tokens of one call, by model (B18). Limits, agents and calls of `subagent` can only lower them.
    pub fn output_tokens(mut self, caps: ByModel) -> Self {
        self.caps = caps;
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

    /// What root sessions may do at most besides: a policy allows nothing that these rules do not. Given again, all hold.
    pub fn bounds(mut self, rules: RuleSet) -> Self {
        self.bounds = self.bounds.meet(&Authority::of(rules));
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

    /// The host's own code where the course of a session can be changed; none if not given.
    pub fn hooks(mut self, hooks: Arc<dyn Hooks>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Which families of tools for children models are offered, and with what: profiles, options. `task` alone if not given.
    pub fn dialects(mut self, dialects: Dialects) -> Self {
        self.dialects = dialects;
        self
    }

    /// Values of the options that tools declare, by the tool's name and the option's id; those that are left out are filled in.
    /// The options of `minion` are among its dialect's ([`Builder::dialects`]).
    pub fn tool_options(mut self, options: ToolOptions) -> Self {
        self.tool_options = options;
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
        Ok(self.begin(|_| ()).await?.0)
    }

    /// Starts the runtime as [`Builder::start`] does, with somebody who can give a person's word from the first moment on: a run that
    /// goes on (`on_restart: resume`) asks for it again within the start, where nobody had yet called [`Runtime::approver`] and it would
    /// be denied.
    ///
    /// # Errors
    /// As [`Builder::start`].
    ///
    /// # Durability
    /// As [`Builder::start`].
    pub async fn start_attended(self) -> Result<(Runtime, Approver), StartError> {
        self.begin(Runtime::approver).await
    }

    /// Starts it; `meet` is given the runtime before anything goes on in it.
    async fn begin<A: Send>(self, meet: impl FnOnce(&Runtime) -> A + Send) -> Result<(Runtime, A), StartError> {
        self.limits.check()?;
        let on_boot = self.on_boot;
        let (models, default_model) = models(self.models, self.source, self.fallback, self.default_model, &self.pools)?;
        let throttles = throttles(self.rates, self.named_rates)?;
        self.prices.check().map_err(|(name, bad)| StartError::Price(name, bad))?;
        let lacking = self.limits.cost_micro.and_then(|_| self.prices.lacking(&models, &default_model));
        if let Some(model) = lacking {
            return Err(StartError::NoPrice(model));
        }
        let tools = self.tools.unwrap_or_else(|| Registry::builder().build());
        tool_options::check(&tools, &self.tool_options, &self.dialects.minion)?;
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
        let approvals = Arc::new(Approvals::default());
        let (models, halt) = (Arc::new(models), CancellationToken::new());
        let agents = Agents {
            catalog: self.catalog.unwrap_or_else(Catalog::builtin),
            tools,
            models: Arc::clone(&models),
            default_model,
            workspace_path: workspace.path().to_path_buf(),
            limits: Interned::new(Arc::new(self.limits))?,
            policy: Interned::new(Arc::new(Authority::of(self.policy).meet(&self.bounds)))?,
            offers: ToolSets::default(),
            dialects: self.dialects,
            tool_options: self.tool_options,
            no_options: Arc::default(),
            options: self.options.clone(),
            journal: journal.clone(),
            faults: self.faults.clone(),
            approvals,
        };
        let calls = ModelCalls {
            models,
            throttles,
            cooled: tokio::sync::Notify::new(),
            prices: self.prices,
            windows: self.windows,
            caps: self.caps,
            ledger: Ledger::new(),
            budgets: Budgets::default(),
            journal: journal.clone(),
            hooks: self.hooks.clone(),
            halt: halt.clone(),
        };
        let (life, log) = (Life::new(journal.clone(), halt), Log::new(journal, self.options.events));
        let clock = Clock::new(self.options.seed.is_some());
        let ids = IdGenerator::new(self.options.seed, clock);
        let host = Host { options: self.options, workspace, hooks: self.hooks, faults: self.faults, clock, ids };
        let rooms = Rooms::new(host, (life, log), (agents, calls));
        // Before the sweep: one that fails, or is given up on the way, has actors and tasks to end.
        let mut runtime = Runtime::new(Arc::clone(&rooms));
        let met = meet(&runtime);
        let booted = async {
            let report = rooms.recovery.boot(&*on_boot).await?;
            runtime.complete_deletions().await?;
            Ok::<_, BootError>(report)
        };
        match booted.await {
            Ok(report) => {
                runtime.swept(report);
                Ok((runtime, met))
            }
            Err(error) => {
                runtime.shutdown(std::time::Duration::ZERO).await;
                Err(error.into())
            }
        }
    }
}

/// The models, and the name that stands for sessions without one of their own.
fn models(
    named: HashMap<Text, Arc<dyn Model>>,
    source: Option<Arc<Source>>,
    fallback: Option<Arc<dyn Model>>,
    default: Option<Text>,
    pools: &[(Text, Vec<Text>)],
) -> Result<(Models, Text), StartError> {
    let known = |name: &Text| named.get(name).cloned().or_else(|| source.as_ref().and_then(|source| source(name)));
    let first = |name: &Text| {
        let pool = pools.iter().find(|(pool, _)| pool == name);
        pool.map_or_else(|| known(name), |(_, members)| members.first().and_then(known))
    };
    let fallback = match (fallback, &default) {
        (Some(model), None) => model,
        (given, Some(default)) => {
            let named = first(default).ok_or_else(|| StartError::NoSuchDefault(default.clone()))?;
            given.unwrap_or(named)
        }
        (None, None) => return Err(StartError::NoModel),
    };
    let default = default.unwrap_or_else(|| fallback.name().into());
    let mut models = Models::new(named, source, fallback);
    for (name, members) in pools {
        models.add_pool(name, members)?;
    }
    Ok((models, default))
}

fn throttles(rates: Rates, named: Vec<(Text, Rates)>) -> Result<Throttles, StartError> {
    let all = named.iter().map(|(name, rates)| (name.clone(), rates)).chain([("every model".into(), &rates)]);
    for (name, rates) in all {
        rates.check().map_err(|bad| StartError::Rates(name, bad))?;
    }
    Ok(Throttles::new(rates, named))
}
