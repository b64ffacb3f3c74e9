//! Cancels by a person or the host, and ends of the owner.

use super::draft::Draft;
use crate::effect::{Effect, Rejection, Reply};
use crate::ids::{RunKey, RunNo};
use crate::outcome::{Initiator, Outcome, OutcomeKind};
use crate::record::{Hold, Record};

pub(super) fn cancel(draft: &mut Draft<'_>, run: Option<RunNo>, by: Initiator, keeps_queue: bool) {
    draft.keeps_queue = keeps_queue;
    let current = draft.run().map(|run| run.no);
    let target = run.or(current).unwrap_or(draft.state.last_run);
    if current != Some(target) {
        reply_not_in_flight(draft, target);
        return;
    }
    match draft.run().and_then(|run| run.hold.clone()) {
        Some(Hold::Closing { outcome, keeps_queue: already_kept }) => {
            let key = RunKey { session: draft.state.id, run: target };
            draft.reply(match outcome {
                Outcome::Cancelled { .. } => Reply::Done(target),
                Outcome::Completed
                | Outcome::Failed { .. }
                | Outcome::Interrupted { .. }
                | Outcome::TimedOut { .. }
                | Outcome::OutOfTurns
                | Outcome::OutOfBudget { .. }
                | Outcome::Lost
                | Outcome::RestartsExhausted { .. } => Reply::AlreadyEnded(key, outcome.clone()),
            });
            if keeps_queue && !already_kept {
                keep_queue(draft, target, outcome);
            }
        }
        Some(Hold::Interrupted { .. } | Hold::OutOfTurns) | None => {
            draft.reply(Reply::Done(target));
            draft.end(Outcome::Cancelled { by });
        }
    }
}

/// Applies a cancel of the whole tree to a closing run: the outcome is unchanged, and queued inputs stay queued. Notifies
/// the owned runs again, because the first notification may have let their queued inputs open runs.
fn keep_queue(draft: &mut Draft<'_>, run: RunNo, outcome: Outcome) {
    let kind = outcome.kind();
    draft.emit(Record::RunHeld { run, why: Box::new(Hold::Closing { outcome, keeps_queue: true }) });
    if draft.run().is_some_and(|run| !run.owned.is_empty()) {
        draft.effect(Effect::CancelOwned { run, outcome: kind, keeps_queue: true });
    }
}

/// Replies to a control of a run that is not in flight.
pub(super) fn reply_not_in_flight(draft: &mut Draft<'_>, run: RunNo) {
    let ended = (run.0 as usize).checked_sub(1).and_then(|at| draft.state.outcomes.get(at)).cloned();
    draft.reply(match ended {
        None => Reply::NotFound,
        Some(outcome) => Reply::AlreadyEnded(RunKey { session: draft.state.id, run }, outcome),
    });
}

pub(super) fn on_owner_ended(
    draft: &mut Draft<'_>,
    owner: RunKey,
    outcome: OutcomeKind,
    keeps_queue: bool,
) -> Result<(), Rejection> {
    let owned = draft.run().filter(|run| run.opened.owner.run() == Some(owner));
    let (run, hold) = owned.map(|run| (run.no, run.hold.clone())).ok_or(Rejection::Stale("the end of an owner"))?;
    match hold {
        Some(Hold::Closing { outcome, keeps_queue: false }) if keeps_queue => keep_queue(draft, run, outcome),
        Some(Hold::Closing { .. }) => {}
        Some(Hold::Interrupted { .. } | Hold::OutOfTurns) | None => {
            draft.keeps_queue = keeps_queue;
            draft.end(Outcome::Cancelled { by: Initiator::Owner { outcome } });
        }
    }
    Ok(())
}
