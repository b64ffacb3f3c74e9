//! Limits on the size of permissions, because each call is checked against all rules.

use super::Authority;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the permissions have {rules} rules in {sets} sets, the limits are {} and {}: write fewer, with patterns that match more",
    Authority::MAX_RULES,
    Authority::MAX_SETS
)]
pub struct TooManyRules {
    pub rules: usize,
    pub sets: usize,
}

impl Authority {
    /// Maximum number of rules in all sets of a new or imported session.
    pub const MAX_RULES: usize = 4_096;
    /// Maximum number of rule sets of a new or imported session.
    pub const MAX_SETS: usize = 256;

    /// Checks the number of rules and sets.
    /// # Errors
    /// [`TooManyRules`].
    pub fn check_size(&self) -> Result<(), TooManyRules> {
        let rules = self.sets.iter().map(|set| set.rules.len()).fold(0, usize::saturating_add);
        let sets = self.sets.len();
        if rules > Self::MAX_RULES || sets > Self::MAX_SETS { Err(TooManyRules { rules, sets }) } else { Ok(()) }
    }
}
