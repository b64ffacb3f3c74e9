//! Renews the offer of a session when it may have changed.

use std::sync::Arc;

use crate::cell::driver::Driver;
use crate::values::answering::agent_of;

impl Driver {
    /// Renews the offer if another agent answers, the tools changed, an approver attached or detached, or the tree's agents were reloaded.
    pub(crate) fn renew_offer(&mut self) {
        let same = !self.reload_agents()
            && self.offer.agent == *agent_of(&self.state)
            && self.offer.only == self.agents.listed_tools(&self.state)
            && self.offer.generation == self.agents.tools.generation();
        if !same || self.offer.attended != self.cells.approvals.is_attended() {
            self.offer = self.agents.offer(&self.state);
            // The current offer may lack tools of calls that were parsed before.
            self.work.ready.clear();
        }
    }

    /// Finds the agents again after a reload; returns whether they changed.
    fn reload_agents(&mut self) -> bool {
        let reloads = self.cells.environments.reloads();
        // An unusable one may be usable by now, and a run that started meanwhile needs it.
        if self.reloads == reloads && self.agents.unusable.is_none() {
            return false;
        }
        self.reloads = reloads;
        let agents = self.cells.environments.of(&self.state);
        if Arc::ptr_eq(&self.agents, &agents) {
            return false;
        }
        self.agents = agents;
        self.window = None;
        true
    }
}
