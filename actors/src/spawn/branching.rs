//! Specs of branches: the agent and the limits.

use std::sync::Arc;

use subtend_agents::manifest::Manifest;
use subtend_session::authority::Authority;
use subtend_session::ids::{Interned, Text};
use subtend_session::place::BranchKind;
use subtend_session::record::SessionCreated;
use subtend_session::state::State;

use crate::spawn::agents::Agents;
use crate::spawn::caches::Template;
use crate::spawn::proposing::lacks_worktree;
use crate::spawn::tool_set::intersect_lists;
use crate::values::answering::{agent_of, model_of};
use crate::values::error::ControlError;

impl Agents {
    /// Returns the spec of a branch of `state`'s session, without the fields that `decide` sets, and the authority of its agent.
    pub(crate) fn branch_spec(
        &self,
        state: &State,
        agent: Option<&Text>,
        kind: BranchKind,
    ) -> Result<(SessionCreated, Arc<Authority>), ControlError> {
        let own = agent_of(state);
        let name = agent.unwrap_or(own);
        // By default the agent that answers in the session answers in the branch.
        let is_same_agent = name == own;
        let (mut created, manifest, turns) = if is_same_agent && self.catalog.get(own).is_none() {
            (recorded_spec(state)?, Arc::new(Authority::allow_all()), state.allowance())
        } else {
            let template = self.branch_template(state, name, kind)?;
            let mut created = template.created.clone();
            let tools = self.catalog.get(name).and_then(|manifest| manifest.tools.as_ref());
            let (authority, only) =
                (state.ceiling.meet(&template.manifest), intersect_lists(state.tools.as_ref(), tools));
            created.system = self.system_under(&template, &authority, only.as_ref()).map_err(not_serialized)?;
            if is_same_agent {
                (created.model, created.system) = current_agent(state)?;
                // The prompt describes how to find the tools, so the list must match.
                created.in_full = state.created.in_full.clone();
            }
            // A branch with its own task has its manifest's allowance, like a child of a model.
            let given = agent.is_some() && (!is_same_agent || kind == BranchKind::Subagent);
            let turns = if given { template.turns } else { state.allowance() };
            (created, Arc::clone(&template.manifest), turns)
        };
        created.limits = Interned { hash: state.created.limits.hash, body: Some(Arc::clone(&state.limits)) };
        created.turns = (turns != state.limits.turns).then_some(turns);
        created.workspace = Arc::clone(&state.created.workspace);
        if kind == BranchKind::Subagent {
            let isolation = self.catalog.get(name).map(|manifest| manifest.isolation).unwrap_or_default();
            created.worktree = self.own_worktree(state.id, isolation, None).map_err(ControlError::Refused)?;
        }
        // Only the imported session records that it was imported, so its agent is checked before it answers in a branch.
        if is_same_agent && matches!(kind, BranchKind::Human | BranchKind::Alternative) {
            self.missing_worktree(state).map_or(Ok(()), |why| Err(ControlError::Refused(why)))?;
        }
        if kind == BranchKind::Human && !is_same_agent {
            // The branch works in the same directory as the session.
            let worktree = state.created.worktree;
            let session = worktree.map_or(state.id, |worktree| worktree.of);
            let why = self.catalog.get(name).and_then(|manifest| lacks_worktree(manifest, worktree, session));
            why.map_or(Ok(()), |why| Err(ControlError::Refused(why)))?;
        }
        // A branch keeps the tools and the source of its session.
        created.tools = state.tools.clone();
        created.source = state.created.source;
        created.check_names().map_err(ControlError::Refused)?;
        Ok((created, manifest))
    }

    fn branch_template(&self, state: &State, name: &Text, kind: BranchKind) -> Result<Arc<Template>, ControlError> {
        let startable = |manifest: &Manifest| {
            let fits = match kind {
                BranchKind::Human => manifest.pickable(),
                BranchKind::Subagent => manifest.pickable() || manifest.spawnable(),
                BranchKind::Alternative | BranchKind::Service => true,
            };
            // The agent that answers in the session may answer in its branch.
            fits || *manifest.name == **agent_of(state)
        };
        let known = || {
            let names: Vec<&str> =
                self.catalog.all().filter(|manifest| startable(manifest)).map(|manifest| &*manifest.name).collect();
            ControlError::Refused(format!(
                "unknown agent `{name}`; agents that can answer in a branch: {}",
                names.join(", ")
            ))
        };
        let manifest = self.catalog.get(name).filter(|manifest| startable(manifest)).ok_or_else(known)?;
        self.template(&manifest.name, model_of(state), state.created.source).map_err(|_| known())
    }
}

/// Returns the spec of a branch whose agent this host does not know, as recorded. It has no permissions until a host knows the agent, and then at
/// most those of the session, whose ceiling it has.
fn recorded_spec(state: &State) -> Result<SessionCreated, ControlError> {
    let mut created = SessionCreated::clone(&state.created);
    if let Some(other) = &state.agent {
        (created.agent, created.agent_hash) = (Arc::clone(&other.agent), other.agent_hash);
    }
    (created.model, created.system) = current_agent(state)?;
    (created.title, created.metadata) = (None, None);
    Ok(created)
}

fn current_agent(state: &State) -> Result<(Text, Interned<str>), ControlError> {
    let system = match &state.agent {
        Some(other) => Interned::new(Arc::clone(&other.system)).map_err(not_serialized)?,
        None => state.created.system.clone(),
    };
    Ok((Arc::clone(model_of(state)), system))
}

fn not_serialized(error: serde_json::Error) -> ControlError {
    ControlError::Refused(format!("the branch cannot be recorded: {error}"))
}
