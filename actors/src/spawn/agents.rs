//! The agents of one environment: the offers for their sessions, and the specs of their children.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::{Map, Value};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_agents::instructions::Instructions;
use subtend_agents::manifest::Manifest;
use subtend_agents::skill::Skills;
use subtend_journal::Journal;
use subtend_session::authority::Authority;
use subtend_session::ids::{Interned, SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::place::{Isolation, Worktree};
use subtend_session::state::State;
use subtend_tools::checkpoint::Checkpoints;
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;
use subtend_tools::worktree::Worktrees;

use super::caches::ToolSets;
use crate::approvals::open_asks::Approvals;
use crate::calls::model_set::ModelSet;
use crate::calls::tool_directory::ToolDirectory;
use crate::faults::Faults;
use crate::values::options::Options;

/// Bytes of the tools and models of an environment.
const SIZE_OF_TOOLS: usize = 64 << 10;
/// Bytes of the name of a skill in its tool, besides its folder.
const SIZE_OF_NAME: usize = 256;

/// The length of a text that is not kept: that of a large configuration takes several times its size.
#[derive(Default)]
struct ByteCount(usize);

impl fmt::Write for ByteCount {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(piece.len());
        Ok(())
    }
}

fn debug_bytes(value: &impl fmt::Debug) -> usize {
    let mut count = ByteCount::default();
    // The count never fails.
    let _ = write!(count, "{value:?}");
    count.0
}

/// The host's configuration of sessions in one environment, with caches. It starts nothing and writes nothing.
pub(crate) struct Agents {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tools: Registry,
    pub(crate) models: Arc<ModelSet>,
    /// The model of sessions whose agent does not name one.
    pub(crate) default_model: Text,
    pub(crate) servers: Vec<Text>,
    /// The workspace of sessions without a worktree; see [`Agents::tool_directory`].
    pub(crate) workspace: Arc<Workspace>,
    /// The worktrees of the host, if it has a directory for them.
    pub(crate) worktrees: Option<Arc<Worktrees>>,
    /// The store for earlier contents of files that tools replace.
    pub(crate) checkpoints: Option<Checkpoints>,
    pub(crate) workspace_name: Text,
    /// The reason why no session may run here: the environment could not be loaded.
    pub(crate) unusable: Option<Text>,
    pub(crate) limits: Interned<Limits>,
    /// The maximum authority of every session, in addition to its ceiling.
    pub(crate) policy: Interned<Authority>,
    /// Rules that no session's policy can widen.
    pub(crate) bounds: Authority,
    pub(crate) offers: ToolSets,
    pub(crate) dialects: Dialects,
    /// Instruction files, as they were when the environment was loaded.
    pub(crate) instructions: Arc<Instructions>,
    pub(crate) skills: Arc<Skills>,
    pub(crate) tool_options: ToolOptions,
    /// The version of what was loaded: environments of one key with the same version are equal.
    pub(crate) version: Option<u64>,
    /// The shared empty options of tools without any.
    pub(crate) no_options: Arc<Map<String, Value>>,
    pub(crate) options: Options,
    /// Holds the heads of ancestors, whose permissions bound their descendants.
    pub(crate) journal: Journal,
    pub(crate) faults: Faults,
    pub(crate) approvals: Arc<Approvals>,
}

impl Agents {
    /// Returns the agents of a workspace whose environment cannot be loaded: they offer nothing, and report the reason.
    pub(crate) fn unusable(&self, workspace_name: Text, why: &str) -> Self {
        Self {
            // An agent of another environment would start children with its prompt and model.
            catalog: Arc::default(),
            tools: Registry::builder().build(),
            models: Arc::new(ModelSet::unusable(why)),
            default_model: self.default_model.clone(),
            servers: Vec::new(),
            workspace: Arc::clone(&self.workspace),
            worktrees: None,
            checkpoints: None,
            workspace_name,
            unusable: Some(why.into()),
            limits: self.limits.clone(),
            policy: self.policy.clone(),
            bounds: Authority::deny_all(),
            offers: self.offers.emptied(),
            dialects: Dialects::default(),
            instructions: Arc::new(Instructions::withheld()),
            skills: Arc::default(),
            tool_options: ToolOptions::new(),
            version: None,
            no_options: Arc::default(),
            options: self.options.clone(),
            journal: self.journal.clone(),
            faults: self.faults.clone(),
            approvals: Arc::clone(&self.approvals),
        }
    }

    /// Returns the same environment with changes of its agents by name; `None` removes one.
    pub(crate) fn with_changes(&self, changes: &BTreeMap<Text, Option<Arc<Manifest>>>) -> Self {
        let mut catalog = Catalog::clone(&self.catalog);
        for (name, change) in changes {
            match change {
                Some(manifest) => _ = catalog.insert(Arc::clone(manifest)),
                None => _ = catalog.remove(name),
            }
        }
        Self {
            catalog: Arc::new(catalog),
            tools: self.tools.clone(),
            models: Arc::clone(&self.models),
            default_model: self.default_model.clone(),
            servers: self.servers.clone(),
            workspace: Arc::clone(&self.workspace),
            worktrees: self.worktrees.clone(),
            checkpoints: self.checkpoints.clone(),
            workspace_name: self.workspace_name.clone(),
            unusable: self.unusable.clone(),
            limits: self.limits.clone(),
            policy: self.policy.clone(),
            bounds: self.bounds.clone(),
            offers: self.offers.emptied(),
            dialects: self.dialects.clone(),
            instructions: Arc::clone(&self.instructions),
            skills: Arc::clone(&self.skills),
            tool_options: self.tool_options.clone(),
            version: self.version,
            no_options: Arc::clone(&self.no_options),
            options: self.options.clone(),
            journal: self.journal.clone(),
            faults: self.faults.clone(),
            approvals: Arc::clone(&self.approvals),
        }
    }

    /// Returns the bytes of the agents, the instructions, the skills, and of all else, by an estimate.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        // The tool `skill` has the names of all skills.
        let names = self.skills.all().map(|skill| skill.resource.len().saturating_add(SIZE_OF_NAME)).sum::<usize>();
        let options = debug_bytes(&(&self.dialects, &self.tool_options));
        let own = options.saturating_mul(4).saturating_add(names).saturating_add(SIZE_OF_TOOLS);
        [self.catalog.bytes(), self.instructions.bytes(), self.skills.bytes(), own]
    }

    /// Returns the directory for the tools of `state`'s session.
    pub(crate) fn tool_directory(&self, state: &State) -> ToolDirectory {
        let (workspace, worktrees) = (Arc::clone(&self.workspace), self.worktrees.clone());
        ToolDirectory { workspace, worktree: state.created.worktree, worktrees }
    }

    /// Returns the worktree of a new session, if it gets one of its own. `own` is the isolation of its agent, `requested` that of the call. The
    /// decision records what the worktree was created from.
    /// # Errors
    /// The reason why the session cannot be started like this.
    pub(crate) fn own_worktree(
        &self,
        session: SessionId,
        own: Isolation,
        requested: Option<Isolation>,
    ) -> Result<Option<Worktree>, String> {
        match (own, requested) {
            (Isolation::Worktree, Some(Isolation::None)) => {
                Err("this agent always works in a worktree of its own. Omit `isolation`".to_owned())
            }
            (Isolation::None, None | Some(Isolation::None)) => Ok(None),
            (Isolation::Worktree, None) | (_, Some(Isolation::Worktree)) => {
                self.can_isolate().map(|()| Some(Worktree::own(session, None)))
            }
        }
    }

    pub(crate) fn can_isolate(&self) -> Result<(), String> {
        let worktrees = self.worktrees.as_ref();
        let worktrees = worktrees.ok_or("cannot create a worktree: this host has no directory for worktrees")?;
        worktrees.check(self.workspace.path()).map_err(|error| error.to_string())
    }

    pub(crate) fn limits_body(&self) -> Arc<Limits> {
        self.limits.body.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_debug_text_are_counted() {
        let value = (vec!["\u{7}é", ""], Some(7));
        assert_eq!(debug_bytes(&value), format!("{value:?}").len());
    }
}
