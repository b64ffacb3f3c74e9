//! Counts of events. They show whether each kind of event occurs in some run.

use std::collections::BTreeMap;

use serde::Serialize;
use subtend_invariants::Count;

/// A request of a person, a host or a model to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    Open,
    Send,
    Steer,
    /// An input for another agent.
    Override,
    /// An ended session continues.
    Continue,
    Cancel,
    CancelRun,
    CancelTree,
    Interrupt,
    Close,
    /// A session is deleted, if no run is in flight.
    Delete,
    /// A session is deleted even if a run is in flight.
    DeleteForced,
    /// A blocking call moves to the background.
    Background,
    /// The queue is listed.
    Queue,
    /// One input is removed from the queue.
    QueueRemove,
    QueueClear,
    Branch,
    Regenerate,
    /// Another alternative is selected.
    Switch,
    /// The messages of a failed run are hidden.
    RollBack,
    Summarise,
    /// A run without an owner is started.
    Detach,
    Answer,
    Look,
    Wait,
    Crash,
    Shutdown,
    ClockJump,
}

impl Verb {
    /// The requests from which the actions of users are drawn.
    pub const OF_USERS: [Self; 27] = [
        Self::Open,
        Self::Send,
        Self::Steer,
        Self::Override,
        Self::Continue,
        Self::Cancel,
        Self::CancelRun,
        Self::CancelTree,
        Self::Interrupt,
        Self::Close,
        Self::Delete,
        Self::DeleteForced,
        Self::Background,
        Self::Queue,
        Self::QueueRemove,
        Self::QueueClear,
        Self::Branch,
        Self::Regenerate,
        Self::Switch,
        Self::RollBack,
        Self::Summarise,
        Self::Detach,
        Self::Look,
        Self::Wait,
        Self::Crash,
        Self::Shutdown,
        Self::ClockJump,
    ];
}

impl Verb {
    /// Returns the requests of the fault matrix: all except those that end or change the whole process.
    pub fn of_matrix() -> impl Iterator<Item = Self> {
        let whole = [Self::Crash, Self::Shutdown, Self::ClockJump];
        Self::OF_USERS.into_iter().filter(move |verb| !whole.contains(verb)).chain([Self::Answer])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    HandlerPanic,
    /// An actor panics between the append of a batch and its effects.
    AppendPanic,
    TaskPanic,
    WriteFails,
    /// The sync of a complete write fails.
    SyncFails,
    Crash,
    CrashInRecovery,
    ClockJump,
    ModelPanic,
    ModelHangs,
    /// A model fails, or its answer is empty, truncated, or a refusal.
    ModelFails,
    /// A model calls unknown tools, or passes invalid arguments.
    ModelGarbage,
    ToolPanic,
    /// A tool takes long, even after it is asked to stop.
    ToolHangs,
    ToolFails,
    /// A slow subscriber missed an event.
    SlowSubscriber,
    FullQueue,
}

impl FaultKind {
    pub const ALL: [Self; 17] = [
        Self::HandlerPanic,
        Self::AppendPanic,
        Self::TaskPanic,
        Self::WriteFails,
        Self::SyncFails,
        Self::Crash,
        Self::CrashInRecovery,
        Self::ClockJump,
        Self::ModelPanic,
        Self::ModelHangs,
        Self::ModelFails,
        Self::ModelGarbage,
        Self::ToolPanic,
        Self::ToolHangs,
        Self::ToolFails,
        Self::SlowSubscriber,
        Self::FullQueue,
    ];
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Counts by name of events that should occur in some run.
    pub marks: BTreeMap<String, u64>,
    /// Number of times that a fault occurred during a request: before its answer, or within a second after it.
    pub matrix: BTreeMap<(FaultKind, Verb), u64>,
    /// Number of worlds that each predicate judged.
    pub examined: BTreeMap<&'static str, Count>,
}

impl Tally {
    /// Returns how often a fault occurred during a request.
    pub fn cell(&self, fault: FaultKind, verb: Verb) -> u64 {
        self.matrix.get(&(fault, verb)).copied().unwrap_or_default()
    }

    pub fn mark(&mut self, mark: &str) {
        if let Some(count) = self.marks.get_mut(mark) {
            *count = count.saturating_add(1);
        } else {
            self.marks.insert(mark.to_owned(), 1);
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (mark, more) in &other.marks {
            let count = self.marks.entry(mark.clone()).or_default();
            *count = count.saturating_add(*more);
        }
        for (name, more) in &other.examined {
            let count = self.examined.entry(name).or_default();
            count.judged = count.judged.saturating_add(more.judged);
            count.relevant = count.relevant.saturating_add(more.relevant);
        }
        for (cell, more) in &other.matrix {
            let count = self.matrix.entry(*cell).or_default();
            *count = count.saturating_add(*more);
        }
    }
}
