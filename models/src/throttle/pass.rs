//! A right to one call.

use std::fmt;
use std::sync::Arc;

use super::desk::Claim;
use super::shared::Shared;

/// A right to one call. Dropping it gives its places back, and counts the call at its estimate.
#[must_use = "dropping the pass ends the right to the call"]
pub struct Pass {
    /// Taken by the end. Nothing for a call without quotas, or after a close.
    held: Option<Held>,
}

struct Held {
    shared: Arc<Shared>,
    claim: Claim,
}

impl Pass {
    pub(super) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        Self { held: Some(Held { shared, claim }) }
    }

    pub(super) fn of_nothing() -> Self {
        Self { held: None }
    }

    /// Ends the call, which cost so many tokens: gives its places back and corrects what was counted for it.
    pub fn settle(mut self, tokens: u64) {
        self.end(Some(tokens));
    }

    fn end(&mut self, cost: Option<u64>) {
        if let Some(Held { shared, claim }) = self.held.take() {
            shared.at_desk(|desk, now| desk.finish(&claim, cost.unwrap_or(claim.tokens), now));
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("claim", &self.held.as_ref().map(|held| &held.claim)).finish()
    }
}
