//! Summaries of a session's records, for listings and trees.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::place::{Mode, Owner, Place};
use subtend_session::record::{Park, Record, ToolCall};
use subtend_session::usage::Usage;
use subtend_session::values::parse_recorded;

use crate::values::paging;
use crate::views::worked::{WorkClock, Worked};

/// A summary of a session's journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The last run; 0 before the first.
    pub run: RunNo,
    /// Outcome of the last run; `None` while a run is in flight and before the first.
    pub outcome: Option<Outcome>,
    /// True if the owner of the last run did not wait for it.
    pub background: bool,
    /// Number of answered turns, over all runs.
    pub turns: u32,
    /// The usage of all runs of this session, without owned runs.
    pub usage: Usage,
    /// Children in creation order.
    pub children: Vec<SessionId>,
    /// Working time of the ended runs.
    pub worked: Worked,
    /// The working time of the run in flight.
    pub clock: WorkClock,
    /// Unix time in ms of the reset of the provider's limit at which the run in flight is parked.
    pub limited_until: Option<i64>,
    pub created_ms: Option<i64>,
    /// The result of the last run, truncated to what an owner receives; `None` without an outcome.
    pub result: Option<Text>,
    /// Length of the whole result in bytes.
    pub result_len: u64,
    /// Unix time in ms at which the last run ended; `None` without an outcome.
    pub ended_ms: Option<i64>,
    /// The parent, and the message that it branches from.
    pub place: Option<Place>,
    /// The owner of the worktree in which this session works.
    pub worktree_of: Option<SessionId>,
    /// The metadata after the last merge, as JSON text.
    pub metadata: Option<Text>,
    pub prompt: Option<Text>,
    /// The whole tasks of the children, from the calls that started them.
    pub tasks: BTreeMap<SessionId, Text>,
    /// The calls of the last answered turn.
    pub calls: Arc<[ToolCall]>,
    /// The tasks of these calls. Imported records may name any number of children of one call.
    pub parsed: BTreeMap<u32, Option<Text>>,
}

impl History {
    pub(crate) fn read(journal: &Journal, session: SessionId) -> Result<Self, ReadError> {
        let mut history = Self::default();
        each(journal, session, |stored| history.add(stored))?;
        Ok(history)
    }

    pub fn of(records: &[Stored]) -> Self {
        let mut history = Self::default();
        records.iter().for_each(|stored| history.add(stored));
        history
    }

    pub fn add(&mut self, stored: &Stored) {
        self.created_ms.get_or_insert(stored.at_ms);
        if let Some(worked) = self.clock.add(stored) {
            self.worked.add(worked);
        }
        self.update_limit(&stored.record);
        self.update_totals(&stored.record);
        if self.outcome.is_none() {
            (self.result, self.ended_ms) = (None, None);
        } else if let Record::RunEnded(_) = stored.record {
            self.ended_ms = Some(stored.at_ms);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other records change nothing here")]
    fn update_limit(&mut self, record: &Record) {
        match record {
            Record::RunParked { why: Park::Limit { until }, .. } => self.limited_until = Some(*until),
            Record::RunParked { .. }
            | Record::RunResumed { .. }
            | Record::TurnStarted { .. }
            | Record::RunHeld { .. }
            | Record::RunEnded(_) => self.limited_until = None,
            _ => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other records change nothing here")]
    fn update_totals(&mut self, record: &Record) {
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
                self.parsed.clear();
            }
            Record::AttemptDiscarded(discarded) => {
                if let Some(usage) = &discarded.usage {
                    self.usage.add(usage);
                }
            }
            Record::SessionCreated(created) => {
                self.place = Some(created.place.clone());
                self.worktree_of = created.worktree.map(|worktree| worktree.of);
                self.metadata = created.metadata.clone();
            }
            Record::MetadataSet(set) => self.metadata = Some(set.metadata.clone()),
            Record::InputAccepted(input) => _ = self.prompt.get_or_insert_with(|| input.text.clone()),
            Record::ChildSpawned(spawned) => {
                self.children.push(spawned.child);
                let call =
                    self.calls.get(spawned.call.ix as usize).filter(|call| *call.tool == *spawned.dialect.name());
                let task =
                    call.and_then(|call| self.parsed.entry(spawned.call.ix).or_insert_with(|| task_of(call)).clone());
                let task = task.or_else(|| spawned.label.clone());
                self.tasks.extend(task.map(|task| (spawned.child, task)));
            }
            Record::BranchCreated(created) => self.children.push(created.child),
            Record::RunEnded(ended) => {
                self.outcome = Some(ended.outcome.clone());
                (self.result, self.result_len) = (ended.text.clone(), ended.len);
            }
            _ => {}
        }
    }
}

/// Calls `take` with each record of a session, without bodies. Reads page by page, so that the texts of a long session are
/// not all in memory.
/// # Errors
/// The error of the first page that cannot be read, after `take` had the records of those before it.
pub fn each(journal: &Journal, session: SessionId, take: impl FnMut(&Stored)) -> Result<(), ReadError> {
    paging::each_to(&journal.without_bodies(), session, Seq(u64::MAX), take)
}

/// Calls `take` with at most the first `most` records of a session, as [`each`] does. Returns their number, and whether there are
/// more.
/// # Errors
/// As for [`each`].
pub fn each_of_first(
    journal: &Journal,
    session: SessionId,
    most: usize,
    mut take: impl FnMut(&Stored),
) -> Result<(usize, bool), ReadError> {
    let mut count = 0_usize;
    let took = |stored: &Stored| {
        if count >= most {
            return Some(());
        }
        take(stored);
        count = count.saturating_add(1);
        None
    };
    let has_more = paging::walk(&journal.without_bodies(), session, &mut Seq(1), took)?.is_some();
    Ok((count, has_more))
}

/// Returns the task in the arguments of a call, which is the required argument of its tool.
fn task_of(call: &ToolCall) -> Option<Text> {
    let args: serde_json::Value = parse_recorded(&call.args).ok()?;
    let task = ["task", "prompt", "message"].iter().find_map(|key| args.get(*key)?.as_str());
    task.filter(|task| !task.trim().is_empty()).map(Text::from)
}
