//! Runs that resume after a restart of the host.
//! A run resumes if it and all its owners have `on_restart: resume`, or are parked at a provider's limit and wait for
//! nothing else. No run of an imported session resumes, because its export may hold approvals that no approver of this
//! store gave.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{RunKey, RunNo, SessionId};
use subtend_session::index::{Inflight, surviving_runs};
use subtend_session::place::{OnRestart, Owner};
use subtend_session::record::Record;
use subtend_session::state::{Phase, State};
use subtend_supervision::slots::Class;

use super::{BootSteps, StartRecovery};
use crate::cell::slots::pool;
use crate::values::at_boot::{AtBoot, Lost};

/// Maximum number of starts of a running run without a new record. Then it fails: its first step crashes its host.
const MAX_STARTS: u32 = 2;

/// Returns the owner depth of each run: an owned run is deeper than its owner, even in a branch of the same depth.
/// Each row is visited once: an import may bring a long chain of owners.
pub(in crate::recovery) fn levels(inflight: &[(SessionId, Inflight)]) -> HashMap<SessionId, u32> {
    let rows: HashMap<SessionId, &Inflight> = inflight.iter().map(|(session, row)| (*session, row)).collect();
    let mut levels: HashMap<SessionId, u32> = HashMap::with_capacity(rows.len());
    for (session, _) in inflight {
        let (mut chain, mut next) = (Vec::new(), Some(*session));
        // A damaged store may hold a cycle, so level 0 marks the rows of the current chain until their level is known.
        while let Some((session, row)) = next.and_then(|session| Some((session, rows.get(&session)?)))
            && !levels.contains_key(&session)
        {
            levels.insert(session, 0);
            chain.push((session, row.depth));
            next = row.owner.run().map(|owner| owner.session);
        }
        let mut above = next.and_then(|owner| levels.get(&owner).copied());
        for (session, depth) in chain.into_iter().rev() {
            let level = above.map_or(depth, |above| depth.max(above.saturating_add(1)));
            levels.insert(session, level);
            above = Some(level);
        }
    }
    levels
}

/// Returns the runs in flight that the next start resumes, and those that remain queued. The start ends all others as
/// lost. A run that gets no slot or cannot be read does not resume, which only the start can tell.
/// # Errors
/// If the rows of the runs in flight cannot be read.
pub fn preview_recovery(journal: &Journal) -> Result<(BTreeSet<SessionId>, BTreeSet<SessionId>), ReadError> {
    let inflight = journal.inflight()?;
    let admit = |session, _: &Inflight| Ok::<_, ReadError>(!is_imported(journal, session));
    let resumes: BTreeSet<SessionId> = resuming_runs(&inflight, &levels(&inflight), admit)?.into_keys().collect();
    let queued = inflight.iter().filter(|(session, row)| {
        let owned = matches!(row.owner, Owner::Run { .. });
        row.state == Phase::Queued && !owned && !resumes.contains(session) && !is_imported(journal, *session)
    });
    let queued = queued.map(|(session, _)| *session).collect();
    Ok((resumes, queued))
}

/// Returns whether a session was imported. An unreadable session is reported elsewhere.
fn is_imported(journal: &Journal, session: SessionId) -> bool {
    let first = journal.without_bodies().first_record(session);
    first.is_ok_and(|stored| matches!(stored.record, Record::SessionCreated(created) if created.imported.is_some()))
}

/// Returns the resumed runs, owners first, as far as `admit` accepts them.
fn resuming_runs<E>(
    inflight: &[(SessionId, Inflight)],
    levels: &HashMap<SessionId, u32>,
    mut admit: impl FnMut(SessionId, &Inflight) -> Result<bool, E>,
) -> Result<HashMap<SessionId, RunNo>, E> {
    let mut by_level: BTreeMap<u32, Vec<&(SessionId, Inflight)>> = BTreeMap::new();
    for row in inflight {
        by_level.entry(levels.get(&row.0).copied().unwrap_or_default()).or_default().push(row);
    }
    let mut resuming_runs = HashMap::new();
    let surviving_runs = surviving_runs(inflight);
    for (session, row) in by_level.into_values().flatten() {
        if may_resume(row, &resuming_runs, surviving_runs.contains(session)) && admit(*session, row)? {
            resuming_runs.insert(*session, row.run);
        }
    }
    Ok(resuming_runs)
}

impl StartRecovery {
    /// Decides how each run in flight is handled.
    /// A resumed run gets its token, account and slot before any work starts, owners first: a run with an unknown owner
    /// would start cancelled, and new work must not take the slot of a resumed run.
    pub(super) fn plan_recovery(
        &self,
        inflight: &[(SessionId, Inflight)],
        levels: &HashMap<SessionId, u32>,
        at: &mut BootSteps<'_>,
    ) -> Result<HashMap<SessionId, AtBoot>, ReadError> {
        let resuming_runs = resuming_runs(inflight, levels, |session, row| {
            let readmitted = self.readmit(session, row)?;
            // A resumed run is counted at its activation; a dormant one now, because nothing else is done for it.
            if self.takeover.resumes {
                at.report()
            } else {
                at.step()
            }
            Ok::<_, ReadError>(readmitted)
        })?;
        let in_cancelled_trees = self.runs_in_cancelled_trees(inflight)?;
        let decision = |session: &SessionId| match resuming_runs.contains_key(session) {
            true if self.takeover.resumes => AtBoot::Resumes,
            true => AtBoot::Dormant,
            false => AtBoot::Lost(Lost { keeps_queue: in_cancelled_trees.contains(session) }),
        };
        Ok(inflight.iter().map(|(session, _)| (*session, decision(session))).collect())
    }

    /// Restores the resources of a run; returns whether that succeeded. With lower limits there may be no slot, so the
    /// run cannot resume. The sweep reports an unreadable one.
    fn readmit(&self, session: SessionId, row: &Inflight) -> Result<bool, ReadError> {
        let Ok(stored) = self.log.journal.records(session) else { return Ok(false) };
        let Ok(state) = State::fold(session, stored.iter().map(|stored| &stored.record)) else { return Ok(false) };
        let resumes = |no: RunNo| no == row.run && state.created.imported.is_none();
        let Some(run) = state.run.as_ref().filter(|run| resumes(run.no)) else { return Ok(false) };
        let key = RunKey { session, run: run.no };
        if run.slot {
            let (pool_kind, bound) = pool(&state);
            let root = state.created.place.root(session);
            let Some(slot) = self.cells.runs().slots.of(pool_kind).request(root, key, Class::Resume, bound) else {
                self.cells.runs().slots.withdraw(key);
                return Ok(false);
            };
            self.directory.inbox(session).hold_slot(slot);
        }
        // A waiting run cannot have caused the crash, so it resumes after any number of crashes.
        if row.starts >= MAX_STARTS && row.state == Phase::Working {
            self.directory.inbox(session).exhaust(None);
        }
        self.cells.runs().tokens.open(key, run.opened.owner.run());
        self.cells.runs().restore_accounts(&self.cells.environments().of(&state).models.models, key)?;
        Ok(true)
    }
}

/// Returns whether a run resumes. A run that never started, or is parked at a limit, has no work to lose.
fn may_resume(row: &Inflight, resuming_runs: &HashMap<SessionId, RunNo>, survives: bool) -> bool {
    let owned = match &row.owner {
        Owner::Run { session, run, .. } => {
            if resuming_runs.get(session) != Some(run) {
                return false;
            }
            true
        }
        Owner::Person | Owner::Host(_) | Owner::Detached { .. } => false,
    };
    match row.state {
        // A closing run ends with its decided outcome.
        Phase::Closing | Phase::Quiet => false,
        Phase::Queued => owned || row.on_restart == OnRestart::Resume,
        Phase::WaitingMidTurn | Phase::WaitingAtRest if survives => true,
        Phase::Working
        | Phase::WaitingMidTurn
        | Phase::WaitingAtRest
        | Phase::HeldInterrupted
        | Phase::HeldOutOfTurns => row.on_restart == OnRestart::Resume,
    }
}
