//! The environment and the model of a session that is opened.

use std::sync::Arc;

use subtend_session::ids::Text;
use subtend_session::names;

use crate::runtime::{OpenOptions, OpenSessionError, Runtime};
use crate::spawn::agents::Agents;
use crate::spawn::environments::EnvironmentError;
use crate::values::environment_key::EnvironmentKey;

impl Runtime {
    /// Returns the environment of a new session. Its directory must have a name that an import takes: one session would keep
    /// the whole store from being imported.
    pub(super) fn environment(&self, options: &OpenOptions) -> Result<Arc<Agents>, OpenSessionError> {
        let agents = self.load_environment(options)?;
        names::check_workspace(&agents.workspace_name).map_err(|why| {
            let hint = "no import would take its sessions. Rename the directory, or use another one";
            OpenSessionError::Workspace(format!("{why}: {hint}"))
        })?;
        Ok(agents)
    }

    fn load_environment(&self, options: &OpenOptions) -> Result<Arc<Agents>, OpenSessionError> {
        let environments = &self.components.environments;
        let Some(workspace) = &options.workspace else {
            return environments.open_home().map_err(to_open_error);
        };
        let (model, servers) = (options.model.clone(), options.servers.clone());
        let key = EnvironmentKey { workspace: workspace.clone(), model, opening: true, servers, imported: false };
        environments.open(&key).map_err(|error| {
            let EnvironmentError::Load(why) = error else { return to_open_error(error) };
            // If the environment loads without the model, the model caused the failure.
            let without = EnvironmentKey { model: None, ..key.clone() };
            let is_model = key.model.is_some() && environments.open(&without).is_ok();
            if is_model { OpenSessionError::Model(why) } else { OpenSessionError::Workspace(why) }
        })
    }

    /// Returns why `model` cannot answer in the runtime's own environment. Blocks while the model is created, which is not kept.
    pub fn unusable_model(&self, model: &Text) -> Option<String> {
        let agents = self.components.environments.home();
        if *model == agents.default_model { None } else { agents.models.models.unusable(model) }
    }
}

fn to_open_error(error: EnvironmentError) -> OpenSessionError {
    match error {
        EnvironmentError::Load(why) => OpenSessionError::Workspace(why),
        EnvironmentError::Memory(why) => OpenSessionError::Memory(why),
    }
}
