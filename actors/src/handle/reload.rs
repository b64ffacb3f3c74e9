//! Reloads of a tree's agents.

use std::collections::BTreeSet;

use subtend_agents::catalog::{Catalog, ProblemKind};
use subtend_session::ids::Text;

use super::SessionHandle;
use crate::values::error::ControlError;

/// Names of the agents that a reload added, changed or removed, and the files that it refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentChanges {
    pub added: Vec<Text>,
    pub changed: Vec<Text>,
    pub removed: Vec<Text>,
    /// The files that define no agent, with the reasons.
    pub refused: Vec<Text>,
}

impl AgentChanges {
    fn between(before: &Catalog, after: &Catalog) -> Self {
        let names: BTreeSet<&Text> = before.all().chain(after.all()).map(|manifest| &manifest.name).collect();
        let refused = after.problems().iter().filter(|problem| problem.kind == ProblemKind::Refused);
        let mut changes = Self { refused: refused.map(|problem| problem.text().into()).collect(), ..Self::default() };
        for name in names {
            match (before.get(name), after.get(name)) {
                (None, _) => changes.added.push(name.clone()),
                (_, None) => changes.removed.push(name.clone()),
                (Some(old), Some(new)) if old.hash() != new.hash() => changes.changed.push(name.clone()),
                (Some(_), Some(_)) => {}
            }
        }
        changes
    }
}

impl SessionHandle {
    /// Loads the agents, instruction files, skills and tools of this session's tree again, and returns which agents changed.
    ///
    /// All sessions of the tree use them from their next turn on, for the children that they start and the tools that they are offered. Recorded
    /// prompts and permissions of sessions remain; an input that names an agent ([`Input::agent`](crate::Input::agent)) uses the new manifest.
    /// # Errors
    /// [`ControlError::Refused`] if the files cannot be used, with the reason; the tree keeps its environment.
    /// # Durability
    /// None: after a restart, a tree loads the files as they are then.
    pub fn reload(&self) -> Result<AgentChanges, ControlError> {
        let (before, after) = self.sessions.environments.reload(self.root).map_err(ControlError::Refused)?;
        Ok(AgentChanges::between(&before.catalog, &after.catalog))
    }
}
