//! The ends of subagents' runs, told to the host.

use std::sync::Arc;

use subtend_session::ids::RunNo;
use subtend_session::outcome::Outcome;
use subtend_session::place::{BranchKind, Owner, Place};
use subtend_session::record::Record;

use super::{SubagentStop, guarded_now};
use crate::cell::driver::Driver;
use crate::values::answering::agent_of;

impl Driver {
    /// Tells the host's hook of the end of `run`, when it is durable.
    pub(crate) fn tell_stop(&self, run: RunNo, outcome: Outcome) {
        let Some(hooks) = &self.hub.hooks else { return };
        let Place::Child { parent, kind: BranchKind::Subagent, .. } = &self.state.created.place else { return };
        let (parent, session, root) = (*parent, self.session(), self.root());
        let owner = self.state.last.as_ref().filter(|last| last.run == run).map(|last| last.owner.clone());
        let agent = Arc::clone(agent_of(&self.state));
        let (hooks, journal, lsn) = (Arc::clone(hooks), self.hub.journal.clone(), self.last_lsn);
        tokio::spawn(async move {
            if journal.wait(lsn).await.is_err() {
                return;
            }
            // Two runs may end in one batch: the state knows the last one only.
            let owner = owner.or_else(|| {
                let records = journal.records(session).ok()?;
                records.into_iter().find_map(|stored| {
                    let Record::RunOpened(opened) = stored.record else { return None };
                    (opened.run == run).then_some(opened.owner)
                })
            });
            let stop =
                SubagentStop { session, parent, root, run, agent, owner: owner.unwrap_or(Owner::Person), outcome };
            if let Err(panic) = guarded_now(|| hooks.subagent_stop(&stop)) {
                tracing::error!(%session, %panic, "a hook panicked when it was told of a subagent's end");
            }
        });
    }
}
