//! The agents of a runtime: what their sessions are offered, and what their children are born with.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_journal::Journal;
use subtend_models::models::Models;
use subtend_session::authority::Authority;
use subtend_session::ids::{Interned, Text};
use subtend_session::limits::Limits;
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::Registry;

use super::caches::ToolSets;
use crate::approvals::questions::Approvals;
use crate::faults::Faults;
use crate::values::options::Options;

/// What the host gave to make sessions of, and what was made of it. It starts nothing and writes nothing.
pub(crate) struct Agents {
    pub(crate) catalog: Catalog,
    pub(crate) tools: Registry,
    pub(crate) models: Arc<Models>,
    /// The name of the model of sessions whose agent names none.
    pub(crate) default_model: Text,
    pub(crate) workspace_path: PathBuf,
    pub(crate) limits: Interned<Limits>,
    pub(crate) policy: Interned<Authority>,
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
    /// The bodies of the host's limits.
    pub(crate) fn limits_body(&self) -> Arc<Limits> {
        self.limits.body.clone().unwrap_or_default()
    }

    /// The workspace, as the host gave it.
    pub(crate) fn workspace_name(&self) -> Text {
        self.workspace_path.to_string_lossy().into()
    }
}
