//! Models of one environment, with their known context windows and output caps.

use std::collections::HashMap;
use std::sync::Arc;

use subtend_models::closure::fn_model;
use subtend_models::model::ModelError;
use subtend_models::models::{Member, Models, Route};
use subtend_models::windows::{ByModel, Windows};
use subtend_session::ids::Text;
use subtend_session::limits::Limits;
use subtend_session::outcome::ModelFail;

/// The name of the model of an environment that cannot be loaded. No model of a provider has such a name.
const NO_MODEL: &str = "no model";

pub(crate) struct ModelSet {
    pub(crate) models: Models,
    pub(crate) windows: Windows,
    /// Caps on the output tokens of one call, by model.
    pub(crate) caps: ByModel,
}

impl ModelSet {
    /// Returns a set without models: the model of each name fails with `why`. It has no quotas, since its sessions must not
    /// pause models of others. Its calls count as leaving the process: the environment may be loaded
    /// before the call, and then that must be in the log. A call in flight counts at the highest price.
    pub(crate) fn unusable(why: &str) -> Self {
        let why: Text = why.into();
        let fails = move |_, _| {
            let error = ModelError::new(ModelFail::InvalidRequest, &*why);
            std::future::ready(Err(error))
        };
        let model = fn_model(NO_MODEL, fails).with_leaves_process(true);
        let models = Models::new(HashMap::new(), None, Arc::new(model));
        Self { models, windows: Windows::default(), caps: ByModel::default() }
    }

    /// Returns the context window of `model`; for a pool the smallest, since any member may answer.
    pub(crate) fn window(&self, model: &Text) -> Option<u64> {
        let of = |member: &Member| self.windows.named(&member.name).or_else(|| member.model.context_window());
        self.windows.named(model).or_else(|| match self.models.route(model) {
            Route::One(member) => of(&member),
            Route::Pool(members) => members.iter().filter_map(of).min(),
        })
    }

    /// Returns whether `limits` compact at a share of the context window, but the window of `model` is unknown.
    pub(crate) fn lacks_window(&self, limits: &Limits, model: &Text) -> bool {
        limits.configured_share().is_some() && self.window(model).is_none()
    }
}

impl std::fmt::Debug for ModelSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelSet").field("models", &self.models).finish_non_exhaustive()
    }
}
