//! Models of one environment, with their known context windows and output caps.

use subtend_models::models::{Member, Models, Route};
use subtend_models::windows::{ByModel, Windows};
use subtend_session::ids::Text;
use subtend_session::limits::Limits;

pub(crate) struct ModelSet {
    pub(crate) models: Models,
    pub(crate) windows: Windows,
    /// Caps on the output tokens of one call, by model.
    pub(crate) caps: ByModel,
}

impl ModelSet {
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
