//! A session is given a title or a summary: at any time, since neither is said to its model.

use super::draft::Draft;
use crate::command::Description;
use crate::effect::{Rejection, Reply};
use crate::ids::SessionId;
use crate::outcome::By;
use crate::record::{Record, SummarySet, TitleSet};
use crate::title;

/// Bytes of a summary at most.
const SUMMARY_BYTES: usize = 32 << 10;

pub(super) fn describe(draft: &mut Draft<'_>, description: Description) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    match description {
        Description::Title(set) => entitle(draft, set)?,
        Description::Summary(set) => summary(draft, set)?,
    }
    draft.reply(Reply::Done(draft.state.last_run));
    Ok(())
}

fn entitle(draft: &mut Draft<'_>, set: TitleSet) -> Result<(), Rejection> {
    title::check(&set.title).map_err(|bad| Rejection::BadInput(bad.to_string()))?;
    let taken = is_taken(draft, set.of)?;
    // What a person chose stands, and what is said again changes nothing: the host's word may come late, or twice.
    let stands = set.by != By::Person && draft.state.is_titled();
    if !stands && !taken && draft.state.title.as_ref() != Some(&set.title) {
        draft.emit(Record::TitleSet(Box::new(set)));
    }
    Ok(())
}

fn summary(draft: &mut Draft<'_>, set: SummarySet) -> Result<(), Rejection> {
    if set.text.trim().is_empty() || set.text.len() > SUMMARY_BYTES {
        return Err(Rejection::BadInput(format!(
            "the summary has {} bytes: it is to have from 1 to {SUMMARY_BYTES}",
            set.text.len()
        )));
    }
    if !is_taken(draft, Some(set.of))? {
        draft.emit(Record::SummarySet(Box::new(set)));
    }
    Ok(())
}

/// Whether the answer of the service session was taken before.
fn is_taken(draft: &Draft<'_>, of: Option<SessionId>) -> Result<bool, Rejection> {
    let Some(of) = of else { return Ok(false) };
    let unknown = || Rejection::BadInput(format!("session {of} is no service session of this one"));
    draft.state.service(of).ok_or_else(unknown)
}
