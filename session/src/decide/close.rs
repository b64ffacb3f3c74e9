//! Closing of a session without a run in flight. An input reopens it.

use super::draft::Draft;
use crate::effect::{Rejection, Reply};
use crate::outcome::Initiator;
use crate::record::Record;

pub(super) fn close(draft: &mut Draft<'_>, by: Initiator) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    quiet(draft, "close")?;
    if !draft.state.queue.is_empty() {
        return Err(Rejection::Waiting { inputs: draft.state.queue.len() });
    }
    draft.reply(Reply::Done(draft.state.last_run));
    if !draft.state.closed {
        draft.emit(Record::SessionClosed { by });
    }
    Ok(())
}

/// Rejects `command` if a run is in flight.
pub(super) fn quiet(draft: &Draft<'_>, command: &'static str) -> Result<(), Rejection> {
    match draft.run() {
        None => Ok(()),
        Some(_) => Err(Rejection::Working { command, why: "a run is in flight: wait for its end, or cancel it" }),
    }
}
