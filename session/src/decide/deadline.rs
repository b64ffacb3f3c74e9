//! Deadlines. A deadline that no longer applies is rejected as stale.

use super::ask;
use super::draft::Draft;
use super::ending::Scope;
use super::limit;
use crate::call::{CallEnd, CallKind};
use crate::command::Deadline;
use crate::effect::{Effect, Rejection};
use crate::ids::{CallId, RunNo, TurnNo};
use crate::outcome::{Outcome, TimeLimit};
use crate::record::Hold;
use crate::render;
use crate::state::{CallPhase, Phase};

const STALE: Rejection = Rejection::Stale("a deadline");

pub(super) fn on_deadline(draft: &mut Draft<'_>, deadline: Deadline) -> Result<(), Rejection> {
    match deadline {
        Deadline::Run(run) => run_time(draft, run),
        Deadline::Queue(run) => queue(draft, run),
        Deadline::Turn(turn) => turn_time(draft, turn),
        Deadline::Call(call) => call_time(draft, call),
        Deadline::WallCap(run) => wall_cap(draft, run),
        Deadline::Grace(run) => grace(draft, run),
        Deadline::Ask(call) => ask::on_ask_deadline(draft, call),
        Deadline::Limit(turn) => limit::resume_at_reset(draft, turn),
    }
}

fn run_time(draft: &mut Draft<'_>, run: RunNo) -> Result<(), Rejection> {
    draft.run_is(run).ok_or(STALE)?;
    if draft.state.phase() != Phase::Working {
        return Err(STALE);
    }
    draft.end(Outcome::TimedOut { what: TimeLimit::Run });
    Ok(())
}

fn queue(draft: &mut Draft<'_>, run: RunNo) -> Result<(), Rejection> {
    draft.run_is(run).ok_or(STALE)?;
    if draft.state.phase() != Phase::Queued {
        return Err(STALE);
    }
    draft.end(Outcome::TimedOut { what: TimeLimit::Queue });
    Ok(())
}

fn turn_time(draft: &mut Draft<'_>, no: TurnNo) -> Result<(), Rejection> {
    let streams = draft.state.turn().is_some_and(|turn| turn.no == no && turn.streaming);
    if !streams || draft.state.phase() != Phase::Working {
        return Err(STALE);
    }
    draft.end(Outcome::TimedOut { what: TimeLimit::Turn });
    Ok(())
}

fn call_time(draft: &mut Draft<'_>, id: CallId) -> Result<(), Rejection> {
    match draft.state.phase() {
        Phase::Working | Phase::WaitingMidTurn => {}
        Phase::Queued
        | Phase::WaitingAtRest
        | Phase::HeldInterrupted
        | Phase::HeldOutOfTurns
        | Phase::Closing
        | Phase::Quiet => return Err(STALE),
    }
    let call = draft.state.call(id).filter(|call| call.phase == CallPhase::Started).ok_or(STALE)?;
    match call.kind.clone() {
        Some(CallKind::Local(_)) => {
            let text = "Timed out and was stopped: it may have had some of its effects.";
            draft.finish_call(id, CallEnd::TimedOut, text.into());
            draft.effect(Effect::StopTool { call: id });
        }
        Some(kind @ (CallKind::Await { .. } | CallKind::Check { .. })) => {
            let report = render::wait_result(draft.state, id, &kind, draft.clock.wall_ms);
            let content = format!("The wait timed out; no task was cancelled.\n{}", report.content);
            draft.finish_call(id, CallEnd::TimedOut, content.into());
        }
        // Other calls have no deadline. A child's run has its own deadlines, and its call waits for the notice.
        Some(
            CallKind::Child(_)
            | CallKind::Continue(_)
            | CallKind::Cancel { .. }
            | CallKind::Return
            | CallKind::Propose(_)
            | CallKind::Invalid(_),
        )
        | None => return Err(STALE),
    }
    draft.advance();
    Ok(())
}

fn wall_cap(draft: &mut Draft<'_>, run: RunNo) -> Result<(), Rejection> {
    draft.run_is(run).ok_or(STALE)?;
    if draft.state.phase() != Phase::Closing {
        draft.end(Outcome::TimedOut { what: TimeLimit::WallCap });
    }
    Ok(())
}

/// Aborts local work that did not stop within the grace, and closes its calls.
fn grace(draft: &mut Draft<'_>, run: RunNo) -> Result<(), Rejection> {
    let current = draft.run_is(run).ok_or(STALE)?;
    let (local, owns) = (current.has_local_work(), !current.owned.is_empty());
    let (end, closing) = match &current.hold {
        Some(Hold::Interrupted { .. }) => (CallEnd::Interrupted, None),
        Some(Hold::Closing { outcome, .. }) => (CallEnd::Cancelled, Some(outcome.kind())),
        Some(Hold::OutOfTurns) | None => return Err(STALE),
    };
    if local {
        draft.effect(Effect::CancelLocal);
    }
    draft.drop_local(Scope::Local, &end);
    match closing {
        // The first cancel already sent its `keeps_queue`. An input to the owned session may have reset the flag since.
        Some(outcome) if owns => draft.effect(Effect::CancelOwned { run, outcome, keeps_queue: false }),
        Some(_) => {}
        None => draft.cancel_blocking(),
    }
    draft.advance();
    Ok(())
}
