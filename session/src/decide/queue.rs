//! Changes of the queue by a person or the host. They remove inputs, never notices.

use super::draft::Draft;
use crate::effect::{Rejection, Reply};
use crate::ids::InputId;
use crate::outcome::Initiator;
use crate::record::{QueueChange, Record};

pub(super) fn change(draft: &mut Draft<'_>, change: QueueChange, by: Initiator) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    let is_queued = |id: &InputId| draft.state.queue.iter().any(|queued| queued.input.id == *id);
    let changes = match &change {
        // All ids are removed or none, so that one reply covers all.
        QueueChange::Removed(ids) if !ids.iter().all(is_queued) => {
            draft.reply(Reply::NotFound);
            return Ok(());
        }
        QueueChange::Removed(ids) => !ids.is_empty(),
        QueueChange::Cleared => !draft.state.queue.is_empty(),
    };
    draft.reply(Reply::Done(draft.state.last_run));
    if changes {
        draft.emit(Record::QueueChanged { change, by });
    }
    Ok(())
}
