//! Interrupts: running work stops, and the run is held until the next input.

use super::cancel::reply_not_in_flight;
use super::draft::Draft;
use super::ending::Scope;
use crate::call::CallEnd;
use crate::command::Deadline;
use crate::effect::{Effect, Reply};
use crate::ids::{CallId, RunKey, SessionId};
use crate::index;
use crate::outcome::{Initiator, Outcome};
use crate::record::{Hold, Record};
use crate::state::Run;

pub(super) fn interrupt(draft: &mut Draft<'_>, by: Initiator) {
    let Some(run) = draft.run() else {
        reply_not_in_flight(draft, draft.state.last_run);
        return;
    };
    let (no, started) = (run.no, run.started);
    match run.hold.clone() {
        Some(Hold::Closing { outcome, .. }) => {
            let key = RunKey { session: draft.state.id, run: no };
            return draft.reply(Reply::AlreadyEnded(key, outcome));
        }
        Some(Hold::Interrupted { .. } | Hold::OutOfTurns) => return draft.reply(Reply::Done(no)),
        None => draft.reply(Reply::Done(no)),
    }
    if !started {
        return draft.end_now(Outcome::Interrupted { by }, None);
    }
    draft.answer_calls(Scope::Waiting, &CallEnd::Interrupted);
    draft.take_notices();
    draft.hold(Hold::Interrupted { by });
    if draft.run().is_some_and(Run::has_local_work) {
        draft.effect(Effect::CancelLocal);
    }
    draft.cancel_blocking();
    if draft.run().is_some_and(is_stopping) {
        draft.arm(Deadline::Grace(no), draft.state.limits.grace_ms);
    }
    // If nothing has to stop and an input is queued, the run resumes at once.
    draft.advance();
}

/// Returns whether work of an interrupted run has not stopped yet. The grace limits that time.
pub(super) fn is_stopping(run: &Run) -> bool {
    run.has_local_work() || run.open_calls() > 0
}

impl Draft<'_> {
    /// Cancels the owned runs whose calls wait for them. Records each cancel once; a repeated call repeats the effects only.
    ///
    /// The calls stay open until the notices of those runs arrive; background runs continue. The cancel also reaches a
    /// continued child that has not opened its run yet, because the `cancel` row follows the `continue` row.
    pub(super) fn cancel_blocking(&mut self) {
        let Some(run) = self.run() else { return };
        let no = run.no;
        let blocking: Vec<(CallId, SessionId, bool)> = run
            .owned
            .iter()
            .filter(|(key, _)| self.state.is_open(**key))
            .map(|(key, owned)| (*key, owned.child, owned.cancel_asked))
            .collect();
        for (key, child, recorded) in blocking {
            if !recorded {
                self.emit(Record::CancelAsked { call: None, child, key });
            }
            let by = index::cancel_by(None);
            self.effect(Effect::CancelChild { run: no, child, key, by });
        }
    }
}
