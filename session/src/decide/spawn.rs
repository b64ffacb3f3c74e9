//! Grants and refusals of child calls, in chunks.

use std::sync::Arc;

use super::continued;
use super::draft::Draft;
use crate::authority::Authority;
use crate::call::{CallEnd, CallKind, ToolErrorKind};
use crate::command::{ChildPlan, Plan, Refusal, SpawnVerdict};
use crate::creation;
use crate::effect::{Effect, Rejection};
use crate::ids::{CallId, Interned, TurnNo};
use crate::place::Mode;
use crate::record::{ChildSpawned, Record};
use crate::render;
use crate::state::CallPhase;
use crate::values::json_bytes;

/// The manifest and ceiling of the previous plan. A chunk may contain hundreds of children of one manifest.
type CachedCeiling = Option<(Arc<Authority>, Interned<Authority>)>;

pub(super) fn spawn(draft: &mut Draft<'_>, turn: TurnNo, verdicts: Vec<SpawnVerdict>) -> Result<(), Rejection> {
    let awaited = draft.state.turn().is_some_and(|current| current.no == turn);
    let due = |id: CallId| draft.state.call(id).is_some_and(|call| call.phase == CallPhase::Unstarted);
    let any = verdicts.iter().any(|verdict| due(verdict.call));
    // A held or closing run no longer awaits these calls: their plans and grants are dropped.
    if !(awaited && any) {
        return Err(Rejection::Stale("the admission of child calls"));
    }
    let mut cached: CachedCeiling = None;
    draft.decision.records.reserve(verdicts.len().saturating_mul(2));
    for SpawnVerdict { call, verdict } in verdicts {
        if draft.state.call(call).is_none_or(|call| call.phase != CallPhase::Unstarted) {
            continue;
        }
        draft.state.due.admissions = draft.state.due.admissions.saturating_sub(1);
        let plan = match verdict {
            Ok(Plan::Continue(plan)) => {
                continued::ask(draft, call, *plan);
                continue;
            }
            Ok(Plan::Child(plan)) => Ok(plan),
            Err(refusal) => Err(refusal),
        };
        let planned = plan.and_then(|plan| admissible(draft, plan));
        match planned {
            Ok(plan) => spawn_child(draft, call, *plan, &mut cached),
            Err(Refusal { kind, message }) => draft.refuse(call, CallKind::Child(Mode::Blocking), kind, message),
        }
    }
    draft.advance();
    Ok(())
}

fn admissible(draft: &Draft<'_>, plan: Box<ChildPlan>) -> Result<Box<ChildPlan>, Refusal> {
    let (depth, max) = (draft.state.created.place.depth(), draft.state.limits.max_depth);
    if depth >= max {
        let message = format!(
            "Not started: the limit of {max} levels of child sessions is reached (this session is at level {depth}, 0 levels \
             remain). Do the work yourself."
        );
        let message = plan.dialect.refused("DEPTH_LIMIT", &message);
        return Err(Refusal { kind: ToolErrorKind::Limit, message });
    }
    if draft.state.children.contains_key(&plan.child) {
        let message = format!("Not started: a session {} already exists. Call again.", plan.child);
        let message = plan.dialect.refused("FAILED", &message);
        return Err(Refusal { kind: ToolErrorKind::Failed, message });
    }
    let here = plan.skipped.iter().chain(&plan.warnings).map(|text| json_bytes(text));
    draft.check_recorded(here.fold(plan_bytes(&plan), u64::saturating_add), plan.dialect).map(|()| plan)
}

/// Returns the bytes of the texts that the child's first records have because of the call.
fn plan_bytes(plan: &ChildPlan) -> u64 {
    let created = &plan.created;
    let texts = [&created.metadata, &created.title].into_iter().flatten().chain([&plan.prompt]);
    let names = [&created.tools, &created.in_full].into_iter().flatten().flatten();
    let system = created.system.body.as_deref().map_or(0, json_bytes);
    texts.chain(names).map(|text| json_bytes(text)).fold(system, u64::saturating_add)
}

fn spawn_child(draft: &mut Draft<'_>, call: CallId, plan: ChildPlan, cached: &mut CachedCeiling) {
    let detached = plan.detached_ms.is_some();
    let mode = if detached { Mode::Background } else { plan.mode };
    let kind = CallKind::Child(mode);
    let Some(ceiling) = ceiling(draft, &plan.manifest, cached) else {
        let text = "Not started: its authority cannot be written as JSON. This is a fault of the host.";
        return draft.refuse(call, kind, ToolErrorKind::Failed, plan.dialect.refused("FAILED", text));
    };
    let short = creation::short(&draft.state.shorts, plan.child);
    let spawned = ChildSpawned {
        call,
        child: plan.child,
        short: short.clone(),
        agent: plan.created.agent.clone(),
        mode,
        detached,
        dialect: plan.dialect,
        label: plan.label.clone(),
        skipped: plan.skipped.clone(),
        warnings: plan.warnings.clone(),
        bytes: plan_bytes(&plan),
        inspectable: plan.created.inspectable,
        depth: draft.state.created.place.depth().saturating_add(1),
        grant: plan.grant,
    };
    let (child, dialect, inspectable, turns) = (plan.child, plan.dialect, plan.created.inspectable, plan.max_turns);
    let session = creation::child(draft.state, call, plan, short.clone(), ceiling, draft.clock.wall_ms);
    let access = draft.state.due.access.remove(&call.ix);
    draft.emit(Record::CallStarted { call, kind: Box::new(kind), timeout_ms: None, access });
    draft.emit(Record::ChildSpawned(Box::new(spawned)));
    if mode == Mode::Background {
        let text = render::start_result(dialect, child, &short, inspectable, turns);
        draft.finish_call(call, CallEnd::Ok, text);
    }
    draft.decision.new_sessions.push(session);
    draft.effect(Effect::StartChild { child });
}

fn ceiling(draft: &Draft<'_>, manifest: &Arc<Authority>, cached: &mut CachedCeiling) -> Option<Interned<Authority>> {
    if let Some((known, ceiling)) = cached
        && Arc::ptr_eq(known, manifest)
    {
        return Some(ceiling.clone());
    }
    let ceiling = Interned::new(Arc::new(draft.state.ceiling.meet(manifest))).ok()?;
    *cached = Some((Arc::clone(manifest), ceiling.clone()));
    Some(ceiling)
}
