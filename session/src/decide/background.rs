//! Moves a blocking child call to the background.

use super::cancel::reply_not_in_flight;
use super::draft::Draft;
use crate::call::{CallEnd, CallKind};
use crate::effect::{Rejection, Reply};
use crate::ids::{CallId, RunKey};
use crate::place::Mode;
use crate::record::Hold;
use crate::state::CallPhase;

pub(super) fn background(draft: &mut Draft<'_>, call: CallId) -> Result<(), Rejection> {
    let Some(run) = draft.run() else {
        reply_not_in_flight(draft, draft.state.last_run);
        return Ok(());
    };
    let no = run.no;
    if let Some(Hold::Closing { outcome, .. }) = &run.hold {
        let (run, outcome) = (RunKey { session: draft.state.id, run: no }, outcome.clone());
        draft.reply(Reply::AlreadyEnded(run, outcome));
        return Ok(());
    }
    if run.owned.contains_key(&call) && !draft.state.is_open(call) {
        draft.reply(Reply::Done(no));
        return Ok(());
    }
    // A held run cancels its open calls, so none could continue in the background.
    let held = run.hold.is_some();
    match draft.state.call(call).filter(|call| !held && !matches!(call.phase, CallPhase::Closed(_))) {
        None => {
            draft.reply(Reply::NotFound);
            return Ok(());
        }
        Some(found) if found.phase == CallPhase::Started => match found.kind {
            Some(CallKind::Child(Mode::Blocking) | CallKind::Continue(Mode::Blocking)) => {}
            Some(_) | None => {
                return Err(misplaced("only a call that waits for a task can be moved to the background"));
            }
        },
        Some(_) => return Err(misplaced("the call has not started")),
    }
    draft.reply(Reply::Done(no));
    let child =
        draft.run().and_then(|run| run.owned.get(&call)).and_then(|owned| draft.state.children.get(&owned.child));
    let id = child.map(|child| child.short.to_string()).unwrap_or_default();
    let text = format!(
        "{{\"session_id\":\"{id}\",\"status\":\"moved_to_background\",\"message\":\"It continues; you are notified when it ends.\"}}"
    );
    draft.finish_call(call, CallEnd::Backgrounded, text.into());
    draft.advance();
    Ok(())
}

fn misplaced(why: &'static str) -> Rejection {
    Rejection::Misplaced { command: "background", why }
}
