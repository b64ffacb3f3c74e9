//! The agents of one environment: what their sessions are offered, and what their children are born with.

use std::sync::Arc;

use serde_json::{Map, Value};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_journal::Journal;
use subtend_session::authority::Authority;
use subtend_session::ids::{Interned, Text};
use subtend_session::limits::Limits;
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;

use super::caches::ToolSets;
use crate::approvals::questions::Approvals;
use crate::calls::model_set::ModelSet;
use crate::faults::Faults;
use crate::values::options::Options;

/// What the host gave to make sessions of, and what was made of it. It starts nothing and writes nothing.
pub(crate) struct Agents {
    pub(crate) catalog: Catalog,
    pub(crate) tools: Registry,
    pub(crate) models: Arc<ModelSet>,
    /// The name of the model of sessions whose agent names none.
    pub(crate) default_model: Text,
    /// Servers that its models are called at instead of the providers' own.
    pub(crate) servers: Vec<Text>,
    /// The files that their tools work on.
    pub(crate) workspace: Arc<Workspace>,
    /// The workspace as births record it.
    pub(crate) workspace_name: Text,
    /// Why no session may work here: the environment could not be loaded.
    pub(crate) unusable: Option<Text>,
    pub(crate) limits: Interned<Limits>,
    /// What every session may do at most, whatever its ceiling says.
    pub(crate) policy: Interned<Authority>,
    /// What a policy that a session is opened with cannot widen.
    pub(crate) bounds: Authority,
    pub(crate) offers: ToolSets,
    /// Which dialects sessions are offered, and with what.
    pub(crate) dialects: Dialects,
    /// What persons set of the options of tools.
    pub(crate) tool_options: ToolOptions,
    /// The options of a tool that has none, shared by all calls.
    pub(crate) no_options: Arc<Map<String, Value>>,
    pub(crate) options: Options,
    /// The heads of ancestors, whose rights bound their descendants'.
    pub(crate) journal: Journal,
    pub(crate) faults: Faults,
    /// Whether an approver is attached.
    pub(crate) approvals: Arc<Approvals>,
}

impl Agents {
    /// Those of a workspace whose environment cannot be loaded: they offer nothing, and say why.
    pub(crate) fn unusable(&self, workspace_name: Text, why: &str) -> Self {
        Self {
            catalog: self.catalog.clone(),
            tools: Registry::builder().build(),
            models: Arc::clone(&self.models),
            default_model: self.default_model.clone(),
            servers: Vec::new(),
            workspace: Arc::clone(&self.workspace),
            workspace_name,
            unusable: Some(why.into()),
            limits: self.limits.clone(),
            policy: self.policy.clone(),
            bounds: Authority::deny_all(),
            offers: ToolSets::default(),
            dialects: Dialects::default(),
            tool_options: ToolOptions::new(),
            no_options: Arc::default(),
            options: self.options.clone(),
            journal: self.journal.clone(),
            faults: self.faults.clone(),
            approvals: Arc::clone(&self.approvals),
        }
    }

    /// The bodies of the host's limits.
    pub(crate) fn limits_body(&self) -> Arc<Limits> {
        self.limits.body.clone().unwrap_or_default()
    }
}
