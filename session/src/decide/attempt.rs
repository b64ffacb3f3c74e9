use super::draft::Draft;
use super::limit::{self, ResetWait};
use crate::command::{AttemptFailed, CallObstacle, Deadline};
use crate::compaction;
use crate::effect::Rejection;
use crate::ids::{AttemptNo, Text, TurnNo};
use crate::outcome::{Budget, FailKind, ModelFail, Outcome};
use crate::record::{AttemptDiscarded, CompactionCause, Record};
use crate::state::Phase;
use crate::usage::Usage;

pub(super) fn on_attempt_failed(draft: &mut Draft<'_>, failed: AttemptFailed) -> Result<(), Rejection> {
    let kind = FailKind::Model { error: failed.error, message: failed.message.clone() };
    discard(draft, failed, kind)
}

/// Discards the attempt, then starts the next one or ends the run with the failure of `kind`.
pub(super) fn discard(draft: &mut Draft<'_>, failed: AttemptFailed, kind: FailKind) -> Result<(), Rejection> {
    let AttemptFailed { turn, attempt, error, message, retry_after_ms, model, next, resets, usage, queued_ms } = failed;
    if !is_awaited(draft, turn, attempt) {
        return Err(Rejection::Stale("a model's failure"));
    }
    let is_active = match draft.state.phase() {
        Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => true,
        Phase::Queued | Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing | Phase::Quiet => false,
    };
    let again = if is_active { retry(draft, error, retry_after_ms, next) } else { None };
    let compacts = is_active
        && again.is_none()
        && error == ModelFail::ContextOverflow
        && compaction::may_follow_overflow(draft.state);
    let again = if compacts { Some((None, 0)) } else { again };
    let cause = compacts.then_some(CompactionCause::Overflow);
    let waits = is_active && again.is_none();
    let own = (model.as_ref(), retry_after_ms);
    let (again, parks, awaits) = match waits.then(|| limit::wait(draft, error, own, resets)).flatten() {
        None => (again, None, None),
        Some(ResetWait::Turn(model, after_ms)) => (Some((Some(model), after_ms)), None, None),
        Some(ResetWait::Park(model, after_ms)) => (None, Some(after_ms), model),
    };
    let retry_delay_ms = again.as_ref().map(|(_, after_ms)| *after_ms).or(parks);
    let discarded = AttemptDiscarded { turn, attempt, error, message, model, retry_delay_ms, awaits, usage, queued_ms };
    draft.emit(Record::AttemptDiscarded(Box::new(discarded)));
    if let Some((model, after_ms)) = again {
        draft.start_again(model, after_ms, cause);
        return Ok(());
    }
    draft.disarm(Deadline::Turn(turn));
    if let Some(after_ms) = parks {
        limit::park(draft, turn, after_ms);
    } else if is_active {
        draft.end(Outcome::Failed { kind });
    } else {
        draft.advance();
    }
    Ok(())
}

/// Returns the fallback model and the delay of the next attempt; `None` if no retry can help.
fn retry(
    draft: &Draft<'_>,
    error: ModelFail,
    retry_after_ms: Option<u64>,
    next: Option<Text>,
) -> Option<(Option<Text>, u64)> {
    if next.is_some() {
        // The fallback model has not tried this turn yet, and may succeed at once despite this error.
        return Some((next, 0));
    }
    let tries = draft.state.turn().map_or(0, |turn| turn.tries);
    let limits = &draft.state.limits;
    let may_retry = error.is_retryable() && tries < limits.attempts && is_in_time(draft, retry_after_ms);
    let doubled = limits.backoff_ms.saturating_mul(1 << tries.saturating_sub(1).min(32));
    may_retry.then(|| (None, doubled.max(retry_after_ms.unwrap_or(0))))
}

/// Discards an attempt whose model was not called, and ends the run.
pub(super) fn on_not_called(
    draft: &mut Draft<'_>,
    turn: TurnNo,
    attempt: AttemptNo,
    why: CallObstacle,
) -> Result<(), Rejection> {
    if !is_awaited(draft, turn, attempt) {
        return Err(Rejection::Stale("an obstacle to a model call"));
    }
    let phase = draft.state.phase();
    let (message, outcome) = match why {
        CallObstacle::Budget(which) => {
            let spent = match which {
                Budget::Tokens => "tokens",
                Budget::Money => "money",
                Budget::Recorded => "recorded bytes",
            };
            let message = format!("the remaining {spent} budget of the tree is too small for the request");
            (message, Outcome::OutOfBudget { which })
        }
        CallObstacle::Workspace(message) => {
            (message.to_string(), Outcome::Failed { kind: FailKind::Workspace { message } })
        }
    };
    draft.emit(Record::AttemptDiscarded(Box::new(AttemptDiscarded {
        turn,
        attempt,
        error: ModelFail::Dropped,
        message: format!("not called: {message}").into(),
        model: None,
        retry_delay_ms: None,
        awaits: None,
        // No call was made: the usage is zero.
        usage: Some(Usage::default()),
        queued_ms: 0,
    })));
    draft.disarm(Deadline::Turn(turn));
    match phase {
        Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => draft.end(outcome),
        // The outcome is fixed, or the run is held: this was its last local work.
        Phase::Queued | Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing | Phase::Quiet => {
            draft.advance()
        }
    }
    Ok(())
}

pub(super) fn is_awaited(draft: &Draft<'_>, no: TurnNo, attempt: AttemptNo) -> bool {
    draft.state.turn().is_some_and(|turn| turn.streaming && turn.no == no && turn.attempt == attempt)
}

/// Returns whether the provider's retry-after ends before the turn's deadline. A longer one parks the run (`limit`).
fn is_in_time(draft: &Draft<'_>, retry_after_ms: Option<u64>) -> bool {
    retry_after_ms.is_none_or(|after| after < draft.state.limits.turn_ms)
}
