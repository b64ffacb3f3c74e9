//! The task list: work given to agents by other agents or by the host.

use std::sync::Arc;

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::authority::Verdict;
use subtend_session::ids::{Lsn, Seq, SessionId, Short, Text};
use subtend_session::index::Head;
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::place::{BranchKind, Owner};
use subtend_session::record::{From, Record, RunEnded};
use subtend_session::state::{FoldError, Phase};
use subtend_session::title;

use crate::answer::Receipt;
use crate::handle::{BranchOptions, SessionHandle, title_of};
use crate::prompt::PromptError;
use crate::runtime::{OpenOptions, OpenSessionError, Runtime, agent_for};
use crate::spawn::agents::Agents;
use crate::spawn::tool_set::spawn_access;
use crate::values::answering::agent_of;
use crate::values::ended::answer_of;
use crate::values::error::{ControlError, SendError};
use crate::values::paging;
use crate::views::history::{self, History};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TaskStatus {
    /// The run waits for its first slot, or there is no run yet.
    Pending,
    /// The run is in flight: working, waiting or held.
    Running,
    Completed,
    /// The last run failed, timed out, exhausted its turns or budget, was lost, or crashed its actor repeatedly.
    Failed,
    /// The last run was cancelled or interrupted.
    Cancelled,
}

impl TaskStatus {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

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

/// Filters a task list; the default lists all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    pub status: Option<TaskStatus>,
    /// Lists only tasks started by this session.
    pub parent: Option<SessionId>,
    pub session: Option<SessionId>,
    /// Lists only tasks older than this position: the creation time and the session of the last task of the previous page.
    pub before: Option<(i64, SessionId)>,
    /// Maximum number of tasks; the newest are listed.
    pub limit: Option<usize>,
    /// Maximum bytes of the texts of all tasks. Later texts are truncated to 1,000 bytes each ([`Task::shortened`]).
    pub text_bytes: Option<usize>,
}

/// Bytes to which a text of a list is truncated when the list has no bytes left.
const SHORTENED_BYTES: usize = 1_000;

/// Subtracts the size of the texts of a row from `bytes_left`, or truncates them if they are larger. Returns whether a text
/// changed.
pub(crate) fn shorten_beyond(
    bytes_left: &mut usize,
    texts: &mut [&mut Option<Text>],
    metadata: &mut Option<Text>,
) -> bool {
    let all = texts.iter().map(|text| &**text).chain([&*metadata]).flatten();
    let bytes = all.fold(0_usize, |bytes, text| bytes.saturating_add(text.len()));
    if let Some(left) = bytes_left.checked_sub(bytes) {
        *bytes_left = left;
        return false;
    }
    // JSON cannot be truncated.
    let mut shortened = metadata.take_if(|metadata| metadata.len() > SHORTENED_BYTES).is_some();
    for text in texts.iter_mut().filter_map(|text| text.as_mut()).filter(|text| text.len() > SHORTENED_BYTES) {
        let start = text.get(..text.floor_char_boundary(SHORTENED_BYTES)).unwrap_or_default();
        *text = start.into();
        shortened = true;
    }
    shortened
}

/// A subagent's session as a task. Its runs are those that a model or the host opened; later messages of people do not change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub session: SessionId,
    pub short: Short,
    /// The session that started it; `None` for a task of the host.
    pub parent: Option<SessionId>,
    pub root: SessionId,
    pub agent: Text,
    /// The title, or the start of its prompt.
    pub title: Text,
    pub status: TaskStatus,
    /// Outcome of the last run; `None` while one is in flight and before the first end.
    pub outcome: Option<OutcomeKind>,
    /// The outcome with its cause, from the records.
    pub cause: Option<Outcome>,
    pub prompt: Option<Text>,
    /// The whole result of the last run: the answer, or partial output. `None` without an outcome.
    pub result: Option<Text>,
    /// The metadata after the last merge, as JSON text.
    pub metadata: Option<Text>,
    pub created_ms: i64,
    pub updated_ms: i64,
    /// Unix time in ms at which the last run ended; `None` without an outcome.
    pub ended_ms: Option<i64>,
    /// The reason why the records, or the whole result, cannot be read; their fields are empty then.
    pub unread: Option<String>,
    /// True if the prompt or the result is truncated, or long metadata is omitted, by [`TaskFilter::text_bytes`].
    pub shortened: bool,
}

impl Task {
    /// Lists the tasks of a journal without a runtime, newest first. Blocks while it reads the rows of all sessions and the records of each
    /// listed task. Unreadable parts are omitted, with the reason in [`Task::unread`].
    /// # Errors
    /// The error of reading the journal as a whole.
    pub fn list(journal: &Journal, filter: TaskFilter) -> Result<Vec<Self>, ReadError> {
        let heads = match filter.session {
            Some(session) => journal.head(session)?.map(|head| (session, head)).into_iter().collect(),
            None => journal.heads()?,
        };
        let tasks = heads.into_iter().filter_map(|(session, head)| Self::of(session, head));
        let tasks = tasks.filter(|task| filter.parent.is_none_or(|parent| task.parent == Some(parent)));
        let is_older = |task: &Self| filter.before.is_none_or(|before| (task.created_ms, task.session) < before);
        let mut found: Vec<Self> = tasks.filter(is_older).collect();
        // Tasks of the same time are ordered by id, so that listings are stable.
        found.sort_unstable_by_key(|task| std::cmp::Reverse((task.created_ms, task.session)));
        // Read one by one, until the limit is reached.
        let (mut listed, mut bytes_left) = (Vec::new(), filter.text_bytes);
        let mut found = found.into_iter();
        while listed.len() < filter.limit.unwrap_or(usize::MAX) {
            let Some(mut task) = found.next() else { break };
            let read =
                Assigned::read(journal, task.session).and_then(|assigned| task.add_of(assigned, filter, journal));
            match read {
                Ok(()) => {}
                Err(error @ (ReadError::Engine(_) | ReadError::Closed)) => return Err(error),
                // The other tasks are still listed.
                Err(error @ (ReadError::NoSuchSession(_) | ReadError::Damaged { .. } | ReadError::Newer { .. })) => {
                    task.unread = Some(error.to_string());
                }
            }
            if filter.status.is_none_or(|status| task.status == status) {
                if let Some(left) = &mut bytes_left {
                    task.shortened =
                        shorten_beyond(left, &mut [&mut task.prompt, &mut task.result], &mut task.metadata);
                }
                listed.push(task);
            }
        }
        Ok(listed)
    }

    /// Adds the facts from the records. For a task that the filter excludes, only its status is set.
    fn add_of(&mut self, assigned: Assigned, filter: TaskFilter, journal: &Journal) -> Result<(), ReadError> {
        if assigned.is_followed {
            self.outcome = assigned.history.outcome.as_ref().map(Outcome::kind);
            self.status = TaskStatus::of(Phase::Quiet, self.outcome);
        }
        if filter.status.is_some_and(|status| self.status != status) {
            return Ok(());
        }
        let whole = if self.outcome.is_some() { assigned.whole(journal, self.session) } else { Ok(None) };
        if self.outcome.is_some() {
            (self.cause, self.ended_ms) = (assigned.history.outcome, assigned.history.ended_ms);
        }
        (self.prompt, self.metadata) = (assigned.history.prompt, assigned.history.metadata);
        self.result = whole?;
        Ok(())
    }

    fn of(session: SessionId, head: Head) -> Option<Self> {
        let subagent = match head.kind {
            Some(BranchKind::Subagent) => true,
            Some(BranchKind::Human | BranchKind::Alternative | BranchKind::Service) => false,
            // Rows of an earlier version lack the kind. At that time only subagents had parents.
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
            unread: None,
            shortened: false,
        };
        (subagent && !head.deleted).then(task)
    }
}

/// The runs that belong to a task: those of a model or the host, or those of people if there are no others.
#[derive(Default)]
struct Assigned {
    history: History,
    is_owned: bool,
    /// True if a person's run followed the runs of the task.
    is_followed: bool,
    /// The last end, and its record.
    end: Seq,
    ended: Option<Box<RunEnded>>,
}

impl Assigned {
    fn read(journal: &Journal, session: SessionId) -> Result<Self, ReadError> {
        let mut assigned = Self::default();
        history::each(journal, session, |stored| assigned.add(stored))?;
        Ok(assigned)
    }

    fn add(&mut self, stored: &Stored) {
        if let Record::RunOpened(opened) = &stored.record {
            self.is_owned |= opened.owner != Owner::Person;
            self.is_followed = self.is_owned && opened.owner == Owner::Person;
        }
        if self.is_followed && matches!(stored.record, Record::RunOpened(_) | Record::RunEnded(_)) {
            return;
        }
        if let Record::RunEnded(ended) = &stored.record {
            (self.end, self.ended) = (stored.seq, Some(ended.clone()));
        }
        self.history.add(stored);
    }

    /// Returns the whole text of the last end, which its record may truncate.
    fn whole(&self, journal: &Journal, session: SessionId) -> Result<Option<Text>, ReadError> {
        let Some(start) = self.history.result.clone() else { return Ok(None) };
        if start.len() as u64 >= self.history.result_len {
            return Ok(Some(start));
        }
        if let Some(ended) = &self.ended
            && let Some(text) = answer_of(journal, session, ended)?
        {
            return Ok(Some(text));
        }
        let state = paging::fold_to(journal, session, self.end)?.map_err(|error| damaged(session, &error))?;
        Ok(state.last.and_then(|last| last.text))
    }
}

/// Key of the prompt of a task whose id the caller chose.
const PROMPT_KEY: &str = "prompt";

/// Sends a task its prompt, repeatably under the key. A new task whose prompt is refused is deleted, not pending.
async fn send_prompt(
    task: &SessionHandle,
    prompt: Text,
    is_repeatable: bool,
    is_new: bool,
) -> Result<Receipt, PromptError> {
    let input = task.input(prompt).with_sender(From::Host, Owner::Detached { by_host: true });
    let sent = if is_repeatable { input.key(PROMPT_KEY).send().await } else { input.send().await };
    let is_final = match &sent {
        Err(SendError::BadInput(_) | SendError::Refused(_)) => true,
        // With the id that its caller chose, the task is sent its prompt by a repetition.
        Err(SendError::Busy { .. }) => !is_repeatable,
        Err(SendError::Stopped(_)) | Ok(_) => false,
    };
    if is_new
        && is_final
        && let Err(error) = task.delete(false).await
    {
        tracing::warn!(session = %task.id(), %error, "a task without a prompt cannot be deleted, and stays pending");
    }
    Ok(sent?)
}

/// Refuses new tasks if subagents are switched off.
fn check_enabled(agents: &Agents) -> Result<(), ControlError> {
    match agents.dialects.enabled {
        true => Ok(()),
        false => {
            Err(ControlError::Refused("subagents are switched off: set `subagents.enabled` to start tasks".to_owned()))
        }
    }
}

impl SessionHandle {
    /// Starts a task below this session, for a person or the host: a child without an owner, like that of [`SessionHandle::detach`]. `options` sets
    /// its agent (this session's by default), its description (`title`) and its metadata.
    ///
    /// The task is admitted like one of this session's model. The session must be allowed to start its agent, and its
    /// permissions are at most those of the session. The depth of the tree is limited. The task waits for a slot. No
    /// run started it, so it counts towards no run's spawns.
    ///
    /// With an [id](BranchOptions::id) chosen by the caller, a repetition starts nothing.
    /// # Errors
    /// [`PromptError`]; then no task is listed. A task whose prompt was refused is deleted, also for a repetition with its id.
    /// # Cancel safety
    /// If the future is dropped, the task may or may not have been started.
    pub async fn spawn_task(&self, options: BranchOptions, prompt: impl Into<Text>) -> Result<Receipt, PromptError> {
        let (prompt, is_repeatable) = (prompt.into(), options.id.is_some());
        let known = match options.id {
            Some(id) => self.sessions.log.journal.head(id).map_err(OpenSessionError::from)?.map(|head| (id, head)),
            None => None,
        };
        let task = match &known {
            Some((id, head)) if head.deleted => return Err(OpenSessionError::Deleted(*id).into()),
            Some((id, head)) if head.parent != Some(self.id()) || head.kind != Some(BranchKind::Subagent) => {
                let why = format!(
                    "session {id} exists and is not a task of session {}: choose another id",
                    self.id().short()
                );
                return Err(ControlError::Refused(why).into());
            }
            Some((id, _)) => self.of_tree(*id),
            None => self.child_for(options, &prompt).await?,
        };
        send_prompt(&task, prompt, is_repeatable, known.is_none()).await
    }

    async fn child_for(&self, mut options: BranchOptions, prompt: &Text) -> Result<Self, PromptError> {
        let state = self.state().await?;
        let agents = self.sessions.usable(&state)?;
        check_enabled(&agents)?;
        let agent = options.agent.get_or_insert_with(|| Arc::clone(agent_of(&state)));
        agent_for(&agents, agent, true)?;
        if agents.offer(&state).authority.verdict(&spawn_access(agent)) == Verdict::Deny {
            let why = format!(
                "session {} may not start the agent `{agent}`: its permissions deny task:{agent}. Name another parent, or none",
                self.id().short()
            );
            return Err(ControlError::Refused(why).into());
        }
        match &options.title {
            Some(title) => title::check(title).map_err(OpenSessionError::from)?,
            None => options.title = title_of(prompt),
        }
        let options = BranchOptions { kind: BranchKind::Subagent, ..options };
        Ok(self.branch_of(state, options, false, true).await?)
    }
}

/// Returns the error for a session whose records cannot be folded.
pub(crate) fn damaged(session: SessionId, error: &FoldError) -> ReadError {
    let seq = match error {
        FoldError::Illegal { seq, .. } => *seq,
        FoldError::Empty { .. } | FoldError::NotCreation { .. } | FoldError::NoBody { .. } => Seq(1),
    };
    ReadError::Damaged { session, seq, lsn: Lsn(0), why: error.to_string() }
}

impl Runtime {
    /// Starts a task of the host without an owner. `options` sets its agent, which may be one that only agents start, its description (`title`) and
    /// its metadata. [`SessionHandle::spawn_task`] starts one below a session.
    ///
    /// With an [id](OpenOptions::id) chosen by the caller, a repetition starts nothing. The task waits for a slot; its time limit (`run_ms`) counts
    /// from its start.
    ///
    /// ```
    /// # async fn example(runtime: &subtend_actors::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use subtend_actors::OpenOptions;
    ///
    /// let options = OpenOptions { title: Some("licences".into()), ..OpenOptions::agent("explore") };
    /// let task = runtime.spawn_task(options, "Which licences do the dependencies have?").await?;
    /// println!("{}", task.answer().await?.text);
    /// # Ok(())
    /// # }
    /// ```
    /// # Errors
    /// [`PromptError::Control`] if subagents are switched off, [`PromptError::Open`] and [`PromptError::Send`]; then no
    /// task is listed.
    /// # Cancel safety
    /// If the future is dropped, the task may or may not have been started.
    pub async fn spawn_task(
        &self,
        options: impl Into<OpenOptions>,
        prompt: impl Into<Text>,
    ) -> Result<Receipt, PromptError> {
        let options = options.into();
        let is_repeatable = options.id.is_some();
        let known = options.id.map(|id| self.components.log.journal.head(id)).transpose();
        let known = known.map_err(OpenSessionError::from)?.flatten();
        let is_task = |head: &Head| head.deleted || (head.parent.is_none() && head.kind == Some(BranchKind::Subagent));
        if let (Some(id), Some(_)) = (options.id, known.as_ref().filter(|head| !is_task(head))) {
            let why = format!("session {id} exists and is not a task of the host: choose another id");
            return Err(ControlError::Refused(why).into());
        }
        check_enabled(&self.components.environments.home())?;
        send_prompt(&self.open_root(options, true)?, prompt.into(), is_repeatable, known.is_none()).await
    }

    /// Lists subagents as tasks, newest first.
    /// # Errors
    /// The error of reading the journal.
    pub async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>, ReadError> {
        // A poisoned journal can still be read.
        drop(self.components.log.journal.settled().await);
        Task::list(&self.components.log.journal, filter)
    }
}

#[cfg(test)]
mod tests {
    use subtend_journal::memory::Memory;
    use subtend_journal::{Batch, Frame, Options};
    use subtend_session::ids::Epoch;
    use subtend_session::index::Changes;
    use subtend_session::outcome::Initiator;

    use super::*;

    #[test]
    fn whole_result_of_an_unfolded_session_is_an_error() {
        let journal = Journal::open(Box::new(Memory::new()), Options::default()).expect("a journal");
        let session = SessionId(uuid::Uuid::from_u128(7));
        let records = vec![Record::SessionClosed { by: Initiator::Person }];
        let changes = Changes::default();
        let frame = Frame { session, first_seq: Seq(1), epoch: Epoch(1), at_ms: 0, records, changes };
        journal.append(Batch { frames: vec![frame] }).expect("appended");
        let history = |len| History { result: Some("the start".into()), result_len: len, ..History::default() };
        let whole =
            |len| Assigned { history: history(len), end: Seq(1), ..Assigned::default() }.whole(&journal, session);
        assert_eq!(whole(9).expect("it is whole").as_deref(), Some("the start"));
        let why = whole(10).expect_err("only its start is known");
        assert!(matches!(&why, ReadError::Damaged { seq: Seq(1), .. }), "{why}");
        assert!(why.to_string().contains("starts with session_closed rather than with session_created"), "{why}");
    }
}
