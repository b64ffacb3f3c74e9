//! Limits of providers: a run whose model call may not be repeated within its turn parks until the reset.
//!
//! A parked run waits mid-turn: it holds no slot, its clock is stopped, and the turn's deadline starts again with the
//! repeated call. Its wall-clock cap still binds. Inputs and ends that arrive meanwhile wait for the boundary after the
//! call. An interrupt or an end gives the call up.

use super::draft::Draft;
use super::opening::until;
use crate::command::Deadline;
use crate::context;
use crate::effect::{Effect, Rejection};
use crate::ids::TurnNo;
use crate::limits::Parking;
use crate::outcome::ModelFail;
use crate::record::{Park, Record};

/// Returns whether the run waits for the reset in `after_ms`, which is beyond the turn's deadline.
pub(super) fn parks(draft: &Draft<'_>, error: ModelFail, after_ms: u64) -> bool {
    let limits = &draft.state.limits;
    error.retryable() && after_ms >= limits.turn_ms && limits.park == Parking::On
}

/// Parks the run in `turn`, whose attempt was discarded: releases its slot and stops its clock.
pub(super) fn park(draft: &mut Draft<'_>, turn: TurnNo, after_ms: u64) {
    let Some(run) = draft.run().map(|run| run.no) else { return };
    let until = draft.clock.wall_ms.saturating_add_unsigned(after_ms);
    draft.stop_clock();
    draft.emit(Record::RunParked { run, why: Park::Limit { until }, worked_ms: draft.clock.worked_ms });
    draft.arm(Deadline::Limit(turn), after_ms);
}

/// Resumes the run at the reset, with a slot first if it needs one. A run that was resumed before is not resumed again.
pub(super) fn passed(draft: &mut Draft<'_>, turn: TurnNo) -> Result<(), Rejection> {
    let stale = Rejection::Stale("a deadline");
    let run = draft.run().filter(|run| run.turn.as_ref().is_some_and(|of| of.no == turn)).ok_or(stale.clone())?;
    let (no, slot, at) = (run.no, run.opened.slot, run.limited_until().ok_or(stale)?);
    let left = until(at, draft.clock.wall_ms);
    if left > 0 {
        // The wall clock was set back.
        draft.arm(Deadline::Limit(turn), left);
        return Ok(());
    }
    if slot {
        draft.emit(Record::RunParked { run: no, why: Park::Slot, worked_ms: draft.clock.worked_ms });
        draft.effect(Effect::RequestSlot { run: no, again: true });
        return Ok(());
    }
    draft.resume(Park::Limit { until: at }, false);
    call_again(draft);
    Ok(())
}

/// Repeats the model call of the turn, with the session's own model: of a pool, the first that is well by now.
pub(super) fn call_again(draft: &mut Draft<'_>) {
    let Some(turn) = draft.state.turn().map(|turn| turn.no) else { return };
    let model = context::model(draft.state);
    draft.arm(Deadline::Turn(turn), draft.state.limits.turn_ms);
    draft.start_again(Some(model), 0, None);
}
