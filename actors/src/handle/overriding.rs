//! Agent overrides: another agent answers from one input on, while the session's own agent and ceiling remain.

use subtend_journal::ReadError;
use subtend_session::authority::Authority;
use subtend_session::ids::Text;
use subtend_session::names::check_line;
use subtend_session::record::{AgentOverride, Record};

use super::{SendError, SessionHandle, Stopped};
use crate::spawn::proposing::lacks_worktree;

impl SessionHandle {
    /// Resolves the agent `name` for an input. Later changes of its manifest do not apply.
    pub(super) async fn resolve_override(&self, name: &Text) -> Result<AgentOverride, SendError> {
        let unreadable = |error: String| SendError::Refused(format!("the session cannot be read: {error}"));
        let settled = self.sessions.log.journal.settled().await;
        settled.map_err(|poison| SendError::Stopped(Stopped::Poisoned(poison.to_string())))?;
        let first = self.sessions.log.journal.first_record(self.id).map_err(|error| match error {
            ReadError::Closed => SendError::Stopped(self.sessions.life.stopped()),
            ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_) => unreadable(error.to_string()),
        })?;
        let Record::SessionCreated(created) = first.record else {
            return Err(unreadable("it has no creation record".to_owned()));
        };
        let agents = self.sessions.environments.of_root(self.root);
        if let Some(why) = &agents.unusable {
            return Err(SendError::BadInput(why.to_string()));
        }
        let found = agents.catalog.get(name).filter(|manifest| manifest.pickable());
        let manifest = found.ok_or_else(|| {
            let pickable: Vec<&str> = agents.catalog.pickable().map(|manifest| &*manifest.name).collect();
            SendError::BadInput(format!("unknown agent `{name}`; agents that can answer: {}", pickable.join(", ")))
        })?;
        if let Some(why) = lacks_worktree(manifest, created.worktree, self.id) {
            return Err(SendError::BadInput(why));
        }
        // If the body of the ceiling is missing, the agent may do nothing.
        let none = Authority::deny_all();
        let ceiling = created.ceiling.body.as_deref().unwrap_or(&none);
        let ceiling = created.imported.as_ref().map_or_else(|| ceiling.clone(), |bound| ceiling.meet(bound));
        let limits = created.limits.body.as_deref().ok_or_else(|| unreadable("it has no limits".to_owned()))?;
        let resolved = agents.override_in_place(manifest, (&created.model, created.source), (&ceiling, limits));
        // Returning to the session's own agent restores its own model, which a host may have set.
        let model = if created.agent == *name { created.model } else { resolved.model };
        check_line("model", &model).map_err(SendError::BadInput)?;
        Ok(AgentOverride { model, ..resolved })
    }
}
