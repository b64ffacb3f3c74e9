//! Runs that a restart of the host keeps although their agents do not resume: nothing of them was in flight.

use std::collections::{BTreeMap, BTreeSet};

use super::Inflight;
use crate::ids::SessionId;
use crate::state::Phase;

/// Returns the sessions whose runs are parked at a provider's limit, or only wait for such a run that they own.
///
/// A run whose owner is neither kept nor resumed still ends with that owner.
pub fn kept(inflight: &[(SessionId, Inflight)]) -> BTreeSet<SessionId> {
    let rows: BTreeMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
    let mut kept = BTreeSet::new();
    for (session, row) in inflight.iter().filter(|(_, row)| row.limited_until.is_some() && waits(row)) {
        let mut next = Some((*session, row));
        // Stops at a session that was reached before: a damaged store may hold a cycle.
        while let Some((_, row)) = next.filter(|(session, _)| kept.insert(*session)) {
            let owner = row.owner.run();
            let above = owner.and_then(|owner| rows.get(&owner.session).filter(|row| row.run == owner.run));
            next = owner.zip(above).map(|(owner, row)| (owner.session, *row)).filter(|(_, row)| waits(row));
        }
    }
    kept
}

fn waits(row: &Inflight) -> bool {
    matches!(row.state, Phase::WaitingMidTurn | Phase::WaitingAtRest)
}
