//! Starts the calls of an answer. Calls that cannot start end at once.

use std::sync::Arc;

use super::draft::Draft;
use super::owner_cancels;
use crate::authority::Access;
use crate::call::{CallEnd, CallKind, Invalid, ToolEffect, ToolErrorKind};
use crate::command::{Deadline, NeededApproval, Refusal};
use crate::dialect::{Dialect, jobs};
use crate::effect::Effect;
use crate::ids::{CallId, RunKey, Text, TurnNo};
use crate::index::RowKey;
use crate::record::{AgentOverride, CallFinished, Carrier, NoticeTaken, Record};
use crate::render;

/// An unstarted call with the kind that the runtime resolved.
pub(super) struct UnstartedCall {
    pub(super) ix: u32,
    pub(super) kind: CallKind,
    pub(super) note: Option<Text>,
    pub(super) access: Option<Box<Access>>,
    pub(super) ask: NeededApproval,
}

impl Draft<'_> {
    /// Sorts the calls of the turn by what they wait for and answers those that cannot start.
    pub(super) fn enqueue(&mut self, turn: TurnNo, unstarted: Vec<UnstartedCall>) {
        self.state.due.clear();
        let starts_task = unstarted.iter().any(|call| call.kind.is_child());
        let mut admit = Vec::new();
        let mut returning = false;
        for UnstartedCall { ix, kind, note, access, ask } in unstarted {
            let id = CallId { turn, ix };
            let over = ix >= self.state.limits.calls_per_answer;
            let kind = if over { CallKind::Invalid(Invalid::OverLimit) } else { kind };
            if let Some(access) = access {
                self.state.due.access.insert(ix, access);
            }
            if (ask.is_needed() || matches!(kind, CallKind::Propose(_))) && self.ask(id, &kind) {
                self.state.due.note(ix, ask);
                continue;
            }
            match kind {
                CallKind::Local(ToolEffect::ReadOnly) => self.state.due.reads.push_back(ix),
                CallKind::Local(effect @ (ToolEffect::Idempotent | ToolEffect::SideEffect)) => {
                    self.state.due.writes.push_back((ix, effect));
                }
                CallKind::Child(_) | CallKind::Continue(_) => admit.push(ix),
                CallKind::Await { .. } | CallKind::Check { .. } | CallKind::Cancel { .. } => {
                    self.state.due.waits.push_back((ix, kind));
                }
                CallKind::Return => match self.return_refusal(starts_task, returning) {
                    Some(why) => self.refuse(id, kind, ToolErrorKind::Refused, why.into()),
                    None => {
                        returning = true;
                        self.state.due.waits.push_back((ix, kind));
                    }
                },
                CallKind::Propose(other) => self.hand_over(id, other),
                CallKind::Invalid(invalid) => {
                    let text = note.filter(|_| !over).unwrap_or_else(|| self.correction(id, invalid));
                    self.refuse(id, kind, error_kind(invalid), text);
                }
            }
        }
        self.state.due.admissions = u32::try_from(admit.len()).unwrap_or(u32::MAX);
        if !admit.is_empty() {
            self.effect(Effect::Admit { turn, calls: admit });
        }
    }

    /// Returns the reason to refuse a `return` call, if any: no task of the run may be unfinished.
    pub(super) fn return_refusal(&self, starts_task: bool, returns_already: bool) -> Option<&'static str> {
        if starts_task {
            Some("This answer also starts a task: wait for its end, then return.")
        } else if returns_already {
            Some("This answer returns twice: only the first `return` counts.")
        } else if self.run().is_some_and(|run| !run.owned.is_empty()) {
            Some("Tasks that you started are still running: wait for them or cancel them, then return.")
        } else if self.state.arrived.iter().any(|row| self.state.reaches_model(row)) {
            Some("A task has ended and you have not seen its result yet: you will get it next. Then return.")
        } else {
            None
        }
    }

    /// Applies an approved proposal: the other agent answers from the next turn on.
    pub(super) fn hand_over(&mut self, call: CallId, other: Arc<AgentOverride>) {
        let text = format!(
            "The plan is approved. From now on the agent `{}` continues this session, with its permissions: carry out the plan \
             now, step by step.",
            other.agent
        );
        let kind = Box::new(CallKind::Propose(other));
        self.emit(Record::CallStarted { call, kind, timeout_ms: None, access: None });
        self.finish_call(call, CallEnd::Ok, text.into());
    }

    fn correction(&self, call: CallId, invalid: Invalid) -> Text {
        let dialect = self.state.call(call).and_then(|call| Dialect::from_name(&call.tool)).unwrap_or_default();
        match invalid {
            Invalid::UnknownTool => "Unknown tool: use one of those that you are offered.".into(),
            Invalid::BadArgs => "The arguments are not valid for this tool: correct them and call again.".into(),
            Invalid::OverLimit => {
                let max = self.state.limits.calls_per_answer;
                let text =
                    format!("Not started: one answer may contain at most {max} calls. Call again in your next answer.");
                dialect.refused("LIMIT_REACHED", &text)
            }
        }
    }

    /// Starts and ends a call at once with an error that the model can correct.
    pub(super) fn refuse(&mut self, call: CallId, kind: CallKind, error: ToolErrorKind, content: Text) {
        self.emit(Record::CallStarted { call, kind: Box::new(kind), timeout_ms: None, access: None });
        self.finish_call(call, CallEnd::ToolError { kind: error, retryable: false }, content);
    }

    /// Refuses a call whose records would exceed what remains of `recorded_bytes`, since the run ends only before its
    /// next model call.
    pub(super) fn check_recorded(&self, bytes: u64, dialect: Dialect) -> Result<(), Refusal> {
        let recorded = self.run().map_or(0, |run| run.recorded);
        let Some(limit) = self.state.limits.recorded_bytes.filter(|max| recorded.saturating_add(bytes) > *max) else {
            return Ok(());
        };
        let remaining = limit.saturating_sub(recorded);
        let message = format!(
            "Not started: its texts take {bytes} bytes, and this run may record {remaining} more of {limit} (recorded_bytes). \
             Give it a shorter text or fewer files, or do the work yourself."
        );
        Err(Refusal { kind: ToolErrorKind::Limit, message: dialect.refused("LIMIT_REACHED", &message) })
    }

    pub(super) fn finish_call(&mut self, call: CallId, end: CallEnd, content: Text) {
        self.close_ask(call);
        let timed = self.state.call(call).and_then(|call| call.kind.as_ref()).is_some_and(has_deadline);
        let finished = CallFinished { call, end, content, truncated_from: None, worked_ms: 0 };
        self.emit(Record::CallFinished(Box::new(finished)));
        if timed {
            self.disarm(Deadline::Call(call));
        }
    }

    /// Starts due calls: reads concurrently, other local calls one at a time in order, and waits after all spawns.
    pub(super) fn start_calls(&mut self) {
        let Some(turn) = self.state.turn() else { return };
        let (no, mut reading, writing) = (turn.no, turn.local.saturating_sub(turn.writing), turn.writing);
        self.admit_approved(no);
        while reading < self.state.limits.local_calls.max(1) {
            let Some(ix) = self.state.due.reads.pop_front() else { break };
            self.start_local(CallId { turn: no, ix }, ToolEffect::ReadOnly);
            reading += 1;
        }
        if writing == 0
            && let Some((ix, effect)) = self.state.due.next_write()
        {
            self.state.due.writes.pop_front();
            self.start_local(CallId { turn: no, ix }, effect);
        }
        while self.state.due.may_start_waits()
            && let Some((ix, kind)) = self.state.due.waits.pop_front()
        {
            let call = CallId { turn: no, ix };
            if let CallKind::Cancel { child } = kind {
                owner_cancels::ask(self, call, child);
                continue;
            }
            if let CallKind::Propose(other) = kind {
                self.hand_over(call, other);
                continue;
            }
            let timeout_ms = matches!(kind, CallKind::Check { wait: true, .. }).then_some(self.state.limits.check_ms);
            self.emit(Record::CallStarted { call, kind: Box::new(kind), timeout_ms, access: None });
            if let Some(ms) = timeout_ms {
                self.arm(Deadline::Call(call), ms);
            }
        }
    }

    fn start_local(&mut self, call: CallId, effect: ToolEffect) {
        let ms = self.state.limits.tool_ms;
        let kind = Box::new(CallKind::Local(effect));
        let access = self.state.due.access.remove(&call.ix);
        self.emit(Record::CallStarted { call, kind, timeout_ms: Some(ms), access });
        self.arm(Deadline::Call(call), ms);
        self.effect(Effect::RunTool { call });
    }

    /// Closes every await and check whose runs have all ended.
    pub(super) fn close_waits(&mut self) {
        let Some(turn) = self.state.turn() else { return };
        let no = turn.no;
        for ix in turn.waits.clone() {
            let call = CallId { turn: no, ix };
            let Some(kind) = self.state.call(call).and_then(|call| call.kind.clone()) else { continue };
            if self.may_close(call, &kind) {
                self.close_wait(call, &kind);
            }
        }
    }

    fn may_close(&self, call: CallId, kind: &CallKind) -> bool {
        let Some(run) = self.run() else { return false };
        match kind {
            CallKind::Await { all: true, .. } if self.is_await_of_jobs(call) => {
                jobs::in_flight(self.state).all(|(child, key)| self.state.arrived.contains(child, RowKey::Call(key)))
            }
            CallKind::Await { all: true, .. } => {
                // Rows of earlier runs may have arrived too, so check each key.
                self.state.arrived.len() >= run.owned.len()
                    && run.owned.iter().all(|(key, owned)| self.state.arrived.contains(owned.child, RowKey::Call(*key)))
            }
            CallKind::Await { all: false, runs } => runs.iter().all(|awaited| render::has_ended(self.state, awaited)),
            CallKind::Check { run, wait } => !wait || render::has_ended(self.state, run),
            CallKind::Local(_)
            | CallKind::Child(_)
            | CallKind::Continue(_)
            | CallKind::Cancel { .. }
            | CallKind::Return
            | CallKind::Propose(_)
            | CallKind::Invalid(_) => false,
        }
    }

    /// Returns whether the call is `spawn_await`, which covers jobs only.
    fn is_await_of_jobs(&self, call: CallId) -> bool {
        self.state.call(call).is_some_and(|call| *call.tool == *jobs::AWAIT)
    }

    fn close_wait(&mut self, call: CallId, kind: &CallKind) {
        let jobs_only = self.is_await_of_jobs(call);
        let names = |run: &RunKey, child, key| run.session == child && self.state.awaited_key(run) == Some(key);
        let covers = |child, key| match kind {
            CallKind::Await { all: true, .. } => !jobs_only || jobs::is_job_of(self.state, child),
            CallKind::Await { all: false, runs } => runs.iter().any(|run| names(run, child, key)),
            CallKind::Check { run, .. } => names(run, child, key),
            CallKind::Local(_)
            | CallKind::Child(_)
            | CallKind::Continue(_)
            | CallKind::Cancel { .. }
            | CallKind::Return
            | CallKind::Propose(_)
            | CallKind::Invalid(_) => false,
        };
        let items = self.arrived_notices(covers);
        if items.is_empty() {
            let report = render::wait_result(self.state, call, kind, self.clock.wall_ms);
            return self.finish_call(call, report.end, report.content);
        }
        self.emit(Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Await { call } })));
        if has_deadline(kind) {
            self.disarm(Deadline::Call(call));
        }
    }

    /// Ends the run with its `return` call if all other calls of the answer have results.
    pub(super) fn try_finish_return(&mut self) -> bool {
        let Some(turn) = self.state.turn().filter(|turn| turn.open == 1) else { return false };
        let Some(ix) = turn.returning else { return false };
        let call = CallId { turn: turn.no, ix };
        self.finish_call(call, CallEnd::Ok, "Returned.".into());
        self.end_by_return(call);
        true
    }
}

pub(super) fn has_deadline(kind: &CallKind) -> bool {
    matches!(kind, CallKind::Local(_) | CallKind::Check { wait: true, .. })
}

fn error_kind(invalid: Invalid) -> ToolErrorKind {
    match invalid {
        Invalid::UnknownTool => ToolErrorKind::UnknownTool,
        Invalid::BadArgs => ToolErrorKind::BadArgs,
        Invalid::OverLimit => ToolErrorKind::Limit,
    }
}
