//! Grants of slots.

use super::draft::Draft;
use super::limit;
use crate::command::Deadline;
use crate::effect::Rejection;
use crate::ids::{InputId, RunNo};
use crate::message::Message;
use crate::outcome::{Initiator, Outcome, OutcomeKind};
use crate::record::{Park, Prompt};

pub(super) fn on_admitted(
    draft: &mut Draft<'_>,
    run: RunNo,
    owner_ended: Option<OutcomeKind>,
) -> Result<(), Rejection> {
    let stale = Rejection::Stale("a slot");
    let run = draft.run_is(run).ok_or(stale.clone())?;
    let (no, started) = (run.no, run.started);
    let is_pending = if started { run.parked == Some(Park::Slot) } else { run.opened.slot };
    if !is_pending {
        return Err(stale);
    }
    if let Some(outcome) = owner_ended {
        draft.end(Outcome::Cancelled { by: Initiator::Owner { outcome } });
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
        draft.advance();
        return Ok(());
    }
    // The turn starts with the inputs and notices that arrived while the run awaited the slot. If the last message is an
    // unanswered input, no second message follows it, and completions wait for its answer.
    let is_unanswered = matches!(draft.state.transcript.last(), Some(Message::User { .. }));
    let rest = draft.state.turn().is_some_and(|turn| turn.calls.is_empty());
    let mut inputs = draft.takeable(rest && !is_unanswered);
    if is_unanswered {
        // A relative's message must not come between that input and its answer.
        let is_relative = |id: &InputId| {
            draft.state.queue.iter().any(|queued| queued.input.id == *id && queued.input.is_from_relative())
        };
        inputs.retain(|id| !is_relative(id));
        draft.take_inputs(inputs);
    } else {
        draft.take_with_notices(inputs);
    }
    draft.start_turn(Prompt::Plain);
    Ok(())
}
