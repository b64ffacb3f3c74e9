//! `plan_exit`: the sessions that may propose a plan, and the agent that then continues.

use std::sync::Arc;

use subtend_agents::manifest::Manifest;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::CallKind;
use subtend_session::ids::{SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::place::{BranchKind, Isolation, Place, Source, Worktree};
use subtend_session::record::AgentOverride;
use subtend_session::state::State;
use subtend_tools::plan_exit;

use crate::calls::in_flight::Parsed;
use crate::spawn::agents::Agents;
use crate::spawn::caches::Template;
use crate::spawn::tool_set::ToolSet;
use crate::values::answering::agent_of;

impl Agents {
    /// Returns the initial model of `state`'s session if it may propose a plan. It must be a root session of a planning agent, on a host with an
    /// executing agent and a policy that allows it.
    pub(crate) fn plans(&self, state: &State) -> Option<Text> {
        let plans =
            |manifest: &Manifest| manifest.offers_plan_exit(state.created.place == Place::Root && !state.created.task);
        self.catalog.get(agent_of(state)).filter(|manifest| plans(manifest))?;
        self.executor().filter(|other| lacks_worktree(other, state.created.worktree, state.id).is_none())?;
        let access = Access { action: plan_exit::NAME.into(), resource: plan_exit::EXECUTING_AGENT.into() };
        (state.ceiling.verdict(&access) > Verdict::Deny).then(|| Arc::clone(&state.created.model))
    }

    /// Returns the override by `manifest` that executes the plan, in a session that was opened with `model` and has the authority `ceiling`.
    pub(crate) fn override_in_place(
        &self,
        manifest: &Manifest,
        (model, source): (&Text, Source),
        (ceiling, limits): (&Authority, &Limits),
    ) -> AgentOverride {
        // Includes the hints for agents with spawn tools.
        let template = self.template(&manifest.name, model, source).ok();
        let system = |template: Arc<Template>| {
            let authority = ceiling.meet(&template.manifest);
            self.system_under(&template, &authority, manifest.tools.as_ref()).ok()
        };
        let body = template.and_then(system).and_then(|system| system.body);
        AgentOverride {
            agent: Arc::clone(&manifest.name),
            agent_hash: manifest.hash(),
            model: self.model_name(manifest, model),
            system: body.unwrap_or_else(|| manifest.system()),
            turns: Some(allowed_turns(manifest, limits)),
        }
    }

    /// Returns the agent that continues after an approved plan, in a session that was opened with `model`.
    pub(crate) fn next_agent(&self, of: (&Text, Source), state: &State) -> Option<Arc<AgentOverride>> {
        let bounds = (&*state.ceiling, &*state.limits);
        self.executor().map(|manifest| Arc::new(self.override_in_place(manifest, of, bounds)))
    }

    /// Returns the maximum authority of a root session of `manifest`. A planner's includes that of the executing agent; the planner's own authority
    /// still applies at each use.
    pub(crate) fn ceiling_of(&self, manifest: &Manifest) -> Authority {
        self.successor(manifest).unwrap_or(manifest).authority()
    }

    /// Returns the agent whose manifest bounds the descendants of a session that was opened with `agent`.
    pub(crate) fn bounding_agent(&self, agent: Text, is_root: bool) -> Text {
        let manifest = self.catalog.get(&agent).filter(|_| is_root);
        let other = manifest.and_then(|manifest| self.successor(manifest)).map(|other| Arc::clone(&other.name));
        other.unwrap_or(agent)
    }

    /// Returns why the agent of an imported session may not answer: an export can name an isolated agent for a session without a worktree.
    pub(crate) fn missing_worktree(&self, state: &State) -> Option<String> {
        let created = state.created.imported.as_ref().map(|_| &state.created)?;
        let manifest = self.catalog.get(agent_of(state))?;
        // A branch works in the directory of its session. For a subagent, its own agent decides.
        let is_subagent = matches!(created.place, Place::Child { kind: BranchKind::Subagent, .. });
        let inherited = created.worktree.filter(|_| !is_subagent);
        lacks_worktree(manifest, created.worktree, inherited.map_or(state.id, |worktree| worktree.of))
    }

    fn successor(&self, manifest: &Manifest) -> Option<&Manifest> {
        self.executor().filter(|_| manifest.offers_plan_exit(true))
    }

    fn executor(&self) -> Option<&Manifest> {
        self.catalog.get(plan_exit::EXECUTING_AGENT).map(Arc::as_ref).filter(|manifest| manifest.pickable())
    }
}

/// Returns the turn limit of a run without an owner that `manifest` answers in a session with `limits`.
pub(crate) fn allowed_turns(manifest: &Manifest, limits: &Limits) -> u32 {
    manifest.turns.map_or(limits.turns, |turns| turns.min(limits.turns))
}

/// Returns why an agent may not answer in `session`, which works in `worktree`: it needs a worktree of its own.
pub(crate) fn lacks_worktree(manifest: &Manifest, worktree: Option<Worktree>, session: SessionId) -> Option<String> {
    let lacks = manifest.isolation == Isolation::Worktree && worktree.is_none_or(|worktree| worktree.of != session);
    let name = &manifest.name;
    lacks.then(|| {
        format!(
            "agent `{name}` needs a worktree of its own, which this session lacks; open a session of `{name}` instead"
        )
    })
}

/// Parses a call of `plan_exit`, in a session that may propose.
pub(crate) fn proposal(offer: &ToolSet, args: &str) -> Option<Result<(CallKind, Option<Parsed>), Text>> {
    let other = offer.proposes.as_ref()?;
    let read = plan_exit::parse(args).map_err(|error| error.message.into());
    Some(read.map(|plan| (CallKind::Propose(Arc::clone(other)), Some(Parsed::Plan(plan)))))
}

/// Returns the plan of a recorded call of `plan_exit`, for an approver.
pub(crate) fn plan_of(tool: &str, args: &str) -> Option<Text> {
    (tool == plan_exit::NAME).then(|| plan_exit::parse(args).ok()).flatten()
}
