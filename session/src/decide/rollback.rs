//! Rollbacks: the messages of a run that did not complete are hidden, never deleted.

use super::close::quiet;
use super::draft::Draft;
use crate::effect::{Rejection, Reply};
use crate::ids::RunNo;
use crate::outcome::{Initiator, Outcome};
use crate::record::Record;

pub(super) fn roll_back(draft: &mut Draft<'_>, run: Option<RunNo>, by: Initiator) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    quiet(draft, "roll back")?;
    let last = draft.state.last_run;
    let run = run.unwrap_or(last);
    let at = (run.0 as usize).checked_sub(1);
    match at.and_then(|at| draft.state.outcomes.get(at)) {
        Some(Outcome::Completed) => {
            return Err(Rejection::BadInput(format!(
                "run {run} completed: only a run that did not complete can be rolled back; branch off before it, or regenerate \
                 its answer"
            )));
        }
        Some(_) => {}
        None if last == RunNo(0) => {
            return Err(Rejection::BadInput("the session has no run to roll back".into()));
        }
        None => {
            return Err(Rejection::NotFound(format!("the session has no run {run}: its runs are 1 to {last}")));
        }
    }
    if !draft.state.is_rolled_back(run) {
        draft.emit(Record::RolledBack { run, by });
    }
    draft.reply(Reply::Done(run));
    Ok(())
}
