//! The ancestors of a session: permissions that they lost since its creation are lost to it too (P-4).

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use subtend_journal::ReadError;
use subtend_session::authority::Authority;
use subtend_session::ids::{SessionId, Text};
use subtend_session::state::State;

use crate::spawn::agents::Agents;

const KEPT: usize = 4_096;
/// Sessions in one chain: a damaged store may hold a cycle.
const LONGEST: usize = 256;
/// Stands for an agent that no catalog has: it has no permissions.
const NOBODY: &str = "";

impl Agents {
    /// Returns the agents of the ancestors of `state`'s session, sorted.
    ///
    /// None if the parent is not durable yet: then both were created since the host started, and the ceiling has the present permissions of all
    /// ancestors.
    pub(crate) fn agents_above(&self, state: &State) -> Arc<[Text]> {
        let Some(parent) = state.created.place.parent() else { return Arc::default() };
        let lines = || self.offers.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines().get(&parent) {
            return Arc::clone(line);
        }
        let line = match self.line(parent) {
            Ok(None) => return Arc::default(),
            Ok(Some(line)) => line,
            Err(error) => {
                tracing::error!(session = %state.id, %error, "what the sessions above may do cannot be read: it may do nothing");
                return Arc::new([NOBODY.into()]);
            }
        };
        let mut lines = lines();
        if lines.len() >= KEPT {
            lines.clear();
        }
        lines.insert(parent, Arc::clone(&line));
        line
    }

    fn line(&self, parent: SessionId) -> Result<Option<Arc<[Text]>>, ReadError> {
        let mut agents = BTreeSet::new();
        let mut at = Some(parent);
        for _ in 0..LONGEST {
            let Some(id) = at else { break };
            match self.journal.head(id)? {
                Some(head) => {
                    agents.insert(self.bounding(head.agent, head.parent.is_none()));
                    at = head.parent;
                }
                None if agents.is_empty() => return Ok(None),
                None => return Err(ReadError::NoSuchSession(id)),
            }
        }
        Ok(Some(agents.into_iter().collect()))
    }

    /// Returns the authority of `agent` by its present manifest; none for an unknown agent.
    pub(crate) fn present(&self, agent: &Text) -> Authority {
        self.catalog.get(agent).map_or_else(Authority::deny_all, |manifest| manifest.authority())
    }
}
