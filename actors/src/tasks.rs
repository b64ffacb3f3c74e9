//! Tasks: what agents were given to do by others, in the words of a task list (R1, R2).

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{Seq, SessionId, Short, Text};
use subtend_session::index::Head;
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::place::BranchKind;
use subtend_session::state::Phase;

use crate::runtime::Runtime;
use told::Told;

mod told;

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskStatus {
    /// Its run waits for its first slot, or there was none yet.
    Pending,
    /// Its run is in flight: at work, waiting or held.
    Running,
    /// Its last run completed.
    Completed,
    /// Its last run came to nothing: failed, timed out, out of turns or budget, lost, or given up.
    Failed,
    /// Its last run was cancelled or interrupted.
    Cancelled,
}

impl TaskStatus {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    /// The word for listings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of a session whose run stands so.
    pub fn of(phase: Phase, last: Option<OutcomeKind>) -> Self {
        match phase {
            Phase::Queued => Self::Pending,
            Phase::Working
            | Phase::WaitingMidTurn
            | Phase::WaitingAtRest
            | Phase::HeldInterrupted
            | Phase::HeldOutOfTurns
            | Phase::Closing => Self::Running,
            Phase::Quiet => match last {
                None => Self::Pending,
                Some(OutcomeKind::Completed) => Self::Completed,
                Some(OutcomeKind::Cancelled | OutcomeKind::Interrupted) => Self::Cancelled,
                Some(
                    OutcomeKind::Failed
                    | OutcomeKind::TimedOut
                    | OutcomeKind::OutOfTurns
                    | OutcomeKind::OutOfBudget
                    | OutcomeKind::Lost
                    | OutcomeKind::RestartsExhausted,
                ) => Self::Failed,
            },
        }
    }
}

/// Which tasks are listed; by default all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only those that stand so.
    pub status: Option<TaskStatus>,
    /// Only those that this session started.
    pub parent: Option<SessionId>,
    /// So many at most, the newest.
    pub limit: Option<usize>,
}

/// A subagent's session, as a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The session.
    pub session: SessionId,
    /// Its short name, unique among its siblings.
    pub short: Short,
    /// The session that started it.
    pub parent: Option<SessionId>,
    /// The root of its tree.
    pub root: SessionId,
    /// Its agent.
    pub agent: Text,
    /// Its title, or the start of what it was told.
    pub title: Text,
    /// How far it is.
    pub status: TaskStatus,
    /// How its last run ended; absent while one is in flight and before the first end.
    pub outcome: Option<OutcomeKind>,
    /// The same with its cause, as its records have it.
    pub cause: Option<Outcome>,
    /// What it was told first: at most the first 4 KiB of it.
    pub prompt: Option<Text>,
    /// What its last run came to: the answer, or what there was of it; at most the first 4 KiB. Absent as the outcome is.
    pub result: Option<Text>,
    /// What the host attached: JSON text.
    pub metadata: Option<Text>,
    /// Wall clock of its birth, milliseconds since the epoch; informative.
    pub created_ms: i64,
    /// Wall clock of its last record; informative.
    pub updated_ms: i64,
    /// Wall clock of the last end; informative. Absent as the outcome is.
    pub ended_ms: Option<i64>,
}

impl Task {
    /// Lists the tasks of a journal that no runtime needs to have, newest first. Blocks while it reads: the rows of all
    /// sessions, and a few records of each task that is listed. What cannot be read of one is left out of it.
    ///
    /// # Errors
    /// When the journal cannot be read as a whole.
    pub fn list(journal: &Journal, filter: TaskFilter) -> Result<Vec<Self>, ReadError> {
        let tasks = journal.heads()?.into_iter().filter_map(|(session, head)| Self::of(session, head));
        let mut found: Vec<(Self, Seq)> = tasks
            .filter(|(task, _)| filter.status.is_none_or(|status| task.status == status))
            .filter(|(task, _)| filter.parent.is_none_or(|parent| task.parent == Some(parent)))
            .collect();
        // Those of one moment stand in the order of their ids: the same in every listing.
        found.sort_unstable_by_key(|(task, _)| std::cmp::Reverse((task.created_ms, task.session)));
        found.truncate(filter.limit.unwrap_or(usize::MAX));
        found.into_iter().map(|(task, last)| task.told(journal, last)).collect()
    }

    /// Adds what the records tell.
    fn told(mut self, journal: &Journal, last: Seq) -> Result<Self, ReadError> {
        let told = match Told::read(journal, self.session, self.outcome.map(|_| last)) {
            Ok(told) => told,
            Err(error @ (ReadError::Engine(_) | ReadError::Closed)) => return Err(error),
            // The others are listed all the same.
            Err(error @ (ReadError::NoSuchSession(_) | ReadError::Damaged { .. } | ReadError::Newer { .. })) => {
                tracing::warn!(session = %self.session, %error, "a task is listed without what its records tell");
                Told::default()
            }
        };
        (self.prompt, self.metadata) = (told.prompt, told.metadata);
        if let Some(end) = told.end {
            (self.cause, self.result, self.ended_ms) = (Some(end.outcome), end.text, Some(end.at_ms));
        }
        Ok(self)
    }

    /// The session of `head` as a task, if it is one, and its last record.
    fn of(session: SessionId, head: Head) -> Option<(Self, Seq)> {
        let subagent = match head.kind {
            Some(BranchKind::Subagent) => true,
            Some(BranchKind::Human | BranchKind::Alternative | BranchKind::Service) => false,
            // Rows of a former version do not say it: there were no other branches then.
            None => head.parent.is_some(),
        };
        let status = TaskStatus::of(head.state, head.last_outcome);
        let task = || Self {
            session,
            short: head.short,
            parent: head.parent,
            root: head.root,
            agent: head.agent,
            title: head.title,
            status,
            outcome: head.last_outcome.filter(|_| head.state == Phase::Quiet),
            cause: None,
            prompt: None,
            result: None,
            metadata: None,
            created_ms: head.created_ms,
            updated_ms: head.updated_ms,
            ended_ms: None,
        };
        (subagent && !head.deleted).then(|| (task(), head.last_seq))
    }
}

impl Runtime {
    /// Subagents as a task list, newest first.
    ///
    /// # Errors
    /// When the journal cannot be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Durability
    /// What is listed is durable; all that was appended before the call is seen.
    pub async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>, ReadError> {
        // A journal that failed still says what it has.
        drop(self.hub.journal.settled().await);
        Task::list(&self.hub.journal, filter)
    }
}
