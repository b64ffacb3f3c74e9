//! A new activation in the same process: local work of the old activation is lost.

use std::collections::BTreeMap;

use super::ask::access_by_tool;
use super::calls::UnstartedCall;
use super::draft::Draft;
use super::ending::Scope;
use super::interrupt;
use super::opening::ms_until;
use crate::call::{CallEnd, CallKind, Invalid, ToolEffect};
use crate::command::{Clock, Deadline, FoundCall, NeededApproval};
use crate::effect::Effect;
use crate::ids::CallId;
use crate::outcome::{Initiator, Outcome, OutcomeKind};
use crate::record::{Hold, Park};
use crate::state::{CallPhase, Phase, State};

/// Ends the run if its owner has ended; else redoes its local work and advances. Outbox rows were delivered before.
pub(super) fn on_reactivated(draft: &mut Draft<'_>, found: Vec<FoundCall>, owner_ended: Option<OutcomeKind>) {
    let phase = draft.state.phase();
    let over = owner_ended.filter(|_| !matches!(phase, Phase::Closing | Phase::Quiet));
    if let Some(outcome) = over {
        draft.drop_local(Scope::Local, &CallEnd::Interrupted);
        return draft.end(Outcome::Cancelled { by: Initiator::Owner { outcome } });
    }
    let effects = wake(draft.state, draft.clock);
    draft.decision.effects.extend(effects);
    match phase {
        Phase::Quiet | Phase::Queued | Phase::HeldOutOfTurns => {}
        Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => redo_turn(draft, found),
        Phase::HeldInterrupted => {
            draft.drop_local(Scope::Local, &CallEnd::Interrupted);
            draft.cancel_blocking();
        }
        Phase::Closing => {
            draft.drop_local(Scope::Local, &CallEnd::Cancelled);
            redo_cancel_owned(draft);
        }
    }
    draft.advance();
}

fn redo_turn(draft: &mut Draft<'_>, found: Vec<FoundCall>) {
    let Some(turn) = draft.state.turn() else { return };
    if turn.streaming {
        let compacts = turn.compacting;
        return draft.start_again(None, 0, compacts);
    }
    let no = turn.no;
    let mut found: BTreeMap<CallId, FoundCall> = found.into_iter().map(|found| (found.call, found)).collect();
    let mut unstarted = Vec::new();
    let mut found_calls = Vec::new();
    let mut checks = Vec::new();
    let mut repeatable = Vec::new();
    let mut unknown = Vec::new();
    for (call, ix) in turn.calls.iter().zip(0_u32..) {
        let id = CallId { turn: no, ix };
        let unresolved = || FoundCall::plain(id, CallKind::Invalid(Invalid::UnknownTool));
        match (&call.phase, &call.kind) {
            (CallPhase::Unstarted, _) => {
                let FoundCall { kind, access, ask, .. } = found.remove(&id).unwrap_or_else(unresolved);
                unstarted.push(UnstartedCall { ix, kind, note: None, access, ask });
            }
            (CallPhase::Asked(_), _) => found_calls.push(found.remove(&id).unwrap_or_else(unresolved)),
            (CallPhase::Started, Some(CallKind::Local(ToolEffect::SideEffect))) => unknown.push(id),
            (CallPhase::Started, Some(CallKind::Local(ToolEffect::ReadOnly | ToolEffect::Idempotent))) => {
                repeatable.push(id)
            }
            (CallPhase::Started, Some(CallKind::Check { wait: true, .. })) => checks.push(id),
            (CallPhase::Started | CallPhase::Closed(_), _) => {}
        }
    }
    for call in unknown {
        let text = "Interrupted: side effects unknown. Check before you call it again.";
        draft.finish_call(call, CallEnd::UnknownEffects, text.into());
    }
    for call in repeatable {
        draft.effect(Effect::RunTool { call });
        draft.arm(Deadline::Call(call), draft.state.limits.tool_ms);
    }
    for call in checks {
        draft.arm(Deadline::Call(call), draft.state.limits.check_ms);
    }
    draft.enqueue(no, unstarted);
    // Asks again, because the approver may not have received the open ask.
    for FoundCall { call, kind, access, ask } in found_calls {
        // If the shown access was approved permanently meanwhile, the call needs another one that is not shown.
        let by_tool = || draft.state.call(call).map(|open_call| access_by_tool(&open_call.tool, &kind));
        let is_shown = access.map(|access| *access).or_else(by_tool) == draft.requested_access(call);
        let need = if ask.is_needed() && !is_shown { NeededApproval::SeveralAccesses } else { ask };
        draft.ask_again(call, kind);
        draft.state.due.note(call.ix, need);
    }
}

fn redo_cancel_owned(draft: &mut Draft<'_>) {
    let Some(run) = draft.run().filter(|run| !run.owned.is_empty()) else { return };
    if let Some(Hold::Closing { outcome, keeps_queue }) = &run.hold {
        let (run, outcome, keeps_queue) = (run.no, outcome.kind(), *keeps_queue);
        draft.effect(Effect::CancelOwned { run, outcome, keeps_queue });
    }
}

/// Returns the effects that request the awaited slot and arm the current deadlines.
pub(super) fn wake(state: &State, clock: Clock) -> Vec<Effect> {
    let Some(run) = &state.run else { return Vec::new() };
    let (no, limits) = (run.no, &state.limits);
    let mut effects = Vec::new();
    let mut arm = |deadline, after_ms| effects.push(Effect::Arm { deadline, after_ms });
    // The passed cap of a closing run would change nothing, but reactivate an unloaded session again and again.
    if let Some(at) = run.opened.wall_cap_at.filter(|_| !matches!(run.hold, Some(Hold::Closing { .. }))) {
        arm(Deadline::WallCap(no), ms_until(at, clock.wall_ms));
    }
    match &run.hold {
        Some(Hold::Closing { .. }) => arm(Deadline::Grace(no), limits.grace_ms),
        // A run that is held only for its background children has no grace: they may take long.
        Some(Hold::Interrupted { .. }) if interrupt::is_stopping(run) => arm(Deadline::Grace(no), limits.grace_ms),
        Some(Hold::Interrupted { .. } | Hold::OutOfTurns) => {}
        None if !run.started => arm(Deadline::Queue(no), limits.queue_ms),
        None if run.parked.is_some() => {
            if let (Some(at), Some(turn)) = (run.limit_reset_at(), &run.turn) {
                arm(Deadline::Limit(turn.no), ms_until(at, clock.wall_ms));
            }
        }
        None => {
            if let Some(ms) = run.opened.deadline_ms {
                arm(Deadline::Run(no), ms.saturating_sub(clock.worked_ms.max(run.worked_ms)));
            }
            if let Some(turn) = run.turn.as_ref().filter(|turn| turn.streaming) {
                arm(Deadline::Turn(turn.no), limits.turn_ms);
            }
        }
    }
    if run.opened.slot && !run.started {
        effects.push(Effect::RequestSlot { run: no, resumed: false });
    } else if run.parked == Some(Park::Slot) {
        effects.push(Effect::RequestSlot { run: no, resumed: true });
    }
    effects
}
