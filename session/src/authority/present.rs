//! What a session may do at present: less, perhaps, than when it was born.

use super::Authority;

impl Authority {
    /// What a session may do at use (P-4): its recorded ceiling, met with the host's policy and the manifest that it goes by,
    /// both as they are now, and with what the sessions above it may do now.
    ///
    /// A ceiling is recorded once, and every ceiling above is met in it: nothing that any of them gains later comes down. What
    /// they lose does not come down by itself: the host may have been started again with less in its policy or in a manifest.
    /// So `above` holds, of each session above, the present manifest of its agent. A ceiling that was recorded since the host
    /// started has all of these in it.
    #[must_use]
    pub fn at_use<'a>(&self, policy: &Self, manifest: &Self, above: impl IntoIterator<Item = &'a Self>) -> Self {
        above.into_iter().fold(self.meet(policy).meet(manifest), |met, one| met.meet(one))
    }
}
