//! The environment of a workspace: files, agents, tools, models and rules.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_agents::instructions::Instructions;
use subtend_agents::skill::Skills;
use subtend_journal::Journal;
use subtend_models::model::{IntoModel, Model};
use subtend_models::models::{ModelSource, Models};
use subtend_models::windows::{ByModel, Windows};
use subtend_session::authority::{Authority, RuleSet};
use subtend_session::ids::{Interned, Text};
use subtend_session::limits::Limits;
use subtend_tools::background::AGENT;
use subtend_tools::checkpoint::Checkpoints;
use subtend_tools::option::ToolOptions;
use subtend_tools::policy::HostPolicy;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;
use subtend_tools::worktree::Worktrees;

use crate::approvals::open_asks::Approvals;
use crate::calls::model_set::ModelSet;
use crate::calls::prices::Prices;
use crate::faults::Faults;
use crate::runtime::limit_changes::within;
use crate::runtime::start_error::StartError;
use crate::spawn::agents::Agents;
use crate::spawn::background;
use crate::spawn::caches::{CachedBytes, ToolSets};
use crate::spawn::tool_options;
use crate::values::answering::pool_name;
use crate::values::options::Options;

/// The environment of a workspace's sessions. A runtime is built with one, and loads those of other workspaces at their first use
/// ([`Builder::environments`](crate::builder::Builder::environments)).
#[derive(Clone)]
#[must_use = "an environment does nothing until a runtime has it"]
pub struct Environment {
    workspace: Option<Arc<Workspace>>,
    catalog: Option<Catalog>,
    tools: Option<Registry>,
    models: HashMap<Text, Arc<dyn Model>>,
    source: Option<Arc<ModelSource>>,
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
    instructions: Instructions,
    skills: Skills,
    tool_options: ToolOptions,
    version: Option<u64>,
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
            instructions: Instructions::default(),
            skills: Skills::default(),
            tool_options: ToolOptions::new(),
            version: None,
        }
    }
}

impl Environment {
    /// Sets the version of what was loaded. Sessions for which a loader returns the same key and version share the first
    /// environment, so a loader must change the version with everything that it reads. By default none are shared.
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the directory in which tools work; the default is the current directory.
    pub fn workspace(mut self, workspace: impl Into<Arc<Workspace>>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// Sets the agents; the default is the built-in agents.
    pub fn catalog(mut self, catalog: Catalog) -> Self {
        self.catalog = Some(catalog);
        self
    }

    /// Sets the tools; by default there are no tools.
    pub fn tools(mut self, tools: Registry) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Sets the model that answers for every model name that is not set otherwise.
    pub fn model(mut self, model: impl IntoModel) -> Self {
        self.fallback = Some(model.into_model());
        self
    }

    pub fn named_model(mut self, name: impl Into<Text>, model: impl IntoModel) -> Self {
        self.models.insert(name.into(), model.into_model());
        self
    }

    /// Sets a source of models for names without a model of their own, such as `anthropic/…`.
    pub fn model_source(mut self, source: impl Fn(&str) -> Option<Arc<dyn Model>> + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Adds a pool: `pool:NAME` means these models, called in this order. After a failure the next one is called at once, and the failed one is
    /// skipped for a while.
    pub fn pool<M: Into<Text>>(mut self, name: &str, models: impl IntoIterator<Item = M>) -> Self {
        self.pools.push((pool_name(name), models.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the model or pool (`pool:NAME`) of sessions whose agent does not name one; the default is [`Environment::model`].
    pub fn default_model(mut self, name: impl Into<Text>) -> Self {
        self.default_model = Some(name.into());
        self
    }

    /// Sets the servers that replace those of the providers. Sessions record them.
    pub fn servers(mut self, servers: impl IntoIterator<Item = Text>) -> Self {
        self.servers = servers.into_iter().collect();
        self
    }

    /// Sets context windows of models, replacing those that the models report.
    pub fn context_windows(mut self, windows: Windows) -> Self {
        self.windows = windows;
        self
    }

    /// Sets caps on the output tokens of one call, by model. Limits, agents and calls of `subagent` can only lower them.
    pub fn output_tokens(mut self, caps: ByModel) -> Self {
        self.caps = caps;
        self
    }

    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the policy of root sessions, which bounds the policy of each session.
    pub fn policy(mut self, policy: RuleSet) -> Self {
        self.policy = policy;
        self
    }

    /// Adds rules that no policy can widen, neither this one nor a session's own. All added rules apply.
    pub fn bounds(mut self, rules: RuleSet) -> Self {
        self.bounds = self.bounds.meet(&Authority::of(rules));
        self
    }

    /// Sets the dialects that models are offered, with profiles and options; the default is only `task`.
    pub fn dialects(mut self, dialects: Dialects) -> Self {
        self.dialects = dialects;
        self
    }

    /// Sets the instruction files in the prompts of sessions; by default there are no files. A session records those in its prompt.
    pub fn instructions(mut self, instructions: Instructions) -> Self {
        self.instructions = instructions;
        self
    }

    /// Sets the skills that prompts list, for sessions that are offered the tool `skill`; by default there are no skills.
    pub fn skills(mut self, skills: Skills) -> Self {
        self.skills = skills;
        self
    }

    /// Sets option values of tools, by tool name and option id; missing ones get defaults. The options of `minion` are set by its dialect
    /// ([`Environment::dialects`]).
    pub fn tool_options(mut self, options: ToolOptions) -> Self {
        self.tool_options = options;
        self
    }
}

#[derive(Clone)]
pub(crate) struct SharedParts {
    pub(crate) journal: Journal,
    pub(crate) options: Options,
    pub(crate) faults: Faults,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) worktrees: Option<Arc<Worktrees>>,
    pub(crate) checkpoints: Option<Checkpoints>,
    pub(crate) cached: Arc<CachedBytes>,
}

impl Environment {
    /// Builds the agents of sessions. Their creation records name the workspace as `workspace_name`, or by its path if `None`.
    pub(crate) fn agents(
        self,
        shared: SharedParts,
        prices: &Prices,
        workspace_name: Option<Text>,
    ) -> Result<Agents, StartError> {
        self.limits.check()?;
        within(&self.limits, shared.options.slots)?;
        let (models, default_model) = models(self.models, self.source, self.fallback, self.default_model, &self.pools)?;
        let unpriced = self.limits.cost_micro.and_then(|_| prices.unpriced_model(&models, &default_model));
        if let Some(model) = unpriced {
            return Err(StartError::NoPrice(model));
        }
        let models = ModelSet { models, windows: self.windows, caps: self.caps };
        if models.lacks_window(&self.limits, &default_model) {
            return Err(StartError::NoWindow(default_model));
        }
        let tools = self.tools.unwrap_or_else(|| Registry::builder().build());
        tool_options::check(&tools, &self.tool_options, &self.dialects.minion)?;
        let workspace = match self.workspace {
            Some(workspace) => workspace,
            None => Arc::new(Workspace::open(PathBuf::from("."))?),
        };
        let temporary = HostPolicy::denied_temporary_files(workspace.path())?;
        let bounds = if temporary.rules.is_empty() { self.bounds } else { self.bounds.meet(&Authority::of(temporary)) };
        let SharedParts { journal, options, faults, approvals, worktrees, checkpoints, cached } = shared;
        let mut catalog = self.catalog.unwrap_or_else(Catalog::builtin);
        background::add(&mut catalog, &tools);
        Ok(Agents {
            catalog: Arc::new(catalog),
            tools,
            models: Arc::new(models),
            default_model,
            servers: self.servers,
            workspace_name: workspace_name.unwrap_or_else(|| workspace.path().to_string_lossy().into()),
            workspace,
            worktrees,
            checkpoints,
            unusable: None,
            limits: Interned::new(Arc::new(self.limits))?,
            policy: Interned::new(Arc::new(Authority::of(self.policy).meet(&bounds)))?,
            bounds,
            offers: ToolSets::new(&cached),
            dialects: self.dialects,
            instructions: Arc::new(self.instructions),
            skills: Arc::new(self.skills),
            tool_options: self.tool_options,
            version: self.version,
            no_options: Arc::default(),
            options,
            journal,
            faults,
            approvals,
        })
    }
}

/// Returns the models, and the name for sessions whose agent does not name one.
fn models(
    mut named: HashMap<Text, Arc<dyn Model>>,
    source: Option<Arc<ModelSource>>,
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
    named.insert(AGENT.into(), Arc::new(background::ProcessModel));
    let mut models = Models::new(named, source, fallback);
    for (name, members) in pools {
        models.add_pool(name, members)?;
    }
    Ok((models, default))
}
