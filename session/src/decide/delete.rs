//! Deletion of a session without a run in flight, and of its queued inputs.

use super::close::quiet;
use super::draft::Draft;
use crate::effect::{Rejection, Reply};
use crate::outcome::Initiator;
use crate::record::{QueueChange, Record};

pub(super) fn delete(draft: &mut Draft<'_>, by: Initiator) -> Result<(), Rejection> {
    quiet(draft, "delete")?;
    draft.reply(Reply::Done(draft.state.last_run));
    if draft.state.deleted {
        return Ok(());
    }
    if !draft.state.queue.is_empty() {
        draft.emit(Record::QueueChanged { change: QueueChange::Cleared, by: by.clone() });
    }
    draft.emit(Record::SessionDeleted { by });
    Ok(())
}
