//! Options of a command whose store another process hosts.

use serde_json::{Value, json};
use subtend_session::ids::Text;

use super::super::client::ServingProcess;
use super::super::fail::Fail;
use super::super::trust::Trust;
use super::super::{settings, workspace};
use super::{About, HereArgs, WorkArgs, limit, policy};

impl WorkArgs {
    /// Refuses options of the process that has the store; for a session that exists, those of its opening too.
    pub(super) fn through(&self, serving: &ServingProcess, about: About<'_>) -> Result<(), Fail> {
        let (exists, here) = match about {
            About::New(_) => (false, false),
            About::Session(_, HereArgs { here }) => (true, here),
        };
        let of_process = [
            ("--host", !self.host.is_empty()),
            ("--price", !self.price.is_empty()),
            ("--trust", self.trust),
            ("--calls", self.models.limits_calls()),
            ("--here", here),
            ("--model (or SUBTEND_MODEL)", exists && self.models.is_given()),
            ("--base-url (or SUBTEND_BASE_URL)", exists && !self.models.servers().is_empty()),
        ];
        match of_process.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Fail::Usage(format!(
                "`{option}`: the store is hosted by process {}, which decides that for its sessions; leave it out",
                serving.pid
            ))),
            None => Ok(()),
        }
    }

    /// What a session is opened with in the host of another process: the options of this command.
    ///
    /// # Errors
    /// [`Fail::Usage`] for what cannot take effect in this workspace.
    pub(super) fn opening(&self, agent: Option<&str>) -> Result<Value, Fail> {
        let workspace = workspace::open(&self.workspace)?;
        let trust = Trust::settle_by_record(&workspace, self.json)?;
        let catalog = trust.catalog(&workspace);
        policy::read(&self.allow, &self.ask, &catalog, &workspace)?;
        let agent: Text = match agent {
            Some(agent) => agent.into(),
            None => settings::load(&workspace, trust)?.config.agent,
        };
        Ok(json!({
            "workspace": workspace.path().to_string_lossy(),
            "agent": agent,
            "model": self.models.words(),
            "servers": self.models.servers(),
            "limits": limit::changes(&self.limit)?,
            "allow": self.allow,
            "ask": self.ask,
        }))
    }
}
