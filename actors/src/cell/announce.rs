//! Notifications to the host: asks to approvers, and ended runs of subagents.

use std::sync::Arc;

use subtend_journal::Stored;
use subtend_session::command::Command;
use subtend_session::dialect::discovery;
use subtend_session::ids::{CallId, RunNo, Seq};
use subtend_session::outcome::Outcome;
use subtend_session::place::{BranchKind, Owner, Place};
use subtend_session::record::{AnsweredBy, AskVerdict, Record};
use subtend_session::state::CallPhase;

use crate::approvals::open_asks::{Approval, args_of};
use crate::calls::in_flight::Parsed;
use crate::cell::driver::Driver;
use crate::faults::InternalEvent;
use crate::hooks::{SubagentStop, catch_sync_hook_panic};
use crate::values::answering::agent_of;
use crate::values::paging;

impl Driver {
    /// Opens an ask about `call`, which is shown once it is durable. Without an approver the call is denied at once.
    pub(crate) fn open_ask(&mut self, call: CallId) {
        let session = self.session();
        let Some(at) = self.state.call(call) else { return };
        let CallPhase::Asked(open_ask) = &at.phase else { return };
        self.cells.host.faults.see(InternalEvent::Asked { session, call });
        if !self.cells.approvals.open(session, call) {
            let (verdict, by) = (AskVerdict::Deny, AnsweredBy::NoApprover);
            return self.todo.next.push_back(Command::AskAnswered { call, verdict, by });
        }
        let plan =
            if let Some(Parsed::Plan(plan)) = self.work.ready.get(&call) { Some(Arc::clone(plan)) } else { None };
        let approval = Approval {
            root: self.root(),
            session,
            path: String::new(),
            call,
            tool: discovery::display_name(&at.tool, &at.args).into(),
            args: args_of(&at.tool, &at.args),
            action: Arc::clone(&open_ask.access.action),
            resource: Arc::clone(&open_ask.access.resource),
            plan,
            deadline_ms: open_ask.deadline_at,
        };
        let (log, approvals) = (Arc::clone(&self.cells.log), Arc::clone(&self.cells.approvals));
        let lsn = self.written.last_lsn;
        tokio::spawn(async move {
            if log.journal.wait(lsn).await.is_err() {
                return;
            }
            // The path is read only now, when the rows of all ancestors are durable.
            let path = log.path(session).unwrap_or_else(|_| session.short().0.to_string());
            approvals.show(Approval { path, ..approval });
        });
    }

    /// Calls the host's hook for the end of `run` once the end is durable.
    pub(crate) fn notify_subagent_stop(&self, run: RunNo, outcome: Outcome) {
        let Some(hooks) = &self.cells.host.hooks else { return };
        let Place::Child { parent, kind: BranchKind::Subagent, .. } = &self.state.created.place else { return };
        let (parent, session, root) = (*parent, self.session(), self.root());
        let owner = self.state.last.as_ref().filter(|last| last.run == run).map(|last| last.owner.clone());
        let agent = Arc::clone(agent_of(&self.state));
        let (hooks, journal, lsn) = (Arc::clone(hooks), self.cells.log.journal.clone(), self.written.last_lsn);
        tokio::spawn(async move {
            if journal.wait(lsn).await.is_err() {
                return;
            }
            // Two runs may end in one batch, but the state holds only the last one.
            let owner = owner.or_else(|| {
                let owner_of = |stored: &Stored| {
                    let Record::RunOpened(opened) = &stored.record else { return None };
                    (opened.run == run).then(|| opened.owner.clone())
                };
                paging::walk(&journal.without_bodies(), session, &mut Seq(1), owner_of).ok()?
            });
            let stop =
                SubagentStop { session, parent, root, run, agent, owner: owner.unwrap_or(Owner::Person), outcome };
            if let Err(panic) = catch_sync_hook_panic(|| hooks.subagent_stop(&stop)) {
                tracing::error!(%session, %panic, "a hook panicked at a subagent's end");
            }
        });
    }
}
