//! Checks of options for a store that another process hosts.

use std::path::Path;

use serde_json::{Value, json};
use subtend_session::ids::Text;

use super::super::client::{Attached, ServingProcess};
use super::super::data::StoreLocation;
use super::super::fail::Fail;
use super::super::paint::harmless;
use super::super::trust::Trust;
use super::super::{names, settings, workspace};
use super::choice::RecordedModel;
use super::{CommandSubject, HereArgs, Screen, WorkArgs, found_session, limit, policy};

impl WorkArgs {
    /// Refuses options that only the host process decides, and for an existing session also options that apply when it
    /// is opened. Exported variables are only defaults, so they are not refused.
    pub(super) fn check_options_for_host(
        &self,
        serving: &ServingProcess,
        about: CommandSubject<'_>,
    ) -> Result<(), Fail> {
        let (exists, here) = match about {
            CommandSubject::New(_) => (false, false),
            CommandSubject::Session(_, HereArgs { here }) => (true, here),
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
                "`{option}`: the store is hosted by process {}, whose options apply; omit this one",
                serving.pid
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a directory other than that of the existing session `name`: the host runs it in its own directory.
    pub(super) fn check_workspace(&self, place: &StoreLocation, name: &str) -> Result<(), Fail> {
        let Some(named) = &self.workspace else { return Ok(()) };
        // If the host has ended meanwhile, nothing is checked here, and the command itself reports it.
        let Some(host) = Attached::to(place)? else { return Ok(()) };
        let (pid, journal) = (host.serving.pid, host.journal()?);
        let session = names::find(&journal, name)?;
        let creation = found_session::creation(&journal, session)?;
        let home = Path::new(&*creation.workspace);
        if found_session::is_same(home, workspace::open(named)?.path()) {
            return Ok(());
        }
        Err(Fail::Usage(format!(
            "`--workspace {}`: the store is hosted by process {}, which runs session {} in {}; omit this option",
            named.display(),
            pid,
            session.short().0,
            home.display()
        )))
    }

    /// Notes exported variables that have no effect on the existing session `name`, which keeps its recorded model.
    pub(super) fn note_unused_variables(
        &self,
        place: &StoreLocation,
        name: &str,
        screen: &mut Screen,
    ) -> Result<(), Fail> {
        if !self.models.has_variables() {
            return Ok(());
        }
        // If the host has ended meanwhile, nothing is checked here, and the command itself reports it.
        let Some(host) = Attached::to(place)? else { return Ok(()) };
        let (pid, journal) = (host.serving.pid, host.journal()?);
        let session = names::find(&journal, name)?;
        let creation = found_session::creation(&journal, session)?;
        let root = journal.head(session)?.map_or(session, |head| head.root);
        let top = found_session::creation(&journal, root)?;
        let own = RecordedModel { model: &creation.model, servers: &top.servers, imported: false };
        for variable in self.models.differing_variables(own) {
            screen.note(&format!(
                "{variable} is not used: process {pid} hosts the store, and the session keeps its model `{}`",
                harmless(&creation.model)
            ));
        }
        Ok(())
    }

    /// Returns the request body with which another process opens a session.
    ///
    /// # Errors
    /// [`Fail::Usage`] for options that have no effect in this workspace.
    pub(super) fn opening(&self, agent: Option<&str>) -> Result<Value, Fail> {
        self.models.check_no_exported_script()?;
        let workspace = workspace::open(self.directory())?;
        let trust = Trust::decide_by_record_or_ask(&workspace, self.json)?;
        let catalog = trust.catalog(&workspace)?;
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
