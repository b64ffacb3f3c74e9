//! A cancel, by a person, the host or a model; and the end of the owner.

use super::draft::Draft;
use crate::effect::{Rejection, Reply};
use crate::ids::{RunKey, RunNo};
use crate::outcome::{By, Outcome, OutcomeKind};
use crate::record::{Hold, Record, RunEnded};
use crate::sabotage::Bug;
use crate::state::Phase;

pub(super) fn cancel(draft: &mut Draft<'_>, run: Option<RunNo>, by: By) {
    let current = draft.run().map(|run| run.no);
    let meant = run.or(current).unwrap_or(draft.state.last_run);
    if current != Some(meant) {
        let ended = answer_ended(draft, meant);
        if ended && draft.bug(Bug::EndTwice) {
            end_again(draft, meant, by);
        }
        return;
    }
    match draft.run().and_then(|run| run.hold.clone()) {
        Some(Hold::Closing { outcome: Outcome::Cancelled { .. } }) => draft.reply(Reply::Done(meant)),
        Some(Hold::Closing { outcome }) => {
            let key = RunKey { session: draft.state.id, run: meant };
            draft.reply(Reply::AlreadyEnded(key, outcome));
        }
        Some(Hold::Interrupted { .. } | Hold::OutOfTurns) | None => {
            draft.reply(Reply::Done(meant));
            draft.end(Outcome::Cancelled { by });
        }
    }
}

/// Answers a control of a run that is not in flight; tells whether there was such a run.
pub(super) fn answer_ended(draft: &mut Draft<'_>, run: RunNo) -> bool {
    let ended = (run.0 as usize).checked_sub(1).and_then(|at| draft.state.outcomes.get(at)).cloned();
    let found = ended.is_some();
    draft.reply(match ended {
        None => Reply::NotFound,
        Some(outcome) => Reply::AlreadyEnded(RunKey { session: draft.state.id, run }, outcome),
    });
    found
}

fn end_again(draft: &mut Draft<'_>, run: RunNo, by: By) {
    let Some(last) = draft.state.last.as_ref().filter(|last| last.run == run) else { return };
    let ended = RunEnded {
        run,
        outcome: Outcome::Cancelled { by },
        result: None,
        returned: None,
        text: None,
        len: 0,
        hash: crate::ids::Hash::of(b""),
        turns: last.turns,
        usage_self: last.usage_self,
        usage_owned: last.usage_owned,
        worked_ms: draft.clock.worked_ms,
        gave_up: None,
    };
    draft.emit(Record::RunEnded(Box::new(ended)));
}

pub(super) fn owner_over(draft: &mut Draft<'_>, run: RunNo, outcome: OutcomeKind) -> Result<(), Rejection> {
    draft.run_is(run).ok_or(Rejection::Stale("the end of an owner"))?;
    if draft.state.phase() != Phase::Closing {
        draft.end(Outcome::Cancelled { by: By::Owner { outcome } });
    }
    Ok(())
}
