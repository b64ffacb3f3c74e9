//! Agent overrides: another agent answers in a session from one input on (G12). The session's own agent and its ceiling stay.

use subtend_journal::ReadError;
use subtend_session::ids::{Seq, SessionId, Text};
use subtend_session::record::{AgentOverride, Record};

use crate::cell::driver::Driver;
use crate::hub::Hub;
use crate::values::answering::agent_of;
use crate::values::error::{SendError, Stopped};

impl Hub {
    /// Resolves the agent `name` for an input of `session`, as it is now: later changes of its manifest's prompt are not seen.
    pub(crate) async fn overriding(&self, session: SessionId, name: &Text) -> Result<AgentOverride, SendError> {
        let found = self.agents.catalog.get(name).filter(|manifest| manifest.pickable());
        let manifest = found.ok_or_else(|| {
            let pickable: Vec<&str> = self.agents.catalog.pickable().map(|manifest| &*manifest.name).collect();
            SendError::BadInput(format!(
                "there is no agent {name:?} that could answer; agents to pick: {}",
                pickable.join(", ")
            ))
        })?;
        let unread = |error: String| SendError::Refused(format!("the session cannot be read: {error}"));
        let settled = self.journal.settled().await;
        settled.map_err(|poison| SendError::Stopped(Stopped::Poisoned(poison.to_string())))?;
        let first = self.journal.records_from(session, Seq(1), 1).map_err(|error| match error {
            ReadError::Closed => SendError::Stopped(self.stopped()),
            ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_) => unread(error.to_string()),
        })?;
        let created = first.into_iter().find_map(|stored| {
            let Record::SessionCreated(created) = stored.record else { return None };
            Some(created)
        });
        let created = created.ok_or_else(|| unread("it has no birth".to_owned()))?;
        let other = self.agents.in_place(manifest, &created.model, created.source);
        // Back to the session's own agent is back to its own model, which a host may have given it.
        let model = if created.agent == *name { created.model } else { other.model };
        Ok(AgentOverride { model, ..other })
    }
}

impl Driver {
    /// What the session is offered, where that may have changed: another agent answers, it goes on with other tools, or someone came who can be asked, or
    /// left.
    pub(crate) fn renew_offer(&mut self) {
        let same = self.offer.agent == *agent_of(&self.state) && self.offer.only == self.hub.agents.listed(&self.state);
        if !same || self.offer.attended != self.hub.approvals.attended() {
            self.offer = self.hub.agents.offer(&self.state);
            // What these calls were parsed to may not be offered any more.
            self.ready.clear();
        }
    }
}
