//! What the sessions of one workspace have: files, agents, tools, models and rules.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_journal::Journal;
use subtend_models::model::{IntoModel, Model};
use subtend_models::models::{Models, Source};
use subtend_models::windows::{ByModel, Windows};
use subtend_session::authority::{Authority, RuleSet};
use subtend_session::ids::{Interned, Text};
use subtend_session::limits::Limits;
use subtend_tools::option::ToolOptions;
use subtend_tools::policy::HostPolicy;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;

use crate::approvals::questions::Approvals;
use crate::calls::model_set::ModelSet;
use crate::calls::prices::Prices;
use crate::faults::Faults;
use crate::runtime::start_error::StartError;
use crate::spawn::agents::Agents;
use crate::spawn::caches::ToolSets;
use crate::spawn::tool_options;
use crate::values::answering::pool_name;
use crate::values::options::Options;

/// What the sessions of one workspace have. A runtime is built with one, and loads those of other workspaces when a session of
/// them is first used ([`Builder::environments`](crate::builder::Builder::environments)).
#[must_use = "an environment does nothing until a runtime has it"]
pub struct Environment {
    workspace: Option<Arc<Workspace>>,
    catalog: Option<Catalog>,
    tools: Option<Registry>,
    models: HashMap<Text, Arc<dyn Model>>,
    source: Option<Arc<Source>>,
    pools: Vec<(Text, Vec<Text>)>,
    default_model: Option<Text>,
    servers: Vec<Text>,
    fallback: Option<Arc<dyn Model>>,
    windows: Windows,
    caps: ByModel,
    limits: Limits,
    policy: RuleSet,
    bounds: Authority,
    dialects: Dialects,
    tool_options: ToolOptions,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            workspace: None,
            catalog: None,
            tools: None,
            models: HashMap::new(),
            source: None,
            pools: Vec::new(),
            default_model: None,
            servers: Vec::new(),
            fallback: None,
            windows: Windows::default(),
            caps: ByModel::default(),
            limits: Limits::default(),
            policy: HostPolicy::default_for_workspace(),
            bounds: Authority::allow_all(),
            dialects: Dialects::default(),
            tool_options: ToolOptions::new(),
        }
    }
}

impl Environment {
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

    /// A pool: the name `pool:NAME` stands for these models. They are tried in this order: where one fails, the next is called
    /// at once, and one that failed lately is passed over for a while.
    pub fn pool<M: Into<Text>>(mut self, name: &str, models: impl IntoIterator<Item = M>) -> Self {
        self.pools.push((pool_name(name), models.into_iter().map(Into::into).collect()));
        self
    }

    /// The model or pool (`pool:NAME`) of sessions whose agent names none; [`Environment::model`] if not given.
    pub fn default_model(mut self, name: impl Into<Text>) -> Self {
        self.default_model = Some(name.into());
        self
    }

    /// Servers that its models are called at instead of the providers' own, as sessions opened in it record them.
    pub fn servers(mut self, servers: impl IntoIterator<Item = Text>) -> Self {
        self.servers = servers.into_iter().collect();
        self
    }

    /// Context windows of models, in place of those that they report themselves.
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

    /// What root sessions may do at most, whatever they were opened with.
    pub fn policy(mut self, policy: RuleSet) -> Self {
        self.policy = policy;
        self
    }

    /// Further rules that no policy widens, neither this one nor a session's own. Given again, all hold.
    pub fn bounds(mut self, rules: RuleSet) -> Self {
        self.bounds = self.bounds.meet(&Authority::of(rules));
        self
    }

    /// Which families of tools for children models are offered, and with what: profiles, options. `task` alone if not given.
    pub fn dialects(mut self, dialects: Dialects) -> Self {
        self.dialects = dialects;
        self
    }

    /// Values of the options that tools declare, by the tool's name and the option's id; missing ones are filled in.
    /// The options of `minion` are among its dialect's ([`Environment::dialects`]).
    pub fn tool_options(mut self, options: ToolOptions) -> Self {
        self.tool_options = options;
        self
    }
}

/// What all environments of a runtime share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) options: Options,
    pub(crate) faults: Faults,
    pub(crate) approvals: Arc<Approvals>,
}

impl Environment {
    /// Makes the agents of sessions whose births record `workspace_name`, or the path of the workspace.
    pub(crate) fn agents(
        self,
        shared: Shared,
        prices: &Prices,
        workspace_name: Option<Text>,
    ) -> Result<Agents, StartError> {
        self.limits.check()?;
        let (models, default_model) = models(self.models, self.source, self.fallback, self.default_model, &self.pools)?;
        let lacking = self.limits.cost_micro.and_then(|_| prices.lacking(&models, &default_model));
        if let Some(model) = lacking {
            return Err(StartError::NoPrice(model));
        }
        let tools = self.tools.unwrap_or_else(|| Registry::builder().build());
        tool_options::check(&tools, &self.tool_options, &self.dialects.minion)?;
        let workspace = match self.workspace {
            Some(workspace) => workspace,
            None => Arc::new(Workspace::open(PathBuf::from("."))?),
        };
        let Shared { journal, options, faults, approvals } = shared;
        Ok(Agents {
            catalog: self.catalog.unwrap_or_else(Catalog::builtin),
            tools,
            models: Arc::new(ModelSet { models, windows: self.windows, caps: self.caps }),
            default_model,
            servers: self.servers,
            workspace_name: workspace_name.unwrap_or_else(|| workspace.path().to_string_lossy().into()),
            workspace,
            unusable: None,
            limits: Interned::new(Arc::new(self.limits))?,
            policy: Interned::new(Arc::new(Authority::of(self.policy).meet(&self.bounds)))?,
            bounds: self.bounds,
            offers: ToolSets::default(),
            dialects: self.dialects,
            tool_options: self.tool_options,
            no_options: Arc::default(),
            options,
            journal,
            faults,
            approvals,
        })
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
