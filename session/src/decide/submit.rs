//! Inputs: accepted once, then taken at once or queued.

use super::draft::Draft;
use crate::effect::{Rejection, Reply};
use crate::index::RowKey;
use crate::limits::{MAX_INPUT_BYTES, MAX_INPUTS};
use crate::outcome::Initiator;
use crate::record::{From, InputAccepted, Record};
use crate::state::Phase;

/// Maximum bytes of a requested answer schema, which is sent with every model call of the turn.
const MAX_FORMAT_BYTES: u64 = 64 << 10;

/// Maximum number of messages of one relative that the session has not read.
const MAX_UNREAD: u32 = 16;

pub(super) fn submit(draft: &mut Draft<'_>, input: Box<InputAccepted>) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    let previous = input.key.as_ref().and_then(|key| draft.state.seen.get(key)).copied();
    let previous = previous.or_else(|| draft.state.accepted.binary_search(&input.id).is_ok().then_some(input.id));
    if let Some(input) = previous {
        draft.reply(Reply::Accepted { input, duplicate: true });
        return Ok(());
    }
    check_limits(draft, &input)?;
    if input.agent_override.is_some() && !matches!(input.from, From::Person | From::Host) {
        return Err(Rejection::BadInput("only a person or the host may choose the agent that answers".into()));
    }
    if input.is_from_relative() {
        check_relative(draft, &input)?;
        check_share(draft, &input)?;
    }
    let phase = draft.state.phase();
    if draft.state.closed {
        let by = if input.from == From::Person { Initiator::Person } else { Initiator::Host };
        draft.emit(Record::SessionReopened { by });
    }
    draft.reply(Reply::Accepted { input: input.id, duplicate: false });
    draft.emit(Record::InputAccepted(input));
    match phase {
        Phase::Quiet => draft.open_next(),
        Phase::WaitingAtRest | Phase::HeldInterrupted | Phase::HeldOutOfTurns => draft.advance(),
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::Closing => {}
    }
    Ok(())
}

/// Checks that a relative's message fits the run in flight. Such a message does not open or resume a run. A run that a
/// person opened exchanges messages with children only. The sender has checked that both are relatives: a receiver
/// knows only its own children.
fn check_relative(draft: &Draft<'_>, input: &InputAccepted) -> Result<(), Rejection> {
    let refused = |why| Err(Rejection::Misplaced { command: "message", why });
    let From::Model { session: sender, .. } = input.from else { return Ok(()) };
    let Some(run) = draft.run().filter(|run| run.hold.is_none()) else {
        return refused("the receiver is not running");
    };
    let allowed = match draft.state.children.get(&sender) {
        Some(child) => child.key.is_some_and(|key| !draft.state.arrived.contains(sender, RowKey::Call(key))),
        None => run.opened.owner.is_model_call(),
    };
    if allowed { Ok(()) } else { refused("a person opened the sender's or the receiver's run") }
}

/// Checks that messages of relatives leave half of the queue free: a model cannot block a person's input.
fn check_share(draft: &Draft<'_>, input: &InputAccepted) -> Result<(), Rejection> {
    let From::Model { session: sender, .. } = input.from else { return Ok(()) };
    let is_of = |other: &InputAccepted| matches!(other.from, From::Model { session, .. } if session == sender);
    let (mut own, mut all) = (0_u32, 0_u32);
    for queued in draft.state.queue.iter().filter(|queued| queued.input.is_from_relative()) {
        all = all.saturating_add(1);
        own = own.saturating_add(u32::from(is_of(&queued.input)));
    }
    let share = draft.state.limits.queue / 2;
    if own >= MAX_UNREAD {
        let what = "the queue for unread messages of one agent";
        return Err(Rejection::Busy { what, limit: MAX_UNREAD.into() });
    }
    if all >= share {
        return Err(Rejection::Busy { what: "the queue for unread messages of agents", limit: share.into() });
    }
    Ok(())
}

/// Checks the number and the bytes of all inputs. Those of agents count as at most half, so that a person can always
/// send as many. Continuations are not refused, but leave no room for messages.
fn check_totals(draft: &Draft<'_>, input: &InputAccepted) -> Result<(), Rejection> {
    let state = &draft.state;
    let max_bytes = MAX_INPUT_BYTES.max(state.limits.input_bytes);
    let (agent_share, agent_max) = (MAX_INPUTS / 2, max_bytes / 2);
    let refused = |why: String| Err(Rejection::BadInput(why));
    if input.is_from_agent() {
        let bytes = state.agent_input_bytes.saturating_add(input.bytes());
        if state.agent_inputs >= agent_share {
            return refused(format!("the session has had {agent_share} inputs of agents, which is the limit"));
        }
        if bytes > agent_max {
            return refused(format!(
                "with it the inputs of agents in the session have {bytes} bytes, the limit is {agent_max}"
            ));
        }
    }
    let others = state.accepted.len().saturating_sub(state.agent_inputs);
    if others.saturating_add(state.agent_inputs.min(agent_share)) >= MAX_INPUTS {
        return refused(format!(
            "the session has had {MAX_INPUTS} inputs, which is the limit: branch off from it, or open another session"
        ));
    }
    let others = state.input_bytes.saturating_sub(state.agent_input_bytes);
    let bytes = others.saturating_add(state.agent_input_bytes.min(agent_max)).saturating_add(input.bytes());
    if bytes > max_bytes {
        return refused(format!(
            "with it the inputs of the session have {bytes} bytes, the limit is {max_bytes}: branch off from it, or open another session"
        ));
    }
    Ok(())
}

fn check_limits(draft: &Draft<'_>, input: &InputAccepted) -> Result<(), Rejection> {
    let limits = &draft.state.limits;
    if input.text.trim().is_empty() {
        return Err(Rejection::BadInput("the text of the input is empty: give it a text".into()));
    }
    let len = input.text.len() as u64;
    if len > limits.input_bytes {
        let max = limits.input_bytes;
        return Err(Rejection::BadInput(format!(
            "the input has {len} bytes, the limit is {max}: put the rest into a file"
        )));
    }
    let schema = input.format.as_ref().map_or(0, |format| format.len() as u64);
    if schema > MAX_FORMAT_BYTES {
        return Err(Rejection::BadInput(format!(
            "the schema of its answer has {schema} bytes, the limit is {MAX_FORMAT_BYTES}: ask for a smaller type"
        )));
    }
    if let Some(turns) = input.turns.filter(|turns| *turns > limits.turns) {
        let max = limits.turns;
        return Err(Rejection::BadInput(format!(
            "the input allows {turns} turns, the session's limit `turns` is {max}: allow {max} or fewer"
        )));
    }
    check_totals(draft, input)?;
    // If no run is in flight, the input opens one, which empties the queue. So a full queue does not matter.
    if draft.run().is_some() && draft.state.queue.len() >= limits.queue as usize {
        return Err(Rejection::Busy { what: "the session's queue", limit: limits.queue.into() });
    }
    Ok(())
}
