//! The offer of a session, made again where what it depends on has changed.

use crate::cell::driver::Driver;
use crate::values::answering::agent_of;

impl Driver {
    /// What the session is offered, where that may have changed: another agent answers, it goes on with other tools, or someone came who can be asked, or
    /// left.
    pub(crate) fn renew_offer(&mut self) {
        let same = self.offer.agent == *agent_of(&self.state) && self.offer.only == self.agents.listed(&self.state);
        if !same || self.offer.attended != self.cells.approvals.attended() {
            self.offer = self.agents.offer(&self.state);
            // What these calls were parsed to may not be offered any more.
            self.work.ready.clear();
        }
    }
}
