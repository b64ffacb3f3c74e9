//! Runs that resume after a restart of the host: they and all their owners have `on_restart: resume`, or are parked at a provider's limit
//! and wait for nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use subtend_journal::ReadError;
use subtend_session::ids::{RunKey, RunNo, SessionId};
use subtend_session::index::{Inflight, kept};
use subtend_session::place::{OnRestart, Owner};
use subtend_session::state::{Phase, State};
use subtend_supervision::slots::Class;

use super::{Course, StartRecovery};
use crate::cell::slots::pool;
use crate::values::at_boot::{AtBoot, Lost};

/// Starts of a running run without a new record, after which it fails: what it does first crashes its host (V-3).
const STARTS: u32 = 2;

/// Returns the owner depth of each run: an owned run is deeper than its owner, also where a branch of the same depth was continued.
pub(in crate::recovery) fn levels(inflight: &[(SessionId, Inflight)]) -> HashMap<SessionId, u32> {
    let rows: HashMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
    let level = |(session, row): &(SessionId, Inflight)| {
        let mut chain = vec![row];
        // At most as many owners as rows: a damaged store may hold a cycle.
        while let Some(Owner::Run { session: owner, .. }) = chain.last().map(|row| &row.owner)
            && let Some(above) = rows.get(owner).filter(|_| chain.len() < rows.len())
        {
            chain.push(above);
        }
        let below = |owner: Option<u32>, row: &&Inflight| {
            Some(owner.map_or(row.depth, |owner| row.depth.max(owner.saturating_add(1))))
        };
        (*session, chain.iter().rev().fold(None, below).unwrap_or_default())
    };
    inflight.iter().map(level).collect()
}

/// Returns how the next process handles the runs in flight: resumed, queued, or lost. From rows alone: a run without a slot, or an unreadable
/// one, does not resume.
pub fn at_next_boot(inflight: &[(SessionId, Inflight)]) -> (BTreeSet<SessionId>, BTreeSet<SessionId>) {
    let admitted = going(inflight, &levels(inflight), |_, _| Ok::<_, std::convert::Infallible>(true));
    let goes: BTreeSet<SessionId> = admitted.unwrap_or_default().into_keys().collect();
    let keeps = inflight.iter().filter(|(session, row)| {
        let owned = matches!(row.owner, Owner::Run { .. });
        row.state == Phase::Queued && !owned && !goes.contains(session)
    });
    let keeps = keeps.map(|(session, _)| *session).collect();
    (goes, keeps)
}

/// The resumed runs, owners first, as far as `admit` has room for them.
fn going<E>(
    inflight: &[(SessionId, Inflight)],
    levels: &HashMap<SessionId, u32>,
    mut admit: impl FnMut(SessionId, &Inflight) -> Result<bool, E>,
) -> Result<HashMap<SessionId, RunNo>, E> {
    let mut by_level: BTreeMap<u32, Vec<&(SessionId, Inflight)>> = BTreeMap::new();
    for row in inflight {
        by_level.entry(levels.get(&row.0).copied().unwrap_or_default()).or_default().push(row);
    }
    let mut going = HashMap::new();
    let kept = kept(inflight);
    for (session, row) in by_level.into_values().flatten() {
        if may_go_on(row, &going, kept.contains(session)) && admit(*session, row)? {
            going.insert(*session, row.run);
        }
    }
    Ok(going)
}

impl StartRecovery {
    /// Decides how each run in flight is handled.
    ///
    /// A resumed run gets its token, account and slot before any work starts, owners first: a run with an unknown owner would start cancelled,
    /// and new work must not take a resumed run's slot (T-3).
    pub(super) fn at_boot(
        &self,
        inflight: &[(SessionId, Inflight)],
        levels: &HashMap<SessionId, u32>,
        at: &mut Course<'_>,
    ) -> Result<HashMap<SessionId, AtBoot>, ReadError> {
        let going = going(inflight, levels, |session, row| {
            let readmitted = self.readmit(session, row)?;
            // Each is folded, so many take long. A dormant one needs nothing else.
            if self.takeover.resumes {
                at.tell()
            } else {
                at.step()
            }
            Ok::<_, ReadError>(readmitted)
        })?;
        let standing = self.standing(inflight)?;
        let of = |session: &SessionId| match going.contains_key(session) {
            true if self.takeover.resumes => AtBoot::GoesOn,
            true => AtBoot::Stays,
            false => AtBoot::Lost(Lost { queue_stands: standing.contains(session) }),
        };
        Ok(inflight.iter().map(|(session, _)| (*session, of(session))).collect())
    }

    /// Restores what a run held; returns whether it could. Lower limits may leave no slot, so it cannot resume; an unreadable one is reported by
    /// the sweep.
    fn readmit(&self, session: SessionId, row: &Inflight) -> Result<bool, ReadError> {
        let Ok(stored) = self.log.journal.records(session) else { return Ok(false) };
        let Ok(state) = State::fold(session, stored.iter().map(|stored| &stored.record)) else { return Ok(false) };
        let Some(run) = state.run.as_ref().filter(|run| run.no == row.run) else { return Ok(false) };
        let key = RunKey { session, run: run.no };
        if run.slot {
            let (whose, bound) = pool(&state);
            let root = state.created.place.root(session);
            let Some(slot) = self.cells.runs().slots.of(whose).request(root, key, Class::Resume, bound) else {
                self.cells.runs().slots.withdraw(key);
                return Ok(false);
            };
            self.directory.inbox(session).hold_slot(slot);
        }
        // A waiting run causes no crash: it survives any number of hosts.
        if row.starts >= STARTS && row.state == Phase::Working {
            self.directory.inbox(session).exhaust(None);
        }
        self.cells.runs().tokens.open(key, run.opened.owner.run());
        self.cells.runs().restore_accounts(&self.cells.environments().of(&state).models.models, key)?;
        Ok(true)
    }
}

/// Returns whether a run resumes, and its owner too. One that never started, or is parked at a limit, has nothing to lose.
fn may_go_on(row: &Inflight, going: &HashMap<SessionId, RunNo>, kept: bool) -> bool {
    let owned = match &row.owner {
        Owner::Run { session, run, .. } => {
            if going.get(session) != Some(run) {
                return false;
            }
            true
        }
        Owner::Person | Owner::Host(_) | Owner::Detached { .. } => false,
    };
    match row.state {
        // A closing run ends as decided.
        Phase::Closing | Phase::Quiet => false,
        Phase::Queued => owned || row.on_restart == OnRestart::Resume,
        Phase::WaitingMidTurn | Phase::WaitingAtRest if kept => true,
        Phase::Working
        | Phase::WaitingMidTurn
        | Phase::WaitingAtRest
        | Phase::HeldInterrupted
        | Phase::HeldOutOfTurns => row.on_restart == OnRestart::Resume,
    }
}
