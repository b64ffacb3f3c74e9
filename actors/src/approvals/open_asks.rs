use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::dialect::discovery;
use subtend_session::ids::{CallId, SessionId, Text};
use subtend_tools::background::PROCESS;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The name of a call that waits for an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskedCall {
    pub root: SessionId,
    pub session: SessionId,
    pub call: CallId,
}

/// A call that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub root: SessionId,
    pub session: SessionId,
    /// Short names from the root down to the session, joined with `/`.
    pub path: String,
    pub call: CallId,
    pub tool: Text,
    /// The arguments, as the model wrote them.
    pub args: Text,
    pub action: Text,
    pub resource: Text,
    /// The whole plan, for `plan_exit`.
    pub plan: Option<Text>,
    /// Unix time in ms at which the call is denied; absent if an earlier version opened the ask.
    pub deadline_ms: Option<i64>,
}

impl Approval {
    /// Returns in words what the answer *always* covers from now on in the session, or `None` if it covers this call
    /// alone: a plan, or text that is typed into a process, because another one may read the same text next.
    pub fn always_scope(&self) -> Option<&'static str> {
        match (&*self.tool, &*self.action) {
            _ if self.plan.is_some() => None,
            (PROCESS, _) => None,
            (_, "shell.run") => Some("this command"),
            _ => Some("this tool on this resource, with any content"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Approvals {
    approvers: AtomicUsize,
    open: Mutex<OpenAsks>,
    changed: Notify,
}

#[derive(Default)]
struct OpenAsks {
    /// Number of the ask that was shown last. Asks are numbered in the order in which they become durable.
    last: u64,
    /// Open asks. An ask has a number once it is shown.
    by_call: BTreeMap<(SessionId, CallId), Option<u64>>,
    shown: BTreeMap<u64, Approval>,
}

impl Approvals {
    pub(super) fn attach(&self) {
        self.approvers.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn detach(&self) {
        self.approvers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Resolves when an ask is shown after the future was enabled.
    pub(super) fn notified(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.approvers.load(Ordering::Acquire) > 0
    }

    /// Opens an ask if an approver is attached. Returns whether the ask is open, now or from before.
    pub(crate) fn open(&self, session: SessionId, call: CallId) -> bool {
        let attended = self.is_attended();
        let mut open = self.lock();
        if attended {
            open.by_call.entry((session, call)).or_insert(None);
        }
        open.by_call.contains_key(&(session, call))
    }

    pub(crate) fn show(&self, approval: Approval) {
        let mut guard = self.lock();
        let open = &mut *guard;
        let next = open.last.saturating_add(1);
        if let Some(no @ None) = open.by_call.get_mut(&(approval.session, approval.call)) {
            *no = Some(next);
            open.last = next;
            open.shown.insert(next, approval);
            drop(guard);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn close(&self, session: SessionId, call: CallId) {
        let mut open = self.lock();
        if let Some(Some(no)) = open.by_call.remove(&(session, call)) {
            open.shown.remove(&no);
        }
    }

    /// Returns the first open ask after number `seen`.
    pub(crate) fn next_after(&self, seen: u64) -> Option<(u64, Approval)> {
        let open = self.lock();
        let (no, approval) = open.shown.range(seen.saturating_add(1)..).next()?;
        Some((*no, approval.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, OpenAsks> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the arguments of the called tool, also of a tool called through `use_tool`.
pub(crate) fn args_of(tool: &str, args: &Text) -> Text {
    discovery::resolve(tool, args).map_or_else(|| Arc::clone(args), |(_, args)| args.into())
}
