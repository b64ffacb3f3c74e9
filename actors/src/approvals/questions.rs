//! Questions to approvers that are open in this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::dialect::discovery;
use subtend_session::ids::{CallId, SessionId, Text};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A call that waits for a person's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The root of the session's tree.
    pub root: SessionId,
    /// The session.
    pub session: SessionId,
    /// Where it stands: short names from the root down to the session, with `/` between them.
    pub path: String,
    /// The call.
    pub call: CallId,
    /// The tool that it calls.
    pub tool: Text,
    /// The arguments of the call, as the model wrote them.
    pub args: Text,
    /// What it is about to do.
    pub action: Text,
    /// With what.
    pub resource: Text,
    /// The plan that it proposes to carry out, where that is what is asked (`plan_exit`): the whole of it, as the model wrote it.
    pub plan: Option<Text>,
}

/// Questions that are open in this process.
#[derive(Default)]
pub(crate) struct Approvals {
    approvers: AtomicUsize,
    open: Mutex<Open>,
    asked: Notify,
}

#[derive(Default)]
struct Open {
    /// The last question's number, in the order in which they were durable.
    last: u64,
    /// Open questions, each with its number once it may be shown.
    by_call: BTreeMap<(SessionId, CallId), Option<u64>>,
    shown: BTreeMap<u64, Approval>,
}

impl Approvals {
    /// Counts another approver.
    pub(super) fn attach(&self) {
        self.approvers.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an approver less.
    pub(super) fn detach(&self) {
        self.approvers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Resolves when a question is shown that was not when this was called and enabled.
    pub(super) fn shown(&self) -> Notified<'_> {
        self.asked.notified()
    }

    /// Returns whether an approver is attached.
    pub(crate) fn attended(&self) -> bool {
        self.approvers.load(Ordering::Acquire) > 0
    }

    /// A call waits for a word. False where nobody could give one; one that waits already goes on waiting.
    pub(crate) fn opened(&self, session: SessionId, call: CallId) -> bool {
        let attended = self.attended();
        let mut open = self.lock();
        if attended {
            open.by_call.entry((session, call)).or_insert(None);
        }
        open.by_call.contains_key(&(session, call))
    }

    /// The question is durable and may be shown, if it is still open.
    pub(crate) fn show(&self, approval: Approval) {
        let mut guard = self.lock();
        let open = &mut *guard;
        let next = open.last.saturating_add(1);
        if let Some(no @ None) = open.by_call.get_mut(&(approval.session, approval.call)) {
            *no = Some(next);
            open.last = next;
            open.shown.insert(next, approval);
            drop(guard);
            self.asked.notify_waiters();
        }
    }

    /// The word was given, or is not needed any more.
    pub(crate) fn closed(&self, session: SessionId, call: CallId) {
        let mut open = self.lock();
        if let Some(Some(no)) = open.by_call.remove(&(session, call)) {
            open.shown.remove(&no);
        }
    }

    /// The first open question after number `seen`.
    pub(crate) fn after(&self, seen: u64) -> Option<(u64, Approval)> {
        let open = self.lock();
        let (no, approval) = open.shown.range(seen.saturating_add(1)..).next()?;
        Some((*no, approval.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arguments of the tool that is called, also through `use_tool`.
pub(crate) fn args_of(tool: &str, args: &Text) -> Text {
    discovery::used(tool, args).map_or_else(|| Arc::clone(args), |(_, args)| args.into())
}
