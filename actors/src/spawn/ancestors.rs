//! The ancestors of a session: a session loses the permissions that they lost since its creation, and a caller that
//! lost permissions cannot direct a child that still has them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use subtend_journal::{Journal, ReadError};
use subtend_session::authority::{ACTIONS, Authority};
use subtend_session::ids::{Seq, SessionId, Text};
use subtend_session::record::Record;
use subtend_session::state::State;

use crate::spawn::agents::Agents;
use crate::spawn::caches::{ListedTools, size_of_names};
use crate::spawn::tool_set::lists_all;
use crate::values::paging;

/// Maximum length of a chain of ancestors: a damaged store may hold a cycle. An import takes 1,000 levels above a session.
const MAX_CHAIN: usize = 1_001;
/// The name of an agent that no catalog has: it has no permissions.
const UNKNOWN_AGENT: &str = "";

/// Returns the number of sessions from `lowest` up to its root, at most [`MAX_CHAIN`].
pub(crate) fn count_levels(journal: &Journal, lowest: Option<SessionId>) -> Result<usize, ReadError> {
    let (mut levels, mut at) = (0_usize, lowest);
    while let Some(session) = at.filter(|_| levels < MAX_CHAIN) {
        levels = levels.saturating_add(1);
        at = journal.head(session)?.and_then(|head| head.parent);
    }
    Ok(levels)
}

impl Agents {
    /// Returns the agents of the ancestors of `state`'s session, sorted.
    /// The result is empty if the parent is not durable yet: then both were created since the host started, and the ceiling has the current
    /// permissions of all ancestors.
    pub(crate) fn ancestor_agents(&self, state: &State) -> Arc<[Text]> {
        let Some(parent) = state.created.place.parent() else { return Arc::default() };
        let cache = || self.offers.ancestors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agents) = cache().get(&parent) {
            return Arc::clone(agents);
        }
        let agents = match self.ancestor_agents_of(parent) {
            Ok(None) => return Arc::default(),
            Ok(Some(agents)) => agents,
            Err(error) => {
                tracing::error!(session = %state.id, %error, "cannot read the permissions of the ancestors; the session gets no permissions");
                return Arc::new([UNKNOWN_AGENT.into()]);
            }
        };
        cache().insert(parent, &agents, size_of_names(&agents));
        agents
    }

    fn ancestor_agents_of(&self, parent: SessionId) -> Result<Option<Arc<[Text]>>, ReadError> {
        let mut agents = BTreeSet::new();
        let mut at = Some(parent);
        for _ in 0..MAX_CHAIN {
            let Some(id) = at else { break };
            match self.journal.head(id)? {
                Some(head) => {
                    agents.insert(self.bounding_agent(head.agent, head.parent.is_none()));
                    at = head.parent;
                }
                None if agents.is_empty() => return Ok(None),
                None => return Err(ReadError::NoSuchSession(id)),
            }
        }
        if at.is_some() {
            // What the others may do is not known.
            agents.insert(UNKNOWN_AGENT.into());
        }
        Ok(Some(agents.into_iter().collect()))
    }

    /// Returns the authority of `agent` by its current manifest; an empty one for an unknown agent.
    pub(crate) fn current_authority(&self, agent: &Text) -> Authority {
        self.catalog.get(agent).map_or_else(Authority::deny_all, |manifest| manifest.authority())
    }

    /// Returns what `child` of `parent` has beyond `authority` and the tools `only`; `None` if nothing.
    /// A child keeps the permissions that its caller had when it started the child. A stricter agent may answer in the caller's session now.
    pub(crate) fn excess(
        &self,
        (parent, child): (SessionId, SessionId),
        (authority, only): (&Authority, Option<&Vec<Text>>),
    ) -> Result<Option<String>, ReadError> {
        let most = self.rights_of(parent, child)?;
        if !most.within(authority) {
            return Ok(Some(excess_message(&most, authority)));
        }
        let Some(only) = only else { return Ok(None) };
        let lacks = !lists_all(only, self.tools_of(child)?.as_ref());
        Ok(lacks.then(|| "has tools that you do not have now".to_owned()))
    }

    /// Returns the list of tools that `session` has now, by its durable records; `None` for all tools. Reads each record
    /// once, because many calls of an answer may ask for the same session.
    pub(crate) fn tools_of(&self, session: SessionId) -> Result<Option<Vec<Text>>, ReadError> {
        let missing = || ReadError::NoSuchSession(session);
        let cache = || self.offers.listed_tools.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache().get(&session).map(|known| ListedTools::clone(known));
        let mut listed = if let Some(known) = known {
            known
        } else {
            let Record::SessionCreated(created) = self.journal.first_record(session)?.record else {
                return Err(missing());
            };
            ListedTools { tools: created.tools, next: Seq(2) }
        };
        let last = self.journal.head(session)?.ok_or_else(missing)?.last_seq;
        if listed.next <= last {
            // Only a call that names tools changes the list, and its child has one from the start.
            if let Some(tools) = &mut listed.tools {
                paging::walk(&self.journal.without_bodies(), session, &mut listed.next, |stored| {
                    if let Record::InputAccepted(input) = &stored.record
                        && !input.is_from_relative()
                        && let Some(changed) = &input.tools
                    {
                        tools.clone_from(changed);
                    }
                    None::<()>
                })?;
            } else {
                listed.next = Seq(u64::MAX);
            }
            let bytes = listed.tools.as_deref().map_or(0, size_of_names);
            cache().insert(session, &Arc::new(listed.clone()), bytes);
        }
        Ok(listed.tools)
    }

    /// Returns what `child` of `parent` may do at most now.
    fn rights_of(&self, parent: SessionId, child: SessionId) -> Result<Authority, ReadError> {
        let Record::SessionCreated(created) = self.journal.first_record(child)?.record else {
            return Err(ReadError::NoSuchSession(child));
        };
        let ancestors = self.ancestor_agents_of(parent)?.unwrap_or_default();
        let ancestors: Vec<Authority> = ancestors.iter().map(|agent| self.current_authority(agent)).collect();
        let ceiling = created.ceiling.body.as_deref().cloned().unwrap_or_else(Authority::allow_all);
        let policy = self.policy.body.as_deref().cloned().unwrap_or_else(Authority::deny_all);
        // Another agent may answer in the child too, so its own manifest does not bound it here.
        Ok(ceiling.effective(&policy, &Authority::allow_all(), &ancestors))
    }
}

/// Returns the message that `most` exceeds `authority`, with the actions.
fn excess_message(most: &Authority, authority: &Authority) -> String {
    let is_wider = |action: &&str| !action.ends_with(':') && most.best(action) > authority.best(action);
    let wider: Vec<&str> = ACTIONS.into_iter().filter(is_wider).collect();
    let named = if wider.is_empty() { String::new() } else { format!(" ({})", wider.join(", ")) };
    format!("may do more than you may now{named}")
}
