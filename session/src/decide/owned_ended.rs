//! Outbox rows with the ends of children's runs (owned, detached or opened by a person).

use super::draft::Draft;
use crate::effect::Rejection;
use crate::record::{Carrier, Notice, NoticeTaken, Record};

pub(super) fn on_owned_ended(draft: &mut Draft<'_>, notices: Vec<Notice>) -> Result<(), Rejection> {
    if !arrive(draft, notices) {
        return Err(Rejection::Stale("the end of an owned run"));
    }
    draft.advance();
    Ok(())
}

/// Takes the notices of open calls at once and keeps the others for the next boundary. Returns whether any was new.
pub(super) fn arrive(draft: &mut Draft<'_>, notices: Vec<Notice>) -> bool {
    let mut arrived = false;
    for notice in notices {
        // A row arrives twice if it is delivered live and the next start of the host finds it again.
        if !is_owed(draft, &notice) {
            continue;
        }
        // Checks whether the call is open rather than its mode: a blocking call may have moved to the background.
        match notice.key {
            Some(key) if draft.state.is_open(key) => {
                arrived = true;
                let taken = NoticeTaken { items: vec![notice], carrier: Carrier::Result };
                draft.emit(Record::NoticeTaken(Box::new(taken)));
            }
            Some(_) | None => {
                let notice = if draft.state.keeps_text(&notice) { notice } else { notice.without_text() };
                arrived |= draft.state.arrived.push(notice);
            }
        }
    }
    arrived
}

fn is_owed(draft: &Draft<'_>, notice: &Notice) -> bool {
    match (notice.key, notice.run) {
        (Some(key), _) => draft.state.owes(key),
        (None, Some(run)) => !draft.state.noticed.contains(&(notice.child, run)),
        (None, None) => false,
    }
}
