//! Limits of providers: a run parks until the reset if its model call cannot be retried within its turn.
//!
//! A parked run waits mid-turn: it does not hold a slot, its clock is stopped, and the turn's deadline restarts with the
//! repeated call. Its wall-clock cap still applies. Inputs and ends that arrive meanwhile wait for the boundary after the
//! call. An interrupt or an end of the run discards the call.

use std::sync::Arc;

use super::draft::Draft;
use super::opening::ms_until;
use crate::command::Deadline;
use crate::context;
use crate::effect::{Effect, Rejection};
use crate::ids::{Text, TurnNo};
use crate::limits::{Parking, time_after};
use crate::outcome::ModelFail;
use crate::record::{Park, Record};

/// The wait after an attempt that cannot be retried with its own model.
pub(super) enum ResetWait {
    /// The turn waits for another model of the pool, then calls that model.
    Turn(Text, u64),
    /// The run parks until the reset of the named member of the pool, if a pool is used.
    Park(Option<Text>, u64),
}

/// Returns the wait for a reset after a failed attempt whose model cannot be retried within the turn.
///
/// `own` is the failed member of a pool, if any, with its retry-after. Candidates are the other models of the pool that
/// wait for a reset, and the failed model if its error is retryable. If a candidate's reset is within the turn's time
/// limit, the turn waits for the earliest one. Otherwise the run parks until the earliest reset. If the failed model's
/// own reset is within the turn, that model was retried already, and the result is `None`.
pub(super) fn wait(
    draft: &Draft<'_>,
    error: ModelFail,
    own: (Option<&Text>, Option<u64>),
    resets: Vec<(Text, u64)>,
) -> Option<ResetWait> {
    let limits = &draft.state.limits;
    let (own_name, own_ms) = (own.0.cloned(), own.1.filter(|_| error.is_retryable()));
    let was_retried = error.is_retryable() && own_ms.is_none_or(|after_ms| after_ms < limits.turn_ms);
    if was_retried || !error.permits_fallback() {
        return None;
    }
    let others = resets.iter().map(|(model, after_ms)| (Some(Arc::clone(model)), *after_ms));
    let later = others.chain(own_ms.map(|after_ms| (own_name, after_ms)));
    let later = later.filter(|(_, after_ms)| *after_ms >= limits.turn_ms).min_by_key(|(_, after_ms)| *after_ms);
    let later = later.filter(|_| limits.park == Parking::On).map(|(model, after_ms)| ResetWait::Park(model, after_ms));
    let within =
        resets.into_iter().filter(|(_, after_ms)| *after_ms < limits.turn_ms).min_by_key(|(_, after_ms)| *after_ms);
    within.map(|(model, after_ms)| ResetWait::Turn(model, after_ms)).or(later)
}

/// Returns whether a run parks for a wait of `after_ms`: one shorter than the turn's time limit stays within the turn.
pub(super) fn should_park(draft: &Draft<'_>, after_ms: u64) -> bool {
    draft.state.limits.park == Parking::On && after_ms >= draft.state.limits.turn_ms
}

/// Parks the run in `turn`, whose attempt was discarded: releases its slot and stops its clock.
pub(super) fn park(draft: &mut Draft<'_>, turn: TurnNo, after_ms: u64) {
    let Some(run) = draft.run().map(|run| run.no) else { return };
    let until = time_after(draft.clock.wall_ms, after_ms);
    draft.stop_clock();
    draft.emit(Record::RunParked { run, why: Park::Limit { until }, worked_ms: draft.clock.worked_ms });
    draft.arm(Deadline::Limit(turn), after_ms);
}

/// Resumes the run at the reset. If the run needs a slot, requests it first. Stale if the run has resumed already.
pub(super) fn resume_at_reset(draft: &mut Draft<'_>, turn: TurnNo) -> Result<(), Rejection> {
    let stale = Rejection::Stale("a deadline");
    let run = draft.run().filter(|run| run.turn.as_ref().is_some_and(|of| of.no == turn)).ok_or(stale.clone())?;
    let (no, slot, at) = (run.no, run.opened.slot, run.limit_reset_at().ok_or(stale)?);
    let remaining = ms_until(at, draft.clock.wall_ms);
    if remaining > 0 {
        // The wall clock was set back, so the reset is still ahead.
        draft.arm(Deadline::Limit(turn), remaining);
        return Ok(());
    }
    if slot {
        draft.emit(Record::RunParked { run: no, why: Park::Slot, worked_ms: draft.clock.worked_ms });
        draft.effect(Effect::RequestSlot { run: no, resumed: true });
        return Ok(());
    }
    draft.resume(Park::Limit { until: at }, false);
    call_again(draft);
    Ok(())
}

/// Repeats the turn's model call with the session's configured model. If that is a pool, it may choose another member.
pub(super) fn call_again(draft: &mut Draft<'_>) {
    let Some(turn) = draft.state.turn().map(|turn| turn.no) else { return };
    let model = context::model(draft.state);
    draft.arm(Deadline::Turn(turn), draft.state.limits.turn_ms);
    draft.start_again(Some(model), 0, None);
}
