use std::collections::BTreeSet;
use std::sync::Arc;

use crate::call::{CallEnd, CallKind, CallResult, ToolEffect};
use crate::ids::{AttemptNo, CallId, Text, TurnNo};
use crate::message::Message;
use crate::place::Mode;
use crate::record::{AttemptDiscarded, CallFinished, CompactionCause, Prompt, Stop, TurnAnswered};
use crate::render;
use crate::state::{Answer, Call, CallPhase, State, Turn};

impl State {
    pub(super) fn apply_turn_started(
        &mut self,
        (no, attempt): (TurnNo, AttemptNo),
        prompt: Prompt,
        model: &Text,
        compacts: Option<CompactionCause>,
    ) {
        if let Some(turn) = self.run.as_mut().and_then(|run| run.turn.as_mut()).filter(|turn| turn.no == no) {
            turn.compacting = compacts;
            turn.overflowed |= compacts == Some(CompactionCause::Overflow);
            turn.attempt = attempt;
            turn.streaming = true;
            turn.limited = None;
            turn.awaits = None;
            turn.tries = if turn.model == *model { turn.tries.saturating_add(1) } else { 1 };
            turn.model = Arc::clone(model);
            return;
        }
        self.flush_deferred();
        self.due.clear();
        self.last_turn = no;
        if let Some(text) = render::prompt(prompt) {
            self.push_message(Message::Prompt { text });
        }
        if let Some(run) = &mut self.run {
            run.turn = Some(Box::new(Turn {
                no,
                attempt,
                model: Arc::clone(model),
                tries: 1,
                prompt,
                streaming: true,
                compacting: compacts,
                overflowed: compacts == Some(CompactionCause::Overflow),
                compaction_failed: false,
                answered: None,
                calls: Vec::new(),
                open: 0,
                local: 0,
                writing: 0,
                waits: BTreeSet::new(),
                returning: None,
                unstarted: 0,
                asked: 0,
                limited: None,
                awaits: None,
            }));
        }
    }

    pub(super) fn apply_attempt_discarded(&mut self, discarded: &AttemptDiscarded) {
        if let Some(usage) = &discarded.usage {
            self.usage.add(usage);
        }
        if let Some(run) = &mut self.run {
            if let Some(usage) = &discarded.usage {
                run.usage_self.add(usage);
            }
            if let Some(turn) = &mut run.turn {
                turn.streaming = false;
                turn.compacting = None;
                turn.awaits = discarded.awaits.clone();
            }
        }
        self.flush_deferred();
    }

    pub(super) fn apply_turn_answered(&mut self, answered: &TurnAnswered) {
        let seq = self.next_seq;
        self.usage.add(&answered.usage);
        self.push_message(Message::Assistant {
            seq,
            text: answered.text.clone(),
            reasoning: answered.reasoning.clone(),
            calls: answered.calls.iter().cloned().collect(),
        });
        if answered.usage.tokens() > 0 {
            self.measured = Some((answered.usage.tokens(), self.transcript.len()));
        }
        let Some(run) = &mut self.run else { return };
        run.turns = run.turns.saturating_add(1);
        run.spent = run.spent.saturating_add(1);
        run.worked_ms = answered.worked_ms;
        run.usage_self.add(&answered.usage);
        run.by_notices = false;
        if !answered.answers.is_empty() {
            run.unanswered.clear();
            run.format = None;
        }
        let open = u32::try_from(answered.calls.len()).unwrap_or(u32::MAX);
        let mut continued = false;
        if let Some(turn) = &mut run.turn {
            continued = turn.prompt == Prompt::Continuation;
            turn.streaming = false;
            turn.answered = Some(seq);
            turn.open = open;
            turn.unstarted = open;
            turn.calls = answered
                .calls
                .iter()
                .map(|tool_call| Call {
                    tool: Arc::clone(&tool_call.tool),
                    args: Arc::clone(&tool_call.args),
                    kind: None,
                    allowed: false,
                    phase: CallPhase::Unstarted,
                })
                .collect();
        }
        let text = answered.text.as_ref().filter(|text| !text.trim().is_empty());
        if text.is_none() && open == 0 && answered.stop == Stop::Length {
            // The truncated answer is empty, so its continuation starts a new answer.
            run.answer = None;
        }
        if let Some(text) = text {
            // A continuation joins the truncated answer without a break.
            let between = if continued && run.answer.is_some() { "" } else { "\n\n" };
            run.partial.push(between, text);
            if answered.calls.is_empty() && answered.stop != Stop::Refused {
                let previous = run.answer.take().filter(|_| continued);
                let mut whole = previous.map(|previous| previous.text).unwrap_or_default();
                whole.push("", text);
                run.answer = Some(Answer { seq, text: whole });
            }
        }
        if open == 0 {
            self.flush_deferred();
        }
    }

    pub(super) fn apply_call_started(&mut self, id: CallId, kind: &CallKind) {
        let Some(turn) = self.turn_of(id) else { return };
        let Some(call) = turn.calls.get_mut(id.ix as usize) else { return };
        if call.phase != CallPhase::Unstarted {
            return;
        }
        call.phase = CallPhase::Started;
        call.kind = Some(kind.clone());
        turn.unstarted = turn.unstarted.saturating_sub(1);
        match kind {
            CallKind::Local(effect) => {
                turn.local += 1;
                turn.writing += u32::from(*effect != ToolEffect::ReadOnly);
            }
            CallKind::Await { .. } | CallKind::Check { .. } => _ = turn.waits.insert(id.ix),
            CallKind::Return => turn.returning = Some(id.ix),
            CallKind::Child(_)
            | CallKind::Continue(_)
            | CallKind::Cancel { .. }
            | CallKind::Propose(_)
            | CallKind::Invalid(_) => {}
        }
    }

    pub(super) fn apply_call_finished(&mut self, finished: &CallFinished) {
        if finished.end == CallEnd::Backgrounded
            && let Some(owned) = self.run.as_mut().and_then(|run| run.owned.get_mut(&finished.call))
        {
            owned.mode = Mode::Background;
        }
        if finished.end == CallEnd::Ok {
            self.apply_proposal(finished.call);
        }
        let result = CallResult {
            end: finished.end.clone(),
            content: Arc::clone(&finished.content),
            truncated_from: finished.truncated_from,
        };
        self.close_call(finished.call, result);
    }

    /// Applies an approved proposal: the other agent continues with a new turn allowance, as after a person's message.
    fn apply_proposal(&mut self, id: CallId) {
        let Some(Some(CallKind::Propose(other))) = self.call(id).map(|call| call.kind.clone()) else { return };
        self.agent = Some(other);
        if let Some(run) = &mut self.run {
            run.spent = 0;
        }
    }

    /// Sets the result of a call. After the last call of an answer, all results enter the transcript in call order.
    pub(super) fn close_call(&mut self, id: CallId, result: CallResult) {
        let Some(turn) = self.turn_of(id) else { return };
        let Some(call) = turn.calls.get_mut(id.ix as usize) else { return };
        match &call.phase {
            CallPhase::Unstarted => turn.unstarted = turn.unstarted.saturating_sub(1),
            CallPhase::Asked(_) => turn.asked = turn.asked.saturating_sub(1),
            CallPhase::Started => match &call.kind {
                Some(CallKind::Local(effect)) => {
                    turn.local = turn.local.saturating_sub(1);
                    turn.writing = turn.writing.saturating_sub(u32::from(*effect != ToolEffect::ReadOnly));
                }
                Some(CallKind::Await { .. } | CallKind::Check { .. }) => _ = turn.waits.remove(&id.ix),
                Some(CallKind::Return) => turn.returning = None,
                Some(
                    CallKind::Child(_)
                    | CallKind::Continue(_)
                    | CallKind::Cancel { .. }
                    | CallKind::Propose(_)
                    | CallKind::Invalid(_),
                )
                | None => {}
            },
            CallPhase::Closed(_) => return,
        }
        call.phase = CallPhase::Closed(Arc::new(result));
        turn.open = turn.open.saturating_sub(1);
        if turn.open == 0 {
            let results: Vec<Message> = turn.results().collect();
            Arc::make_mut(&mut self.transcript).extend(results);
            self.flush_deferred();
        }
    }

    /// Adds the messages that arrived while calls were open or a stream was active.
    pub(super) fn flush_deferred(&mut self) {
        let Some(run) = self.run.as_mut().filter(|run| !run.deferred.is_empty()) else { return };
        let deferred = std::mem::take(&mut run.deferred);
        Arc::make_mut(&mut self.transcript).extend(deferred);
    }

    pub(super) fn turn_of(&mut self, id: CallId) -> Option<&mut Turn> {
        self.run.as_mut().and_then(|run| run.turn.as_deref_mut()).filter(|turn| turn.no == id.turn)
    }
}

impl Turn {
    /// Returns the results of the turn's closed calls, in call order.
    fn results(&self) -> impl Iterator<Item = Message> {
        self.calls.iter().zip(0_u32..).filter_map(|(call, ix)| match &call.phase {
            CallPhase::Closed(result) => Some(Message::Result {
                call: CallId { turn: self.no, ix },
                error: !matches!(result.end, CallEnd::Ok | CallEnd::Backgrounded),
                content: Arc::clone(&result.content),
            }),
            CallPhase::Unstarted | CallPhase::Asked(_) | CallPhase::Started => None,
        })
    }
}
