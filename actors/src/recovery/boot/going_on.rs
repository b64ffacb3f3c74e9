//! Runs that go on after a restart of the host: they and all their owners were opened to (`on_restart: resume`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use subtend_journal::ReadError;
use subtend_session::ids::{RunKey, RunNo, SessionId};
use subtend_session::index::Inflight;
use subtend_session::place::{OnRestart, Owner};
use subtend_session::state::{Phase, State};
use subtend_supervision::slots::Class;

use super::{Course, Recovery};
use crate::cell::slots::pool;
use crate::values::at_boot::{AtBoot, Lost};

/// Starts of a run at work without a record in between, after which it is given up: whatever it does first ends its host (V-3).
const STARTS: u32 = 2;

/// How deep each run stands below the run that nobody in flight owns: what is owned stands deeper than its owner, also where a
/// branch of the same depth was asked to go on.
pub(super) fn levels(inflight: &[(SessionId, Inflight)]) -> HashMap<SessionId, u32> {
    let rows: HashMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
    let level = |(session, row): &(SessionId, Inflight)| {
        let mut chain = vec![row];
        // As many owners as there are rows: a damaged store may hold a ring.
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

/// Of the runs in flight that a process has left, those that the next one lets go on, and those that never started and keep
/// their place; the others end as lost. As far as rows tell: a run whose place is gone, or that cannot be read, does not go on.
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

/// The runs that go on, owners first, as far as `admit` has room for them.
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
    for (session, row) in by_level.into_values().flatten() {
        if may_go_on(row, &going) && admit(*session, row)? {
            going.insert(*session, row.run);
        }
    }
    Ok(going)
}

impl Recovery {
    /// Settles what becomes of each run in flight.
    ///
    /// One that goes on has its token, its account and its slot again before anything works, owners first: a run whose owner is
    /// not known here would start cancelled, and what starts anew must not take the places of those that hold theirs (T-3).
    pub(super) fn at_boot(
        &self,
        inflight: &[(SessionId, Inflight)],
        levels: &HashMap<SessionId, u32>,
        at: &mut Course<'_>,
    ) -> Result<HashMap<SessionId, AtBoot>, ReadError> {
        let mut stay = HashSet::new();
        if let Some(session) = self.takeover.only() {
            self.takeover.takes(of_one_owner(inflight, session));
        }
        let going = going(inflight, levels, |session, row| {
            let readmitted = self.readmit(session, row, &mut stay)?;
            // Each is folded, so that many take long. One that stays as it is is done with by that.
            if stay.contains(&session) {
                at.step()
            } else {
                at.tell()
            }
            Ok::<_, ReadError>(readmitted)
        })?;
        let standing = self.standing(inflight)?;
        let of = |session: &SessionId| match going.contains_key(session) {
            true if stay.contains(session) => AtBoot::Stays,
            true => AtBoot::GoesOn,
            false => AtBoot::Lost(Lost { queue_stands: standing.contains(session) }),
        };
        Ok(inflight.iter().map(|(session, _)| (*session, of(session))).collect())
    }

    /// Gives a run back what it held; tells whether it could. One whose place is gone, since the limits are lower now, cannot
    /// go on; one that cannot be read is for the sweep to report.
    fn readmit(&self, session: SessionId, row: &Inflight, stay: &mut HashSet<SessionId>) -> Result<bool, ReadError> {
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
        // One that waits does nothing that could: it may see any number of hosts.
        if row.starts >= STARTS && row.state == Phase::Working {
            self.directory.inbox(session).exhaust(None);
        }
        self.cells.runs().tokens.open(key, run.opened.owner.run());
        self.cells.runs().restore_accounts(&self.cells.environments().of(&state).models.models, key)?;
        if self.takeover.leaves(&state) {
            stay.insert(session);
        }
        Ok(true)
    }
}

/// The session, and those whose runs in flight hang together with its own: up to the one that nobody in flight owns, and all that
/// that one owns.
fn of_one_owner(inflight: &[(SessionId, Inflight)], session: SessionId) -> HashSet<SessionId> {
    let rows: HashMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
    let top = |session: SessionId| {
        let owner = |at: &SessionId| {
            let owner = rows.get(at)?.owner.run()?;
            rows.get(&owner.session).filter(|row| row.run == owner.run).map(|_| owner.session)
        };
        // As many owners as there are rows: a damaged store may hold a ring.
        std::iter::successors(Some(session), owner).take(rows.len()).last()
    };
    let above = top(session);
    let together = rows.keys().copied().filter(|other| top(*other) == above);
    together.chain([session]).collect()
}

/// Whether a run was opened to go on, and its owner goes on too. One that never started has nothing to lose: it keeps its place.
fn may_go_on(row: &Inflight, going: &HashMap<SessionId, RunNo>) -> bool {
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
        // A closing run ends as it was to end.
        Phase::Closing | Phase::Quiet => false,
        Phase::Queued => owned || row.on_restart == OnRestart::Resume,
        Phase::Working
        | Phase::WaitingMidTurn
        | Phase::WaitingAtRest
        | Phase::HeldInterrupted
        | Phase::HeldOutOfTurns => row.on_restart == OnRestart::Resume,
    }
}
