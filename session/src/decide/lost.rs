//! Runs that were in flight when the host died. The next start of the host ends or keeps them.

use super::draft::Draft;
use super::ending::Scope;
use crate::call::CallEnd;
use crate::effect::Rejection;
use crate::outcome::{Initiator, Outcome};
use crate::record::Hold;
use crate::state::Phase;

pub(super) fn on_lost(draft: &mut Draft<'_>, owner_survives: bool, keeps_queue: bool) -> Result<(), Rejection> {
    draft.keeps_queue = keeps_queue;
    if draft.state.phase() == Phase::Queued {
        if !owner_survives {
            draft.end(Outcome::Cancelled { by: Initiator::Sweep });
        }
        return Ok(());
    }
    let run = draft.run().ok_or(Rejection::Stale("the loss of a run"))?;
    let outcome = match &run.hold {
        Some(Hold::Interrupted { by }) => Outcome::Interrupted { by: by.clone() },
        Some(Hold::OutOfTurns) => Outcome::OutOfTurns,
        Some(Hold::Closing { outcome, .. }) => outcome.clone(),
        None => Outcome::Lost,
    };
    draft.take_notices();
    draft.drop_local(Scope::All, &CallEnd::Interrupted);
    draft.end_now(outcome, None);
    Ok(())
}
