//! Grants of slots.

use super::draft::Draft;
use super::limit;
use crate::command::Deadline;
use crate::effect::Rejection;
use crate::ids::{InputId, RunNo};
use crate::message::Message;
use crate::outcome::{By, Outcome, OutcomeKind};
use crate::record::{Park, Prompt};

pub(super) fn admitted(draft: &mut Draft<'_>, run: RunNo, owner_over: Option<OutcomeKind>) -> Result<(), Rejection> {
    let stale = Rejection::Stale("a slot");
    let run = draft.run_is(run).ok_or(stale.clone())?;
    let (no, started) = (run.no, run.started);
    let waits = if started { run.parked == Some(Park::Slot) } else { run.opened.slot };
    if !waits {
        return Err(stale);
    }
    if let Some(outcome) = owner_over {
        draft.end(Outcome::Cancelled { by: By::Owner { outcome } });
        return Ok(());
    }
    if !started {
        draft.disarm(Deadline::Queue(no));
        draft.begin();
        return Ok(());
    }
    draft.resume(Park::Slot, true);
    if draft.state.turn().is_some_and(|turn| turn.limited.is_some()) {
        limit::call_again(draft);
        return Ok(());
    }
    // The slot was requested to start calls that an approver allowed.
    if draft.run().is_some_and(|run| run.open_calls() > 0) {
        draft.check();
        return Ok(());
    }
    // The turn starts with what arrived while the slot was awaited. One that answers an input takes no second message,
    // and completions wait until that is answered.
    let taken = matches!(draft.state.transcript.last(), Some(Message::User { .. }));
    let rest = draft.state.turn().is_some_and(|turn| turn.calls.is_empty());
    let mut inputs = draft.takeable(rest && !taken);
    if taken {
        // Nor does a relative's message come between that input and its answer.
        let relative = |id: &InputId| {
            draft.state.queue.iter().any(|queued| queued.input.id == *id && queued.input.is_from_relative())
        };
        inputs.retain(|id| !relative(id));
        draft.take_inputs(inputs);
    } else {
        draft.take_with_notices(inputs);
    }
    draft.start_turn(Prompt::Plain);
    Ok(())
}
