//! Ends of a run: the fixed outcome, the closing hold, and the end record.

use super::draft::Draft;
use crate::call::{CallEnd, CallKind, ToolEffect};
use crate::command::Deadline;
use crate::effect::Effect;
use crate::ids::{CallId, Hash, Text};
use crate::index;
use crate::outcome::{Initiator, ModelFail, Outcome};
use crate::record::{AttemptDiscarded, Hold, QueueChange, Record, RunEnded};
use crate::render;
use crate::state::CallPhase;
use crate::state::waiting::ids;
use crate::usage::Usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All open calls except started child calls and started local calls.
    Waiting,
    /// The calls of `Waiting`, and started local calls, whose work is lost.
    Local,
    All,
}

impl Draft<'_> {
    /// Fixes the outcome: `END(o)` in the table of `decide`. The run ends now, or after its local work and owned runs.
    pub(super) fn end(&mut self, outcome: Outcome) {
        let Some(run) = self.run() else { return };
        if !run.started {
            return self.end_now(outcome, None);
        }
        self.answer_calls(Scope::Waiting, &CallEnd::Cancelled);
        self.take_notices();
        let can_end = self.run().is_none_or(|run| !run.has_local_work() && run.owned.is_empty());
        if can_end { self.end_now(outcome, None) } else { self.hold_closing(outcome) }
    }

    fn hold_closing(&mut self, outcome: Outcome) {
        let keeps_queue = self.keeps_queue;
        self.hold(Hold::Closing { outcome, keeps_queue });
    }

    /// Holds the run: releases its slot and stops its clock. The caller has answered calls and taken notices.
    pub(super) fn hold(&mut self, why: Hold) {
        let Some(run) = self.run() else { return };
        let (no, local, owns) = (run.no, run.has_local_work(), !run.owned.is_empty());
        self.stop_clock();
        let closing = match &why {
            Hold::Closing { outcome, keeps_queue } => Some((outcome.kind(), *keeps_queue)),
            Hold::Interrupted { .. } | Hold::OutOfTurns => None,
        };
        self.emit(Record::RunHeld { run: no, why: Box::new(why) });
        let Some((outcome, keeps_queue)) = closing else { return };
        if local {
            self.effect(Effect::CancelLocal);
        }
        if owns {
            self.effect(Effect::CancelOwned { run: no, outcome, keeps_queue });
        }
        self.arm(Deadline::Grace(no), self.state.limits.grace_ms);
    }

    /// Writes the end record, notifies the owner, and opens the next run if an input is queued.
    pub(super) fn end_now(&mut self, outcome: Outcome, gave_up: Option<Text>) {
        self.end_with(outcome, None, gave_up);
    }

    pub(super) fn end_by_return(&mut self, call: CallId) {
        self.end_with(Outcome::Completed, Some(call), None);
    }

    fn end_with(&mut self, outcome: Outcome, returned: Option<CallId>, gave_up: Option<Text>) {
        self.take_notices();
        let Some(ended) = self.end_record(outcome, returned, gave_up) else { return };
        let Some(run) = self.run() else { return };
        let opened = run.opened.clone();
        let grace = matches!(run.hold, Some(Hold::Closing { .. } | Hold::Interrupted { .. }));
        let queued = !run.started && opened.slot;
        let notice = index::notice_from(self.state.id, &self.state.created.place, &opened, &ended);
        self.stop_clock();
        let (no, outcome, keeps_queue) = (ended.run, ended.outcome.clone(), ended.keeps_queue);
        self.drop_relatives_messages();
        self.emit(Record::RunEnded(Box::new(ended)));
        // The next run may open in the same decision, with no working time yet.
        self.clock.worked_ms = 0;
        if self.state.created.rolls_back && outcome != Outcome::Completed {
            self.emit(Record::RolledBack { run: no, by: Initiator::Host });
        }
        if queued {
            self.disarm(Deadline::Queue(no));
        }
        if grace {
            self.disarm(Deadline::Grace(no));
        }
        if opened.wall_cap_at.is_some() {
            self.disarm(Deadline::WallCap(no));
        }
        if let Some((to, notice)) = notice {
            self.effect(Effect::DeliverCompletion { to, notice: Box::new(notice) });
        }
        self.effect(Effect::Ended { run: no, outcome });
        if !keeps_queue {
            self.open_next();
        }
    }

    /// Removes the messages of relatives that the run did not take: they were only for that run.
    fn drop_relatives_messages(&mut self) {
        let messages = self.state.queue.iter().filter(|queued| queued.input.is_from_relative());
        let untaken = ids(messages);
        if !untaken.is_empty() {
            self.emit(Record::QueueChanged { change: QueueChange::Removed(untaken), by: Initiator::Host });
        }
    }

    fn end_record(&self, outcome: Outcome, returned: Option<CallId>, gave_up: Option<Text>) -> Option<RunEnded> {
        let run = self.run()?;
        let completed = outcome == Outcome::Completed;
        // The host adds a note on changes to text answers itself. Other results get the note here.
        let own = self.state.created.worktree.is_some_and(|worktree| worktree.of == self.state.id);
        let answer = run.answer.as_ref().filter(|_| completed);
        let needs_note = own && run.turns > 0 && (answer.is_none() || returned.is_some());
        let (result, whole) = match returned.and_then(|id| self.state.call(id)) {
            Some(call) => (run.turn.as_ref().and_then(|turn| turn.answered), render::return_result(&call.args)),
            None if self.state.created.joins => (answer.map(|answer| answer.seq), run.partial.text()),
            // If the run is out of turns, the owner receives only the last text.
            None if outcome == Outcome::OutOfTurns => (None, self.state.last_text(run).unwrap_or_default()),
            None => (answer.map(|answer| answer.seq), answer.map_or_else(|| run.partial.text(), |it| it.text.text())),
        };
        let whole = if needs_note { render::with_worktree(self.state.id, &whole, returned.is_some()) } else { whole };
        Some(RunEnded {
            run: run.no,
            outcome,
            result,
            returned,
            text: (!whole.is_empty()).then(|| render::cut(&whole, self.state.limits.result_bytes)),
            len: whole.len() as u64,
            hash: Hash::of(whole.as_bytes()),
            turns: run.turns,
            usage_self: run.usage_self,
            usage_owned: run.usage_owned,
            worked_ms: self.clock.worked_ms.max(run.worked_ms),
            keeps_queue: self.keeps_queue || matches!(run.hold, Some(Hold::Closing { keeps_queue: true, .. })),
            gave_up,
        })
    }

    /// Answers each call of `scope` with a result for `end`.
    pub(super) fn answer_calls(&mut self, scope: Scope, end: &CallEnd) {
        self.state.due.clear();
        let Some(turn) = self.state.turn() else { return };
        if turn.open == 0 {
            return;
        }
        let no = turn.no;
        let closing: Vec<(CallId, CallEnd)> = turn
            .calls
            .iter()
            .zip(0_u32..)
            .filter_map(|(call, ix)| {
                let end = match (&call.phase, &call.kind) {
                    (CallPhase::Closed(_), _) => return None,
                    (CallPhase::Started, Some(CallKind::Local(effect))) => match (scope, effect) {
                        (Scope::Waiting, _) => return None,
                        // The call stopped at an unknown point.
                        (Scope::Local | Scope::All, ToolEffect::SideEffect) => CallEnd::UnknownEffects,
                        (Scope::Local | Scope::All, ToolEffect::ReadOnly | ToolEffect::Idempotent) => end.clone(),
                    },
                    (CallPhase::Started, Some(CallKind::Child(_) | CallKind::Continue(_))) if scope != Scope::All => {
                        return None;
                    }
                    (CallPhase::Started | CallPhase::Asked(_) | CallPhase::Unstarted, _) => end.clone(),
                };
                Some((CallId { turn: no, ix }, end))
            })
            .collect();
        for (call, end) in closing {
            let content = closing_text(&end).into();
            self.finish_call(call, end, content);
        }
    }

    /// Discards the stream and answers the calls of `scope`, whose tasks no longer run.
    pub(super) fn drop_local(&mut self, scope: Scope, end: &CallEnd) {
        self.discard_stream("stopped: its run is ending or its activation was lost");
        self.answer_calls(scope, end);
    }

    pub(super) fn discard_stream(&mut self, why: &str) {
        let Some(turn) = self.state.turn().filter(|turn| turn.streaming) else { return };
        let (turn, attempt) = (turn.no, turn.attempt);
        let (error, message) = (ModelFail::Dropped, why.into());
        // The cost so far is not zero but unknown.
        let usage = Some(Usage::UNKNOWN);
        let (model, retry_delay_ms, awaits, queued_ms) = (None, None, None, 0);
        let discarded =
            AttemptDiscarded { turn, attempt, error, message, model, retry_delay_ms, awaits, usage, queued_ms };
        self.emit(Record::AttemptDiscarded(Box::new(discarded)));
        self.disarm(Deadline::Turn(turn));
    }
}

pub(super) fn closing_text(end: &CallEnd) -> &'static str {
    match end {
        CallEnd::UnknownEffects => {
            "Interrupted while it ran: it may have had all, some or none of its effects. Check before you call it again."
        }
        CallEnd::Interrupted => "Interrupted before it was done. Call it again if it is still needed.",
        CallEnd::Cancelled => "Cancelled: the run is ending.",
        CallEnd::Ok | CallEnd::ToolError { .. } | CallEnd::Denied | CallEnd::TimedOut | CallEnd::Backgrounded => {
            "Not finished."
        }
    }
}
