//! Renews the offer of a session when it may have changed.

use crate::cell::driver::Driver;
use crate::values::answering::agent_of;

impl Driver {
    /// Renews the offer if another agent answers, the tools changed, or an approver attached or left.
    pub(crate) fn renew_offer(&mut self) {
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
