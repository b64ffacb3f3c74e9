//! Interrupts: running work stops, and the run waits for the next input.

use super::cancel::answer_ended;
use super::draft::Draft;
use super::ending::Scope;
use crate::call::CallEnd;
use crate::command::Deadline;
use crate::effect::{Effect, Reply};
use crate::ids::{CallId, RunKey, SessionId};
use crate::index;
use crate::outcome::{By, Outcome};
use crate::record::{Hold, Record};
use crate::state::Run;

pub(super) fn interrupt(draft: &mut Draft<'_>, by: By) {
    let Some(run) = draft.run() else {
        answer_ended(draft, draft.state.last_run);
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
    if draft.run().is_some_and(stops) {
        draft.arm(Deadline::Grace(no), draft.state.limits.grace_ms);
    }
    // Nothing may need to stop, and an input may be queued: the run then resumes at once.
    draft.check();
}

/// Returns whether work of an interrupted run still has to stop: its grace is for that.
pub(super) fn stops(run: &Run) -> bool {
    run.has_local_work() || run.open_calls() > 0
}

impl Draft<'_> {
    /// Cancels the owned runs whose calls wait for them: one record, and the effect each time.
    ///
    /// The calls stay open until the notices of those runs; background runs continue. A run that its child has not
    /// opened yet is reached too, because the row follows the `continue` row.
    pub(super) fn cancel_blocking(&mut self) {
        let Some(run) = self.run() else { return };
        let no = run.no;
        let reached: Vec<(CallId, SessionId, bool)> = run
            .owned
            .iter()
            .filter(|(key, _)| self.state.is_open(**key))
            .map(|(key, owned)| (*key, owned.child, owned.cancel_asked))
            .collect();
        for (key, child, reached_by) in reached {
            if !reached_by {
                self.emit(Record::CancelAsked { call: None, child, key });
            }
            let by = index::cancel_by(None);
            self.effect(Effect::CancelChild { run: no, child, key, by });
        }
    }
}
