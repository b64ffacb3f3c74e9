//! Approvals of calls: requested when the call is due, then given or timed out. A call that awaits approval counts as
//! open, so the run waits mid-turn and releases its slot. Calls that may write stay in order: a later one waits.

use std::borrow::Cow;

use super::draft::Draft;
use super::opening::ms_until;
use crate::authority::Access;
use crate::call::{CallEnd, CallKind, Invalid, ToolErrorKind};
use crate::command::Deadline;
use crate::dialect::{Dialect, discovery};
use crate::effect::{Effect, Rejection, Reply};
use crate::ids::{CallId, Text, TurnNo};
use crate::limits::time_after;
use crate::record::{AnsweredBy, AskVerdict, Park, Record};
use crate::state::{AskedCall, CallPhase};

/// The tool that types into background processes.
const PROCESS: &str = "process";
const STALE: Rejection = Rejection::Stale("an approval");

/// Applies an approver's answer. `always` also approves the turn's other calls of the tool that need the same access.
pub(super) fn on_ask_answered(
    draft: &mut Draft<'_>,
    call: CallId,
    verdict: AskVerdict,
    by: AnsweredBy,
) -> Result<(), Rejection> {
    let access = draft.requested_access(call).ok_or(STALE)?;
    let run = draft.run().map(|run| run.no).ok_or(STALE)?;
    draft.reply(Reply::Done(run));
    // Each proposal needs an approval of its own, and so does each typed text: its access does not name the process.
    let proposes = draft.state.due.asked.get(&call.ix).is_some_and(|asked| matches!(asked.kind, CallKind::Propose(_)));
    let types = draft.types_text(call);
    let once = verdict == AskVerdict::Always && (proposes || types);
    let verdict = if once { AskVerdict::Allow } else { verdict };
    let alike = if verdict == AskVerdict::Always { draft.similar_asks(call, &access) } else { Vec::new() };
    draft.apply_verdict(call, access, verdict, by);
    for (call, access) in alike {
        draft.apply_verdict(call, access, AskVerdict::Allow, by);
    }
    draft.advance();
    Ok(())
}

pub(super) fn on_ask_deadline(draft: &mut Draft<'_>, call: CallId) -> Result<(), Rejection> {
    let access = draft.requested_access(call).ok_or(Rejection::Stale("a deadline"))?;
    draft.apply_verdict(call, access, AskVerdict::Deny, AnsweredBy::Deadline);
    draft.advance();
    Ok(())
}

impl Draft<'_> {
    /// Requests approval if the call needs it and does not have it. Returns whether the call waits for it.
    pub(super) fn ask(&mut self, call: CallId, kind: &CallKind) -> bool {
        let needs = match kind {
            CallKind::Local(_) | CallKind::Child(_) | CallKind::Continue(_) | CallKind::Propose(_) => true,
            CallKind::Await { .. }
            | CallKind::Check { .. }
            | CallKind::Cancel { .. }
            | CallKind::Return
            | CallKind::Invalid(_) => false,
        };
        let Some(open_call) = self.state.call(call).filter(|open_call| needs && !open_call.allowed) else {
            return false;
        };
        let access = self.state.due.access.get(&call.ix).map(|access| (**access).clone());
        let Access { action, resource } = access.unwrap_or_else(|| access_by_tool(&open_call.tool, kind));
        let root = self.state.created.place.root(self.state.id);
        let deadline_at = Some(time_after(self.clock.wall_ms, self.state.limits.ask_ms));
        self.emit(Record::AskOpened { call, action, resource, root, deadline_at });
        self.ask_again(call, kind.clone());
        true
    }

    /// Sends an open ask to the approvers: a new ask, or one of an earlier activation.
    pub(super) fn ask_again(&mut self, call: CallId, kind: CallKind) {
        self.state.due.asked.insert(call.ix, AskedCall { kind, several: false });
        self.effect(Effect::AskPerson { call });
        self.arm(Deadline::Ask(call), self.ask_time_left(call));
    }

    /// Returns the milliseconds until the deadline of an open ask. A clock that was set back does not prolong it.
    fn ask_time_left(&self, call: CallId) -> u64 {
        let full = self.state.limits.ask_ms;
        let deadline = self.state.call(call).and_then(|call| match &call.phase {
            CallPhase::Asked(open_ask) => open_ask.deadline_at,
            CallPhase::Unstarted | CallPhase::Started | CallPhase::Closed(_) => None,
        });
        deadline.map_or(full, |at| ms_until(at, self.clock.wall_ms).min(full))
    }

    /// Closes the ask of a call that gets its result before an approver answers.
    pub(super) fn close_ask(&mut self, call: CallId) {
        if self.requested_access(call).is_none() {
            return;
        }
        self.emit(Record::AskAnswered { call, verdict: AskVerdict::Deny, by: AnsweredBy::Closed });
        self.disarm(Deadline::Ask(call));
        self.state.due.asked.remove(&call.ix);
    }

    pub(super) fn requested_access(&self, call: CallId) -> Option<Access> {
        match &self.state.call(call)?.phase {
            CallPhase::Asked(open_ask) => Some(open_ask.access.clone()),
            CallPhase::Unstarted | CallPhase::Started | CallPhase::Closed(_) => None,
        }
    }

    fn called_tool(&self, call: CallId) -> Option<Cow<'_, str>> {
        self.state.call(call).map(|open_call| discovery::display_name(&open_call.tool, &open_call.args))
    }

    /// Returns whether a call types text into a background process.
    fn types_text(&self, call: CallId) -> bool {
        self.called_tool(call).is_some_and(|tool| tool == PROCESS)
    }

    /// Returns the turn's other calls of the same tool that ask for the same access, and for no other: those were not shown.
    fn similar_asks(&self, call: CallId, access: &Access) -> Vec<(CallId, Access)> {
        let Some(turn) = self.state.turn() else { return Vec::new() };
        let ids = (0_u32..).map(|ix| CallId { turn: call.turn, ix });
        let tool = self.called_tool(call);
        let others = ids.take(turn.calls.len()).filter(|other| *other != call && self.called_tool(*other) == tool);
        let others = others.filter(|other| self.state.due.asked.get(&other.ix).is_some_and(|asked| !asked.several));
        let asked_accesses = others.filter_map(|other| Some((other, self.requested_access(other)?)));
        asked_accesses.filter(|(_, other)| other == access).collect()
    }

    /// Records the answer. The call becomes due again, or gets its result.
    fn apply_verdict(&mut self, call: CallId, access: Access, verdict: AskVerdict, by: AnsweredBy) {
        self.emit(Record::AskAnswered { call, verdict, by });
        self.disarm(Deadline::Ask(call));
        let kind = self.state.due.asked.remove(&call.ix).map(|asked| asked.kind);
        match verdict {
            AskVerdict::Deny => {
                let proposed = matches!(kind, Some(CallKind::Propose(_)));
                let dialect = self.state.call(call).and_then(|call| Dialect::from_name(&call.tool)).unwrap_or_default();
                let refused = || dialect.refused("NOT_ALLOWED", &refusal(&access, by));
                let message = if proposed { proposal_refusal(by) } else { refused() };
                self.finish_call(call, CallEnd::Denied, message);
            }
            AskVerdict::Allow | AskVerdict::Always => match kind {
                Some(CallKind::Invalid(_)) | None => {
                    let text = "The tool is no longer available: use one of those that you are offered.";
                    let kind = CallKind::Invalid(Invalid::UnknownTool);
                    self.refuse(call, kind, ToolErrorKind::UnknownTool, text.into());
                }
                // In the same batch as the approval, so that a crash never separates the approval from its effect.
                Some(CallKind::Propose(other)) => self.hand_over(call, other),
                Some(kind) => {
                    self.state.due.access.insert(call.ix, Box::new(access));
                    self.state.due.put(call.ix, kind);
                }
            },
        }
    }

    /// Returns whether due calls may start. Resumes a waiting run for them; if the run needs a slot, requests it first.
    pub(super) fn may_start(&mut self) -> bool {
        let Some(run) = self.run() else { return false };
        let (no, slot) = (run.no, run.opened.slot);
        let Some(why) = run.parked.filter(|_| self.state.due.is_due()) else { return true };
        // The slot was released when the run began to wait.
        if slot {
            self.emit(Record::RunParked { run: no, why: Park::Slot, worked_ms: self.clock.worked_ms });
            self.effect(Effect::RequestSlot { run: no, resumed: true });
            return false;
        }
        self.resume(why, false);
        true
    }

    pub(super) fn admit_approved(&mut self, turn: TurnNo) {
        if self.state.due.children.is_empty() {
            return;
        }
        let allowed = std::mem::take(&mut self.state.due.children);
        let due =
            |ix: &u32| self.state.call(CallId { turn, ix: *ix }).is_some_and(|call| call.phase == CallPhase::Unstarted);
        let calls: Vec<u32> = allowed.into_iter().filter(due).collect();
        let more = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        self.state.due.admissions = self.state.due.admissions.saturating_add(more);
        if !calls.is_empty() {
            self.effect(Effect::Admit { turn, calls });
        }
    }

    /// Returns the park reason if no local call is active and every unstarted call waits for an approval.
    pub(super) fn park_reason(&self) -> Option<Park> {
        let turn = self.state.turn().filter(|turn| turn.local == 0)?;
        match (turn.asked, turn.unstarted) {
            (0, 0) => Some(Park::MidTurn),
            (0, _) => None,
            _ if self.state.due.admissions > 0 => None,
            _ => Some(Park::Ask),
        }
    }
}

/// Returns the access that an ask shows for a call without one.
pub(super) fn access_by_tool(tool: &Text, kind: &CallKind) -> Access {
    let resource = if let CallKind::Propose(other) = kind { other.agent.clone() } else { ".".into() };
    Access { action: Text::clone(tool), resource }
}

fn proposal_refusal(by: AnsweredBy) -> Text {
    let text = match by {
        AnsweredBy::Person => {
            "The plan is not approved: the approver rejected it. Continue planning: find out what is wrong with it or missing, \
             by asking where you cannot tell, and change nothing."
        }
        AnsweredBy::Deadline => {
            "The plan is not approved: no approver answered in time. Change nothing: give the plan as your answer."
        }
        AnsweredBy::NoApprover => {
            "The plan is not approved: no approver is attached. Change nothing: give the plan as your answer."
        }
        AnsweredBy::Closed => "The plan is not approved: it was withdrawn before anyone answered. Change nothing.",
    };
    text.into()
}

fn refusal(access: &Access, by: AnsweredBy) -> Text {
    let Access { action, resource } = access;
    let why = match by {
        AnsweredBy::Person => "the approver rejected it",
        AnsweredBy::Deadline => "no approver answered in time",
        AnsweredBy::NoApprover => "approval required, and no approver is attached",
        AnsweredBy::Closed => "it was withdrawn before anyone answered",
    };
    format!("Not allowed: {action} on {resource}; {why}. Continue without it.").into()
}
