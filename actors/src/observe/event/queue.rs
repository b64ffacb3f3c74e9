//! Events of a session's queue, derived from its records.

use std::collections::BTreeSet;

use serde::Serialize;
use subtend_session::ids::{CallId, InputId, Seq};
use subtend_session::record::{Carrier, Hold, Lane, QueueChange, Record};

use crate::values::queue_entry::{QueueEntry, QueueKind};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum QueueEvent {
    /// An input is held because the session is running.
    Queued {
        /// The queue's length, including this input.
        count: u32,
        message: QueueEntry,
    },
    /// An input is taken, even if it was never held.
    Processing {
        message: QueueEntry,
    },
    Empty,
}

/// Derives queue events from all records of one session, in order.
///
/// ```
/// # fn example(records: &[subtend_journal::Stored]) {
/// let mut queue = subtend_actors::event::QueueEvents::default();
/// for stored in records {
///     for event in queue.add(stored.seq, &stored.record) {
///         println!("{event:?}");
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct QueueEvents {
    /// Accepted inputs that no run has taken, including those that the next records take.
    waiting: Vec<QueueEntry>,
    held: u32,
    passing: Option<InputId>,
    at: InputPhase,
}

/// The phase of the run in flight, as far as inputs depend on it.
#[derive(Clone, Debug, Default)]
struct InputPhase {
    run: bool,
    /// True if a model's call opened the run: only steering inputs enter it.
    of_a_model: bool,
    started: bool,
    streaming: bool,
    /// True if the last answer had no calls.
    rest: bool,
    open: BTreeSet<CallId>,
    held: bool,
    closing: bool,
}

impl InputPhase {
    /// Returns whether an input is taken in the decision that accepts it.
    fn takes(&self, lane: Lane) -> bool {
        let idle = self.started && !self.closing && !self.streaming && self.open.is_empty();
        let extends = !self.of_a_model || lane == Lane::Steer;
        !self.run || (idle && extends && (self.rest || self.held))
    }
}

impl QueueEvents {
    pub fn count(&self) -> u32 {
        self.held
    }

    pub fn add(&mut self, seq: Seq, record: &Record) -> Vec<QueueEvent> {
        match record {
            Record::InputAccepted(input) => return self.on_accepted(QueueEntry::of(input, seq)),
            Record::QueueChanged { change, .. } => return self.on_changed(change),
            Record::RunOpened(opened) => {
                self.at = InputPhase { run: true, of_a_model: opened.owner.is_model_call(), ..InputPhase::default() };
                return self.on_taken(&opened.inputs);
            }
            Record::InputsTaken { ids, .. } => return self.on_taken(ids),
            Record::RunStarted { .. } => self.at.started = true,
            Record::TurnStarted { .. } => {
                (self.at.streaming, self.at.rest, self.at.held) = (true, false, false);
            }
            Record::AttemptDiscarded(_) => self.at.streaming = false,
            Record::TurnAnswered(answered) => {
                self.at.streaming = false;
                self.at.rest = answered.calls.is_empty();
                let ixs = (0_u32..).take(answered.calls.len());
                self.at.open = ixs.map(|ix| CallId { turn: answered.turn, ix }).collect();
            }
            Record::CallFinished(finished) => self.close(finished.call),
            Record::NoticeTaken(taken) => match taken.carrier {
                Carrier::Result => taken.items.iter().filter_map(|item| item.key).for_each(|key| self.close(key)),
                Carrier::Await { call } => self.close(call),
                Carrier::Message => {}
            },
            Record::RunHeld { why, .. } => {
                self.at.held = true;
                self.at.closing = matches!(**why, Hold::Closing { .. });
            }
            Record::RunEnded(_) => self.at = InputPhase::default(),
            Record::SessionCreated(_)
            | Record::CallStarted { .. }
            | Record::ChildSpawned(_)
            | Record::ContinueAsked(_)
            | Record::ContinueRefused { .. }
            | Record::CancelAsked { .. }
            | Record::RunParked { .. }
            | Record::RunResumed { .. }
            | Record::AskOpened { .. }
            | Record::AskAnswered { .. }
            | Record::BranchCreated(_)
            | Record::AlternativeSwitched { .. }
            | Record::RolledBack { .. }
            | Record::Compacted(_)
            | Record::CompactionFailed(_)
            | Record::CompactionUndone { .. }
            | Record::TitleSet(_)
            | Record::SummarySet(_)
            | Record::MetadataSet(_)
            | Record::SessionDeleted { .. }
            | Record::SessionClosed { .. }
            | Record::SessionReopened { .. } => {}
        }
        Vec::new()
    }

    fn close(&mut self, call: CallId) {
        self.at.open.remove(&call);
    }

    fn on_accepted(&mut self, message: QueueEntry) -> Vec<QueueEvent> {
        // Inputs that a cancel of the tree left queued may precede this one.
        let first = message.lane == Lane::Steer || self.is_message_first(&message);
        self.waiting.push(message.clone());
        if self.at.takes(message.lane) && first {
            self.passing = Some(message.id);
            return Vec::new();
        }
        self.held = self.held.saturating_add(1);
        vec![QueueEvent::Queued { count: self.held, message }]
    }

    fn is_message_first(&self, message: &QueueEntry) -> bool {
        let behind = |waits: &QueueEntry| message.kind == QueueKind::User && waits.kind != QueueKind::User;
        self.waiting.iter().all(behind)
    }

    fn on_taken(&mut self, ids: &[InputId]) -> Vec<QueueEvent> {
        let mut events = Vec::with_capacity(ids.len());
        let before = self.held;
        for id in ids {
            let Some(place) = self.waiting.iter().position(|entry| entry.id == *id) else { continue };
            let message = self.waiting.remove(place);
            self.record_removal(*id);
            events.push(QueueEvent::Processing { message });
        }
        self.with_emptied(before, events)
    }

    fn on_changed(&mut self, change: &QueueChange) -> Vec<QueueEvent> {
        let before = self.held;
        match change {
            QueueChange::Cleared => {
                self.waiting.clear();
                self.held = 0;
            }
            QueueChange::Removed(ids) => {
                self.waiting.retain(|entry| !ids.contains(&entry.id));
                ids.iter().for_each(|id| self.record_removal(*id));
            }
        }
        self.with_emptied(before, Vec::new())
    }

    fn record_removal(&mut self, id: InputId) {
        if self.passing == Some(id) {
            self.passing = None;
        } else {
            self.held = self.held.saturating_sub(1);
        }
    }

    fn with_emptied(&self, before: u32, mut events: Vec<QueueEvent>) -> Vec<QueueEvent> {
        if before > 0 && self.held == 0 {
            events.push(QueueEvent::Empty);
        }
        events
    }
}

#[cfg(test)]
mod tests;
