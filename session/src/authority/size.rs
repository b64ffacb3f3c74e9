//! Limits on the size of permissions, because each call is checked against all rules.

use super::{ActionSet, Authority, pattern};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the permissions have {rules} rules in {sets} sets, the limits are {} and {}, patterns of {bytes} bytes, the limit is {}, and a \
     path pattern of {parts} parts, the limit is {}: write fewer, with patterns that match more",
    Authority::MAX_RULES,
    Authority::MAX_SETS,
    Authority::MAX_BYTES,
    Authority::MAX_PATTERN_PARTS
)]
pub struct TooManyRules {
    pub rules: usize,
    pub sets: usize,
    /// Bytes of the actions and resources of all rules.
    pub bytes: usize,
    /// Parts of the longest path pattern.
    pub parts: usize,
}

/// The actions whose resources are paths.
const PATHS: ActionSet<'_> = ActionSet::Prefix("fs.");

impl Authority {
    /// Maximum number of rules in all sets of a new or imported session.
    pub const MAX_RULES: usize = 4_096;
    /// Maximum number of rule sets of a new or imported session.
    pub const MAX_SETS: usize = 256;
    /// Maximum bytes of the actions and resources of all rules of a new or imported session.
    pub const MAX_BYTES: usize = 1 << 20;
    /// Maximum number of parts between `/` of a path pattern of a new or imported session.
    pub const MAX_PATTERN_PARTS: usize = 128;
    /// Maximum number of parts of a path. Longer paths are denied, whatever the rules say.
    pub const MAX_PATH_PARTS: usize = 256;

    /// Returns the bytes of the actions and resources of all rules.
    pub fn bytes(&self) -> usize {
        let rules = self.sets.iter().flat_map(|set| &set.rules);
        rules.flat_map(|rule| [rule.action.len(), rule.resource.len()]).fold(0, usize::saturating_add)
    }

    /// Returns the number of rules in all sets.
    pub(crate) fn rules(&self) -> u64 {
        self.sets.iter().map(|set| set.rules.len() as u64).fold(0, u64::saturating_add)
    }

    /// Checks the number of rules and sets, and the bytes and parts of their patterns.
    /// # Errors
    /// [`TooManyRules`].
    pub fn check_size(&self) -> Result<(), TooManyRules> {
        let rules = self.sets.iter().map(|set| set.rules.len()).sum();
        let sets = self.sets.len();
        let bytes = self.bytes();
        let paths = self.sets.iter().flat_map(|set| &set.rules).filter(|rule| PATHS.some_match(&rule.action));
        let parts = paths.map(|rule| pattern::count_parts(&rule.resource)).max().unwrap_or(0);
        let fits = rules <= Self::MAX_RULES && sets <= Self::MAX_SETS && bytes <= Self::MAX_BYTES;
        let fits = fits && parts <= Self::MAX_PATTERN_PARTS;
        if fits { Ok(()) } else { Err(TooManyRules { rules, sets, bytes, parts }) }
    }
}
