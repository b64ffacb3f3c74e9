//! The environment and the model of a session that is opened.

use std::sync::Arc;

use subtend_session::ids::Text;

use crate::runtime::{OpenOptions, OpenSessionError, Runtime};
use crate::spawn::agents::Agents;
use crate::spawn::environments::EnvironmentError;
use crate::values::environment_key::EnvironmentKey;

impl Runtime {
    pub(super) fn environment(&self, options: &OpenOptions) -> Result<Arc<Agents>, OpenSessionError> {
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
