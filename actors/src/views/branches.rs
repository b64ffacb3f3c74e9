use subtend_journal::{Journal, ReadError};
use subtend_session::dialect::branch_state;
use subtend_session::ids::{CallId, MsgRef, Seq, SessionId, Short, Text};
use subtend_session::index::Head;
use subtend_session::outcome::OutcomeKind;
use subtend_session::place::{BranchKind, Place};
use subtend_session::state::Phase;

use crate::handle::SessionHandle;
use crate::views::history::History;
use crate::views::tasks::shorten_beyond;

/// Filters a list of branches; the default lists all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchFilter {
    /// Lists only branches that were created after this one, the last of the previous page.
    pub after: Option<SessionId>,
    /// Maximum number of branches; the oldest are listed.
    pub limit: Option<usize>,
    /// Maximum bytes of the tasks and metadata of all branches. Later ones are truncated to 1,000 bytes each
    /// ([`BranchInfo::shortened`]).
    pub text_bytes: Option<usize>,
}

/// A branch of a session: any session with that parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    pub id: SessionId,
    /// Its short name, unique among its siblings.
    pub short: Short,
    pub parent: SessionId,
    pub kind: BranchKind,
    /// True if it has the parent's context up to its message.
    pub inherits_context: bool,
    /// The record of the parent's message from which it branches.
    pub at: Option<Seq>,
    /// The user message that the parent was processing.
    pub parent_message: MsgRef,
    /// The answer of the parent that it branches from, if any.
    pub assistant_message: Option<MsgRef>,
    /// The parent's call that started it; `None` for a branch of a person or the host.
    pub call: Option<CallId>,
    pub agent: Text,
    /// The title, or the start of its first input.
    pub title: Text,
    /// The whole task: that of the call that started it, or its first input.
    pub task: Option<Text>,
    /// True if it has its own row in listings.
    pub inspectable: bool,
    pub phase: Phase,
    pub outcome: Option<OutcomeKind>,
    /// Number of answered turns of all its runs.
    pub iterations: u32,
    pub created_ms: i64,
    pub updated_ms: i64,
    /// The metadata: a JSON object as text.
    pub metadata: Option<Text>,
    /// True if the task is truncated, or long metadata is omitted, by [`BranchFilter::text_bytes`].
    pub shortened: bool,
}

impl BranchInfo {
    /// Builds the branch object of session `id` from its row and its records; `None` for a root. `task` comes from the parent's records
    /// ([`History::tasks`]).
    pub fn of(id: SessionId, head: &Head, history: &History, task: Option<&Text>) -> Option<Self> {
        let Some(Place::Child { parent, kind, user_msg, assistant_msg, call, .. }) = &history.place else {
            return None;
        };
        let message = assistant_msg.as_ref().unwrap_or(user_msg);
        Some(Self {
            id,
            short: head.short.clone(),
            parent: *parent,
            kind: *kind,
            inherits_context: match kind {
                BranchKind::Human | BranchKind::Alternative => true,
                BranchKind::Subagent | BranchKind::Service => false,
            },
            at: Some(message.seq),
            parent_message: *user_msg,
            assistant_message: *assistant_msg,
            call: *call,
            agent: head.agent.clone(),
            title: head.title.clone(),
            task: task.or(history.prompt.as_ref()).cloned(),
            inspectable: head.inspectable,
            phase: head.state,
            outcome: head.last_outcome,
            iterations: history.turns,
            created_ms: head.created_ms,
            updated_ms: head.updated_ms,
            metadata: history.metadata.clone(),
            shortened: false,
        })
    }

    /// Returns the state as the `subagent` tool reports it: running, complete, cancelled, abandoned (the host restarted), max_iterations or error;
    /// `None` before the first run.
    pub fn state(&self) -> Option<&'static str> {
        branch_state(self.phase, self.outcome)
    }

    fn read(journal: &Journal, id: SessionId, task: Option<&Text>) -> Result<Option<Self>, ReadError> {
        let Some(head) = journal.head(id)?.filter(|head| !head.deleted) else { return Ok(None) };
        Ok(Self::of(id, &head, &History::read(journal, id)?, task))
    }
}

impl SessionHandle {
    /// Lists the branches of the session in creation order: those of its model, of people and of the host, including those that are not
    /// [inspectable](BranchInfo::inspectable).
    /// # Errors
    /// The error of reading the session or one of its branches.
    pub async fn branches(&self) -> Result<Vec<BranchInfo>, ReadError> {
        self.list_branches(BranchFilter::default()).await
    }

    /// Lists some branches of the session, as [`SessionHandle::branches`] does.
    /// # Errors
    /// As [`SessionHandle::branches`].
    pub async fn list_branches(&self, filter: BranchFilter) -> Result<Vec<BranchInfo>, ReadError> {
        // A poisoned journal can still be read.
        drop(self.sessions.log.journal.settled().await);
        let journal = &self.sessions.log.journal;
        let history = History::read(journal, self.id)?;
        let after =
            filter.after.map_or(Some(0), |after| history.children.iter().position(|id| *id == after)?.checked_add(1));
        let rest = after.and_then(|after| history.children.get(after..)).unwrap_or_default();
        let (mut found, mut bytes_left) = (Vec::new(), filter.text_bytes);
        for id in rest {
            if filter.limit.is_some_and(|limit| found.len() >= limit) {
                break;
            }
            let Some(mut branch) = BranchInfo::read(journal, *id, history.tasks.get(id))? else { continue };
            if let Some(left) = &mut bytes_left {
                branch.shortened = shorten_beyond(left, &mut [&mut branch.task], &mut branch.metadata);
            }
            found.push(branch);
        }
        Ok(found)
    }

    /// Returns the session as a branch of its parent; `None` for a root.
    /// # Errors
    /// The error of reading the session or its parent.
    pub async fn as_branch(&self) -> Result<Option<BranchInfo>, ReadError> {
        drop(self.sessions.log.journal.settled().await);
        let journal = &self.sessions.log.journal;
        let Some(parent) = journal.head(self.id)?.and_then(|head| head.parent) else { return Ok(None) };
        let above = History::read(journal, parent)?;
        BranchInfo::read(journal, self.id, above.tasks.get(&self.id))
    }
}
