//! The tally: what happened in a run, so that a thousand runs can show that everything does.

use std::collections::BTreeMap;

use serde::Serialize;
use subtend_invariants::Count;

/// Something that a person, a host or a model asks of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// A root is opened.
    Open,
    /// An input.
    Send,
    /// An input for the next turn boundary.
    Steer,
    /// An input that another agent is to answer.
    Override,
    /// An ended session is to go on.
    Continue,
    /// A cancel of whatever is in flight.
    Cancel,
    CancelRun,
    CancelTree,
    Interrupt,
    Close,
    /// A deletion, if nothing is in flight.
    Delete,
    /// A deletion of whatever there is.
    DeleteForced,
    /// A blocking call is moved to the background.
    Background,
    /// A look at the queue.
    Queue,
    /// One input is taken out of the queue.
    QueueRemove,
    QueueClear,
    Branch,
    /// An answer is to be given anew.
    Regenerate,
    /// Another alternative is to be seen.
    Switch,
    /// What a run that failed said is hidden.
    RollBack,
    /// A session is summed up.
    Summarise,
    /// A run that nobody owns.
    Detach,
    /// A person's word for a call.
    Answer,
    /// A look at listings.
    Look,
    /// A wait for the end of a run.
    Wait,
    /// The process dies.
    Crash,
    /// The runtime is shut down in order.
    Shutdown,
    ClockJump,
}

impl Verb {
    /// What people draw from.
    pub const PEOPLE: [Self; 27] = [
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
    /// What is answered, so that something may go wrong before the answer: all that people draw but what ends or moves
    /// the whole process, and their words for calls, which they give when they are asked.
    pub fn answered() -> impl Iterator<Item = Self> {
        let whole = [Self::Crash, Self::Shutdown, Self::ClockJump];
        Self::PEOPLE.into_iter().filter(move |verb| !whole.contains(verb)).chain([Self::Answer])
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mishap {
    /// An actor panics in its handler.
    HandlerPanic,
    /// An actor panics between append and effects.
    AppendPanic,
    /// The task around a model panics.
    TaskPanic,
    /// A write of the journal fails.
    WriteFails,
    /// A sync fails of a write that is there.
    SyncFails,
    /// The process dies.
    Crash,
    /// The process dies while it recovers.
    CrashInRecovery,
    ClockJump,
    ModelPanic,
    /// A model never answers.
    ModelHangs,
    /// A model fails, or answers with nothing, half of it, or a refusal.
    ModelFails,
    /// A model asks for tools that there are not, or with arguments that they do not take.
    ModelGarbage,
    ToolPanic,
    /// A tool goes on for long, also when it is told to stop.
    ToolHangs,
    ToolFails,
    /// A subscriber was so slow that it missed something.
    SlowSubscriber,
    /// A queue is full, and refuses an input.
    FullQueue,
}

impl Mishap {
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

/// What happened, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Marks by name: what should happen in some run.
    pub marks: BTreeMap<String, u64>,
    /// Which mishap came down on which verb: asked for and not answered, or answered within a second before.
    pub matrix: BTreeMap<(Mishap, Verb), u64>,
    /// Worlds that each predicate judged.
    pub examined: BTreeMap<&'static str, Count>,
}

impl Tally {
    /// How often a mishap came down on a verb.
    pub fn cell(&self, mishap: Mishap, verb: Verb) -> u64 {
        self.matrix.get(&(mishap, verb)).copied().unwrap_or_default()
    }

    /// Counts one more of `mark`.
    pub fn mark(&mut self, mark: &str) {
        if let Some(count) = self.marks.get_mut(mark) {
            *count = count.saturating_add(1);
        } else {
            self.marks.insert(mark.to_owned(), 1);
        }
    }

    /// Takes in what another run counted.
    pub fn add(&mut self, other: &Self) {
        for (mark, more) in &other.marks {
            let count = self.marks.entry(mark.clone()).or_default();
            *count = count.saturating_add(*more);
        }
        for (name, more) in &other.examined {
            let count = self.examined.entry(name).or_default();
            count.judged = count.judged.saturating_add(more.judged);
            count.telling = count.telling.saturating_add(more.telling);
        }
        for (cell, more) in &other.matrix {
            let count = self.matrix.entry(*cell).or_default();
            *count = count.saturating_add(*more);
        }
    }
}
