//! What a transcript shows, made from a session's records.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use subtend_actors::worked::WorkClock;
use subtend_journal::Stored;
use subtend_session::call::CallEnd;
use subtend_session::ids::{AttemptNo, CallId, InputId, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::outcome::{By, ModelFail, Outcome};
use subtend_session::place::BranchKind;
use subtend_session::record::{
    AskBy, AskVerdict, CallFinished, Carrier, From, Hold, InputAccepted, NoticeTaken, QueueChange, Record, RunOpened,
    SessionCreated, TurnAnswered,
};
use subtend_session::usage::Usage;

use super::Transcript;
use super::minion::Minion;

pub(super) use end::End;

mod end;

/// One thing that was said or done.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Entry {
    /// An input that a run took.
    Input {
        /// Its id.
        id: InputId,
        /// Its message: what a branch may hang on.
        seq: Seq,
        /// Who sent it.
        from: From,
        /// The run that took it.
        run: RunNo,
        /// The text.
        text: Text,
        /// When it was accepted.
        at_ms: i64,
    },
    /// An input that no run has taken.
    Waiting {
        /// Its id.
        id: InputId,
        /// The text.
        text: Text,
    },
    /// An answer with the calls that it asks for.
    Answer {
        /// The turn.
        turn: TurnNo,
        /// Its message: what a branch may hang on, and what may be answered anew.
        seq: Seq,
        /// The text.
        text: Option<Text>,
        /// The calls, in order.
        calls: Vec<Call>,
        /// The agent that answered.
        agent: Option<Text>,
        /// The model that answered, with its provider: as the server names it where it does, else by the session's name for it.
        model: Option<Text>,
        /// What it cost.
        usage: Usage,
        /// When.
        at_ms: i64,
    },
    /// An attempt of a turn that came to nothing.
    Discarded {
        /// The turn.
        turn: TurnNo,
        /// The attempt within it.
        attempt: AttemptNo,
        /// The model that was called, where the session's name for it stands for several.
        model: Option<Text>,
        /// What went wrong.
        error: ModelFail,
        /// The model's own words.
        message: Text,
        /// What it cost all the same.
        usage: Option<Usage>,
    },
    /// Ends of owned runs that reached the model as one message.
    Notice {
        /// The ends.
        ends: Vec<End>,
    },
    /// The run is held.
    Held {
        /// The run.
        run: RunNo,
        /// Why.
        why: Hold,
    },
    /// The run ended.
    Ended {
        /// The run.
        run: RunNo,
        /// How.
        outcome: Outcome,
        /// Answered turns.
        turns: u32,
        /// What it and all that it owned cost.
        usage: Usage,
        /// Working time in milliseconds.
        worked_ms: u64,
        /// Whether it may be more: a process ended while the run worked.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        worked_at_least: bool,
        /// When.
        at_ms: i64,
    },
    /// A branch was made here by a person or the host.
    Branch {
        /// It.
        child: SessionId,
        /// Its kind.
        kind: BranchKind,
        /// The message that it hangs on.
        at: Seq,
    },
    /// Another alternative of an answer is seen from here on.
    Switched {
        /// The answer.
        of: Seq,
        /// Which; 0 is the original.
        to: u32,
    },
    /// What a run said is not seen any more from here on.
    RolledBack {
        /// The run.
        run: RunNo,
        /// On whose word.
        by: By,
    },
    /// A call waits for a person's word.
    Asked {
        /// The call.
        call: CallId,
        /// What it would do.
        action: Text,
        /// With what.
        resource: Text,
    },
    /// The word was given.
    Word {
        /// The call.
        call: CallId,
        /// It.
        verdict: AskVerdict,
        /// Who gave it.
        by: AskBy,
    },
    /// The session was deleted.
    Deleted {
        /// On whose word.
        by: By,
    },
    /// The session was closed or opened again.
    Closed {
        /// Whether it is closed.
        closed: bool,
        /// On whose word.
        by: By,
    },
}

impl Entry {
    /// The ends that arrived as one message; none of anything else.
    pub(super) fn ends_mut(&mut self) -> &mut [End] {
        if let Self::Notice { ends } = self { ends } else { &mut [] }
    }

    /// The calls of an answer; none of anything else.
    pub(super) fn calls_mut(&mut self) -> &mut [Call] {
        match self {
            Self::Answer { calls, .. } => calls,
            Self::Input { .. }
            | Self::Waiting { .. }
            | Self::Discarded { .. }
            | Self::Notice { .. }
            | Self::Held { .. }
            | Self::Ended { .. }
            | Self::Branch { .. }
            | Self::Switched { .. }
            | Self::RolledBack { .. }
            | Self::Asked { .. }
            | Self::Word { .. }
            | Self::Deleted { .. }
            | Self::Closed { .. } => &mut [],
        }
    }
}

/// An entry, and whether models see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Shown {
    /// It.
    #[serde(flatten)]
    pub(super) entry: Entry,
    /// Whether it is a message that was rolled back with its run: no model is given it any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) rolled_back: bool,
}

/// One call of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Call {
    /// Its name.
    pub(super) call: CallId,
    /// The tool.
    pub(super) tool: Text,
    /// The arguments, as the model wrote them.
    pub(super) args: Text,
    /// The child that it opened.
    pub(super) child: Option<SessionId>,
    /// What was left out of the child's prompt, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<Text>,
    /// Whether it waits for approval.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) asks: bool,
    /// What came of it; absent while it is open.
    pub(super) result: Option<Came>,
    /// What a minion did for the call, where everything is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) minion: Option<Minion>,
    /// The child, where it has no row of its own and everything is shown.
    #[serde(flatten)]
    pub(super) nested: Option<Nested>,
}

/// A child within the call that started it (G9).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Nested {
    /// What was said and done in it.
    Transcript(Box<Transcript>),
    /// Why it cannot be read.
    Unreadable(String),
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Came {
    /// A result of the tool.
    Result {
        /// How it ended.
        end: CallEnd,
        /// What the model saw.
        content: Text,
        /// Bytes before it was cut.
        truncated_from: Option<u64>,
    },
    /// The ends of runs that it waited for.
    Ends(Vec<End>),
}

/// The session's birth.
pub(super) fn birth(records: &[Stored]) -> Option<&SessionCreated> {
    records.iter().find_map(|stored| {
        let Record::SessionCreated(created) = &stored.record else { return None };
        Some(&**created)
    })
}

/// What was done in it, as it was summed up last.
pub(super) fn summary(records: &[Stored]) -> Option<Text> {
    records.iter().rev().find_map(|stored| {
        let Record::SummarySet(set) = &stored.record else { return None };
        Some(set.text.clone())
    })
}

/// Everything that was said and done, in order.
pub(super) fn entries(records: &[Stored]) -> Vec<Shown> {
    let mut book = Book::default();
    records.iter().for_each(|stored| book.add(stored));
    let waiting = book.order.iter().filter_map(|id| book.inputs.get(id));
    let waiting = waiting.map(|(input, _)| Entry::Waiting { id: input.id, text: input.text.clone() });
    let waiting: Vec<_> = waiting.collect();
    book.entries.extend(waiting);
    let hidden: Vec<_> = book.rolled_back.iter().filter_map(|run| book.spans.get(run)).cloned().collect();
    let shown = book.entries.into_iter().enumerate().map(|(at, entry)| {
        let message = matches!(entry, Entry::Input { .. } | Entry::Answer { .. } | Entry::Notice { .. });
        Shown { rolled_back: message && hidden.iter().any(|span| span.contains(&at)), entry }
    });
    shown.collect()
}

#[derive(Default)]
struct Book<'a> {
    entries: Vec<Entry>,
    /// Accepted inputs that no run took yet, with the time of their record.
    inputs: BTreeMap<InputId, (&'a InputAccepted, i64)>,
    /// Their order.
    order: Vec<InputId>,
    /// Where the answer of a turn stands: results go to its calls, however late they come.
    answers: BTreeMap<TurnNo, usize>,
    /// The entries of each run.
    spans: BTreeMap<RunNo, Range<usize>>,
    /// Runs that were rolled back.
    rolled_back: Vec<RunNo>,
    /// The agent that answers: the session's own, until an input names another one.
    agent: Option<Text>,
    /// The model of the turn that was started last.
    model: Option<Text>,
    /// The birth of the run in flight, or of the last one.
    opened: Option<&'a RunOpened>,
    /// The working time of the run in flight.
    clock: WorkClock,
}

impl<'a> Book<'a> {
    fn add(&mut self, stored: &'a Stored) {
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
            Record::AttemptDiscarded(discarded) => self.entries.push(Entry::Discarded {
                turn: discarded.turn,
                attempt: discarded.attempt,
                model: discarded.model.clone(),
                error: discarded.error,
                message: discarded.message.clone(),
                usage: discarded.usage,
            }),
            Record::CallFinished(finished) => self.finish(finished),
            Record::ChildSpawned(spawned) => {
                if let Some(call) = self.call(spawned.call) {
                    call.child = Some(spawned.child);
                    call.warnings.clone_from(&spawned.warnings);
                }
            }
            Record::ContinueAsked(asked) => {
                if let Some(call) = self.call(asked.call) {
                    call.child = Some(asked.child);
                }
            }
            Record::NoticeTaken(taken) => self.notice(taken),
            Record::RunHeld { run, why } => self.entries.push(Entry::Held { run: *run, why: (**why).clone() }),
            Record::RunOpened(opened) => self.opened = Some(opened),
            Record::RunEnded(ended) => {
                self.keep_task(stored.seq);
                if let Some(span) = self.spans.get_mut(&ended.run) {
                    span.end = self.entries.len();
                }
                let mut usage = ended.usage_self;
                usage.add(&ended.usage_owned);
                self.entries.push(Entry::Ended {
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
                self.entries.push(Entry::Branch { child, kind, at });
            }
            Record::AlternativeSwitched { of, to, .. } => self.entries.push(Entry::Switched { of: *of, to: *to }),
            Record::RolledBack { run, by } => {
                self.rolled_back.push(*run);
                self.entries.push(Entry::RolledBack { run: *run, by: by.clone() });
            }
            Record::RunStarted { run, .. } => {
                let at = self.entries.len();
                self.spans.insert(*run, at..at);
            }
            Record::AskOpened { call, action, resource, .. } => {
                if let Some(asking) = self.call(*call) {
                    asking.asks = true;
                }
                let (action, resource) = (action.clone(), resource.clone());
                self.entries.push(Entry::Asked { call: *call, action, resource });
            }
            Record::AskAnswered { call, verdict, by } => {
                if let Some(asking) = self.call(*call) {
                    asking.asks = false;
                }
                self.entries.push(Entry::Word { call: *call, verdict: *verdict, by: *by });
            }
            Record::SessionDeleted { by } => self.entries.push(Entry::Deleted { by: by.clone() }),
            Record::SessionClosed { by } => self.entries.push(Entry::Closed { closed: true, by: by.clone() }),
            Record::SessionReopened { by } => self.entries.push(Entry::Closed { closed: false, by: by.clone() }),
            // Both stand where the session is described, not where they were said.
            Record::TitleSet(_)
            | Record::SummarySet(_)
            | Record::MetadataSet(_)
            | Record::CallStarted { .. }
            | Record::ContinueRefused { .. }
            | Record::CancelAsked { .. }
            | Record::RunParked { .. }
            | Record::RunResumed { .. } => {}
        }
    }

    fn take(&mut self, id: InputId, run: RunNo, seq: Seq) {
        let Some((input, at_ms)) = self.inputs.remove(&id) else { return };
        if let Some(other) = &input.agent_override {
            self.agent = Some(other.agent.clone());
        }
        let (from, text) = (input.from.clone(), input.text.clone());
        self.entries.push(Entry::Input { id, seq, from, run, text, at_ms });
    }

    /// Takes what a model's call asked of a run that ended before it began: later runs know it.
    fn keep_task(&mut self, seq: Seq) {
        if let Some(opened) = self.opened.take().filter(|opened| opened.owner.answers_a_model()) {
            opened.inputs.iter().for_each(|id| self.take(*id, opened.run, seq));
        }
    }

    fn forget(&mut self, change: &QueueChange) {
        match change {
            QueueChange::Removed(ids) => self.inputs.retain(|id, _| !ids.contains(id)),
            QueueChange::Cleared => self.inputs.clear(),
        }
    }

    fn answer(&mut self, answered: &TurnAnswered, seq: Seq, at_ms: i64) {
        let turn = answered.turn;
        let asked = answered.calls.iter().zip(0_u32..);
        let calls = asked.map(|(asked, ix)| Call {
            call: CallId { turn, ix },
            tool: asked.tool.clone(),
            args: asked.args.clone(),
            child: None,
            warnings: Vec::new(),
            asks: false,
            result: None,
            minion: None,
            nested: None,
        });
        let text = answered.text.clone().filter(|text| !text.is_empty());
        self.answers.insert(turn, self.entries.len());
        let (agent, usage) = (self.agent.clone(), answered.usage);
        let model = super::model_name(answered.model.as_ref(), self.model.as_ref());
        self.entries.push(Entry::Answer { turn, seq, text, calls: calls.collect(), agent, model, usage, at_ms });
    }

    fn call(&mut self, call: CallId) -> Option<&mut Call> {
        let answer = self.entries.get_mut(*self.answers.get(&call.turn)?)?;
        answer.calls_mut().iter_mut().find(|known| known.call == call)
    }

    fn finish(&mut self, finished: &CallFinished) {
        if let Some(call) = self.call(finished.call) {
            call.result = Some(Came::Result {
                end: finished.end.clone(),
                content: finished.content.clone(),
                truncated_from: finished.truncated_from,
            });
        }
    }

    fn notice(&mut self, taken: &NoticeTaken) {
        match taken.carrier {
            Carrier::Message => self.entries.push(Entry::Notice { ends: taken.items.iter().map(End::of).collect() }),
            Carrier::Await { call } => {
                if let Some(call) = self.call(call) {
                    call.result = Some(Came::Ends(taken.items.iter().map(End::of).collect()));
                }
            }
            Carrier::Result => {
                for item in &taken.items {
                    if let Some(call) = item.key.and_then(|key| self.call(key)) {
                        call.result = Some(Came::Ends(vec![End::of(item)]));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
