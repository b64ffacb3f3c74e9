//! Options of a command whose store another process hosts.

use serde_json::{Value, json};
use subtend_session::ids::Text;

use super::super::client::{Attached, ServingProcess};
use super::super::data::StoreLocation;
use super::super::fail::Fail;
use super::super::paint::harmless;
use super::super::trust::Trust;
use super::super::{names, settings, workspace};
use super::choice::Own;
use super::{About, HereArgs, Screen, WorkArgs, found_session, limit, policy};

impl WorkArgs {
    /// Refuses options of the process that has the store; for a session that exists, those of its opening too. A variable that is
    /// exported is a default, and refuses nothing.
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
        ];
        let of_opening = self.models.option().filter(|_| exists);
        match of_process.iter().find_map(|(option, given)| given.then_some(*option)).or(of_opening) {
            Some(option) => Err(Fail::Usage(format!(
                "`{option}`: the store is hosted by process {}, which decides that for its sessions; leave it out",
                serving.pid
            ))),
            None => Ok(()),
        }
    }

    /// Says which exported variables do not count for the session `name`, which another process lets work: it keeps what it was opened
    /// with.
    pub(super) fn unused_variables(&self, place: &StoreLocation, name: &str, screen: &mut Screen) -> Result<(), Fail> {
        if !self.models.has_variables() {
            return Ok(());
        }
        // A host that is gone meanwhile is found out with the command itself.
        let Some(host) = Attached::to(place)? else { return Ok(()) };
        let (pid, journal) = (host.serving.pid, host.journal()?);
        let session = names::find(&journal, name)?;
        let birth = found_session::birth(&journal, session)?;
        let root = journal.head(session)?.map_or(session, |head| head.root);
        let top = found_session::birth(&journal, root)?;
        let own = Own { model: &birth.model, servers: &top.servers, imported: false };
        for variable in self.models.unlike(own) {
            screen.note(&format!(
                "{variable} is not used: process {pid} hosts the store, and the session keeps its model `{}`",
                harmless(&birth.model)
            ));
        }
        Ok(())
    }

    /// The options with which the host of another process opens a session.
    ///
    /// # Errors
    /// [`Fail::Usage`] for what cannot take effect in this workspace.
    pub(super) fn opening(&self, agent: Option<&str>) -> Result<Value, Fail> {
        self.models.no_exported_script()?;
        let workspace = workspace::open(&self.workspace)?;
        let trust = Trust::settle_by_record(&workspace, self.json)?;
        let catalog = trust.catalog(&workspace);
        let config = settings::load(&workspace, trust)?.config;
        policy::read(&self.allow, &self.ask, (&catalog, &config), &workspace)?;
        let agent: Text = match agent {
            Some(agent) => agent.into(),
            None => config.agent,
        };
        Ok(json!({
            "workspace": workspace.path().to_string_lossy(),
            "agent": agent,
            "model": self.models.model_text(),
            "servers": self.models.servers_of_opening(),
            "limits": limit::changes(&self.limit)?,
            "allow": self.allow,
            "ask": self.ask,
        }))
    }
}
