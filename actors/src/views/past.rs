//! What a session did, summed up from its records for listings and trees.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::place::{Mode, Owner, Place};
use subtend_session::record::{Record, ToolCall};
use subtend_session::usage::Usage;

use crate::views::worked::{WorkClock, Worked};

/// Records that are read from the journal at a time.
const PAGE: usize = 256;

/// A session's journal, summed up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// Its last run; 0 before the first.
    pub run: RunNo,
    /// How its last run ended; absent while a run is in flight and before the first.
    pub outcome: Option<Outcome>,
    /// Whether its last run's owner did not wait for it.
    pub background: bool,
    /// Answered turns, of all runs.
    pub turns: u32,
    /// What all runs cost themselves, without those that they owned.
    pub usage: Usage,
    /// Children, in the order of their birth.
    pub born: Vec<SessionId>,
    /// Working time of its ended runs.
    pub worked: Worked,
    /// That of the run in flight.
    pub clock: WorkClock,
    /// Wall clock of the birth, milliseconds since the epoch; informative.
    pub born_ms: Option<i64>,
    /// What its last run returned, up to what an owner is sent; absent as the outcome is.
    pub result: Option<Text>,
    /// Bytes of the whole result.
    pub result_len: u64,
    /// Wall clock of the last end; absent as the outcome is.
    pub ended_ms: Option<i64>,
    /// Its place: the parent and the message that it hangs on.
    pub place: Option<Place>,
    /// Its metadata after the last merge; JSON text.
    pub metadata: Option<Text>,
    /// Its first input.
    pub prompt: Option<Text>,
    /// What children are to do, in the whole words of the calls that started them.
    pub tasks: BTreeMap<SessionId, Text>,
    /// The calls of the last answered turn.
    pub calls: Arc<[ToolCall]>,
}

impl Past {
    /// Reads a session page by page.
    pub(crate) fn read(journal: &Journal, session: SessionId) -> Result<Self, ReadError> {
        let mut past = Self::default();
        each(journal, session, |stored| past.add(stored))?;
        Ok(past)
    }

    /// Sums up a whole journal.
    pub fn of(records: &[Stored]) -> Self {
        let mut past = Self::default();
        records.iter().for_each(|stored| past.add(stored));
        past
    }

    /// Adds the next record.
    pub fn add(&mut self, stored: &Stored) {
        self.born_ms.get_or_insert(stored.at_ms);
        if let Some(worked) = self.clock.add(stored) {
            self.worked.add(worked);
        }
        self.count(&stored.record);
        if self.outcome.is_none() {
            (self.result, self.ended_ms) = (None, None);
        } else if let Record::RunEnded(_) = stored.record {
            self.ended_ms = Some(stored.at_ms);
        }
    }

    fn count(&mut self, record: &Record) {
        match record {
            Record::RunOpened(opened) => {
                let owned = matches!(opened.owner, Owner::Run { .. });
                self.background = owned && opened.mode == Mode::Background;
                self.outcome = None;
                self.run = opened.run;
            }
            Record::TurnAnswered(answered) => {
                self.turns = self.turns.saturating_add(1);
                self.usage.add(&answered.usage);
                self.calls = answered.calls.as_slice().into();
            }
            Record::AttemptDiscarded(discarded) => {
                if let Some(usage) = &discarded.usage {
                    self.usage.add(usage);
                }
            }
            Record::SessionCreated(created) => {
                self.place = Some(created.place.clone());
                self.metadata = created.metadata.clone();
            }
            Record::MetadataSet(set) => self.metadata = Some(set.metadata.clone()),
            Record::InputAccepted(input) => _ = self.prompt.get_or_insert_with(|| input.text.clone()),
            Record::ChildSpawned(spawned) => {
                self.born.push(spawned.child);
                let call =
                    self.calls.get(spawned.call.ix as usize).filter(|call| *call.tool == *spawned.dialect.name());
                let task = call.and_then(task_of).or_else(|| spawned.label.clone());
                self.tasks.extend(task.map(|task| (spawned.child, task)));
            }
            Record::BranchCreated(created) => self.born.push(created.child),
            Record::RunEnded(ended) => {
                self.outcome = Some(ended.outcome.clone());
                (self.result, self.result_len) = (ended.text.clone(), ended.len);
            }
            Record::RunStarted { .. }
            | Record::InputsTaken { .. }
            | Record::QueueChanged { .. }
            | Record::TurnStarted { .. }
            | Record::CallStarted { .. }
            | Record::CallFinished(_)
            | Record::ContinueAsked(_)
            | Record::AlternativeSwitched { .. }
            | Record::RolledBack { .. }
            | Record::TitleSet(_)
            | Record::SummarySet(_)
            | Record::SessionDeleted { .. }
            | Record::ContinueRefused { .. }
            | Record::CancelAsked { .. }
            | Record::RunParked { .. }
            | Record::RunResumed { .. }
            | Record::RunHeld { .. }
            | Record::NoticeTaken(_)
            | Record::AskOpened { .. }
            | Record::AskAnswered { .. }
            | Record::SessionClosed { .. }
            | Record::SessionReopened { .. } => {}
        }
    }
}

/// Gives each record of a session to `take`, reading page by page.
pub(crate) fn each(journal: &Journal, session: SessionId, mut take: impl FnMut(&Stored)) -> Result<(), ReadError> {
    let mut next = Seq(1);
    loop {
        let page = journal.records_from(session, next, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        next = last.seq.next();
        page.iter().for_each(&mut take);
    }
}

/// The task that a call gives to the child that it starts: the argument that is required of its tool.
fn task_of(call: &ToolCall) -> Option<Text> {
    let args: serde_json::Value = serde_json::from_str(&call.args).ok()?;
    let task = ["task", "prompt", "message"].iter().find_map(|key| args.get(*key)?.as_str());
    task.filter(|task| !task.trim().is_empty()).map(Text::from)
}
