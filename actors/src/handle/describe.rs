//! Title, summary and metadata of a session.

use std::sync::Arc;

use serde_json::{Map, Value};
use subtend_session::command::{Command, Description};
use subtend_session::ids::Text;
use subtend_session::outcome::Initiator;
use subtend_session::record::{SummarySet, TitleSet};
use subtend_session::values::parse_recorded;

use super::{ControlError, SessionHandle};
use crate::services::running::ServiceKind;
use crate::services::service_prompts;

impl SessionHandle {
    /// Sets the title, replacing any other. The host's own titles (`Options::titles`) do not replace it.
    /// # Errors
    /// [`ControlError::Refused`] if it is empty, has more than one line, or more than 200 characters.
    /// # Cancel safety
    /// If the future is dropped, the title may or may not have been set; a repetition changes nothing.
    pub async fn set_title(&self, title: impl Into<Text>) -> Result<(), ControlError> {
        let set = TitleSet { title: title.into(), by: Initiator::Person, of: None };
        self.order(Command::Describe(Box::new(Description::Title(set)))).await.map(drop)
    }

    /// Merges `changes`, a JSON object, into the session's metadata: each key replaces the existing one, and null removes it.
    ///
    /// ```
    /// # async fn example(session: subtend_actors::SessionHandle) -> Result<(), subtend_actors::ControlError> {
    /// session.merge_metadata(serde_json::json!({ "ticket": 7, "reviewer": "kim" })).await?;
    /// let merged = session.merge_metadata(serde_json::json!({ "ticket": 8, "reviewer": null })).await?;
    /// assert_eq!(merged.get("ticket"), Some(&8.into()));
    /// # Ok(())
    /// # }
    /// ```
    /// # Errors
    /// [`ControlError::Refused`] if `changes` is not an object, the session was opened with metadata that is not an object, the
    /// result has more than 64 KiB or 10,000 values, or all results so far have 16 MiB.
    /// # Cancel safety
    /// If the future is dropped, the changes may or may not have been merged. A repeated merge changes nothing.
    /// # Durability
    /// The merged metadata is durable when it is returned.
    pub async fn merge_metadata(&self, changes: Value) -> Result<Map<String, Value>, ControlError> {
        let description = Description::Metadata { changes: changes.to_string().into(), by: Initiator::Person };
        self.order(Command::Describe(Box::new(description))).await?;
        // From the memory of the actor, because the records may be many.
        metadata_of(self.probe().await.map_err(ControlError::Stopped)?.metadata.as_deref())
    }

    /// Returns the session's metadata: set by the host at the opening, with later merges; empty by default.
    /// # Errors
    /// [`ControlError::Refused`] if the session was opened with metadata that is not a JSON object.
    pub async fn metadata(&self) -> Result<Map<String, Value>, ControlError> {
        metadata_of(self.state().await?.metadata().map(|text| &**text))
    }

    /// Returns the latest summary of the session, if any.
    /// # Errors
    /// [`ControlError`] if the session cannot be read.
    pub async fn summary(&self) -> Result<Option<Arc<SummarySet>>, ControlError> {
        Ok(self.state().await?.summary)
    }

    /// Returns whether the summary covers all messages.
    /// # Errors
    /// As [`SessionHandle::summary`].
    pub async fn is_summary_current(&self) -> Result<bool, ControlError> {
        Ok(service_prompts::is_summarised(&self.state().await?))
    }

    /// Lets the agent `summary` summarise the session, and waits for the result. The service session below this one takes no slot, and a run in
    /// flight continues. If a summary is already in progress, this waits for it.
    /// # Errors
    /// [`ControlError::Refused`] if there are no messages yet, or if the service produced no summary; the previous one remains.
    /// # Cancel safety
    /// Dropping the future does not stop the summary: it is recorded when it arrives.
    pub async fn summarise(&self) -> Result<Text, ControlError> {
        let refused = |why: &str| ControlError::Refused(format!("cannot summarise the session: {why}"));
        // Read before the check for a running service, whose summary counts as new.
        let before = self.summary().await?.map(|set| set.of);
        let Some(guard) = self.sessions.services.begin(self.id, ServiceKind::Summary) else {
            self.services_done().await;
            let newer = self.summary().await?.filter(|set| Some(set.of) != before);
            return newer.map(|set| Arc::clone(&set.text)).ok_or_else(|| refused("the summary service failed"));
        };
        let session = self.clone();
        let task = self.sessions.life.tasks.spawn(async move { session.write_summary(false, &guard).await });
        match task.await {
            Ok(Ok(Some(text))) => Ok(text),
            Ok(Ok(None)) => Err(refused("it has no messages yet")),
            Ok(Err(error)) => Err(refused(&error.to_string())),
            Err(_) => Err(ControlError::Stopped(self.sessions.life.stopped())),
        }
    }

    /// Waits until no service is working for the session: its title and summary are set or have failed.
    pub async fn services_done(&self) {
        self.sessions.services.done(Some(self.id)).await;
    }

    /// Starts the summary of a closed session, if the host's options ask for it and there are new messages.
    pub(super) fn summarise_closed(&self) {
        if !self.sessions.host.options.summaries || self.id != self.root {
            return;
        }
        let Some(guard) = self.sessions.services.begin(self.id, ServiceKind::Summary) else { return };
        let session = self.clone();
        self.sessions.life.tasks.spawn(async move {
            if let Err(error) = session.write_summary(true, &guard).await {
                tracing::warn!(session = %session.id, %error, "cannot summarise the closed session");
            }
        });
    }
}

fn metadata_of(text: Option<&str>) -> Result<Map<String, Value>, ControlError> {
    let Some(text) = text else { return Ok(Map::new()) };
    parse_recorded(text)
        .map_err(|error| ControlError::Refused(format!("the session's metadata is not a JSON object: {error}")))
}
