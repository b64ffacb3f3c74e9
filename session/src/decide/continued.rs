//! Continuation of an ended child: the owner requests it by an outbox row, and the child opens a run or refuses.

use super::draft::Draft;
use crate::call::{CallEnd, CallKind, ToolErrorKind};
use crate::command::{Continue, ContinuePlan};
use crate::effect::{Effect, Rejection};
use crate::ids::CallId;
use crate::index;
use crate::outcome::{Initiator, Outcome};
use crate::place::{Mode, Owner};
use crate::record::{ContinueAsked, ContinueRefusal, From, InputAccepted, Lane, Record};
use crate::render;
use crate::values::json_bytes;

/// Handles the row in the child: opens a run or refuses. A repeated row has no effect.
pub(super) fn on_continue(draft: &mut Draft<'_>, ask: Continue) -> Result<(), Rejection> {
    if ask.input != index::continue_input(ask.owner, ask.key) {
        let why = "its input id does not belong to its key";
        return Err(Rejection::Misplaced { command: "continue", why });
    }
    let answered = draft.state.accepted.binary_search(&ask.input).is_ok();
    if answered {
        return Err(Rejection::Stale("a continue"));
    }
    match refusal(draft) {
        Some(why) => refuse(draft, &ask, why),
        None => open_run(draft, ask),
    }
    Ok(())
}

fn refusal(draft: &Draft<'_>) -> Option<ContinueRefusal> {
    if draft.state.deleted {
        Some(ContinueRefusal::Deleted)
    } else if draft.run().is_some() {
        Some(ContinueRefusal::InFlight)
    } else if draft.state.closed {
        Some(ContinueRefusal::Closed)
    } else {
        None
    }
}

fn refuse(draft: &mut Draft<'_>, ask: &Continue, why: ContinueRefusal) {
    let (owner, key) = (ask.owner, ask.key);
    draft.emit(Record::ContinueRefused { owner, key, why });
    let notice = Box::new(index::refusal_from(draft.state.id, key, why));
    draft.effect(Effect::DeliverCompletion { to: owner, notice });
}

fn open_run(draft: &mut Draft<'_>, ask: Continue) {
    let Continue { owner: session, run, key, input, text, mode, turns, tools, wall_cap_at, owner_ended } = ask;
    let (from, owner) = (From::Model { session, run, call: key }, Owner::Run { session, run, call: key });
    let input = InputAccepted { turns, tools, ..InputAccepted::new(input, from, Lane::Send, text, owner) };
    // A cancel of the whole tree left inputs queued. The end of a run that never started must not open runs for them.
    let keeps_queue = !draft.state.queue.is_empty();
    let opened = draft.run_opened_by(&input, mode, wall_cap_at);
    draft.emit(Record::InputAccepted(Box::new(input)));
    match owner_ended {
        None => draft.open(opened),
        Some(outcome) => {
            draft.keeps_queue = keeps_queue;
            draft.emit(Record::RunOpened(Box::new(opened)));
            draft.end_now(Outcome::Cancelled { by: Initiator::Owner { outcome } }, None);
        }
    }
}

/// Records the row and the call in the owner. The call owns the run from now on.
pub(super) fn ask(draft: &mut Draft<'_>, call: CallId, plan: ContinuePlan) {
    let ContinuePlan { child, text, mode, turns, tools, grant: _ } = plan;
    let kind = CallKind::Continue(mode);
    let known = draft.state.children.get(&child).filter(|child| child.call.is_some());
    let Some((short, dialect)) = known.map(|child| (child.short.clone(), child.dialect)) else {
        let text = format!("Unknown task {child}: start one, or use the id that you were given.");
        return draft.refuse(call, kind, ToolErrorKind::NotFound, text.into());
    };
    // For each child at most one call of the owner may wait, so that notices arrive in the order of the runs.
    if let Some(key) = known.and_then(|child| child.key) {
        let text = if draft.state.arrived.contains(child, index::RowKey::Call(key)) {
            match dialect.fetch_tool() {
                Some(tool) => {
                    format!("Task {short} has ended and you have not read its result: call `{tool}`, then continue it.")
                }
                None => format!(
                    "Task {short} has ended and you have not seen its result yet: it follows. Then continue it."
                ),
            }
        } else {
            format!("Task {short} is still running: wait for its end or cancel it, then continue it.")
        };
        return draft.refuse(call, kind, ToolErrorKind::Refused, dialect.refused("REFUSED", &text));
    }
    if draft.state.children.get(&child).is_some_and(|child| child.owed.is_some()) {
        let text = format!("Task {short} has an earlier run that has not ended yet: try again later.");
        return draft.refuse(call, kind, ToolErrorKind::Refused, dialect.refused("REFUSED", &text));
    }
    // The text is recorded here and in the child.
    if let Err(refusal) = draft.check_recorded(json_bytes(&text).saturating_mul(2), dialect) {
        return draft.refuse(call, kind, refusal.kind, refusal.message);
    }
    let access = draft.state.due.access.remove(&call.ix);
    draft.emit(Record::CallStarted { call, kind: Box::new(kind), timeout_ms: None, access });
    let request = ContinueAsked { call, child, input: text, mode, turns, tools };
    let opened = draft.run().map(|run| std::sync::Arc::clone(&run.opened));
    let ask = opened.map(|opened| index::continue_from(draft.state.id, &opened, &request));
    draft.emit(Record::ContinueAsked(Box::new(request)));
    if mode == Mode::Background {
        let text = render::continue_result(dialect, child, &short, turns);
        draft.finish_call(call, CallEnd::Ok, text);
    }
    if let Some(ask) = ask {
        draft.effect(Effect::AskToContinue { child, ask: Box::new(ask) });
    }
}
