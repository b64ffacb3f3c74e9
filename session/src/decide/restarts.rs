use super::draft::Draft;
use super::ending::Scope;
use crate::call::CallEnd;
use crate::effect::Rejection;
use crate::ids::Text;
use crate::outcome::Outcome;
use crate::state::Phase;

pub(super) fn on_restarts_exhausted(draft: &mut Draft<'_>, command: Option<Text>) -> Result<(), Rejection> {
    match draft.state.phase() {
        Phase::Quiet => return Err(Rejection::Stale("an exhausted restart budget")),
        Phase::Queued => draft.end(Outcome::RestartsExhausted { command }),
        Phase::Working
        | Phase::WaitingMidTurn
        | Phase::WaitingAtRest
        | Phase::HeldInterrupted
        | Phase::HeldOutOfTurns => {
            draft.drop_local(Scope::Local, &CallEnd::Interrupted);
            draft.end(Outcome::RestartsExhausted { command });
        }
        // The outcome is already fixed, so the end record has the crash in a field of its own.
        Phase::Closing => {
            draft.drop_local(Scope::Local, &CallEnd::Cancelled);
            let gave_up = command.unwrap_or_else(|| "restarts exhausted".into());
            draft.end_check(Some(gave_up));
        }
    }
    Ok(())
}
