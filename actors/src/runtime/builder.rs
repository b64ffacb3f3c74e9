//! The builder of a runtime.

use std::sync::Arc;

use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_journal::Journal;
use subtend_models::model::{IntoModel, Model};
use subtend_models::throttle::{Rates, Throttles};
use subtend_models::windows::{ByModel, Windows};
use subtend_session::authority::RuleSet;
use subtend_session::ids::Text;
use subtend_session::limits::Limits;
use subtend_supervision::{Budgets, Ledger};
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;
use tokio_util::sync::CancellationToken;

use crate::approvals::Approver;
use crate::approvals::questions::Approvals;
use crate::calls::model_calls::ModelCalls;
use crate::calls::prices::Prices;
use crate::clock::{Clock, IdGenerator};
use crate::faults::Faults;
use crate::hooks::Hooks;
use crate::host::Host;
use crate::life::Life;
use crate::log::Log;
use crate::recovery::boot::{BootError, BootProgress};
use crate::runtime::Runtime;
use crate::runtime::environment::{Environment, Shared};
use crate::runtime::rooms::Rooms;
use crate::runtime::start_error::StartError;
use crate::spawn::environments::{Environments, Load};
use crate::values::environment_key::EnvironmentKey;
use crate::values::options::Options;

/// Loads the environment of a workspace; the error says why it cannot.
type Loader = dyn Fn(&EnvironmentKey) -> Result<Environment, String> + Send + Sync;

/// What a runtime is made of. Everything has a default but the model.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    journal: Option<Journal>,
    home: Environment,
    load: Option<Box<Loader>>,
    rates: Rates,
    named_rates: Vec<(Text, Rates)>,
    prices: Prices,
    options: Options,
    faults: Faults,
    hooks: Option<Arc<dyn Hooks>>,
    on_boot: Box<dyn Fn(BootProgress) + Send + Sync>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            journal: None,
            home: Environment::default(),
            load: None,
            rates: Rates::default(),
            named_rates: Vec::new(),
            prices: Prices::new(),
            options: Options::default(),
            faults: Faults::default(),
            hooks: None,
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

    /// The environment of sessions that are opened without a workspace, in place of what was said of it so far. The builder's own
    /// methods change parts of it.
    pub fn environment(mut self, home: Environment) -> Self {
        self.home = home;
        self
    }

    /// Loads the environments of other workspaces: when a session is opened in one ([`OpenOptions::workspace`]), and when a session
    /// that was opened in one is first used. Without it every session works in the runtime's own environment.
    ///
    /// `load` reads files and calls nothing of the runtime. Where it fails, the error names the workspace and what to do: opening is
    /// refused with it, and so is every input to sessions there.
    ///
    /// [`OpenOptions::workspace`]: crate::OpenOptions::workspace
    pub fn environments(
        mut self,
        load: impl Fn(&EnvironmentKey) -> Result<Environment, String> + Send + Sync + 'static,
    ) -> Self {
        self.load = Some(Box::new(load));
        self
    }

    /// The directory that tools work in; the current one if not given.
    pub fn workspace(mut self, workspace: impl Into<Arc<Workspace>>) -> Self {
        self.home = self.home.workspace(workspace);
        self
    }

    /// The agents; the built-in ones if not given.
    pub fn catalog(mut self, catalog: Catalog) -> Self {
        self.home = self.home.catalog(catalog);
        self
    }

    /// The tools; none if not given.
    pub fn tools(mut self, tools: Registry) -> Self {
        self.home = self.home.tools(tools);
        self
    }

    /// The model that answers for every name without a model of its own.
    pub fn model(mut self, model: impl IntoModel) -> Self {
        self.home = self.home.model(model);
        self
    }

    /// The model of one name.
    pub fn named_model(mut self, name: impl Into<Text>, model: impl IntoModel) -> Self {
        self.home = self.home.named_model(name, model);
        self
    }

    /// Makes models on demand, of names that have none of their own: of providers', such as `anthropic/…`.
    pub fn model_source(mut self, source: impl Fn(&str) -> Option<Arc<dyn Model>> + Send + Sync + 'static) -> Self {
        self.home = self.home.model_source(source);
        self
    }

    /// A pool: the name `pool:NAME` stands for these models. They are asked in this order: where one fails, the next is asked
    /// at once, and one that is known to be unwell is passed over for a while.
    pub fn pool<M: Into<Text>>(mut self, name: &str, models: impl IntoIterator<Item = M>) -> Self {
        self.home = self.home.pool(name, models);
        self
    }

    /// The model or pool (`pool:NAME`) of sessions whose agent names none; [`Builder::model`] if not given.
    pub fn default_model(mut self, name: impl Into<Text>) -> Self {
        self.home = self.home.default_model(name);
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
        self.home = self.home.context_windows(windows);
        self
    }

    /// Caps on the output tokens of one call, by model (B18). Limits, agents and calls of `subagent` can only lower them.
    pub fn output_tokens(mut self, caps: ByModel) -> Self {
        self.home = self.home.output_tokens(caps);
        self
    }

    /// Limits of every session.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.home = self.home.limits(limits);
        self
    }

    /// What root sessions may do at most.
    pub fn policy(mut self, policy: RuleSet) -> Self {
        self.home = self.home.policy(policy);
        self
    }

    /// What root sessions may do at most besides: a policy allows nothing that these rules do not. Given again, all hold.
    pub fn bounds(mut self, rules: RuleSet) -> Self {
        self.home = self.home.bounds(rules);
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
        self.home = self.home.dialects(dialects);
        self
    }

    /// Values of the options that tools declare, by the tool's name and the option's id; those that are left out are filled in.
    /// The options of `minion` are among its dialect's ([`Builder::dialects`]).
    pub fn tool_options(mut self, options: ToolOptions) -> Self {
        self.home = self.home.tool_options(options);
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
        let on_boot = self.on_boot;
        let throttles = throttles(self.rates, self.named_rates)?;
        self.prices.check().map_err(|(name, bad)| StartError::Price(name, bad))?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => {
                Journal::open(Box::new(subtend_journal::memory::Memory::new()), subtend_journal::Options::default())?
            }
        };
        let shared = Shared {
            journal: journal.clone(),
            options: self.options.clone(),
            faults: self.faults.clone(),
            approvals: Arc::new(Approvals::default()),
        };
        let home = self.home.agents(shared.clone(), &self.prices, None)?;
        let load = self.load.map(|load| loading(load, shared, self.prices.clone()));
        let environments = Environments::new(home, load);
        let halt = CancellationToken::new();
        let calls = ModelCalls {
            throttles,
            cooled: tokio::sync::Notify::new(),
            prices: self.prices,
            ledger: Ledger::new(),
            budgets: Budgets::default(),
            journal: journal.clone(),
            hooks: self.hooks.clone(),
            halt: halt.clone(),
        };
        let (life, log) = (Life::new(journal.clone(), halt), Log::new(journal, self.options.events));
        let clock = Clock::new(self.options.seed.is_some());
        let ids = IdGenerator::new(self.options.seed, clock);
        let host = Host { options: self.options, hooks: self.hooks, faults: self.faults, clock, ids };
        let rooms = Rooms::new(host, (life, log), (environments, calls));
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

/// Makes the agents of the environments that `load` loads.
fn loading(load: Box<Loader>, shared: Shared, prices: Prices) -> Box<Load> {
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
