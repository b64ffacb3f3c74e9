//! Converts the records of a session into entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use subtend_journal::Stored;
use subtend_session::call::{CallEnd, CallKind};
use subtend_session::ids::{CallId, InputId, RunNo, Seq, Text, TurnNo};
use subtend_session::record::{
    CallFinished, Carrier, Compacted, InputAccepted, NoticeTaken, QueueChange, Record, RunOpened, TurnAnswered,
};

use super::TranscriptReading;
use super::end::OwnedEnd;
use super::entry::{CallEntry, CallOutcome, Entry, ShownEntry};
use crate::views::worked::WorkClock;

/// Bytes of records with which a page with a limit ends, after the whole entry.
const PAGE_BYTES: u64 = 8 << 20;
/// Maximum bytes of the records of the newest entries, apart from the last record.
const NEWEST_BYTES: u64 = 32 << 20;

/// Builds the entries of one page from all records of a session, of which it keeps only the texts of the page.
#[derive(Default)]
pub(super) struct EntryBuilder {
    page: WantedEntries,
    entries: VecDeque<ShownEntry>,
    /// Number of entries that were dropped, because newer ones were wanted.
    dropped: usize,
    /// The bytes of the records since each entry, up to the next one.
    sizes: VecDeque<u64>,
    record: Seq,
    /// Accepted inputs that no run has taken yet, each with the time of its record.
    inputs: BTreeMap<InputId, (InputAccepted, i64)>,
    order: Vec<InputId>,
    /// The index of each turn's answer on the page, for late results of its calls. Dropped entries count in all indices.
    answers: BTreeMap<TurnNo, usize>,
    spans: BTreeMap<RunNo, Range<usize>>,
    rolled_back: BTreeSet<RunNo>,
    /// The agent that answers: the session's own, until an input names another.
    agent: Option<Text>,
    /// The agents that `plan_exit` calls propose.
    proposed: BTreeMap<CallId, Text>,
    model: Option<Text>,
    /// The opening record of the run in flight, or of the last one.
    opened: Option<RunOpened>,
    clock: WorkClock,
}

/// The entries that are wanted.
#[derive(Default)]
struct WantedEntries {
    /// Only entries that begin after this record.
    after: Seq,
    /// Maximum number of entries; those of the last record are complete.
    limit: Option<usize>,
    /// Only the newest entries: at least this many, unless they have too many bytes.
    newest: Option<usize>,
    /// Bytes of the records from the first entry on.
    bytes: u64,
    /// The record of the last entry of a page that is full.
    last: Option<Seq>,
    /// True if a full page left out an entry.
    has_more: bool,
}

impl EntryBuilder {
    pub(super) fn new(TranscriptReading { after, limit, newest, .. }: TranscriptReading) -> Self {
        Self { page: WantedEntries { after, limit, newest, ..WantedEntries::default() }, ..Self::default() }
    }

    /// Returns the entries, the number of those that were dropped before them, and the record after which the next page begins.
    pub(super) fn build(mut self) -> (Vec<ShownEntry>, usize, Option<Seq>) {
        for id in std::mem::take(&mut self.order) {
            if let Some((input, _)) = self.inputs.remove(&id) {
                self.push(Entry::Waiting { id, text: input.text });
            }
        }
        let mut entries = Vec::from(self.entries);
        for span in self.rolled_back.iter().filter_map(|run| self.spans.get(run)) {
            let [start, end] = [span.start, span.end].map(|index| index.saturating_sub(self.dropped));
            for shown in entries.get_mut(start..end).unwrap_or_default() {
                shown.rolled_back =
                    matches!(shown.entry, Entry::Input { .. } | Entry::Answer { .. } | Entry::Notice { .. });
            }
        }
        (entries, self.dropped, self.page.last.filter(|_| self.page.has_more))
    }

    /// Returns the index of the next entry.
    fn end(&self) -> usize {
        self.dropped.saturating_add(self.entries.len())
    }

    /// Adds an entry, if it is on the page.
    fn push(&mut self, entry: Entry) {
        let record = self.record;
        if record <= self.page.after {
            return;
        }
        if self.page.last.is_some_and(|last| record > last) {
            self.page.has_more = true;
            return;
        }
        self.entries.push_back(ShownEntry { record, entry, rolled_back: false, compacted: false });
        self.sizes.push_back(0);
        if self.page.limit.is_some_and(|limit| self.entries.len() >= limit) {
            self.page.last = Some(record);
        }
    }

    pub(super) fn add(&mut self, stored: &Stored) {
        self.add_entries(stored);
        let (Some(newest), Some(size)) = (self.entries.back(), self.sizes.back_mut()) else { return };
        if self.page.last.is_some() {
            return;
        }
        let bytes = stored.record.heap_bytes().saturating_add(stored.record.body_bytes());
        *size = size.saturating_add(bytes);
        self.page.bytes = self.page.bytes.saturating_add(bytes);
        if self.page.limit.is_some() && self.page.bytes >= PAGE_BYTES {
            self.page.last = Some(newest.record);
        }
        while let Some(newest) = self.page.newest
            && (self.entries.len() > newest || self.page.bytes > NEWEST_BYTES)
            && let Some(first) = self.entries.front().map(|shown| shown.record)
        {
            // The entries of a record are counted by clients, so all or none of them are dropped.
            let group = self.entries.iter().take_while(|shown| shown.record == first).count();
            let rest = self.entries.len().saturating_sub(group);
            if rest < newest && (rest == 0 || self.page.bytes <= NEWEST_BYTES) {
                break;
            }
            self.entries.drain(..group);
            let freed = self.sizes.drain(..group).fold(0, u64::saturating_add);
            self.page.bytes = self.page.bytes.saturating_sub(freed);
            self.dropped = self.dropped.saturating_add(group);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other records change nothing here")]
    fn add_entries(&mut self, stored: &Stored) {
        self.record = stored.seq;
        let at_ms = stored.at_ms;
        let worked = self.clock.add(stored).unwrap_or_default();
        match &stored.record {
            Record::SessionCreated(created) => self.agent = Some(created.agent.clone()),
            Record::TurnStarted { model, .. } => self.model = Some(model.clone()),
            Record::InputAccepted(input) => {
                self.inputs.insert(input.id, ((**input).clone(), at_ms));
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
            Record::RunOpened(opened) => self.opened = Some((**opened).clone()),
            Record::RunEnded(ended) => {
                self.keep_task(stored.seq);
                let end = self.end();
                if let Some(span) = self.spans.get_mut(&ended.run) {
                    span.end = end;
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
                let at = self.end();
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
        let relative = input.is_from_relative();
        self.push(Entry::Input { id, seq, from: input.from, relative, run, text: input.text, at_ms });
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
        let index = self.end();
        let (agent, usage, queued_ms) = (self.agent.clone(), answered.usage, answered.queued_ms);
        let model = model_name(answered.model.as_ref(), self.model.as_ref());
        let calls = calls.collect();
        self.push(Entry::Answer { turn, seq, text, calls, agent, model, usage, queued_ms, at_ms });
        if self.end() > index {
            self.answers.insert(turn, index);
        }
    }

    fn call(&mut self, call: CallId) -> Option<&mut CallEntry> {
        let index = self.answers.get(&call.turn)?.checked_sub(self.dropped)?;
        let answer = self.entries.get_mut(index)?;
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
