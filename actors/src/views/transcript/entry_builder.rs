//! Converts the records of a session into entries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use subtend_journal::Stored;
use subtend_session::call::{CallEnd, CallKind};
use subtend_session::ids::{CallId, InputId, RunNo, Seq, Text, TurnNo};
use subtend_session::record::{
    CallFinished, Carrier, Compacted, InputAccepted, NoticeTaken, QueueChange, Record, RunOpened, SessionCreated,
    TurnAnswered,
};

use super::end::OwnedEnd;
use super::entry::{CallEntry, CallOutcome, Entry, ShownEntry};
use crate::views::worked::WorkClock;

pub(super) fn creation(records: &[Stored]) -> Option<&SessionCreated> {
    records.iter().find_map(|stored| {
        let Record::SessionCreated(created) = &stored.record else { return None };
        Some(&**created)
    })
}

pub(super) fn summary(records: &[Stored]) -> Option<Text> {
    records.iter().rev().find_map(|stored| {
        let Record::SummarySet(set) = &stored.record else { return None };
        Some(set.text.clone())
    })
}

pub(super) fn entries(records: &[Stored]) -> Vec<ShownEntry> {
    let mut builder = EntryBuilder::default();
    records.iter().for_each(|stored| builder.add(stored));
    let waiting = builder.order.iter().filter_map(|id| builder.inputs.get(id));
    let waiting = waiting.map(|(input, _)| Entry::Waiting { id: input.id, text: input.text.clone() });
    let waiting: Vec<_> = waiting.collect();
    waiting.into_iter().for_each(|waiting| builder.push(waiting));
    for span in builder.rolled_back.iter().filter_map(|run| builder.spans.get(run)) {
        for shown in builder.entries.get_mut(span.clone()).unwrap_or_default() {
            shown.rolled_back =
                matches!(shown.entry, Entry::Input { .. } | Entry::Answer { .. } | Entry::Notice { .. });
        }
    }
    builder.entries
}

#[derive(Default)]
struct EntryBuilder<'a> {
    entries: Vec<ShownEntry>,
    record: Seq,
    /// Accepted inputs that no run has taken yet, each with the time of its record.
    inputs: BTreeMap<InputId, (&'a InputAccepted, i64)>,
    order: Vec<InputId>,
    /// The index of each turn's answer, for late results of its calls.
    answers: BTreeMap<TurnNo, usize>,
    spans: BTreeMap<RunNo, Range<usize>>,
    rolled_back: BTreeSet<RunNo>,
    /// The agent that answers: the session's own, until an input names another.
    agent: Option<Text>,
    /// The agents that `plan_exit` calls propose.
    proposed: BTreeMap<CallId, Text>,
    model: Option<Text>,
    /// The opening record of the run in flight, or of the last one.
    opened: Option<&'a RunOpened>,
    clock: WorkClock,
}

impl<'a> EntryBuilder<'a> {
    fn push(&mut self, entry: Entry) {
        self.entries.push(ShownEntry { record: self.record, entry, rolled_back: false, compacted: false });
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other records change nothing here")]
    fn add(&mut self, stored: &'a Stored) {
        self.record = stored.seq;
        let at_ms = stored.at_ms;
        let worked = self.clock.add(stored).unwrap_or_default();
        match &stored.record {
            Record::SessionCreated(created) => self.agent = Some(created.agent.clone()),
            Record::TurnStarted { model, .. } => self.model = Some(model.clone()),
            Record::InputAccepted(input) => {
                self.inputs.insert(input.id, (input, at_ms));
                self.order.push(input.id);
            }
            Record::InputsTaken { ids, run, .. } => ids.iter().for_each(|id| self.take(*id, *run, stored.seq)),
            Record::QueueChanged { change, .. } => self.forget(change),
            Record::TurnAnswered(answered) => self.answer(answered, stored.seq, at_ms),
            Record::AttemptDiscarded(discarded) => self.push(Entry::Discarded {
                turn: discarded.turn,
                attempt: discarded.attempt,
                model: discarded.model.clone(),
                error: discarded.error,
                message: discarded.message.clone(),
                usage: discarded.usage,
                queued_ms: discarded.queued_ms,
            }),
            Record::CallStarted { call, kind, .. } => {
                if let CallKind::Propose(other) = &**kind {
                    self.proposed.insert(*call, other.agent.clone());
                }
            }
            Record::CallFinished(finished) => self.finish(finished),
            Record::ChildSpawned(spawned) => {
                if let Some(call) = self.call(spawned.call) {
                    call.child = Some(spawned.child);
                    call.warnings.clone_from(&spawned.warnings);
                }
            }
            Record::ContinueAsked(request) => {
                if let Some(call) = self.call(request.call) {
                    call.child = Some(request.child);
                }
            }
            Record::NoticeTaken(taken) => self.notice(taken),
            Record::RunHeld { run, why } => self.push(Entry::Held { run: *run, why: (**why).clone() }),
            Record::RunOpened(opened) => self.opened = Some(opened),
            Record::RunEnded(ended) => {
                self.keep_task(stored.seq);
                if let Some(span) = self.spans.get_mut(&ended.run) {
                    span.end = self.entries.len();
                }
                let mut usage = ended.usage_self;
                usage.add(&ended.usage_owned);
                self.push(Entry::Ended {
                    run: ended.run,
                    outcome: ended.outcome.clone(),
                    turns: ended.turns,
                    usage,
                    worked_ms: worked.ms,
                    worked_at_least: worked.at_least,
                    at_ms,
                });
            }
            Record::BranchCreated(created) => {
                let (child, kind, at) = (created.child, created.kind, created.at);
                self.push(Entry::Branch { child, kind, at });
            }
            Record::AlternativeSwitched { of, to, .. } => self.push(Entry::Switched { of: *of, to: *to }),
            Record::RolledBack { run, by } => {
                self.rolled_back.insert(*run);
                self.push(Entry::RolledBack { run: *run, by: by.clone() });
            }
            Record::Compacted(compacted) => self.compacted(compacted),
            Record::CompactionFailed(failed) => self.push(Entry::NotCompacted {
                turn: failed.turn,
                cause: failed.cause,
                why: failed.why,
                message: failed.message.clone(),
                service: failed.of,
            }),
            Record::CompactionUndone { by } => self.push(Entry::CompactionUndone { by: by.clone() }),
            Record::RunStarted { run, .. } => {
                let at = self.entries.len();
                self.spans.insert(*run, at..at);
            }
            Record::AskOpened { call, action, resource, .. } => {
                if let Some(asking) = self.call(*call) {
                    asking.asks = true;
                }
                let (action, resource) = (action.clone(), resource.clone());
                self.push(Entry::Asked { call: *call, action, resource });
            }
            Record::AskAnswered { call, verdict, by } => {
                if let Some(asking) = self.call(*call) {
                    asking.asks = false;
                }
                self.push(Entry::Decided { call: *call, verdict: *verdict, by: *by });
            }
            Record::SessionDeleted { by } => self.push(Entry::Deleted { by: by.clone() }),
            Record::SessionClosed { by } => self.push(Entry::Closed { closed: true, by: by.clone() }),
            Record::SessionReopened { by } => self.push(Entry::Closed { closed: false, by: by.clone() }),
            _ => {}
        }
    }

    fn compacted(&mut self, compacted: &Compacted) {
        let Compacted { cause, before, after, of: service, .. } = *compacted;
        let messages = compacted.hidden();
        let (by, text) = (compacted.by.clone(), compacted.text.clone());
        self.push(Entry::Compacted { cause, by, messages, before, after, text, service });
    }

    fn take(&mut self, id: InputId, run: RunNo, seq: Seq) {
        let Some((input, at_ms)) = self.inputs.remove(&id) else { return };
        if let Some(other) = &input.agent_override {
            self.agent = Some(other.agent.clone());
        }
        let (from, relative, text) = (input.from.clone(), input.is_from_relative(), input.text.clone());
        self.push(Entry::Input { id, seq, from, relative, run, text, at_ms });
    }

    /// Adds the task of a child's run that ended before it started, since later runs see this task.
    fn keep_task(&mut self, seq: Seq) {
        if let Some(opened) = self.opened.take().filter(|opened| opened.owner.is_model_call()) {
            opened.inputs.iter().for_each(|id| self.take(*id, opened.run, seq));
        }
    }

    fn forget(&mut self, change: &QueueChange) {
        match change {
            QueueChange::Removed(ids) => ids.iter().for_each(|id| _ = self.inputs.remove(id)),
            QueueChange::Cleared => self.inputs.clear(),
        }
    }

    fn answer(&mut self, answered: &TurnAnswered, seq: Seq, at_ms: i64) {
        let turn = answered.turn;
        let tool_calls = answered.calls.iter().zip(0_u32..);
        let calls = tool_calls.map(|(tool_call, ix)| CallEntry {
            call: CallId { turn, ix },
            tool: tool_call.tool.clone(),
            args: tool_call.args.clone(),
            child: None,
            receiver: None,
            warnings: Vec::new(),
            asks: false,
            result: None,
            minion: None,
            nested: None,
        });
        let text = answered.text.clone().filter(|text| !text.is_empty());
        self.answers.insert(turn, self.entries.len());
        let (agent, usage, queued_ms) = (self.agent.clone(), answered.usage, answered.queued_ms);
        let model = model_name(answered.model.as_ref(), self.model.as_ref());
        let calls = calls.collect();
        self.push(Entry::Answer { turn, seq, text, calls, agent, model, usage, queued_ms, at_ms });
    }

    fn call(&mut self, call: CallId) -> Option<&mut CallEntry> {
        let answer = self.entries.get_mut(*self.answers.get(&call.turn)?)?;
        answer.entry.calls_mut().get_mut(call.ix as usize)
    }

    fn finish(&mut self, finished: &CallFinished) {
        if let Some(other) = self.proposed.remove(&finished.call).filter(|_| finished.end == CallEnd::Ok) {
            self.agent = Some(other);
        }
        if let Some(call) = self.call(finished.call) {
            call.result = Some(CallOutcome::Result {
                end: finished.end.clone(),
                content: finished.content.clone(),
                truncated_from: finished.truncated_from,
            });
        }
    }

    fn notice(&mut self, taken: &NoticeTaken) {
        match taken.carrier {
            Carrier::Message => self.push(Entry::Notice { ends: taken.items.iter().map(OwnedEnd::of).collect() }),
            Carrier::Await { call } => {
                if let Some(call) = self.call(call) {
                    call.result = Some(CallOutcome::Ends(taken.items.iter().map(OwnedEnd::of).collect()));
                }
            }
            Carrier::Result => {
                for item in &taken.items {
                    if let Some(call) = item.key.and_then(|key| self.call(key)) {
                        call.result = Some(CallOutcome::Ends(vec![OwnedEnd::of(item)]));
                    }
                }
            }
        }
    }
}

/// Returns the name of the model that answered, which was requested as `requested`. Older records lack the provider.
fn model_name(answered: Option<&Text>, requested: Option<&Text>) -> Option<Text> {
    let is_same = |requested: &&Text| {
        answered.is_some_and(|name| requested.strip_suffix(&**name).is_some_and(|rest| rest.ends_with('/')))
    };
    requested.filter(|requested| answered.is_none() || is_same(requested)).or(answered).cloned()
}

#[cfg(test)]
mod tests;
