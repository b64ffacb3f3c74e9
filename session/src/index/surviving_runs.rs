//! Runs that survive a restart of the host although their agents do not resume, because no work was in flight.

use std::collections::{BTreeMap, BTreeSet};

use super::Inflight;
use crate::ids::SessionId;
use crate::state::Phase;

/// Returns the sessions whose runs are parked at a provider's limit, or own such a run and wait for it.
///
/// A run whose owner is neither kept nor resumed still ends with that owner.
pub fn surviving_runs(inflight: &[(SessionId, Inflight)]) -> BTreeSet<SessionId> {
    let rows: BTreeMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
    let mut kept = BTreeSet::new();
    for (session, row) in inflight.iter().filter(|(_, row)| row.limited_until.is_some() && is_waiting(row)) {
        let mut next = Some((*session, row));
        // Stops at a session that was reached before, because a damaged store may contain a cycle.
        while let Some((_, row)) = next.filter(|(session, _)| kept.insert(*session)) {
            let owner = row.owner.run();
            let owner_row = owner.and_then(|owner| rows.get(&owner.session).filter(|row| row.run == owner.run));
            next = owner.zip(owner_row).map(|(owner, row)| (owner.session, *row)).filter(|(_, row)| is_waiting(row));
        }
    }
    kept
}

fn is_waiting(row: &Inflight) -> bool {
    matches!(row.state, Phase::WaitingMidTurn | Phase::WaitingAtRest)
}
