//! The authority of a session at present, which may be less than at its birth.

use super::Authority;

impl Authority {
    /// Returns the authority at use: the recorded ceiling, met with the host's present policy, the session's present
    /// manifest and the present manifests of its ancestors.
    ///
    /// A ceiling is recorded once with all ceilings above it. A restart with a narrower policy or manifest narrows it
    /// only through this meet. A ceiling recorded since the host started already includes all of these.
    #[must_use]
    pub fn at_use<'a>(&self, policy: &Self, manifest: &Self, above: impl IntoIterator<Item = &'a Self>) -> Self {
        above.into_iter().fold(self.meet(policy).meet(manifest), |met, one| met.meet(one))
    }
}
