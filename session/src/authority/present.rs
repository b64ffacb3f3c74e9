//! The current authority of a session, which may be less than at its creation.

use super::Authority;

impl Authority {
    /// Returns the authority that applies now: the meet of the recorded ceiling, the current policy of the host, and the
    /// current manifests of the session and its ancestors.
    ///
    /// A ceiling is recorded once and includes those of all ancestors. A policy or manifest that a restart made
    /// narrower takes effect only through this meet. A ceiling recorded since the host started already includes all of
    /// these.
    #[must_use]
    pub fn effective<'a>(&self, policy: &Self, manifest: &Self, ancestors: impl IntoIterator<Item = &'a Self>) -> Self {
        ancestors.into_iter().fold(self.meet(policy).meet(manifest), |met, one| met.meet(one))
    }
}
