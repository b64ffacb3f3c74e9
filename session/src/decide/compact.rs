//! Compactions: a summary replaces old history. If it fails, the waiting attempt continues without it.

use super::attempt::is_awaited;
use super::close::quiet;
use super::draft::Draft;
use super::limit;
use crate::command::{Deadline, SummarisedHistory, Summary, Unsummarised};
use crate::compaction;
use crate::effect::{Effect, Rejection, Reply};
use crate::ids::{AttemptNo, Text, TurnNo};
use crate::outcome::{FailKind, Initiator, ModelFail, Outcome};
use crate::record::{AttemptDiscarded, Compacted, CompactionCause, CompactionFailed, CompactionFailure, Record};
use crate::state::Phase;

const MAX_SUMMARY_BYTES: usize = 32 << 10;

pub(super) fn compact(draft: &mut Draft<'_>, summarised: SummarisedHistory) -> Result<(), Rejection> {
    match summarised.turn {
        Some((turn, attempt)) => compact_for_turn(draft, turn, attempt, summarised),
        None => compact_on_request(draft, summarised),
    }
}

fn compact_for_turn(
    draft: &mut Draft<'_>,
    no: TurnNo,
    attempt: AttemptNo,
    summarised: SummarisedHistory,
) -> Result<(), Rejection> {
    let turn = draft.state.turn().filter(|_| is_awaited(draft, no, attempt));
    let cause = turn.and_then(|turn| turn.compacting).ok_or(Rejection::Stale("a summary"))?;
    match draft.state.phase() {
        Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => {}
        Phase::Queued | Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing | Phase::Quiet => {
            discard(draft, (no, attempt), ModelFail::Dropped, "stopped before its model was called", None);
            draft.advance();
            return Ok(());
        }
    }
    match compacted(draft, cause, &summarised) {
        Ok(record) => {
            draft.emit(Record::Compacted(Box::new(record)));
            draft.effect(Effect::CallModel { turn: no, attempt, after_ms: 0 });
        }
        Err(failed) => {
            let Unsummarised { why, message, of, reset } = failed;
            let text = format!("not compacted: {message}");
            let failed = CompactionFailed { turn: no, attempt, cause, why, message, of };
            draft.emit(Record::CompactionFailed(Box::new(failed)));
            if cause != CompactionCause::Overflow {
                // The provider decides whether the request still fits.
                draft.effect(Effect::CallModel { turn: no, attempt, after_ms: 0 });
                return Ok(());
            }
            let reset = reset.filter(|(_, after_ms)| limit::should_park(draft, *after_ms));
            discard(draft, (no, attempt), ModelFail::ContextOverflow, &text, reset.as_ref());
            match reset {
                // At the reset the call is repeated, and another compaction follows its overflow.
                Some((_, after_ms)) => limit::park(draft, no, after_ms),
                None => {
                    let kind = FailKind::Model { error: ModelFail::ContextOverflow, message: text.into() };
                    draft.end(Outcome::Failed { kind });
                }
            }
        }
    }
    Ok(())
}

/// Discards an attempt whose model was not called. With `reset`, its run then waits for the reset of that model.
fn discard(
    draft: &mut Draft<'_>,
    (turn, attempt): (TurnNo, AttemptNo),
    error: ModelFail,
    message: &str,
    reset: Option<&(Text, u64)>,
) {
    draft.emit(Record::AttemptDiscarded(Box::new(AttemptDiscarded {
        turn,
        attempt,
        error,
        message: message.into(),
        model: None,
        retry_delay_ms: reset.map(|(_, after_ms)| *after_ms),
        awaits: reset.map(|(model, _)| model.clone()),
        usage: Some(crate::usage::Usage::default()),
        queued_ms: 0,
    })));
    draft.disarm(Deadline::Turn(turn));
}

/// Handles a summary that a person or the host requested: it applies from the next model call on.
fn compact_on_request(draft: &mut Draft<'_>, summarised: SummarisedHistory) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    let of = summarised.result.as_ref().ok().map(|summary| summary.of);
    if of.is_some_and(|of| draft.state.service(of) == Some(true)) {
        // The command is a repetition after a restart.
        draft.reply(Reply::Done(draft.state.last_run));
        return Ok(());
    }
    if draft.state.turn().is_some_and(|turn| turn.compacting.is_some()) {
        return Err(Rejection::Working { command: "compact", why: "a compaction is running: wait for it" });
    }
    let record = compacted(draft, CompactionCause::Asked, &summarised)
        .map_err(|failed| Rejection::BadInput(format!("not compacted: {}", failed.message)))?;
    draft.emit(Record::Compacted(Box::new(record)));
    draft.reply(Reply::Done(draft.state.last_run));
    Ok(())
}

/// Returns the record of the compaction, or the reason why it fails.
fn compacted(
    draft: &Draft<'_>,
    cause: CompactionCause,
    summarised: &SummarisedHistory,
) -> Result<Compacted, Unsummarised> {
    let Summary { text, of } = summarised.result.as_ref().map_err(Clone::clone)?;
    let failed = |why, message: &str| Unsummarised { why, message: message.into(), of: Some(*of), reset: None };
    let state = &draft.state;
    let upto = usize::try_from(summarised.plan.upto).unwrap_or(usize::MAX);
    if state.service(*of) != Some(false) || summarised.plan.revised != state.revised || !compaction::is_cut(state, upto)
    {
        return Err(failed(CompactionFailure::Agent, "the history changed while it was summarised"));
    }
    if text.trim().is_empty() {
        return Err(failed(CompactionFailure::Empty, "the summary is empty"));
    }
    if text.len() > MAX_SUMMARY_BYTES {
        let message = format!("the summary has {} bytes, the limit is {MAX_SUMMARY_BYTES}", text.len());
        return Err(failed(CompactionFailure::TooLarge, &message));
    }
    let replaced = compaction::preview(state, summarised.plan, text);
    let fits = cause != CompactionCause::Share || compaction::is_within_share(state, replaced.after);
    if !fits || replaced.after >= replaced.before {
        let message = format!("the history would still have about {} of {} tokens", replaced.after, replaced.before);
        return Err(failed(CompactionFailure::TooLarge, &message));
    }
    Ok(Compacted {
        turn: summarised.turn,
        cause,
        by: summarised.by.clone(),
        upto: summarised.plan.upto,
        verbatim: replaced.verbatim,
        text: replaced.text,
        of: *of,
        before: replaced.before,
        after: replaced.after,
    })
}

pub(super) fn undo(draft: &mut Draft<'_>, by: Initiator) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    quiet(draft, "undo a compaction")?;
    if draft.state.compactions.is_empty() {
        return Err(Rejection::BadInput("no compaction to undo: all messages are visible".into()));
    }
    draft.emit(Record::CompactionUndone { by });
    draft.reply(Reply::Done(draft.state.last_run));
    Ok(())
}
