//! The one place where the command line meets the runtime.

use std::sync::Arc;
use std::time::Duration;

use subtend_actors::builder::Builder;
use subtend_actors::prices::Prices;
use subtend_actors::{OpenSessionError, Runtime, SendError, SessionHandle, StartError, WaitError};
use subtend_agents::catalog::Catalog;
use subtend_session::authority::{Authority, RuleSet, Verdict};
use subtend_session::limits::Limits;
use subtend_tools::registry::Registry;
use subtend_tools::tool::Tool;
use subtend_tools::workspace::Workspace;

use super::super::data::Place;
use super::super::fail::Fail;
use super::super::guard;
use super::choice::Choice;

/// What a runtime is made of.
pub(crate) struct Parts {
    pub(crate) place: Place,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) catalog: Catalog,
    pub(crate) tools: Registry,
    pub(crate) models: Choice,
    pub(crate) prices: Prices,
    pub(crate) limits: Limits,
    pub(crate) policy: RuleSet,
}

/// The tools of the workspace.
pub(crate) fn tools() -> Result<Registry, Fail> {
    let guard = guard::guard().map_err(|error| {
        Fail::Other(format!("the running program cannot be found, so no command could be guarded: {error}"))
    })?;
    let tools = Registry::builder()
        .tools(Registry::workspace_tools(Some(guard)))
        .map_err(|error| Fail::Other(format!("the tools do not fit together: {error}")))?;
    Ok(tools.build())
}

/// Why tools whose own action is allowed are not offered all the same.
pub(super) fn withheld(tools: &Registry, policy: &RuleSet) -> Vec<String> {
    let authority = Authority::of(policy.clone());
    let allowed = |tool: &Arc<dyn Tool>| tool.access(None).iter().all(|of| authority.verdict(of) == Verdict::Allow);
    let all = tools.names().filter_map(|name| tools.get(name));
    all.filter(|tool| allowed(tool)).filter_map(|tool| tool.ruled_out(&authority)).map(|why| why.to_string()).collect()
}

/// Starts the runtime: opens the store and ends what an earlier process left in flight.
pub(crate) async fn start(parts: Parts) -> Result<Runtime, Fail> {
    let journal = parts.place.open()?;
    let builder = Runtime::builder()
        .journal(journal)
        .workspace(parts.workspace)
        .catalog(parts.catalog)
        .tools(parts.tools)
        .policy(parts.policy)
        .prices(parts.prices)
        .limits(parts.limits);
    begin(parts.models.give(builder)).await
}

/// Starts what was built.
pub(crate) async fn begin(builder: Builder) -> Result<Runtime, Fail> {
    builder.start().await.map_err(|error| match error {
        StartError::Journal(error) => Fail::from(error),
        StartError::Boot(error) => Fail::Store(error.to_string()),
        StartError::Limits(_)
        | StartError::Pool(_)
        | StartError::Rates(..)
        | StartError::Price(..)
        | StartError::NoPrice(_)
        | StartError::NoSuchDefault(_) => Fail::Usage(error.to_string()),
        StartError::NoModel | StartError::Workspace(_) | StartError::Supervisors(_) | StartError::Unrecordable(_) => {
            Fail::Other(error.to_string())
        }
    })
}

/// Opens a session of `agent`.
pub(crate) fn open(runtime: &Runtime, agent: &str) -> Result<SessionHandle, Fail> {
    runtime.open(agent).map_err(|error| match &error {
        OpenSessionError::UnknownAgent { .. } | OpenSessionError::NotPrimary { .. } => {
            Fail::Usage(format!("{error} (--agent NAME; `subtend agents` tells more)"))
        }
        OpenSessionError::UnknownPool(_) | OpenSessionError::NoPrice(_) | OpenSessionError::Limits(_) => {
            Fail::Usage(error.to_string())
        }
        OpenSessionError::Stopped | OpenSessionError::Unrecordable(_) | OpenSessionError::Journal(_) => {
            Fail::Other(error.to_string())
        }
    })
}

/// Ends everything within `grace`.
pub(crate) async fn shut_down(runtime: Runtime, grace: Duration) {
    runtime.shutdown(grace).await;
}

impl From<SendError> for Fail {
    fn from(error: SendError) -> Self {
        match &error {
            SendError::BadInput(_) => Self::Usage(error.to_string()),
            SendError::Busy { .. } | SendError::Stopped(_) | SendError::Refused(_) => Self::Other(error.to_string()),
        }
    }
}

impl From<WaitError> for Fail {
    fn from(error: WaitError) -> Self {
        Self::Other(error.to_string())
    }
}
