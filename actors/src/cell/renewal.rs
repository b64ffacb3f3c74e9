//! Renews the offer of a session when it may have changed.

use std::sync::Arc;

use crate::cell::driver::Driver;
use crate::values::answering::agent_of;

impl Driver {
    /// Renews the offer if another agent answers, the tools changed, an approver attached or left, or the tree's agents were loaded again.
    pub(crate) fn renew_offer(&mut self) {
        let reloads = self.cells.environments.reloads();
        if self.reloads != reloads {
            self.reloads = reloads;
            let agents = self.cells.environments.of(&self.state);
            if !Arc::ptr_eq(&self.agents, &agents) {
                self.agents = agents;
                self.offer = self.agents.offer(&self.state);
                self.work.ready.clear();
                return;
            }
        }
        let same = self.offer.agent == *agent_of(&self.state)
            && self.offer.only == self.agents.listed(&self.state)
            && self.offer.generation == self.agents.tools.generation();
        if !same || self.offer.attended != self.cells.approvals.attended() {
            self.offer = self.agents.offer(&self.state);
            // The present offer may lack tools of calls that were parsed before.
            self.work.ready.clear();
        }
    }
}
