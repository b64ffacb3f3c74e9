//! The runs below others, by the owners that their records name.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::RunKey;

/// Returns the runs below each owner for which `is_top` returns true, from pairs of an owned run and its owner. Visits each
/// pair once: an import may bring a long chain of owners, or a cycle.
pub(crate) fn runs_below(
    owners: impl IntoIterator<Item = (RunKey, RunKey)>,
    is_top: impl Fn(&RunKey) -> bool,
) -> BTreeSet<RunKey> {
    let mut owned_by: BTreeMap<RunKey, Vec<RunKey>> = BTreeMap::new();
    for (run, owner) in owners {
        owned_by.entry(owner).or_default().push(run);
    }
    let mut next: Vec<RunKey> = owned_by.keys().copied().filter(is_top).collect();
    let mut below = BTreeSet::new();
    while let Some(owner) = next.pop() {
        let owned = owned_by.remove(&owner).unwrap_or_default();
        below.extend(owned.iter().copied());
        next.extend(owned);
    }
    below
}

#[cfg(test)]
mod tests {
    use subtend_session::ids::{RunNo, SessionId};

    use super::*;

    fn run(n: u128) -> RunKey {
        RunKey { session: SessionId(uuid::Uuid::from_u128(n)), run: RunNo(1) }
    }

    /// Each run of a long cycle or chain is visited once: the square of them would take hours. The control: what is below.
    #[test]
    fn owners_of_a_long_chain_are_visited_once() {
        const RUNS: u128 = 200_000;
        let cycle = || (1..=RUNS).map(|n| (run(n), run(n % RUNS + 1)));
        assert!(runs_below(cycle(), |owner| *owner == run(0)).is_empty());
        assert_eq!(runs_below(cycle(), |owner| *owner == run(7)).len(), RUNS as usize);
        let chain = (1..=RUNS).map(|n| (run(n), run(n - 1)));
        let below = runs_below(chain, |owner| *owner == run(9));
        assert_eq!((below.first(), below.len()), (Some(&run(10)), RUNS as usize - 9));
    }
}
